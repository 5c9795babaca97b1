"""The loss as verl's learner calls it, on ragged rows in micro-batches, against the pure one on the whole batch."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from tensordict import NonTensorStack, TensorDict
from verl.utils import tensordict_utils as tu

from onepo.algorithms.losses import onepo_policy_loss
from onepo.errors import ControlledStop
from onepo.trainers.policy_loss import onepo_loss

CLIP = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 10.0}
FLOOR = 0.1
PROMPTS = [3, 1, 4, 2, 2, 5]
RESPONSES = [4, 6, 1, 3, 6, 2]
TEACHER = [False, True, False, False, True, False]


def ragged(rows):
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


@pytest.fixture
def batch():
    """Six rows of different lengths, two of them a teacher's, one with an observation in the middle."""
    generator = torch.Generator().manual_seed(0)
    rand = partial(torch.rand, generator=generator)
    rows = []
    for prompt, response, teacher in zip(PROMPTS, RESPONSES, TEACHER, strict=True):
        mask = torch.ones(response, dtype=torch.int64)
        if response == 6:
            mask[2] = 0
        rows.append(
            {
                "log_probs": -4 * rand(prompt + response),
                "prompts": torch.zeros(prompt, dtype=torch.int64),
                "responses": torch.zeros(response, dtype=torch.int64),
                "response_mask": mask,
                "old_log_probs": -4 * rand(response),
                "advantages": torch.full((response,), float(rand(1) * 4 - 2)),
                "teacher_mask": torch.full((response,), teacher),
            }
        )
    return rows


def call(rows, *, tokens, dp_size=1, **changes):
    """One call of the loss as the engine makes it; returns loss, metrics and the leaf of the model's log-probs."""
    flat = torch.cat([row["log_probs"] for row in rows]).requires_grad_()
    offsets = torch.tensor([0, *[len(row["log_probs"]) for row in rows]]).cumsum(0)
    fields = {name: ragged([row[name] for row in rows]) for name in rows[0] if name != "log_probs"}
    fields["uid"] = NonTensorStack(*[f"uid{i}" for i in range(len(rows))])
    fields["global_steps"] = NonTensorStack(*[3] * len(rows))
    data = TensorDict(fields, batch_size=len(rows))
    tu.assign_non_tensor(data, dp_size=dp_size, batch_num_tokens=tokens, global_batch_size=len(rows))
    config = SimpleNamespace(**{**CLIP, "entropy_coeff": 0, "use_kl_loss": False, **changes})
    output = {"log_probs": torch.nested.nested_tensor_from_jagged(flat, offsets)}
    loss, metrics = onepo_loss(config, output, data, probability_floor=FLOOR)
    return loss, metrics, flat


def token_count(rows):
    return int(sum(row["response_mask"].sum() for row in rows))


def pure(rows):
    """The whole batch as rectangles."""
    width = max(RESPONSES)

    def window(name, value):
        return torch.stack([torch.nn.functional.pad(value(row), (0, width - len(row["responses"]))) for row in rows])

    log_prob = torch.stack(
        [
            torch.nn.functional.pad(row["log_probs"][len(row["prompts"]) - 1 : -1], (0, width - len(row["responses"])))
            for row in rows
        ]
    ).requires_grad_()
    loss, metrics = onepo_policy_loss(
        log_prob=log_prob,
        old_log_prob=window("old", lambda row: row["old_log_probs"]),
        advantages=window("adv", lambda row: row["advantages"]),
        response_mask=window("mask", lambda row: row["response_mask"]),
        teacher_mask=window("teacher", lambda row: row["teacher_mask"]),
        probability_floor=FLOOR,
        denominator=token_count(rows),
        **CLIP,
    )
    return loss, metrics, log_prob


@pytest.mark.parametrize("sizes", [[6], [3, 3], [1, 5], [1] * 6])
def test_micro_batches_add_up_to_the_whole_batch(batch, sizes):
    expected, sums, _ = pure(batch)
    total, counted, start = 0.0, 0.0, 0
    for size in sizes:
        loss, metrics, _ = call(batch[start : start + size], tokens=token_count(batch))
        total += loss.item()
        counted += metrics["onepo/floored_tokens"].aggregate()
        start += size
    assert total == pytest.approx(expected.item(), abs=1e-6)
    assert counted == float(sums["onepo/floored_tokens"]) > 0


def test_the_gradient_reaches_the_response_positions_only(batch):
    loss, _, flat = call(batch, tokens=token_count(batch))
    loss.backward()
    expected, _, log_prob = pure(batch)
    expected.backward()
    start = 0
    for row, gradient in zip(batch, log_prob.grad, strict=True):
        prompt, response = len(row["prompts"]), len(row["responses"])
        part = flat.grad[start : start + prompt + response]
        torch.testing.assert_close(part[prompt - 1 : -1], gradient[:response])
        assert not part[: prompt - 1].any() and not part[-1]
        start += prompt + response


def test_the_mean_over_ranks_is_the_loss_of_the_whole_batch(batch):
    expected, _, _ = pure(batch)
    halves = [call(part, tokens=token_count(batch), dp_size=2)[0].item() for part in (batch[:3], batch[3:])]
    assert sum(halves) / 2 == pytest.approx(expected.item(), abs=1e-6)


def test_rows_that_fill_up_a_batch_do_not_count(batch):
    filler = dict(batch[1])  # verl copies another row's fields and gives it one masked response token
    filler.update(
        log_probs=torch.zeros(8),
        prompts=torch.zeros(7, dtype=torch.int64),
        responses=torch.zeros(1, dtype=torch.int64),
        response_mask=torch.zeros(1, dtype=torch.int64),
        old_log_probs=torch.zeros(1),
        advantages=torch.zeros(1),
    )
    expected, sums, _ = pure(batch)
    loss, metrics, _ = call([*batch, filler], tokens=token_count(batch))
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    assert metrics["onepo/teacher_tokens"].aggregate() == float(sums["onepo/teacher_tokens"])


@pytest.mark.parametrize("field", ["log_probs", "old_log_probs", "advantages"])
def test_a_row_that_is_not_finite_stops_the_run_by_name(batch, field):
    batch[3][field] = torch.full_like(batch[3][field], float("nan"))
    with pytest.raises(ControlledStop, match=r"step 3: .*uid3") as stop:
        call(batch, tokens=token_count(batch))
    assert stop.value.exit_code == 3


def test_what_is_not_finite_outside_the_mask_is_no_matter(batch):
    expected, _, _ = pure(batch)
    batch[1]["old_log_probs"][2] = float("inf")  # an observation
    batch[1]["advantages"][2] = float("nan")
    loss, _, _ = call(batch, tokens=token_count(batch))
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
