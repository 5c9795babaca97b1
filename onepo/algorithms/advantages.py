"""Advantages: how much better a rollout is than the others of its prompt, and what a teacher thinks of each token.

B rows, T response tokens; the rows of one group share a group id and may lie anywhere in the batch.
"""

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

_EPSILON = 1e-6  # keeps a nearly constant group finite; the value that verl uses


def group_advantages(
    *, scores: Tensor, group_ids: Tensor | Sequence[Hashable], normalize_by_std: bool = True
) -> Tensor:
    """``(score - mean) / (std + 1e-6)`` within each group, with the sample standard deviation.

    A group whose scores are all equal, and a group of one, gets exactly 0: rounding of the mean must not look like a
    signal. The computation is in float64.

    Args:
        scores: [B], after a teacher response has taken the place of a rollout.
        group_ids: [B] integers, or one hashable per row such as verl's uid.
        normalize_by_std: False leaves out the division.

    Returns:
        [B] in the dtype of ``scores``; float32 if that is no floating point type.
    """
    if not isinstance(group_ids, Tensor):
        numbers = {group_id: number for number, group_id in enumerate(dict.fromkeys(group_ids))}
        group_ids = torch.tensor([numbers[group_id] for group_id in group_ids], dtype=torch.long)
    _, group, size = torch.unique(group_ids.to(scores.device), return_inverse=True, return_counts=True)

    score = scores.double()
    zeros = score.new_zeros(len(size))  # one per group
    mean = zeros.index_add(0, group, score) / size
    centered = score - mean[group]
    advantage = centered
    if normalize_by_std:
        variance = zeros.index_add(0, group, centered.square()) / (size - 1).clamp(min=1)
        advantage = centered / (variance.sqrt()[group] + _EPSILON)

    lowest = zeros.scatter_reduce(0, group, score, "amin", include_self=False)
    highest = zeros.scatter_reduce(0, group, score, "amax", include_self=False)
    advantage = advantage.masked_fill((lowest == highest)[group], 0)
    return advantage.to(scores.dtype if scores.is_floating_point() else torch.float32)


def mix_advantages(
    *, advantages: Tensor, log_prob: Tensor, teacher_log_prob: Tensor, adv_tau: float, teacher_tau: float
) -> Tensor:
    """``adv_tau * A + teacher_tau * sg(teacher_log_prob - log_prob)``, token by token.

    The second term is minus the one-sample estimate of KL(student || teacher): positive where the teacher likes the
    sampled token more than the student does. A weight of 0 leaves its term out, whatever is in it, so with weights 1
    and 0 the result is ``advantages`` bit for bit. A clip or trust region has to follow the sign of the result.

    Args:
        advantages: [B, T] of the reward.
        log_prob: [B, T] of the sampled tokens under the student; it gets no gradient from here.
        teacher_log_prob: [B, T] under the teacher, at temperature 1.
        adv_tau, teacher_tau: weights, at least 0.

    Returns:
        [B, T], detached.
    """
    terms = []
    if adv_tau:
        terms.append(adv_tau * advantages.detach())
    if teacher_tau:
        terms.append(teacher_tau * (teacher_log_prob.detach() - log_prob.detach()))
    return sum(terms[1:], terms[0]) if terms else torch.zeros_like(log_prob)
