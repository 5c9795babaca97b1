"""What an update of CAMP's actor and critic computes, by verl's own functions and on its real learners."""

import json
import pickle
from types import SimpleNamespace

import pytest
import torch
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import compute_gae_advantage_return
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.utils import tensordict_utils as tu
from verl.workers.utils.losses import value_loss

from camp.learning.one_update import one_update
from camp.rl.trainer import CampRLTrainer
from tests.conftest import VECTORS
from tests.contract.camp_update_rank import EPISODES, make_episodes, pad, start_ranks, update_config

CASES = json.loads((VECTORS / "gae.json").read_text())
VOCABULARY = 256
CONFIG = update_config("/none/student", "/none/student")


def ragged(rows):
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


# ---- advantages


def tensors(case):
    """Rewards, values and mask of a case. [1, T]"""
    width = len(case["rewards"])
    mask = case.get("response_mask") or [1] * case["length"] + [0] * (width - case["length"])
    rewards, values = (torch.tensor([case[name]], dtype=torch.float64) for name in ("rewards", "values"))
    return rewards, values, torch.tensor([mask])


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["seed"]))
def test_advantages_before_whitening_are_those_of_the_vectors(case):
    rewards, values, mask = tensors(case)
    advantages, returns = compute_gae_advantage_return(rewards, values, mask, case["gamma"], case["lam"])
    learned = mask.bool()
    raw = torch.tensor(case["raw_advantages"], dtype=torch.float64)[learned[0]]
    expected_returns = [value for value, marked in zip(case["returns"], mask[0].tolist(), strict=True) if marked]
    assert (returns - values)[learned].tolist() == pytest.approx(raw.tolist(), abs=1e-12)
    assert returns[learned].tolist() == pytest.approx(expected_returns, abs=1e-12)
    whitened = (raw - raw.mean()) / raw.std()
    assert advantages[learned].tolist() == pytest.approx(whitened.tolist(), abs=1e-6)


def test_returns_by_hand():
    """An observation between two of the student's tokens takes no time and has no value."""
    rewards, values = torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.5, 7.0, 0.25]])
    _, returns = compute_gae_advantage_return(rewards, values, torch.tensor([[1, 0, 1]]), 0.5, 0.5)
    assert (returns - values)[0, 2] == 0.75  # 1 - 0.25
    assert (returns - values)[0, 0] == -0.1875  # 0.25 / 2 - 0.5 + 0.75 / 4


def test_without_discount_every_token_returns_the_reward():
    assert (CONFIG.algorithm.adv_estimator, CONFIG.algorithm.gamma, CONFIG.algorithm.lam) == ("gae", 1.0, 1.0)
    rewards, values, mask = tensors(CASES[-1])
    _, returns = compute_gae_advantage_return(rewards, values, mask, CONFIG.algorithm.gamma, CONFIG.algorithm.lam)
    assert returns[mask.bool()].tolist() == pytest.approx([0.8] * 4)


def test_advantages_carry_no_gradient():
    rewards, values, mask = tensors(CASES[0])
    advantages, returns = compute_gae_advantage_return(rewards, values.requires_grad_(), mask, 1.0, 1.0)
    assert not advantages.requires_grad and not returns.requires_grad


@pytest.fixture
def batch():
    """The vectors' cases of the same width as one batch. [B, T]"""
    return [torch.cat(parts) for parts in zip(*map(tensors, CASES[:-1]), strict=True)]


def test_the_order_of_rows_is_no_matter(batch):
    expected = compute_gae_advantage_return(*batch, 0.99, 0.95)
    order = torch.tensor([4, 0, 7, 2, 6, 1, 3, 5])
    found = compute_gae_advantage_return(*[part[order] for part in batch], 0.99, 0.95)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other[order])


def test_what_is_outside_the_mask_is_no_matter(batch):
    """Further rows and columns, and whatever stands there and at observations."""
    rewards, values, mask = batch
    expected = compute_gae_advantage_return(rewards, values.where(mask.bool(), 0), mask, 0.99, 0.95)
    rows, width = mask.shape
    wide = [torch.full((rows + 2, width + 3), 1e9, dtype=torch.float64) for _ in range(2)]
    for part, inner in zip(wide, (rewards, values), strict=True):
        part[:rows, :width] = inner.where(mask.bool(), 1e9)
    wide_mask = torch.nn.functional.pad(mask, (0, 3, 0, 2))
    found = compute_gae_advantage_return(*wide, wide_mask, 0.99, 0.95)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one[:rows, :width][mask.bool()], other[mask.bool()])


