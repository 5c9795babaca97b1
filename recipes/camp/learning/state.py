"""What a checkpoint needs beside what verl writes, and whether a run fits to it."""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from pydantic import BaseModel

from camp.configuration import teacher_directory
from camp.departures import FACTS, learned_with, value_of
from camp.learning.lineage import BrokenLineage, Lineage
from camp.routes import Routes
from onepo.report.hashes import file_sha256
from onepo.trainers.checkpoints import step_of

_FILE = "camp_state.json"
_PARTS = ("model", "optim", "extra_state")
_MODEL_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)
# a run may be made longer, and one that met a prompt that is too long could not go on otherwise
_MAY_CHANGE = ("trainer.total_training_steps", "data.max_prompt_length")
_SAID_ALREADY = ("actor_rollout_ref.actor.ppo_mini_batch_size", "critic.ppo_mini_batch_size")  # by train_batch_size


_FORM = 3  # of the finished episodes that a checkpoint holds


class _State(BaseModel):
    form: int = 1
    update: int
    facts: dict[str, Any]


def run_facts(config: DictConfig, routes: Routes) -> dict[str, Any]:
    """What must be the same for a run to go on where another one stopped: JSON values by what a user calls them."""
    learned = {fact.key: value_of(config, fact.key) for fact in FACTS} | dict(learned_with(config))
    facts = {
        "--method": config.camp.method,
        "--student": _model_facts(config.actor_rollout_ref.model.path),
        "--routes": routes.sha256,
        "--schedule": routes.schedule_sha256,
        "learners (trainer.n_gpus_per_node x trainer.nnodes)": config.trainer.n_gpus_per_node * config.trainer.nnodes,
        "actor_rollout_ref.actor.strategy": config.actor_rollout_ref.actor.strategy,
        **{key: value for key, value in learned.items() if key not in (*_MAY_CHANGE, *_SAID_ALREADY)},
    }
    if teacher := teacher_directory(config):
        facts["--teacher"] = _model_facts(teacher)
    if config.critic.enable:
        facts["critic.strategy"] = config.critic.strategy
    return facts


def _model_facts(folder: str) -> dict[str, str]:
    """Of its configuration and tokenizer: a checkpoint has the student's weights, and a teacher's are too many."""
    return {name: file_sha256(Path(folder, name)) for name in _MODEL_FILES if Path(folder, name).exists()}


def write_state(checkpoint: Path, *, update: int, facts: dict[str, Any]) -> None:
    (checkpoint / _FILE).write_text(_State(form=_FORM, update=update, facts=facts).model_dump_json(indent=2) + "\n")


def checkpoint_problems(checkpoint: Path, config: DictConfig, routes: Routes) -> Iterator[str]:
    """Why a run cannot go on from a checkpoint."""
    where = f"--resume {checkpoint}"
    if step_of(checkpoint) is None or not checkpoint.is_dir():
        yield f"{where} is not the directory of a checkpoint, such as OUTPUT/checkpoints/global_step_10"
        return
    try:
        state = _State.model_validate_json((checkpoint / _FILE).read_bytes())
    except (OSError, ValueError):
        yield f"{where} has no readable {_FILE}: it was not saved by CAMP, or is damaged"
        return
    if state.form != _FORM:
        yield f"{where} was saved by another version of CAMP, whose episodes have another form: go on with that one"
        return
    if state.update != step_of(checkpoint):
        yield f"{where} was saved after update {state.update}: give it its name back"
        return
    facts = run_facts(config, routes)
    if "--teacher" not in state.facts:
        facts.pop("--teacher", None)  # then it was one behind an address, of which nothing is known
    differing = [name for name, now in facts.items() if state.facts.get(name) != now]
    for name in differing:
        before, now = state.facts.get(name), facts[name]
        told = "" if name.startswith("--") and name != "--method" else f" ({before} then, {now} now)"
        yield f"{where} was saved by a run with another {name}{told}"
    if not differing and (broken := _broken_parts(checkpoint, config)):
        yield f"{where} cannot be gone on from: {', '.join(broken)} missing or damaged"


def _broken_parts(checkpoint: Path, config: DictConfig) -> list[str]:
    learners = config.trainer.n_gpus_per_node * config.trainer.nnodes
    networks = ["actor", "critic"] if config.critic.enable else ["actor"]
    names = [
        f"{network}/{part}_world_size_{learners}_rank_{rank}.pt"
        for network in networks
        for part in _PARTS
        for rank in range(learners)
    ]
    broken = [name for name in ["data.pt", *names] if not zipfile.is_zipfile(checkpoint / name)]  # as PyTorch writes
    if not (checkpoint / "transfer_queue" / "metadata.json").is_file():
        broken.append("transfer_queue")
    try:
        Lineage.read(checkpoint)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, BrokenLineage):
        broken.append("episodes.json")
    return broken
