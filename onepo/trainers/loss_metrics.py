"""What the loss counted, for the whole step. Pure."""

PREFIX = "actor/onepo/"


def step_metrics(metrics: dict[str, float], *, averaged_over: float) -> dict[str, float]:
    """The step's figures from the token sums of its parts, which are taken out of ``metrics``.

    Args:
        metrics: verl's, among them the means of our sums over ranks and mini-batches, under ``PREFIX``.
        averaged_over: how many parts that were: mini-batches times ranks.
    """
    names = [name for name in metrics if name.startswith(PREFIX)]
    sums = {name.removeprefix(PREFIX): metrics.pop(name) * averaged_over for name in names}
    teacher, rescaled = sums["teacher_tokens"], sums["rescaled_tokens"]
    tokens = max(sums["response_tokens"], 1)
    students = max(tokens - teacher, 1)
    return {
        "onepo/teacher_tokens": teacher,
        "onepo/teacher_token_fraction": teacher / tokens,
        "onepo/floored_tokens": sums["floored_tokens"],
        "onepo/rescaled_tokens": rescaled,
        "onepo/rescaled_token_fraction": rescaled / teacher if teacher else 0.0,
        "onepo/rescale_mean": sums["rescale_sum"] / rescaled if rescaled else 1.0,
        "actor/pg_clipfrac": sums["clipped_tokens"] / tokens,
        "actor/pg_clipfrac_lower": sums["lower_clipped_tokens"] / tokens,
        "actor/ppo_kl": sums["approx_kl_sum"] / students,
    }
