"""The words of a OnePO run in the terminal."""

from typing import Any

from onepo.report.words import duration, figure


class OnePOLines:
    """Implements ``onepo.report.console.Lines``."""

    def plan(self, event: dict[str, Any]) -> str:
        return (
            f"{event['train_prompts']} training prompts, {event['with_teacher']} of them with a teacher response, and "
            f"{event['val_prompts']} validation prompts"
            + (f" ({event['left_out']} over MAX_PROMPT_LENGTH left out)" if event["left_out"] else "")
            + f"; the final step is {event['final_step']} "
            f"(from {event['ends_by']}; {event['steps_per_epoch']} steps an epoch)"
        )

    def step(self, metrics: dict[str, Any], seconds: list[float]) -> str:
        """One line for a finished step; ``seconds`` are the durations of the steps so far."""
        step, final = metrics["step"], metrics["final_step"]
        recent = seconds[-20:]
        left = (final - step) * sum(recent) / len(recent)
        teacher = metrics.get("onepo/teacher_enabled", 1)
        return (
            f"step {step:>{len(str(final))}}/{final}"
            f"  reward {figure(metrics, 'reward/score', '.3f')}"
            f"  acc {figure(metrics, 'onepo/student_acc', '.3f')}"
            + (f"  retired {figure(metrics, 'onepo/retirement_rate', '.2f')}" if teacher else "  teacher off")
            + f"  floored {figure(metrics, 'onepo/floored_tokens', '.0f')}"
            f"  length {figure(metrics, 'response_length/mean', '.0f')}"
            + (f"  no teacher {metrics['onepo/teacher_failures']}" if metrics.get("onepo/teacher_failures") else "")
            + (f"  ungraded {metrics['reward/failed']}" if metrics.get("reward/failed") else "")
            + f"  {seconds[-1]:.1f} s"
            f"  left {duration(left)}"
        )

    def validation(self, metrics: dict[str, Any]) -> str:
        """One line for a validation; answers whose grading failed are no part of its accuracy."""
        failed = metrics.get("validation/failed_gradings", 0)
        left_out = f" ({failed} of {metrics['validation/gradings']} gradings failed and are left out)" if failed else ""
        return (
            f"  validation after step {metrics['step']}: accuracy {figure(metrics, 'validation/acc', '.3f')}{left_out}"
        )

    def progress(self, step: int, plan: dict[str, Any], live: dict[str, Any] | None, seconds: float) -> str:
        """What a running step is doing."""
        if live is None:
            return f"step {step}: {seconds:.0f} s"
        signals = live["signals"]
        done = sum(signals.values())
        ungraded, failed = signals.get("ungraded", 0), signals.get("failed", 0)
        equal = done - signals.get("mixed", 0) - ungraded - failed
        lost = (f", {ungraded} ungraded" if ungraded else "") + (f", {failed} with a failure" if failed else "")
        return (
            f"step {step}: {done} groups scored for a batch of {plan['train_batch_size']} "
            f"({equal} of equal rewards{lost}), "
            f"{live.get('generating', 0)} responses generating, {live.get('grading', 0)} waiting for grading, "
            + (f"{live['asking']} questions to the teacher, " if live.get("asking") else "")
            + f"{seconds:.0f} s"
        )
