"""Checkpoints that appear whole or not at all.

verl writes ``global_step_N`` in place and its rotation deletes old weights first. Here a checkpoint is written into a
staging folder, finished, renamed, and only then are old ones removed.
"""

import json
import re
import shutil
from pathlib import Path

from safetensors import safe_open

STAGING = ".staging"
_REMOVED = ".removed"
_NAME = re.compile(r"global_step_(\d+)")
# floating types as safetensors call them and as a model's configuration does, widest first
_DTYPES = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}


def checkpoint_folder(root: str | Path, step: int) -> Path:
    return Path(root) / f"global_step_{step}"


def model_folder(checkpoint: Path) -> Path:
    """The Hugging Face directory inside a checkpoint: weights, tokenizer, chat template."""
    return checkpoint / "actor" / "huggingface"


def step_of(checkpoint: Path) -> int | None:
    """The step of a checkpoint's folder, None for a folder of another name."""
    match = _NAME.fullmatch(checkpoint.name)
    return int(match[1]) if match else None


def list_checkpoints(root: str | Path) -> list[Path]:
    """Complete checkpoints, oldest step first."""
    folders = [path for path in Path(root).glob("global_step_*") if path.is_dir()]
    found = {step: path for path in folders if (step := step_of(path)) is not None}
    return [found[step] for step in sorted(found)]


def start_staging(root: str | Path) -> Path:
    """An empty staging folder; what a broken save left there is removed."""
    staging = Path(root) / STAGING
    for left in (staging, Path(root) / _REMOVED):
        shutil.rmtree(left, ignore_errors=True)
    staging.mkdir(parents=True)
    return staging


def publish(root: str | Path, step: int) -> Path:
    """Move a finished checkpoint out of the staging folder."""
    target = checkpoint_folder(root, step)
    if target.exists():
        _remove(target)
    staging = Path(root) / STAGING
    checkpoint_folder(staging, step).rename(target)
    shutil.rmtree(staging)
    return target


def prune(root: str | Path, keep: int) -> list[Path]:
    """Remove whole checkpoints until ``keep`` are left, oldest first; returns what was removed."""
    removed = list_checkpoints(root)[:-keep]
    for path in removed:
        _remove(path)
    return removed


def _remove(checkpoint: Path) -> None:
    """Under its name it is there as a whole or not at all."""
    removed = checkpoint.parent / _REMOVED
    shutil.rmtree(removed, ignore_errors=True)
    checkpoint.rename(removed)
    shutil.rmtree(removed)


def write_stop_ids(model_dir: Path, stop_ids: list[int]) -> None:
    """Let the exported model stop where the rollout engine stopped."""
    path = model_dir / "generation_config.json"
    config = json.loads(path.read_text()) if path.exists() else {}
    config["eos_token_id"] = stop_ids
    path.write_text(json.dumps(config, indent=2) + "\n")


def write_rope_settings(model_dir: Path) -> None:
    """Give the exported model the keys that transformers 4 reads: it would take its defaults without a word.

    transformers 5 writes ``rope_parameters`` alone, and inference engines are still built on version 4.
    """
    path = model_dir / "config.json"
    config = json.loads(path.read_text())
    for section in (config, config.get("text_config") or {}):
        rope = dict(section.get("rope_parameters") or {})
        if (theta := rope.pop("rope_theta", None)) is not None:
            section.setdefault("rope_theta", theta)
            if rope.get("rope_type", "default") != "default":
                section.setdefault("rope_scaling", rope)
    path.write_text(json.dumps(config, indent=2) + "\n")


def write_dtype(model_dir: Path) -> None:
    """Let the exported model be loaded in the type that its weights have: loading takes the one in the configuration.

    verl writes the learner's weights and leaves another type there. Of several the widest is named: nothing is rounded.
    """
    found: set[str] = set()
    for file in model_dir.glob("*.safetensors"):
        with safe_open(file, framework="pt") as weights:  # reads the header alone
            found.update(weights.get_slice(name).get_dtype() for name in weights.keys())
    dtype = next(name for stored, name in _DTYPES.items() if stored in found)
    path = model_dir / "config.json"
    config = json.loads(path.read_text())
    for section in (config, config.get("text_config") or {}):
        section["dtype"] = section["torch_dtype"] = dtype  # transformers before 4.56 know the second name alone
    path.write_text(json.dumps(config, indent=2) + "\n")


def write_retirement(checkpoint: Path, state: dict) -> None:
    """Keep the state of Teacher Retirement beside the weights."""
    (checkpoint / "retirement.json").write_text(json.dumps(state) + "\n")


def read_retirement(checkpoint: Path) -> dict:
    """What :func:`write_retirement` kept.

    Raises:
        OSError, ValueError, LookupError, TypeError: it is not there, or damaged.
    """
    state = json.loads((checkpoint / "retirement.json").read_text())
    return {"rates": [float(rate) for rate in state["rates"]], "disabled_reason": state["disabled_reason"]}
