"""The cross-entropy of sft: B rows, T response tokens, [B, T] everywhere."""

import itertools
import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from onepo.algorithms.losses import sft_loss


def run(log_prob, mask, denominator=None):
    """Loss, gradient with respect to log_prob, metrics."""
    log_prob = log_prob.clone().requires_grad_()
    loss, metrics = sft_loss(
        log_prob=log_prob, response_mask=mask, denominator=mask.sum() if denominator is None else denominator
    )
    loss.backward()
    return loss.detach(), log_prob.grad, metrics


def batch(rows=5, tokens=7):
    generator = torch.Generator().manual_seed(3)
    return -torch.rand(rows, tokens, generator=generator).double(), torch.rand(rows, tokens, generator=generator) < 0.7


def test_value_and_gradient_by_hand():
    log_prob = torch.tensor([[0.5, 0.25, 0.125]], dtype=torch.float64).log()
    loss, grad, metrics = run(log_prob, torch.tensor([[1, 0, 1]]))
    assert loss.item() == pytest.approx(4 * math.log(2) / 2, rel=1e-12)
    assert grad[0].tolist() == [-0.5, 0.0, -0.5]
    assert metrics["sft/response_tokens"] == 2 and metrics["sft/nll_sum"].item() == pytest.approx(4 * math.log(2))


def test_it_is_plain_cross_entropy():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(4, 6, 11, generator=generator, dtype=torch.float64, requires_grad=True)
    tokens = torch.randint(0, 11, (4, 6), generator=generator)
    mask = torch.rand(4, 6, generator=generator) < 0.6
    log_prob = torch.log_softmax(logits, -1).gather(-1, tokens[..., None])[..., 0]
    loss, _ = sft_loss(log_prob=log_prob, response_mask=mask, denominator=mask.sum())
    (gradient,) = torch.autograd.grad(loss, logits)
    expected = cross_entropy(logits[mask], tokens[mask])
    (expected_gradient,) = torch.autograd.grad(expected, logits)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient, expected_gradient)


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -1e9, 1e9])
def test_what_lies_outside_the_mask_is_never_read(garbage):
    log_prob, mask = batch()
    expected, gradient, _ = run(log_prob, mask)
    loss, grad, metrics = run(torch.where(mask, log_prob, garbage), mask)
    assert loss == expected and torch.equal(grad, gradient) and metrics["sft/nll_sum"].isfinite()


@pytest.mark.parametrize("denominator", [0, 5])
def test_an_empty_mask_is_nothing_with_a_live_graph(denominator):
    log_prob, mask = batch()
    loss, grad, metrics = run(log_prob, torch.zeros_like(mask), denominator)
    assert loss == 0 and not grad.any() and metrics["sft/response_tokens"] == 0


def test_micro_batches_add_up_in_any_order():
    log_prob, mask = batch()
    whole, gradient, metrics = run(log_prob, mask)
    parts = [run(log_prob[rows], mask[rows], mask.sum()) for rows in ([4, 1], [0], [3, 2])]
    assert sum(loss for loss, *_ in parts).item() == pytest.approx(whole.item(), rel=1e-12)
    order = list(itertools.chain([4, 1], [0], [3, 2]))
    torch.testing.assert_close(torch.cat([grad for _, grad, _ in parts]), gradient[order])
    assert sum(found["sft/response_tokens"] for *_, found in parts) == metrics["sft/response_tokens"]


def test_half_precision_is_summed_in_float32():
    log_prob, mask = batch()
    loss, grad, _ = run(log_prob.bfloat16(), mask)
    assert loss.dtype == torch.float32 and grad.dtype == torch.bfloat16
