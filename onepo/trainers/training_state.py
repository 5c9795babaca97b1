"""What a checkpoint needs beside its weights for the training to go on from it, and whether a run fits to it.

verl writes the optimizer, the schedule, the random state and the data position; here is the rest: what the run was made
of, Teacher Retirement, and where its metrics are.
"""

import hashlib
import zipfile
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel

from onepo.trainers.checkpoints import list_checkpoints, read_retirement, step_of
from onepo.trainers.journal import METRICS_FILE

SAVED = ("hf_model", "model", "optimizer", "extra")
LOADED = ("model", "optimizer", "extra")
_FILE = "training_state.json"
_PARTS = ("model", "optim", "extra_state")
# how the facts that must be the same are called where the user sets them
_OPTIONS = {
    "learners": "NGPUS_PER_NODE x NNODES",
    "train_data": "TRAIN_FILE",
    "max_prompt_length": "MAX_PROMPT_LENGTH",
    "student": "MODEL_PATH",
    "train_batch_size": "TRAIN_BATCH_SIZE",
    "loader_processes": "DATALOADER_NUM_WORKERS",
    "seed": "SEED",
    "chat_options": "data.apply_chat_template_kwargs",
    "optim.lr": "ACTOR_LR",
    "optim.lr_warmup_steps": "LR_WARMUP_STEPS",
    "optim.weight_decay": "WEIGHT_DECAY",
}
_STUDENT_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
_DIGESTS = ("train_data", "student")
_FOLLOWS = ("total_training_steps",)  # of the optimizer's options: it is made from others, which may change


def run_facts(config: DictConfig) -> dict[str, Any]:
    """What must be the same for a run to go on where another one stopped: by name, as JSON values.

    It is what the state itself holds, and what the order and number of the prompts depend on. Files are known by their
    content, so that they may have moved; of the student its weights do not count, which the checkpoint has.
    """
    files = config.data.train_files
    student = Path(config.actor_rollout_ref.model.path)
    optimizer = OmegaConf.to_container(config.actor_rollout_ref.actor.optim, resolve=True)
    return {
        "learners": config.trainer.n_gpus_per_node * config.trainer.nnodes,
        "strategy": config.actor_rollout_ref.actor.strategy,
        "train_data": [_digest(Path(file)) for file in ([files] if isinstance(files, str) else files)],
        "max_prompt_length": config.data.max_prompt_length,
        "student": [_digest(student / name) for name in _STUDENT_FILES if (student / name).exists()],
        "chat_options": OmegaConf.to_container(
            config.data.apply_chat_template_kwargs or OmegaConf.create(), resolve=True
        ),
        "train_batch_size": config.data.train_batch_size,
        "loader_processes": config.data.dataloader_num_workers,
        "seed": config.onepo.seed,
        # the state that is loaded has these in it, and would win without a word
        **{f"optim.{name}": value for name, value in optimizer.items() if name not in _FOLLOWS},
    }


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(2**20):
            digest.update(block)
    return digest.hexdigest()


class _State(BaseModel):
    """What is kept in ``_FILE``."""

    step: int
    facts: dict[str, Any]
    metrics_file: Path


def write_state(checkpoint: Path, *, step: int, facts: dict[str, Any], metrics_file: Path) -> None:
    state = _State(step=step, facts=facts, metrics_file=metrics_file)
    (checkpoint / _FILE).write_text(state.model_dump_json(indent=2) + "\n")


def _read_state(checkpoint: Path) -> _State:
    return _State.model_validate_json((checkpoint / _FILE).read_bytes())


def metrics_file(checkpoint: Path) -> Path:
    """The metrics of the run that saved the checkpoint, also when the whole run directory has moved."""
    file = _read_state(checkpoint).metrics_file
    return file if file.exists() else checkpoint.parent.parent / METRICS_FILE


def find_checkpoint(place: Path) -> Path | None:
    """The checkpoint that a user means: a checkpoint itself, or the newest of a run or of a folder of checkpoints."""
    try:
        place = place.resolve(strict=True)
    except (OSError, RuntimeError):  # a name that is too long, a circle of links
        return None
    if step_of(place) is not None and place.is_dir():
        return place
    for folder in (place, place / "checkpoints"):
        if found := list_checkpoints(folder):
            return found[-1]
    return None


def has_state(checkpoint: Path) -> bool:
    """Whether its run kept more than weights."""
    return (checkpoint / _FILE).is_file()


def broken_parts(checkpoint: Path, learners: int) -> list[str]:
    """The files that are missing or damaged, and without which the training cannot go on."""
    names = [f"actor/{part}_world_size_{learners}_rank_{rank}.pt" for part in _PARTS for rank in range(learners)]
    broken = [name for name in ["data.pt", *names] if not zipfile.is_zipfile(checkpoint / name)]  # as PyTorch writes
    for name, read in ((_FILE, _read_state), ("retirement.json", read_retirement)):
        try:
            read(checkpoint)
        except (OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError):
            broken.append(name)
    return broken


def saved_step(checkpoint: Path) -> int:
    """The step after which it was saved, whatever its folder is called now."""
    return _read_state(checkpoint).step


def differences(checkpoint: Path, facts: dict[str, Any]) -> list[str]:
    """The options by which a run differs from the one that saved the checkpoint, and must not."""
    saved = _read_state(checkpoint).facts
    found = []
    for name, now in facts.items():
        before, option = saved.get(name), _OPTIONS.get(name, f"actor_rollout_ref.actor.{name}")
        if before != now:
            found.append(option if name in _DIGESTS else f"{option} ({before} then, {now} now)")
    return found
