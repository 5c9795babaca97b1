"""The OnePO loss: B rows, T response tokens, [B, T] everywhere."""

import itertools
import json
import math
from pathlib import Path

import pytest
import torch
from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla
from verl.workers.config import ActorConfig

from onepo.algorithms.losses import onepo_policy_loss

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "onepo_loss.json").read_text())
OPTIONS = {"probability_floor": 0.1, "clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 10.0}


def random_batch(seed, rows=6, tokens=9, dtype=torch.float64):
    """Half of the rows are a teacher's; the values lie on both sides of the floor and of every clip."""
    generator = torch.Generator().manual_seed(seed)
    old = -torch.empty(rows, tokens, dtype=dtype).exponential_(0.4, generator=generator)
    step = torch.randn(rows, tokens, dtype=dtype, generator=generator)
    return {
        "log_prob": (old + step).clamp(max=-1e-3),
        "old_log_prob": old,
        "advantages": torch.randn(rows, 1, dtype=dtype, generator=generator).expand(rows, tokens).contiguous(),
        "response_mask": torch.rand(rows, tokens, generator=generator) < 0.8,
        "teacher_mask": (torch.arange(rows) % 2 == 1)[:, None].expand(rows, tokens).contiguous(),
    }


def run(batch, denominator=None, **options):
    """Loss, gradient with respect to log_prob, metrics."""
    batch = {**batch, "log_prob": batch["log_prob"].clone().requires_grad_()}
    denominator = batch["response_mask"].sum() if denominator is None else denominator
    loss, metrics = onepo_policy_loss(**batch, **{**OPTIONS, **options}, denominator=denominator)
    loss.backward()
    return loss.detach(), batch["log_prob"].grad, metrics


def slow_oracle(batch, denominator, *, probability_floor, clip_ratio_low, clip_ratio_high, clip_ratio_c):
    """Token by token with Python floats: value, gradient, and the counts of the metrics."""
    rows, tokens = batch["log_prob"].shape
    grad = torch.zeros(rows, tokens, dtype=torch.float64)
    total = 0.0
    count = dict.fromkeys(["floored", "rescaled", "teacher", "clipped", "lower_clipped", "response"], 0)
    sums = {"rescale": 0.0, "approx_kl": 0.0}
    for row, token in itertools.product(range(rows), range(tokens)):
        if not batch["response_mask"][row, token]:
            continue
        lp, old, advantage = (batch[name][row, token].item() for name in ("log_prob", "old_log_prob", "advantages"))
        teacher = bool(batch["teacher_mask"][row, token])
        count["response"] += 1
        count["teacher"] += teacher
        sums["approx_kl"] += 0 if teacher else old - lp
        low_support = teacher and old < math.log(probability_floor)
        count["floored"] += low_support
        if low_support and advantage > 0:
            count["rescaled"] += 1
            sums["rescale"] += math.exp(min(math.log(probability_floor) - lp, 20))
            if math.exp(lp) <= (1 + clip_ratio_high) * probability_floor:
                total += -advantage
                grad[row, token] = -advantage
                continue
            advantage *= probability_floor / math.exp(lp)
        reference = max(old, math.log(probability_floor)) if teacher else old
        ratio = math.exp(min(max(lp - reference, -20), 20))
        moving = -advantage * ratio
        fixed = -advantage * min(max(ratio, 1 - clip_ratio_low), 1 + clip_ratio_high)
        loss = max(moving, fixed)
        count["clipped"] += fixed > moving
        if advantage < 0 and loss > -advantage * clip_ratio_c:
            count["lower_clipped"] += 1
            loss = -advantage * clip_ratio_c
        total += loss
        grad[row, token] = moving if loss == moving and abs(lp - reference) <= 20 else 0
    return total / denominator, grad / denominator, count, sums


def verl_loss(batch, **clip):
    config = ActorConfig(strategy="fsdp2", rollout_n=8, ppo_micro_batch_size_per_gpu=1, **clip)
    log_prob = batch["log_prob"].clone().requires_grad_()
    loss, _ = compute_policy_loss_vanilla(
        batch["old_log_prob"], log_prob, batch["advantages"], batch["response_mask"], "token-mean", config
    )
    loss.backward()
    return loss.detach(), log_prob.grad


def test_value_and_gradient_by_hand():
    c = 0.1
    # token:          student   imitated    at the clip  past the clip  supported  negative
    probability = [0.5 * 1.1, 0.01, 0.128 - 1e-9, 0.2, 0.3 * 1.1, 0.05]
    old = [0.5, 0.01, 0.05, 0.05, 0.3, 0.05]
    advantages = [2.0, 2.0, 2.0, 2.0, 2.0, -1.0]
    batch = {
        "log_prob": torch.tensor([probability], dtype=torch.float64).log(),
        "old_log_prob": torch.tensor([old], dtype=torch.float64).log(),
        "advantages": torch.tensor([advantages], dtype=torch.float64),
        "response_mask": torch.ones(1, 6),
        "teacher_mask": torch.tensor([[0, 1, 1, 1, 1, 1]]),
    }
    loss, grad, metrics = run(batch, denominator=1.0)
    # the last token: ratio 0.05 / c = 0.5 against the floor, below the clip at 0.8
    expected = [-2 * 1.1, -2.0, -2.0, -2 * 1.28 * c / 0.2, -2 * 1.1, 0.8]
    assert loss.item() == pytest.approx(sum(expected), abs=1e-12)
    assert grad[0].tolist() == pytest.approx([-2 * 1.1, -2.0, -2.0, 0.0, -2 * 1.1, 0.0], abs=1e-12)
    assert {name: value.item() for name, value in metrics.items()} == pytest.approx(
        {
            "onepo/floored_tokens": 4,
            "onepo/rescaled_tokens": 3,
            "onepo/teacher_tokens": 5,
            "onepo/rescale_sum": c / 0.01 + c / (0.128 - 1e-9) + c / 0.2,
            "onepo/clipped_tokens": 2,
            "onepo/lower_clipped_tokens": 0,
            "onepo/approx_kl_sum": -math.log(1.1),
            "onepo/response_tokens": 6,
        }
    )


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: str(case["seed"]))
def test_golden_vectors(case):
    mask = torch.tensor(case["response_mask"])
    batch = {name: torch.tensor(case[name], dtype=torch.float64) for name in ("log_prob", "old_log_prob", "advantages")}
    batch["response_mask"] = mask
    batch["teacher_mask"] = torch.tensor(case["teacher_rows"])[:, None].expand_as(mask)
    loss, grad, metrics = run(batch, **{name: case[name] for name in OPTIONS})
    assert loss.item() == pytest.approx(case["loss_token_mean"], abs=1e-6)
    torch.testing.assert_close(grad, torch.tensor(case["grad_log_prob"], dtype=torch.float64), atol=1e-6, rtol=0)
    assert metrics["onepo/floored_tokens"] == case["low_support_tokens"]
    assert metrics["onepo/rescaled_tokens"] == case["rescaled_tokens"]


