import json
from pathlib import Path

import numpy as np
import pytest
import torch

from onepo.algorithms.advantages import group_advantages

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "group_advantage.json").read_text())


def slow_oracle(scores, group_ids, normalize_by_std=True):
    advantages = []
    for score, group_id in zip(scores, group_ids, strict=True):
        group = [other for other, other_id in zip(scores, group_ids, strict=True) if other_id == group_id]
        if max(group) == min(group):
            advantages.append(0.0)
            continue
        centered = score - np.mean(group)
        advantages.append(centered / (np.std(group, ddof=1) + 1e-6) if normalize_by_std else centered)
    return torch.tensor(advantages, dtype=torch.float64)


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: f"seed {case['seed']}")
def test_golden_vectors(case):
    scores = torch.tensor(case["scores"], dtype=torch.float64)
    advantages = group_advantages(scores=scores, group_ids=torch.zeros(len(scores), dtype=torch.long))
    torch.testing.assert_close(advantages, torch.tensor(case["advantages"], dtype=torch.float64), atol=1e-6, rtol=0)


def test_value_by_hand():
    # one right answer among four: mean 1/4, sample variance (3 * 1/16 + 9/16) / 3 = 1/4
    advantages = group_advantages(scores=torch.tensor([0.0, 1.0, 0.0, 0.0]), group_ids=[7, 7, 7, 7])
    assert advantages.tolist() == pytest.approx([-0.5, 1.5, -0.5, -0.5], abs=1e-5)


@pytest.mark.parametrize("normalize_by_std", [True, False])
def test_mixed_groups_agree_with_the_slow_oracle_in_any_order(normalize_by_std):
    generator = torch.Generator().manual_seed(0)
    uids = [f"uid-{group}" for group in range(9) for _ in range(group + 1)]
    scores = torch.rand(len(uids), dtype=torch.float64, generator=generator)
    advantages = group_advantages(scores=scores, group_ids=uids, normalize_by_std=normalize_by_std)
    torch.testing.assert_close(advantages, slow_oracle(scores.tolist(), uids, normalize_by_std))

    order = torch.randperm(len(uids), generator=generator)
    shuffled = group_advantages(
        scores=scores[order], group_ids=[uids[row] for row in order], normalize_by_std=normalize_by_std
    )
    torch.testing.assert_close(shuffled, advantages[order], atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    "group_ids",
    [torch.tensor([5, -1, 5, -1]), np.array(["b", "a", "b", "a"], dtype=object), [("x", 1), 2, ("x", 1), 2]],
    ids=["tensor", "object array", "hashables"],
)
def test_group_ids_of_every_kind(group_ids):
    advantages = group_advantages(scores=torch.tensor([0.0, 3.0, 2.0, 3.0]), group_ids=group_ids)
    assert advantages.tolist() == pytest.approx([-(0.5**0.5), 0.0, 0.5**0.5, 0.0], abs=1e-5)


@pytest.mark.parametrize("score", [0.1, 1 / 3, 0.7, 1e4 + 0.3])
@pytest.mark.parametrize("size", [1, 3, 8])
def test_equal_scores_give_exactly_zero(score, size):
    advantages = group_advantages(scores=torch.full((size,), score), group_ids=["same"] * size)
    assert torch.equal(advantages, torch.zeros(size))


def test_a_failed_score_is_not_hidden():
    advantages = group_advantages(scores=torch.tensor([float("nan"), 1.0, 2.0, 3.0]), group_ids=[0, 0, 1, 1])
    assert advantages.isnan().tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(torch.float64,) * 2, (torch.float32,) * 2, (torch.bfloat16,) * 2, (torch.int64, torch.float32)],
)
def test_dtype_of_the_result(dtype, expected):
    assert group_advantages(scores=torch.tensor([0, 1], dtype=dtype), group_ids=[0, 0]).dtype == expected


def test_empty_batch():
    assert group_advantages(scores=torch.zeros(0), group_ids=[]).shape == (0,)


def test_rows_and_ids_must_match():
    with pytest.raises((RuntimeError, IndexError)):
        group_advantages(scores=torch.zeros(3), group_ids=[0, 0])
