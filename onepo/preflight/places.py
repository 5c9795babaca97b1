"""Where the run will write."""

import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from onepo.preflight.weights import stored_shapes
from onepo.settings import Settings, option_of
from onepo.trainers.checkpoints import list_checkpoints
from onepo.trainers.samples import samples_bytes

_LONGEST_NAME = 250  # a file name may have 255 bytes, and a second run of the same second adds to it


def directory_problems(config: DictConfig, settings: Settings) -> Iterator[str]:
    """Where the run will write: possible, and not over the results of another run."""
    checkpoint_dir, outputs_dir = Path(config.trainer.default_local_dir), Path(config.trainer.validation_data_dir)
    for option, folder in (
        ("OUTPUT_DIR", Path(settings.run_dir)),
        ("CHECKPOINT_DIR", checkpoint_dir),
        ("OUTPUTS_DIR", outputs_dir),
        ("LOGS_DIR", Path(settings.logs_dir)),
        ("HYDRA_OUTPUT_DIR", Path(settings.config_dir)),
    ):
        place = _existing(folder)
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            yield f"{option}: {folder} cannot be made, because {place} is not a directory that you may write to"
            return
    latest = Path(settings.run_dir).with_name("latest")
    if latest.is_dir() and not latest.is_symlink():
        yield f"OUTPUT_DIR: {latest} is a directory, and a link of this name shows the newest run: move it away"
    for option, text in (
        ("MODEL_PATH", config.actor_rollout_ref.model.path),
        ("TRAIN_FILE", str(config.data.train_files)),
        ("VAL_FILE", str(config.data.val_files)),
        ("CHECKPOINT_DIR", str(checkpoint_dir)),
        ("OUTPUTS_DIR", str(outputs_dir)),
        *_texts(settings.model_dump()),
    ):
        if "${" in text:
            yield f"{option}: {text} contains '${{', which verl would take for a reference: use another name"
    if len(Path(settings.run_dir).name.encode()) > _LONGEST_NAME:
        yield f"EXPERIMENT_NAME: the run directory's name would be longer than {_LONGEST_NAME} bytes: use a shorter one"
        return
    if list_checkpoints(checkpoint_dir):
        yield f"CHECKPOINT_DIR={checkpoint_dir} holds checkpoints of another run: set another one, or none"
    if any(outputs_dir.glob("*.jsonl")):
        yield f"OUTPUTS_DIR={outputs_dir} holds generations of another run: set another one, or none"


def _free(folder: Path) -> int:
    return shutil.disk_usage(_existing(folder)).free


def _texts(section: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The text options of ours, by the launcher's names."""
    for key, value in section.items():
        if isinstance(value, str):
            yield "OUTPUT_DIR or EXPERIMENT_NAME" if key == "run_dir" else option_of(prefix + key), value
        elif isinstance(value, dict):
            yield from _texts(value, f"{key}.")


def _existing(path: Path) -> Path:
    """The path, or the nearest of its parents that is there."""
    while not os.path.lexists(path):
        path = path.parent
    return path


def disk_problems(config: DictConfig, settings: Settings, *, final_step: int) -> Iterator[str]:
    samples, free = samples_bytes(config, settings, final_step=final_step), _free(Path(settings.run_dir))
    if free < samples:
        yield (
            f"OUTPUT_DIR has {free / 1e9:.1f} GB free, and ROLLOUT_DUMP_FREQ={settings.rollout_dump_freq} may write up "
            f"to {samples / 1e9:.1f} GB of rollouts: raise it, or lower ROLLOUT_DUMP_SAMPLES"
        )
    parameters = sum(math.prod(shape) for _, shape in stored_shapes(Path(config.actor_rollout_ref.model.path)))
    # the learner keeps and exports float32; to go on it needs the same again, and Adam's two moments
    weights = 4 * parameters * (4 if settings.save_training_state else 1)
    place = _existing(Path(config.trainer.default_local_dir))
    needed, free = weights * (settings.max_checkpoints + 1), _free(place)
    if free < needed:
        yield (
            f"{place} has {free / 1e9:.1f} GB free, and MAX_ACTOR_CHECKPOINTS={settings.max_checkpoints} checkpoints "
            f"of this student need {needed / 1e9:.1f} GB: free some, lower it, or set OUTPUT_DIR or CHECKPOINT_DIR"
        )