@pytest.mark.parametrize("seed", range(20))
def test_agrees_with_the_slow_oracle(seed):
    options = {"probability_floor": [0.02, 0.1, 0.5][seed % 3], "clip_ratio_low": 0.2, "clip_ratio_high": 0.28}
    options["clip_ratio_c"] = [1.1, 3.0, 10.0][seed % 3]
    batch = random_batch(seed)
    batch["log_prob"][0] -= 25  # the bound on the log-ratio is passed downwards
    batch["old_log_prob"][2] -= 25  # and upwards
    batch["advantages"][1] = 0  # a teacher row without signal is floored, not rescaled
    loss, grad, metrics = run(batch, denominator=17, **options)
    value, expected_grad, count, sums = slow_oracle(batch, 17, **options)
    assert loss.item() == pytest.approx(value, rel=1e-12)
    torch.testing.assert_close(grad, expected_grad, atol=1e-12, rtol=1e-12)
    assert {name: metrics[f"onepo/{name}_tokens"].item() for name in count} == count
    assert {name: metrics[f"onepo/{name}_sum"].item() for name in sums} == pytest.approx(sums)


def test_gradient_reaches_log_prob_only():
    batch = random_batch(0)
    for name in ("log_prob", "old_log_prob", "advantages"):
        batch[name].requires_grad_()
    loss, metrics = onepo_policy_loss(**batch, **OPTIONS, denominator=10.0)
    loss.backward()
    assert batch["log_prob"].grad.abs().sum() > 0
    assert batch["old_log_prob"].grad is None and batch["advantages"].grad is None
    assert all(value.ndim == 0 and not value.requires_grad for value in metrics.values())


def test_gradient_pulls_towards_good_tokens_and_away_from_bad_ones():
    batch = random_batch(1)
    _, grad, _ = run(batch)
    moving = grad != 0
    assert moving.any()
    assert torch.equal(grad.sign()[moving], -batch["advantages"].sign()[moving])


@pytest.mark.parametrize("denominator", [8.0, torch.tensor(8), torch.tensor(0)])
def test_empty_mask_gives_zero_with_a_live_graph(denominator):
    batch = random_batch(0)
    batch["response_mask"] = torch.zeros_like(batch["response_mask"])
    loss, grad, metrics = run(batch, denominator=denominator)
    assert loss == 0
    assert torch.equal(grad, torch.zeros_like(grad))
    assert all(value == 0 for value in metrics.values())


GARBAGE = [math.nan, math.inf, -math.inf, 1e9, -1e9]


