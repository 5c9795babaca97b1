"""What a checkpoint needs beside its weights for the training to go on from it, and whether a run fits to it.

verl writes the optimizer, the schedule, the random state and the data position; here is the rest: what the run was made
of, Teacher Retirement, and where its metrics are.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from onepo.trainers.checkpoints import list_checkpoints

SAVED = ("hf_model", "model", "optimizer", "extra")
LOADED = ("model", "optimizer", "extra")
_FILE = "training_state.json"
_PARTS = ("model", "optim", "extra_state")
# how the facts that must be the same are called where the user sets them
_OPTIONS = {
    "learners": "NGPUS_PER_NODE x NNODES",
    "train_data": "TRAIN_FILE",
    "student": "MODEL_PATH",
    "train_batch_size": "TRAIN_BATCH_SIZE",
    "seed": "SEED",
    "filter_groups": "ENABLE_FILTER_GROUPS",
}


def run_facts(config: DictConfig) -> dict[str, Any]:
    """What must be the same for a run to go on where another one stopped: by name, as JSON values.

    Files are known by their content, so that they may have moved; of the student only its architecture counts, because
    the checkpoint has its weights.
    """
    files = config.data.train_files
    return {
        "learners": config.trainer.n_gpus_per_node * config.trainer.nnodes,
        "train_data": [_digest(Path(file)) for file in ([files] if isinstance(files, str) else files)],
        "student": _digest(Path(config.actor_rollout_ref.model.path, "config.json")),
        "train_batch_size": config.data.train_batch_size,
        "seed": config.onepo.seed,
        "filter_groups": config.algorithm.filter_groups.enable,
    }


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def write_state(checkpoint: Path, *, facts: dict[str, Any], metrics_file: Path) -> None:
    state = {"facts": facts, "metrics_file": str(metrics_file)}
    (checkpoint / _FILE).write_text(json.dumps(state, indent=2) + "\n")


def metrics_file(checkpoint: Path) -> Path:
    """The metrics of the run that saved the checkpoint."""
    return Path(json.loads((checkpoint / _FILE).read_text())["metrics_file"])


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("_")[2])


def find_checkpoint(place: Path) -> Path | None:
    """The checkpoint that a user means: a checkpoint itself, or the newest of a run or of a folder of checkpoints."""
    place = place.resolve()
    if place.name.startswith("global_step_") and place.is_dir():
        return place
    for folder in (place, place / "checkpoints"):
        if found := list_checkpoints(folder):
            return found[-1]
    return None


def missing_parts(checkpoint: Path, learners: int) -> list[str]:
    """The files that are not there and without which the training cannot go on."""
    names = [f"actor/{part}_world_size_{learners}_rank_{rank}.pt" for part in _PARTS for rank in range(learners)]
    return [name for name in [_FILE, "data.pt", "retirement.json", *names] if not (checkpoint / name).is_file()]


def differences(checkpoint: Path, facts: dict[str, Any]) -> list[str]:
    """The options by which a run differs from the one that saved the checkpoint, and must not."""
    saved = json.loads((checkpoint / _FILE).read_text())["facts"]
    found = []
    for name, option in _OPTIONS.items():
        if saved[name] != facts[name]:
            values = f" ({saved[name]} then, {facts[name]} now)" if not isinstance(saved[name], str | list) else ""
            found.append(f"{option}{values}")
    return found
