"""What a teacher's scores say, in figures. Pure."""

import math
from collections.abc import Sequence
from statistics import fmean

import torch
from torch import Tensor

_QUANTILES = {"p05": 0.05, "p50": 0.5, "p95": 0.95}
_NEAR, _SPREAD = 0.15, 0.2  # of ln(vocabulary)


def k1_metrics(k1: Tensor, *, loss_max_clamp: float | None) -> dict[str, float]:
    """How far the student is from the teacher: 0 when they agree, positive when the student is surer of itself.

    Args:
        k1: [N], log-probability of sampled tokens under the student minus that under the teacher.
        loss_max_clamp: where the loss cuts ``k1`` off, None: nowhere.
    """
    if not len(k1):
        return {}
    found = {"distillation/kl": k1.mean().item(), "distillation/tokens": len(k1)}
    quantiles = torch.quantile(k1, torch.tensor(list(_QUANTILES.values()), dtype=k1.dtype))
    found |= {f"distillation/k1_{name}": value.item() for name, value in zip(_QUANTILES, quantiles, strict=True)}
    if loss_max_clamp is not None:
        found["distillation/cut_share"] = (k1.abs() > loss_max_clamp).double().mean().item()
    return found


def teacher_metrics(scored: Sequence[tuple[float, float, int]]) -> dict[str, float]:
    """How fast the teacher was.

    Args:
        scored: of each episode when its scoring began and ended, in seconds of one clock, and its tokens.
    """
    waits = [ended - began for began, ended, _ in scored]
    busy, until = 0.0, -math.inf  # while at least one of these episodes was at the teacher
    for began, ended, _ in sorted(scored):
        busy += max(0.0, ended - max(began, until))
        until = max(until, ended)
    found = {"teacher/latency_mean": fmean(waits), "teacher/latency_max": max(waits)}
    if busy > 0:
        found["teacher/tokens_per_second"] = sum(tokens for *_, tokens in scored) / busy
    return found


def knows_nothing(teacher_log_prob: Tensor, vocabulary: int) -> bool:
    """Whether a teacher finds every token about as likely as any other: its weights are broken or were not loaded.

    The output of random weights is about normally distributed, so the mean is a little below that of no knowledge at
    all. What a real model says of text that it does not expect may have the same mean, and is spread much wider.
    """
    uniform = -math.log(vocabulary)
    if not len(teacher_log_prob):
        return False
    mean, spread = teacher_log_prob.double().mean().item(), teacher_log_prob.double().std(unbiased=False).item()
    return abs(mean - uniform) < _NEAR * -uniform and spread < _SPREAD * -uniform
