"""One learner rank of CAMP over gloo, for the tests beside this file; started as a program of its own.

The trainer's own update of actor and critic, verl's own workers, engines and padding. Only the way of the rows is
shorter: verl's worker group and its queue would bring each rank its equal part of the batch.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict

from tests.contract.camp_config import camp_config

EPISODES = 5  # more than one, and odd: two learners do not divide it
_NETWORKS = ("actor", "critic")


def update_config(student: Path | str, critic: Path | str) -> DictConfig:
    """The recipe's, with a small batch, steps that show, and so little room that a rank has several micro-batches."""
    config = camp_config(
        f"data.train_batch_size={EPISODES}",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=130",
        "actor_rollout_ref.actor.optim.lr=1e-3",
        "critic.optim.lr=1e-3",
        student=student,
    )
    OmegaConf.update(config, "critic.model.path", str(critic))
    return config


def make_episodes(vocabulary: int) -> list[dict[str, torch.Tensor]]:
    """Rows of different lengths with an observation in each, as they are before an update; same on every rank."""
    generator = torch.Generator().manual_seed(5)

    def random(count: int, low: float, high: float) -> torch.Tensor:
        return low + (high - low) * torch.rand(count, generator=generator)

    episodes = []
    for number in range(EPISODES):
        prompt, response = 4 + 9 * number, 12 + (7 * number) % 23
        ids = torch.randint(3, vocabulary, (prompt + response,), generator=generator)
        mask = torch.ones(response, dtype=torch.int64)
        mask[3 + number : 6 + number] = 0
        episodes.append(
            {
                "prompts": ids[:prompt],
                "responses": ids[prompt:],
                "input_ids": ids,
                "attention_mask": torch.ones_like(ids),
                "position_ids": torch.arange(len(ids)),
                "response_mask": mask,
                "loss_mask": mask,
                "old_log_probs": random(response, -6.5, -4.5),
                "advantages": random(response, -2, 2),
                "values": random(response, -1, 1),
                "returns": random(response, -2, 2),
            }
        )
    return episodes


def pad(episodes: list[dict[str, torch.Tensor]], multiple: int) -> list[dict[str, torch.Tensor]]:
    """Fill up with verl's own rows."""
    from verl.trainer.ppo.padding_utils import construct_minimal_padding_template

    filler, tag = construct_minimal_padding_template(episodes[0], {}, eos_token_id=2)
    assert tag["is_padding"]
    rows = [{name: filler[name] for name in episodes[0]} for _ in range(-len(episodes) % multiple)]
    return [*episodes, *rows]


class OwnPart:
    """A worker group of which this process is one worker."""

    def __init__(self, rows, actor, critic):
        self._rows, self._actor, self._critic = rows, actor, critic

    def update_actor(self, batch) -> TensorDict:
        return self._actor.update_actor(self._data(batch))

    def train_mini_batch(self, batch) -> SimpleNamespace:
        output = self._critic.train_mini_batch(self._data(batch))
        return SimpleNamespace(get=lambda: output)

    def _data(self, batch) -> TensorDict:
        from verl.utils import tensordict_utils as tu

        (part,) = [part for part in batch.chunk(self._actor.world_size) if part.keys[0] == self._first(batch)]
        data = tu.list_of_dict_to_tensordict([self._rows[int(key)] for key in part.keys])
        for name, value in part.extra_info.items():
            tu.assign_non_tensor_data(data, name, value)
        return data

    def _first(self, batch) -> str:
        return batch.keys[len(batch) // self._actor.world_size * self._actor.rank]


def make_workers(config: DictConfig):
    """Actor and critic as verl's trainer and its workers make them."""
    from functools import partial

    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.config import TrainingWorkerConfig
    from verl.workers.engine_workers import ActorRolloutRefWorker
    from verl.workers.utils.losses import value_loss

    from camp.rl.critic import CriticWorker

    actor = ActorRolloutRefWorker(config=config.actor_rollout_ref, role="actor")
    actor.init_model()
    settings = omega_conf_to_dataclass(config.critic)
    settings.engine.max_token_len_per_gpu = settings.ppo_infer_max_token_len_per_gpu
    critic = CriticWorker(
        TrainingWorkerConfig(
            model_type="value_model",
            model_config=settings.model,
            engine_config=settings.engine,
            optimizer_config=settings.optim,
            checkpoint_config=settings.checkpoint,
        )
    )
    critic.reset()
    critic.set_loss_fn(partial(value_loss, config=settings))
    return actor, critic


def main(student: str, critic_path: str, target: str) -> None:
    from transfer_queue import KVBatchMeta

    from camp.rl.trainer import CampRLTrainer

    torch.set_num_threads(1)
    config = update_config(student, critic_path)
    actor, critic = make_workers(config)
    trainer = object.__new__(CampRLTrainer)
    trainer.config, trainer.global_steps = config, 1
    vocabulary = actor.actor.engine.module.config.vocab_size
    rows = pad(make_episodes(vocabulary), trainer._get_required_batch_multiple(actor.world_size))
    trainer.actor_rollout_wg = trainer.critic_wg = OwnPart(rows, actor, critic)
    batch = KVBatchMeta(keys=[str(number) for number in range(len(rows))], tags=[{}] * len(rows), partition_id="train")
    metrics = {}
    trainer._update_critic(batch, metrics)
    trainer._update_actor(batch, metrics)
    found = {"rows": len(rows)}
    for name, engine in zip(_NETWORKS, (actor.actor.engine, critic.engine), strict=True):
        states = engine.optimizer.state_dict()["state"].values()
        found[name] = {
            "loss": float(metrics[f"{name}/loss"]),
            "grad_norm": float(metrics[f"{name}/grad_norm"]),
            "steps": sorted({int(state["step"]) for state in states}),
            "weights": {key: value.detach().clone() for key, value in engine.get_per_tensor_param()[0]},
        }
    if actor.rank == 0:
        torch.save(found, target)
    torch.distributed.destroy_process_group()


def start_ranks(ranks: int, *arguments: object) -> list[subprocess.Popen]:
    """This program once for each rank."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    return [
        subprocess.Popen(
            [sys.executable, "-m", "tests.contract.camp_update_rank", *map(str, arguments)],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]


if __name__ == "__main__":
    main(*sys.argv[1:])