@pytest.mark.parametrize("garbage", list(itertools.product(GARBAGE, repeat=3)))
def test_garbage_outside_the_mask_changes_nothing(garbage):
    batch = random_batch(3)
    padding = ~batch["response_mask"]
    dirty = dict(batch)
    for name, value in zip(("log_prob", "old_log_prob", "advantages"), garbage, strict=True):
        dirty[name] = batch[name].masked_fill(padding, value)
    dirty["teacher_mask"] = batch["teacher_mask"].double().masked_fill(padding, garbage[0])
    loss, grad, metrics = run(batch)
    dirty_loss, dirty_grad, dirty_metrics = run(dirty)
    assert torch.equal(loss, dirty_loss)
    assert torch.equal(grad, dirty_grad)
    assert metrics == dirty_metrics


@pytest.mark.parametrize("name", ["log_prob", "old_log_prob", "advantages"])
def test_nan_inside_the_mask_is_not_hidden(name):
    batch = random_batch(3)
    row, token = batch["response_mask"].nonzero()[0]
    batch[name][row, token] = math.nan
    loss, grad, _ = run(batch)
    assert loss.isnan() and grad[row, token].isnan()


@pytest.mark.parametrize("size", [1, 2, 4])
def test_micro_batches_add_up_to_the_whole(size):
    batch = random_batch(5, rows=8)
    count = batch["response_mask"].sum()
    loss, grad, metrics = run(batch)
    parts = [run({name: t[i : i + size] for name, t in batch.items()}, denominator=count) for i in range(0, 8, size)]
    torch.testing.assert_close(sum(part[0] for part in parts), loss)
    torch.testing.assert_close(torch.cat([part[1] for part in parts]), grad)
    for name, value in metrics.items():
        torch.testing.assert_close(sum(part[2][name] for part in parts), value)


def test_row_order_does_not_matter():
    batch = random_batch(6)
    order = torch.tensor([4, 0, 5, 2, 1, 3])
    loss, grad, _ = run(batch)
    shuffled_loss, shuffled_grad, _ = run({name: tensor[order] for name, tensor in batch.items()})
    torch.testing.assert_close(shuffled_loss, loss)
    assert torch.equal(shuffled_grad, grad[order])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("lp", [-0.01, -25.0, -60.0, -110.0])
def test_a_teacher_token_is_learned_at_any_probability(dtype, lp):
    batch = {
        "log_prob": torch.full((1, 2), lp, dtype=dtype),
        "old_log_prob": torch.tensor([[lp, -60.0]], dtype=dtype),
        "advantages": torch.full((1, 2), 1.5, dtype=dtype),
        "response_mask": torch.ones(1, 2),
        "teacher_mask": torch.ones(1, 2),
    }
    loss, grad, metrics = run(batch, denominator=1.0)
    assert loss.dtype == torch.float32 and grad.dtype == dtype
    assert loss.isfinite() and grad.isfinite().all() and metrics["onepo/rescale_sum"].isfinite()
    assert grad[0, 0] == -1.5
    assert grad[0, 1] == (0.0 if lp == -0.01 else -1.5)  # past the clip the imitation ends


def test_half_precision_is_computed_in_float32():
    batch = {name: t.bfloat16() if t.is_floating_point() else t for name, t in random_batch(7).items()}
    loss, grad, _ = run(batch)
    exact_loss, exact_grad, _ = run({name: t.double() if t.is_floating_point() else t for name, t in batch.items()})
    assert loss.item() == pytest.approx(exact_loss.item(), rel=1e-5)
    torch.testing.assert_close(grad, exact_grad.bfloat16())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("clip_ratio_c", [1.1, 10.0])
@pytest.mark.parametrize("seed", range(5))
def test_without_a_teacher_it_is_the_clipped_loss_of_verl(seed, clip_ratio_c, dtype):
    batch = random_batch(seed, rows=8, tokens=40, dtype=dtype)
    batch["log_prob"][0] -= 25
    batch["teacher_mask"] = torch.zeros_like(batch["teacher_mask"])
    clip = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": clip_ratio_c}
    loss, grad, metrics = run(batch, **clip)
    verl_value, verl_grad = verl_loss(batch, **clip)
    assert torch.equal(loss, verl_value)
    torch.testing.assert_close(grad, verl_grad)
    assert metrics["onepo/floored_tokens"] == 0


def test_a_vanishing_floor_gives_the_clipped_loss_of_verl():
    batch = random_batch(11)
    clip = {name: value for name, value in OPTIONS.items() if name != "probability_floor"}
    loss, grad, metrics = run(batch, probability_floor=1e-30)
    verl_value, verl_grad = verl_loss(batch, **clip)
    assert metrics["onepo/teacher_tokens"] > 0 and metrics["onepo/floored_tokens"] == 0
    assert torch.equal(loss, verl_value)
    torch.testing.assert_close(grad, verl_grad)