def test_a_value_that_is_no_number_cannot_hide(batch):
    """verl multiplies by the mask, so even one outside of it spoils the update, and its gradient tells the trainer."""
    rewards, values, mask = batch
    values[0, 5] = float("nan")
    assert not mask[0, 5]
    advantages, _ = compute_gae_advantage_return(rewards, values, mask, 0.99, 0.95)
    assert advantages[mask.bool()].isnan().all()


def advantages_of(rows):
    """As verl's trainer computes them, by row and without padding."""
    names = ("response_mask", "values")
    fields = {name: ragged([row[name] for row in rows]) for name in names}
    scores = [row["response_mask"] * torch.arange(len(row["responses"])) / 10.0 for row in rows]
    data = DataProto(batch=TensorDict(fields, batch_size=len(rows)).to_padded_tensor())
    data.batch["token_level_rewards"] = ragged(scores).to_padded_tensor(0.0)
    data = compute_advantage_for_multi_trajectories(
        data,
        batch_keys=[str(number) for number in range(len(rows))],
        adv_estimator=CONFIG.algorithm.adv_estimator,
        gamma=CONFIG.algorithm.gamma,
        lam=CONFIG.algorithm.lam,
        config=CONFIG.algorithm,
    )
    return [
        (part[: len(row["responses"])], returns[: len(row["responses"])])
        for part, returns, row in zip(data.batch["advantages"], data.batch["returns"], rows, strict=True)
    ]


def test_rows_that_fill_up_a_batch_do_not_change_the_advantages():
    episodes = make_episodes(VOCABULARY)
    padded = pad(episodes, 6)
    assert len(padded) == 6 and not padded[-1]["response_mask"].any()
    padded[-1]["values"] = torch.full((1,), 3.0)
    for one, other in zip(advantages_of(padded), advantages_of(episodes), strict=False):
        torch.testing.assert_close(one, other)


# ---- value loss


def value_rows():
    """Two responses: one token beyond the clip and one within, an observation between; one that is far off."""
    return [
        {
            "prompts": torch.tensor([1, 2]),
            "responses": torch.tensor([3, 4, 5]),
            "predicted": torch.tensor([8.0, 1.8, 8.0, 0.3, 8.0]),  # of the next token, from the prompt's first one on
            "response_mask": torch.tensor([1, 0, 1]),
            "values": torch.tensor([1.0, 9.0, 0.0]),
            "returns": torch.tensor([2.0, -9.0, 0.2]),
        },
        {
            "prompts": torch.tensor([1]),
            "responses": torch.tensor([3]),
            "predicted": torch.tensor([0.9, 8.0]),
            "response_mask": torch.tensor([1]),
            "values": torch.tensor([0.0]),
            "returns": torch.tensor([-1.0]),
        },
    ]


def value_loss_of(rows, tokens=3):
    """One call as the engine makes it: loss, metrics and the gradient by row."""
    predicted = [row["predicted"].clone().requires_grad_() for row in rows]
    lengths = torch.tensor([0, *map(len, predicted)]).cumsum(0)
    names = ("prompts", "responses", "response_mask", "values", "returns")
    data = TensorDict({name: ragged([row[name] for row in rows]) for name in names}, batch_size=len(rows))
    tu.assign_non_tensor(data, dp_size=1, batch_num_tokens=tokens, global_batch_size=len(rows))
    output = {"values": torch.nested.nested_tensor_from_jagged(torch.cat(predicted), lengths)}
    loss, metrics = value_loss(CONFIG.critic, output, data)
    loss.backward()
    return loss.item(), metrics, [row.grad for row in predicted]


