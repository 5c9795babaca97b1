"""The K1 loss as verl's learner calls it, on ragged rows in micro-batches, against verl's own and the pure one."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from tensordict import NonTensorStack, TensorDict
from verl.trainer.distillation.losses import distillation_loss
from verl.utils import tensordict_utils as tu
from verl.workers.config import DistillationLossConfig

from camp.opd.loss import k1_loss
from onepo.errors import ControlledStop

OPTIONS = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "clip_ratio_c": 3.0, "loss_max_clamp": 1.5}
PROMPTS = [3, 1, 4, 2, 2, 5]
RESPONSES = [4, 6, 1, 3, 6, 2]


def ragged(rows):
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


@pytest.fixture
def batch():
    """Six rows of different lengths, two of them with an observation in the middle."""
    generator = torch.Generator().manual_seed(0)
    rand = partial(torch.rand, generator=generator)
    rows = []
    for prompt, response in zip(PROMPTS, RESPONSES, strict=True):
        mask = torch.ones(response, dtype=torch.int64)
        if response == 6:
            mask[2] = 0
        log_probs = -4 * rand(prompt + response)
        rows.append(
            {
                "log_probs": log_probs,
                "prompts": torch.zeros(prompt, dtype=torch.int64),
                "responses": torch.zeros(response, dtype=torch.int64),
                "response_mask": mask,
                "old_log_probs": log_probs[prompt - 1 : -1] + 0.6 * rand(response) - 0.3,
                "teacher_logprobs": (-4 * rand(prompt + response))[:, None],
            }
        )
    return rows


def micro_batch(rows, *, tokens, dp_size=1):
    """What the engine gives to a loss, and the leaf of the model's log-probabilities."""
    flat = torch.cat([row["log_probs"] for row in rows]).requires_grad_()
    offsets = torch.tensor([0, *[len(row["log_probs"]) for row in rows]]).cumsum(0)
    fields = {name: ragged([row[name] for row in rows]) for name in rows[0] if name != "log_probs"}
    fields["uid"] = NonTensorStack(*[f"uid{i}" for i in range(len(rows))])
    fields["global_steps"] = NonTensorStack(*[3] * len(rows))
    data = TensorDict(fields, batch_size=len(rows))
    tu.assign_non_tensor(data, dp_size=dp_size, batch_num_tokens=tokens, global_batch_size=len(rows))
    return {"log_probs": torch.nested.nested_tensor_from_jagged(flat, offsets)}, data, flat


def call(rows, **how):
    output, data, flat = micro_batch(rows, **how)
    loss, metrics = k1_loss(output, data, **OPTIONS)
    loss.backward()
    return loss.detach(), flat.grad, {name: metric.aggregate() for name, metric in metrics.items()}


def token_count(rows):
    return int(sum(row["response_mask"].sum() for row in rows))


def test_it_is_verls_own_k1(batch):
    loss, grad, _ = call(batch, tokens=token_count(batch))
    output, data, flat = micro_batch(batch, tokens=token_count(batch))
    config = DistillationLossConfig(
        loss_mode="k1", use_policy_gradient=True, use_task_rewards=False, loss_max_clamp=OPTIONS["loss_max_clamp"]
    )
    actor = SimpleNamespace(loss_agg_mode="token-mean", loss_scale_factor=None, global_batch_info={})
    expected, _ = distillation_loss(actor, SimpleNamespace(distillation_loss=config), output, data)
    expected.backward()
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(grad, flat.grad)
    assert grad.abs().sum() > 0


@pytest.mark.parametrize("parts", [[1] * 6, [2, 4], [5, 1]])
def test_micro_batches_and_ranks_add_up(batch, parts):
    tokens = token_count(batch)
    loss, grad, metrics = call(batch, tokens=tokens)
    rows, found = iter(batch), []
    for size in parts:
        found.append(call([next(rows) for _ in range(size)], tokens=tokens, dp_size=2))
    torch.testing.assert_close(sum(part[0] for part in found) / 2, loss)  # verl averages over the ranks
    torch.testing.assert_close(torch.cat([part[1] for part in found]) / 2, grad)
    for name in metrics.keys() - {"pg_loss"}:
        torch.testing.assert_close(float(sum(part[2][name] for part in found)), float(metrics[name]))


@pytest.mark.parametrize("stale", [0, 1, 30])
def test_a_row_of_padding_changes_nothing_whatever_scores_it_has(batch, stale):
    """At the pinned commit it keeps those of the row that it was copied from."""
    padding = {
        "log_probs": torch.rand(8),
        "prompts": torch.zeros(7, dtype=torch.int64),
        "responses": torch.zeros(1, dtype=torch.int64),
        "response_mask": torch.zeros(1, dtype=torch.int64),
        "old_log_probs": torch.zeros(1),
        "teacher_logprobs": torch.full((stale, 1), -5.0),
    }
    tokens = token_count(batch)
    loss, grad, metrics = call(batch, tokens=tokens)
    padded, padded_grad, padded_metrics = call([*batch, padding], tokens=tokens)
    torch.testing.assert_close(padded, loss)
    torch.testing.assert_close(padded_grad, torch.cat([grad, torch.zeros(8)]))
    assert padded_metrics == metrics


@pytest.mark.parametrize(("field", "place"), [("teacher_logprobs", PROMPTS[1] - 1 + 1), ("old_log_probs", 1)])
def test_a_score_that_is_no_number_stops_the_run(batch, field, place):
    batch[1][field][place] = torch.nan  # of the token before the observation
    with pytest.raises(ControlledStop, match=r"not finite in prompts \['uid1'\]"):
        call(batch, tokens=token_count(batch))


def test_observations_are_not_scored(batch):
    loss, grad, _ = call(batch, tokens=token_count(batch))
    batch[1]["teacher_logprobs"][PROMPTS[1] - 1 + 2] = torch.nan  # the entry before a token is about it
    again, same, _ = call(batch, tokens=token_count(batch))
    assert torch.equal(loss, again) and torch.equal(grad, same)
