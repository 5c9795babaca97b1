"""The K1 loss: B rows, T response tokens, [B, T] everywhere."""

import itertools
import json
import math
from pathlib import Path

import pytest
import torch
from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla, kl_penalty
from verl.workers.config import ActorConfig

from onepo.algorithms.losses import k1_policy_loss

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "k1_distillation.json").read_text())
OPTIONS = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "clip_ratio_c": 3.0, "loss_max_clamp": 10.0}
TENSORS = ("log_prob", "old_log_prob", "teacher_log_prob")


def random_batch(seed, rows=6, tokens=9, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    old = -torch.empty(rows, tokens, dtype=dtype).exponential_(0.4, generator=generator)
    return {
        "log_prob": (old + 0.5 * torch.randn(rows, tokens, dtype=dtype, generator=generator)).clamp(max=-1e-3),
        "old_log_prob": old,
        "teacher_log_prob": -torch.empty(rows, tokens, dtype=dtype).exponential_(0.2, generator=generator),
        "response_mask": torch.rand(rows, tokens, generator=generator) < 0.8,
    }


def run(batch, denominator=None, **options):
    """Loss, gradient with respect to log_prob, metrics."""
    batch = {**batch, "log_prob": batch["log_prob"].clone().requires_grad_()}
    denominator = batch["response_mask"].sum() if denominator is None else denominator
    loss, metrics = k1_policy_loss(**batch, **{**OPTIONS, **options}, denominator=denominator)
    loss.backward()
    return loss.detach(), batch["log_prob"].grad, metrics


def test_value_and_gradient_by_hand():
    # token:     as before  teacher likes it more  past the clip  far below: cut     dual clip
    student = [0.5, 0.2, 0.3, 0.5, 0.4]
    old = [0.5, 0.25, 0.2, 0.5, 0.1]
    teacher = [0.25, 0.4, 0.6, math.exp(-20), 0.2]
    batch = {
        "log_prob": torch.tensor([student], dtype=torch.float64).log(),
        "old_log_prob": torch.tensor([old], dtype=torch.float64).log(),
        "teacher_log_prob": torch.tensor([teacher], dtype=torch.float64).log(),
        "response_mask": torch.ones(1, 5),
    }
    loss, grad, metrics = run(batch, denominator=5)
    two = math.log(2)
    values = [two * 1.0, -two * 0.8, -two * 1.2, 10.0, two * 3]
    slopes = [two * 1.0, -two * 0.8, 0.0, 10.0, 0.0]
    assert loss.item() == pytest.approx(sum(values) / 5, rel=1e-12)
    assert grad[0].tolist() == pytest.approx([slope / 5 for slope in slopes], rel=1e-12)
    k1 = [two, -two, -two, math.log(0.5) + 20, two]
    assert {name: value.item() for name, value in metrics.items()} == pytest.approx(
        {
            "distillation/k1_sum": sum(k1),
            "distillation/abs_k1_sum": sum(map(abs, k1)),
            "distillation/cut_tokens": 1,
            "distillation/clipped_tokens": 1,
            "distillation/lower_clipped_tokens": 1,
            "distillation/response_tokens": 5,
        }
    )


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: str(case["seed"]))
def test_golden_vectors(case):
    batch = {
        "log_prob": torch.tensor(case["student_log_prob"], dtype=torch.float64),
        "old_log_prob": torch.tensor(case["old_log_prob"], dtype=torch.float64),
        "teacher_log_prob": torch.tensor(case["teacher_log_prob"], dtype=torch.float64),
        "response_mask": torch.tensor(case["response_mask"]),
    }
    clips = {name: case[name] for name in ("clip_ratio_low", "clip_ratio_high", "clip_ratio_c")}
    loss, grad, metrics = run(batch, **clips, loss_max_clamp=None)
    assert loss.item() == pytest.approx(case["loss_token_mean"], abs=1e-6)
    torch.testing.assert_close(grad, torch.tensor(case["grad_log_prob"], dtype=torch.float64), atol=1e-6, rtol=0)
    mean = metrics["distillation/k1_sum"] / metrics["distillation/response_tokens"]
    assert mean.item() == pytest.approx(case["k1_mean"], abs=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_agrees_with_verls_own_parts(seed):
    """Its estimator, its clamp and its policy loss, put together as its distillation does."""
    batch = random_batch(seed)
    config = ActorConfig(
        strategy="fsdp2",
        rollout_n=8,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_low=0.2,
        clip_ratio_high=0.2,
        clip_ratio_c=3.0,
    )
    log_prob = batch["log_prob"].clone().requires_grad_()
    k1 = kl_penalty(log_prob, batch["teacher_log_prob"], "k1").clamp(-1.0, 1.0)
    expected, _ = compute_policy_loss_vanilla(
        batch["old_log_prob"], log_prob, -k1.detach(), batch["response_mask"], "token-mean", config
    )
    expected.backward()
    loss, grad, _ = run(batch, loss_max_clamp=1.0)
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(grad, log_prob.grad)


def test_gradient_reaches_log_prob_only():
    batch = random_batch(0)
    for name in TENSORS:
        batch[name].requires_grad_()
    loss, metrics = k1_policy_loss(**batch, **OPTIONS, denominator=10.0)
    loss.backward()
    assert batch["log_prob"].grad.abs().sum() > 0
    assert batch["old_log_prob"].grad is None and batch["teacher_log_prob"].grad is None
    assert all(value.ndim == 0 and not value.requires_grad for value in metrics.values())


def test_a_teacher_that_is_the_student_teaches_nothing():
    batch = random_batch(1)
    batch["old_log_prob"] = batch["teacher_log_prob"] = batch["log_prob"]
    loss, grad, metrics = run(batch)
    assert loss == 0 and not grad.any() and metrics["distillation/abs_k1_sum"] == 0


@pytest.mark.parametrize("denominator", [8.0, torch.tensor(8), torch.tensor(0)])
def test_empty_mask_gives_zero_with_a_live_graph(denominator):
    batch = random_batch(0)
    batch["response_mask"] = torch.zeros_like(batch["response_mask"])
    loss, grad, metrics = run(batch, denominator=denominator)
    assert loss == 0 and torch.equal(grad, torch.zeros_like(grad))
    assert all(value == 0 for value in metrics.values())


@pytest.mark.parametrize("garbage", itertools.product([math.nan, math.inf, -math.inf, 1e9], repeat=3))
def test_garbage_outside_the_mask_changes_nothing(garbage):
    batch = random_batch(3)
    padding = ~batch["response_mask"]
    dirty = dict(batch)
    for name, value in zip(TENSORS, garbage, strict=True):
        dirty[name] = batch[name].masked_fill(padding, value)
    (loss, grad, metrics), (dirty_loss, dirty_grad, dirty_metrics) = run(batch), run(dirty)
    assert torch.equal(loss, dirty_loss) and torch.equal(grad, dirty_grad)
    assert metrics == dirty_metrics


@pytest.mark.parametrize("name", TENSORS)
def test_nan_inside_the_mask_is_not_hidden(name):
    batch = random_batch(3)
    row, token = batch["response_mask"].nonzero()[0].tolist()
    batch[name] = batch[name].clone()
    batch[name][row, token] = math.nan
    loss, grad, _ = run(batch)
    assert loss.isnan() and grad[row, token].isnan()


def test_a_teacher_that_rules_a_token_out_is_cut_like_the_others():
    batch = random_batch(3)
    row, token = batch["response_mask"].nonzero()[0].tolist()
    batch["teacher_log_prob"][row, token] = -math.inf
    loss, grad, _ = run(batch)
    assert loss.isfinite() and grad.isfinite().all()


def test_micro_batches_and_row_order_change_nothing():
    batch = random_batch(4)
    tokens = batch["response_mask"].sum()
    loss, grad, metrics = run(batch)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(0))
    parts = [run({name: value[rows] for name, value in batch.items()}, tokens) for rows in order.split([1, 2, 3])]
    torch.testing.assert_close(sum(part[0] for part in parts), loss)
    torch.testing.assert_close(torch.cat([part[1] for part in parts]), grad[order])
    for name, value in metrics.items():
        torch.testing.assert_close(sum(part[2][name] for part in parts), value)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_loss_is_computed_in_float32_at_least(dtype):
    batch = random_batch(5, dtype=torch.float32)
    exact = run(batch)[0]
    loss, grad, _ = run({**batch, "log_prob": batch["log_prob"].to(dtype)})
    assert loss.dtype == torch.float32 and grad.dtype == dtype
    torch.testing.assert_close(loss, exact, rtol=0.05, atol=0.05)