def test_the_value_loss_by_hand():
    """Of the clipped and the plain error the larger one counts: 0.5 away from the old value at the most."""
    assert CONFIG.critic.cliprange_value == 0.5
    loss, metrics, _ = value_loss_of(value_rows())
    beyond, within, far = (1.5 - 2.0) ** 2, (0.3 - 0.2) ** 2, (0.9 + 1.0) ** 2
    assert loss == pytest.approx(0.5 * (beyond + within + far) / 3)
    assert metrics["critic/vf_clipfrac"] == pytest.approx(1 / 3)


def test_the_value_gradient_reaches_what_the_student_wrote_and_is_not_clipped():
    """The value of a token is predicted at the token before it."""
    _, _, (first, second) = value_loss_of(value_rows())
    assert first.tolist() == pytest.approx([0, 0, 0, 0.1 / 3, 0])
    assert second.tolist() == pytest.approx([1.9 / 3, 0])


def test_rows_that_fill_up_a_batch_and_observations_do_not_change_the_value_loss():
    rows = value_rows()
    expected, _, expected_gradients = value_loss_of(rows)
    rows[0]["values"][1] = rows[0]["returns"][1] = rows[0]["predicted"][2] = 1e9
    filler = {
        **rows[0],
        "prompts": torch.ones(7).long(),
        "responses": torch.ones(1).long(),
        "predicted": torch.full((8,), 1e9),
    }
    filler |= {name: torch.full((1,), 1e9) for name in ("values", "returns")}
    filler["response_mask"] = torch.zeros(1, dtype=torch.int64)
    loss, _, (*gradients, of_filler) = value_loss_of([*rows, filler])
    assert loss == pytest.approx(expected)
    assert not of_filler.any()
    for one, other in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("name", "place"), [("values", 1), ("returns", 1), ("predicted", 2)])
def test_what_is_no_number_outside_the_mask_shows_in_the_value_gradient(name, place):
    """verl's loss leaves it out, its gradient does not: the norm is no number either, and the trainer stops at that."""
    rows = value_rows()
    expected, _, _ = value_loss_of(rows)
    rows[0][name][place] = float("nan")
    loss, _, gradients = value_loss_of(rows)
    assert loss == pytest.approx(expected)
    assert not torch.cat(gradients).norm().isfinite()


# ---- one update for all episodes


@pytest.fixture
def meta():
    """Episodes as verl's trainer holds them."""
    keys = [f"{position}_0_0" for position in range(EPISODES)]
    told = {"temperature": 1.0, "compute_loss": False}
    return KVBatchMeta(keys=keys, tags=[{}] * EPISODES, partition_id="train", extra_info=told)


def test_the_number_of_mini_batches_takes_the_place_of_their_size(meta):
    with one_update(meta):
        meta.extra_info.update({"mini_batch_size": 5, "global_batch_size": 5, "epochs": 1})
        assert meta.extra_info == {
            "temperature": 1.0,
            "compute_loss": False,
            "num_mini_batch": 1,
            "global_batch_size": 5,
            "epochs": 1,
        }
    assert type(meta.extra_info) is dict
    assert meta.extra_info == {"temperature": 1.0, "compute_loss": False, "global_batch_size": 5, "epochs": 1}


def test_an_update_that_fails_leaves_no_trace(meta):
    with pytest.raises(ArithmeticError), one_update(meta):
        meta.extra_info.update({"mini_batch_size": 5})
        raise ArithmeticError
    assert type(meta.extra_info) is dict and meta.extra_info == {"temperature": 1.0, "compute_loss": False}


class Asked:
    """A worker group that takes down what each of three learners is told, behind the way through Ray."""

    def __init__(self):
        self.told = []

    def update_actor(self, batch):
        self.told += [pickle.loads(pickle.dumps(part)).extra_info for part in batch.chunk(3)]
        return {"metrics": {"mfu": 0.0, "grad_norm": 1.0}}

    def train_mini_batch(self, batch):
        return SimpleNamespace(get=lambda: self.update_actor(batch))


