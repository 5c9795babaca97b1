"""The words of a CAMP run in the terminal."""

from typing import Any

from onepo.report.words import duration, figure


class CampLines:
    """Implements ``onepo.report.console.Lines``."""

    def plan(self, event: dict[str, Any]) -> str:
        domains = event["domains"]
        return (
            f"{event['episodes']} scheduled episodes of {len(domains)} domain(s) ({', '.join(domains)}), "
            f"{event['train_batch_size']} for an update; the final update is {event['final_step']} "
            f"(from {event['ends_by']})"
        )

    def step(self, metrics: dict[str, Any], seconds: list[float]) -> str:
        step, final = metrics["step"], metrics["final_step"]
        recent = seconds[-20:]
        left = (final - step) * sum(recent) / len(recent)
        names = [name.split("/")[1] for name in metrics if name.startswith("domain/") and name.endswith("/reward")]
        rewards = "  ".join(f"{name} {figure(metrics, f'domain/{name}/reward', '.2f')}" for name in sorted(names))
        return (
            f"update {step:>{len(str(final))}}/{final}"
            f"  reward {figure(metrics, 'episodes/reward', '.3f')} ({rewards})"
            f"  limits {figure(metrics, 'episodes/limit_rate', '.0%')}"
            f"  stale {figure(metrics, 'staleness/mean', '.1f')}"
            + (f"  distance {figure(metrics, 'distillation/kl', '.3f')}" if "distillation/kl" in metrics else "")
            + (f"  unscored {metrics['distillation/unscored']}" if metrics.get("distillation/unscored") else "")
            + (f"  explained {figure(metrics, 'critic/vf_explained_var', '.2f')}" if _has_critic(metrics) else "")
            + (f"  retried {metrics['episodes/retried']}" if metrics.get("episodes/retried") else "")
            + f"  {seconds[-1]:.1f} s"
            f"  left {duration(left)}"
        )

    def validation(self, metrics: dict[str, Any]) -> str:
        return f"  validation after update {metrics['step']}"

    def progress(self, step: int, plan: dict[str, Any], live: dict[str, Any] | None, seconds: float) -> str:
        if live is None:
            return f"update {step}: {seconds:.0f} s"
        scoring = f", {live['at_teacher']} at the teacher" if live.get("at_teacher") else ""
        retried = f", {live['retried']} begun anew" if live["retried"] else ""
        return (
            f"update {step}: {live['finished']} episodes finished since the last one, {live['under_way']} under way"
            f"{scoring}{retried}, {seconds:.0f} s"
        )


def _has_critic(metrics: dict[str, Any]) -> bool:
    return "critic/vf_loss" in metrics
