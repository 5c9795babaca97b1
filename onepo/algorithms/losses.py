"""Losses: OnePO's clipped PPO with a probability floor on the tokens of teacher rows, K1 distillation, cross-entropy.

B rows, T response tokens; every tensor is [B, T]. ``c`` is the probability floor, ``pi = exp(log_prob)``.

The derivative of every token's loss with respect to its ``log_prob`` is known in closed form, so it is computed next to
the value and autograd keeps one [B, T] tensor instead of the whole chain of intermediates.
"""

import math

import torch
from torch import Tensor

_MAX_LOG_RATIO = 20.0  # exp() stays far from overflow; the same bound as in verl


class _SumWithKnownSlope(torch.autograd.Function):
    """Sum of per-token losses whose derivative with respect to ``log_prob`` is already known."""

    @staticmethod
    def forward(ctx, log_prob: Tensor, token_loss: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return token_loss.sum()

    @staticmethod
    def backward(ctx, grad_output: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return grad_output * slope, None, None


def _clipped_objective(
    *, log_ratio: Tensor, advantage: Tensor, clip_ratio_low: float, clip_ratio_high: float, clip_ratio_c: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """PPO's clipped objective with dual clip, token by token; ``log_ratio`` is used up.

    Returns:
        The losses, their derivatives with respect to ``log_prob``, and which of them are clipped and lower-clipped.
    """
    beyond = log_ratio.abs() > _MAX_LOG_RATIO
    ratio = log_ratio.clamp_(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp_()
    plain = -advantage * ratio
    bounded = -advantage * ratio.clamp_(1 - clip_ratio_low, 1 + clip_ratio_high)
    ceiling = -advantage * clip_ratio_c
    clipped = bounded > plain
    token_loss = torch.maximum(plain, bounded)
    lower_clipped = (advantage < 0) & (token_loss > ceiling)
    token_loss = torch.where(lower_clipped, ceiling, token_loss)
    # -A * ratio is its own derivative with respect to log_prob; every other branch is constant.
    slope = plain.masked_fill_(clipped | lower_clipped | beyond, 0)
    return token_loss, slope, clipped, lower_clipped


def onepo_policy_loss(
    *,
    log_prob: Tensor,
    old_log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    teacher_mask: Tensor,
    probability_floor: float,
    clip_ratio_low: float,
    clip_ratio_high: float,
    clip_ratio_c: float,
    denominator: float | Tensor,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Sum of the OnePO token losses over ``response_mask``, divided by ``denominator``.

    Without a teacher token it is clipped PPO with the asymmetric bounds of DAPO (arXiv 2503.14476) and the dual clip
    (arXiv 1912.09729).

    Args:
        log_prob: [B, T] log-probabilities under the policy being trained; the only input that receives a gradient.
        old_log_prob: [B, T] under the policy that starts the update, raw: the floor is applied here and nowhere else.
        advantages: [B, T].
        response_mask: [B, T] bool or 0/1, tokens to learn from. Whatever the tensors hold elsewhere is never read.
        teacher_mask: [B, T] bool or 0/1, tokens written by a teacher; counts only inside ``response_mask``.
        probability_floor: ``c``, in (0, 1).
        clip_ratio_low, clip_ratio_high: the ratio is clipped to [1 - low, 1 + high].
        clip_ratio_c: upper bound (> 1) of the ratio where the advantage is negative.
        denominator: tokens of the global batch, so that the losses of micro-batches and ranks add up to the whole.

    Returns:
        The scalar loss (float64 for float64 ``log_prob``, else float32; 0 with a live graph when the mask is empty) and
        metrics: detached scalars, all of them sums over tokens, so they too can be added over micro-batches.
    """
    dtype = torch.promote_types(log_prob.dtype, torch.float32)
    with torch.no_grad():
        # Masked first: garbage in the padding must not pass exp(), where even a discarded inf makes the gradient NaN.
        mask = response_mask.bool()
        teacher = mask & teacher_mask.bool()
        lp = torch.where(mask, log_prob, 0).to(dtype)
        old = torch.where(mask, old_log_prob, 0).to(dtype)
        advantage = torch.where(mask, advantages, 0).to(dtype)

        # The floor: an unlikely teacher token counts as if the old policy gave it probability c, ...
        log_c = math.log(probability_floor)
        floored = teacher & (old < log_c)
        log_ratio = lp - torch.where(floored, log_c, old)

        # ... and where its advantage is positive, A becomes A * sg(c / pi). Up to the clip at pi = (1 + high) * c the
        # loss is then -A * exp(lp - sg(lp)), so ratio 1 and weight 1; written as the product it would underflow.
        rescaled = floored & (advantage > 0)
        imitated = rescaled & (lp <= log_c + math.log1p(clip_ratio_high))
        c_over_pi = torch.where(rescaled, log_c - lp, 0).clamp_(max=_MAX_LOG_RATIO).exp_()
        rescale_sum = torch.where(rescaled, c_over_pi, 0).sum()
        advantage = advantage * c_over_pi.masked_fill_(imitated, 1)
        log_ratio.masked_fill_(imitated, 0)
        del c_over_pi

        token_loss, slope, clipped, lower_clipped = _clipped_objective(
            log_ratio=log_ratio,
            advantage=advantage,
            clip_ratio_low=clip_ratio_low,
            clip_ratio_high=clip_ratio_high,
            clip_ratio_c=clip_ratio_c,
        )
        response_tokens = mask.sum()
        metrics = {
            "onepo/floored_tokens": floored.sum(),
            "onepo/rescaled_tokens": rescaled.sum(),
            "onepo/teacher_tokens": teacher.sum(),
            "onepo/rescale_sum": rescale_sum,
            "onepo/clipped_tokens": clipped.sum(),
            "onepo/lower_clipped_tokens": lower_clipped.sum(),
            "onepo/approx_kl_sum": torch.where(teacher, 0, old - lp).sum(),
            "onepo/response_tokens": response_tokens,
        }

    # An empty sum is 0 even if no token exists anywhere (denominator 0).
    denominator = denominator + (response_tokens == 0).to(dtype)
    return _SumWithKnownSlope.apply(log_prob.to(dtype), token_loss, slope) / denominator, metrics


def k1_policy_loss(
    *,
    log_prob: Tensor,
    old_log_prob: Tensor,
    teacher_log_prob: Tensor,
    response_mask: Tensor,
    clip_ratio_low: float,
    clip_ratio_high: float,
    clip_ratio_c: float,
    loss_max_clamp: float | None = None,
    denominator: float | Tensor,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Sum of clipped PPO losses whose advantage is the teacher's signal, divided by ``denominator``.

    For a sampled token ``k1 = log_prob - teacher_log_prob`` estimates KL(student || teacher) without bias. Its own
    gradient does not contain the teacher, so ``-k1`` serves as the token's advantage and gets no gradient.

    Args:
        log_prob: [B, T] log-probabilities of the sampled tokens under the student; the only input that receives a
            gradient.
        old_log_prob: [B, T] under the student that starts the update.
        teacher_log_prob: [B, T] under the teacher, at temperature 1.
        response_mask: [B, T] bool or 0/1, tokens to learn from. Whatever the tensors hold elsewhere is never read.
        clip_ratio_low, clip_ratio_high, clip_ratio_c: as in :func:`onepo_policy_loss`.
        loss_max_clamp: ``k1`` is cut to [-it, it] nats; None: it is not.
        denominator: tokens of the global batch.

    Returns:
        Loss and metrics, as in :func:`onepo_policy_loss`; ``distillation/k1_sum`` is of the values before they are cut.
    """
    dtype = torch.promote_types(log_prob.dtype, torch.float32)
    with torch.no_grad():
        mask = response_mask.bool()
        lp = torch.where(mask, log_prob, 0).to(dtype)
        old = torch.where(mask, old_log_prob, 0).to(dtype)
        k1 = lp - torch.where(mask, teacher_log_prob, 0).to(dtype)
        bound = math.inf if loss_max_clamp is None else loss_max_clamp
        token_loss, slope, clipped, lower_clipped = _clipped_objective(
            log_ratio=lp - old,
            advantage=-k1.clamp(-bound, bound),
            clip_ratio_low=clip_ratio_low,
            clip_ratio_high=clip_ratio_high,
            clip_ratio_c=clip_ratio_c,
        )
        response_tokens = mask.sum()
        metrics = {
            "distillation/k1_sum": k1.sum(),
            "distillation/abs_k1_sum": k1.abs().sum(),
            "distillation/cut_tokens": (k1.abs() > bound).sum(),
            "distillation/clipped_tokens": clipped.sum(),
            "distillation/lower_clipped_tokens": lower_clipped.sum(),
            "distillation/response_tokens": response_tokens,
        }
    denominator = denominator + (response_tokens == 0).to(dtype)
    return _SumWithKnownSlope.apply(log_prob.to(dtype), token_loss, slope) / denominator, metrics


def sft_loss(
    *, log_prob: Tensor, response_mask: Tensor, denominator: float | Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Cross-entropy of the tokens of ``response_mask``: minus the sum of their log-probabilities over ``denominator``.

    Args:
        log_prob: [B, T] under the student, at temperature 1; the only input that receives a gradient.
        response_mask: [B, T] bool or 0/1, tokens to learn. Whatever ``log_prob`` holds elsewhere is never read.
        denominator: tokens of the global batch.

    Returns:
        Loss and metrics, as in :func:`onepo_policy_loss`.
    """
    dtype = torch.promote_types(log_prob.dtype, torch.float32)
    with torch.no_grad():
        mask = response_mask.bool()
        token_loss = -torch.where(mask, log_prob, 0).to(dtype)
        response_tokens = mask.sum()
        metrics = {"sft/nll_sum": token_loss.sum(), "sft/response_tokens": response_tokens}
    denominator = denominator + (response_tokens == 0).to(dtype)
    return _SumWithKnownSlope.apply(log_prob.to(dtype), token_loss, -mask.to(dtype)) / denominator, metrics
