"""The mix of reward and teacher: B rows, T response tokens, [B, T] everywhere."""

import json
import math
from pathlib import Path

import pytest
import torch

from onepo.algorithms.advantages import mix_advantages
from onepo.algorithms.losses import k1_policy_loss, onepo_policy_loss

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "mixed_advantage.json").read_text())
CLIPS = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 3.0}


def tensors(case):
    names = {"advantages": "advantages", "log_prob": "student_log_prob", "teacher_log_prob": "teacher_log_prob"}
    return {name: torch.tensor(case[key], dtype=torch.float64) for name, key in names.items()}


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: str(case["seed"]))
def test_golden_vectors(case):
    mixed = mix_advantages(**tensors(case), adv_tau=case["adv_tau"], teacher_tau=case["teacher_tau"])
    torch.testing.assert_close(mixed, torch.tensor(case["mixed_advantages"], dtype=torch.float64), rtol=0, atol=1e-12)


def test_value_by_hand():
    mixed = mix_advantages(
        advantages=torch.tensor([[2.0, -1.0]]),
        log_prob=torch.tensor([[0.5, 0.2]]).log(),
        teacher_log_prob=torch.tensor([[0.25, 0.4]]).log(),
        adv_tau=0.5,
        teacher_tau=2.0,
    )
    assert mixed[0].tolist() == pytest.approx([1.0 - 2 * math.log(2), -0.5 + 2 * math.log(2)])


def test_a_weight_of_nothing_leaves_its_term_out():
    case = tensors(VECTORS[0])
    nonsense = torch.full_like(case["log_prob"], math.nan)
    reward = mix_advantages(**{**case, "teacher_log_prob": nonsense}, adv_tau=1.0, teacher_tau=0.0)
    assert torch.equal(reward, case["advantages"])  # bit for bit
    teacher = mix_advantages(**{**case, "advantages": nonsense}, adv_tau=0.0, teacher_tau=1.0)
    assert torch.equal(teacher, case["teacher_log_prob"] - case["log_prob"])
    none = mix_advantages(**dict.fromkeys(case, nonsense), adv_tau=0.0, teacher_tau=0.0)
    assert torch.equal(none, torch.zeros_like(nonsense))


def test_nothing_gets_a_gradient():
    case = {name: value.requires_grad_() for name, value in tensors(VECTORS[1]).items()}
    assert not mix_advantages(**case, adv_tau=1.0, teacher_tau=1.0).requires_grad


def test_what_lies_outside_the_mask_stays_there():
    case = tensors(VECTORS[2])
    mask = torch.ones_like(case["log_prob"], dtype=torch.bool)
    mask[:, -1] = False
    for name in case:
        case[name][:, -1] = 1e9 if name == "advantages" else math.nan
    mixed = mix_advantages(**case, adv_tau=0.5, teacher_tau=1.0)
    assert mixed[mask].isfinite().all()
    log_prob = case["log_prob"].clone().requires_grad_()
    loss, _ = policy_loss(log_prob, case["log_prob"], mixed, mask)
    loss.backward()
    assert loss.isfinite() and not log_prob.grad[:, -1].any() and log_prob.grad.isfinite().all()


def policy_loss(log_prob, old_log_prob, advantages, mask):
    return onepo_policy_loss(
        log_prob=log_prob,
        old_log_prob=old_log_prob,
        advantages=advantages,
        response_mask=mask,
        teacher_mask=torch.zeros_like(mask),
        probability_floor=0.1,
        **CLIPS,
        denominator=mask.sum(),
    )


def test_pure_distillation_is_the_k1_loss():
    case = tensors(VECTORS[3])
    old, mask = case["log_prob"] - 0.1, torch.ones_like(case["log_prob"], dtype=torch.bool)
    log_prob = case["log_prob"].clone().requires_grad_()
    mixed = mix_advantages(**{**case, "log_prob": log_prob}, adv_tau=0.0, teacher_tau=1.0)
    loss, _ = policy_loss(log_prob, old, mixed, mask)
    (gradient,) = torch.autograd.grad(loss, log_prob)
    other = {"teacher_log_prob": case["teacher_log_prob"], "response_mask": mask, "denominator": mask.sum()}
    expected, _ = k1_policy_loss(log_prob=log_prob, old_log_prob=old, **other, **CLIPS)
    (expected_gradient,) = torch.autograd.grad(expected, log_prob)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient, expected_gradient)


def test_the_side_of_the_clip_follows_the_mix_and_not_the_reward():
    """The reward is positive, the teacher's term outweighs it; the ratio is below the lower bound."""
    old, log_prob = torch.tensor([[0.5]]).log(), torch.tensor([[0.3]]).log().requires_grad_()
    mask = torch.ones(1, 1, dtype=torch.bool)
    teacher = torch.tensor([[0.01]]).log()
    mixed = mix_advantages(
        advantages=torch.ones(1, 1), log_prob=log_prob, teacher_log_prob=teacher, adv_tau=1.0, teacher_tau=1.0
    )
    assert mixed.item() < 0
    loss, metrics = policy_loss(log_prob, old, mixed, mask)
    loss.backward()
    assert metrics["onepo/clipped_tokens"] == 1 and log_prob.grad.item() == 0  # far enough down already


@pytest.mark.parametrize("split", [[[0], [1]], [[1], [0]], [[1, 0]]])
def test_rows_may_come_in_any_parts(split):
    case = tensors(VECTORS[4])
    whole = mix_advantages(**case, adv_tau=0.5, teacher_tau=2.0)
    for rows in split:
        part = {name: value[rows] for name, value in case.items()}
        assert torch.equal(mix_advantages(**part, adv_tau=0.5, teacher_tau=2.0), whole[rows])