@pytest.mark.parametrize("name", ["_update_actor", "_update_critic"])
def test_every_learner_is_told_of_one_mini_batch(name, meta):
    asked = Asked()
    trainer = object.__new__(CampRLTrainer)
    trainer.config, trainer.global_steps = CONFIG, 1
    trainer.actor_rollout_wg = trainer.critic_wg = asked
    assert getattr(trainer, name)(meta, {}) is meta
    assert len(asked.told) == 3
    for told in asked.told:
        assert told["num_mini_batch"] == 1 and "mini_batch_size" not in told
        assert (told["global_batch_size"], told["epochs"]) == (EPISODES, 1)
    assert "num_mini_batch" not in meta.extra_info and meta.extra_info["temperature"] == 1.0
    getattr(PPOTrainer, name)(trainer, meta, {})  # the reason: if this changes, ours has nothing to do
    assert asked.told[-1]["mini_batch_size"] == EPISODES and "num_mini_batch" not in asked.told[-1]


def test_the_batch_is_filled_up_to_the_learners_only():
    trainer = object.__new__(CampRLTrainer)
    trainer.config, trainer.use_critic, trainer.global_steps = CONFIG, True, 1
    assert PPOTrainer._get_required_batch_multiple(trainer, 6) == 30  # verl's own: of the mini-batch as well
    assert trainer._get_required_batch_multiple(6) == 6


# ---- on real learners


@pytest.fixture(scope="module")
def critic(student, tmp_path_factory):
    """A value network with the student's trunk, and a head that is the same for every learner."""
    folder = tmp_path_factory.mktemp("critic")
    torch.manual_seed(1)
    AutoModelForTokenClassification.from_pretrained(student, num_labels=1).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((student / name).read_bytes())
    return folder


@pytest.fixture(scope="module")
def updates(student, critic, tmp_path_factory):
    """The same five episodes learned from by one learner, and by two with a row that fills up the batch."""
    folder = tmp_path_factory.mktemp("updates")
    files = {ranks: folder / f"{ranks}.pt" for ranks in (1, 2)}
    processes = [process for ranks, file in files.items() for process in start_ranks(ranks, student, critic, file)]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], "\n".join(outputs)
    found = {ranks: torch.load(file, weights_only=True) for ranks, file in files.items()}
    assert found[1]["rows"] == EPISODES and found[2]["rows"] == EPISODES + 1
    return found


def expected_losses(student, critic):
    """Loss and gradient norm of each network over the five episodes, by plain torch."""
    actor = AutoModelForCausalLM.from_pretrained(student, dtype=torch.float32)
    values = AutoModelForTokenClassification.from_pretrained(critic, dtype=torch.float32)
    losses, tokens = {"actor": 0, "critic": 0}, 0
    for episode in make_episodes(actor.config.vocab_size):
        window = slice(len(episode["prompts"]) - 1, -1)
        mask, advantage = episode["response_mask"].bool(), episode["advantages"]
        logits = actor(episode["input_ids"][None]).logits[0, window]
        log_probs = torch.log_softmax(logits, -1).gather(1, episode["responses"][:, None])[:, 0]
        ratio = (log_probs - episode["old_log_probs"]).exp()
        policy = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2))
        policy = torch.where(advantage < 0, torch.minimum(policy, -3 * advantage), policy)
        predicted = values(episode["input_ids"][None]).logits[0, window, 0]
        clipped = predicted.clamp(episode["values"] - 0.5, episode["values"] + 0.5)
        errors = torch.maximum((predicted - episode["returns"]) ** 2, (clipped - episode["returns"]) ** 2)
        losses["actor"] += policy[mask].sum()
        losses["critic"] += 0.5 * errors[mask].sum()
        tokens += mask.sum()
    found = {}
    for name, model in (("actor", actor), ("critic", values)):
        loss = losses[name] / tokens
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
        found[name] = {"loss": loss.item(), "grad_norm": norm.item()}
    return found


@pytest.mark.parametrize("network", ["actor", "critic"])
def test_learners_that_do_not_divide_the_batch_take_the_same_step(network, updates, student, critic):
    expected = expected_losses(student, critic)[network]
    alone, together = updates[1][network], updates[2][network]
    for found in (alone, together):
        assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-5)
        assert found["steps"] == [1]  # Adam's own count, of every parameter
    before = AutoModelForCausalLM.from_pretrained(student, dtype=torch.float32).state_dict()
    name = "model.layers.0.mlp.up_proj.weight"
    assert (alone["weights"][name] - before[name]).abs().max() > 5e-4
    torch.testing.assert_close(together["weights"], alone["weights"], rtol=0, atol=1e-5)
