"""The student's directory: everything in it that a run will need, and nothing that it must not run."""

import json
from collections.abc import Iterator
from pathlib import Path

from omegaconf import DictConfig
from safetensors import SafetensorError, safe_open
from transformers import AutoTokenizer

from onepo.data.chat import end_of_turn_token_id
from onepo.errors import UserError


def student_problems(config: DictConfig) -> Iterator[str]:
    path = Path(config.actor_rollout_ref.model.path)
    if not path.is_dir():
        yield f"MODEL_PATH={path} is not a directory"
        return
    if not (path / "config.json").exists():
        yield f"MODEL_PATH={path} has no config.json: it is not a Hugging Face model directory"
        return
    try:
        yield from _files(path, trust_remote_code=config.actor_rollout_ref.model.trust_remote_code)
        yield from _template(load_tokenizer(config), path)
    except UserError as error:
        yield f"MODEL_PATH={path}: {error}"
    except (OSError, ValueError) as error:  # ValueError: broken JSON, unknown tokenizer class
        yield f"MODEL_PATH={path} cannot be loaded: {str(error).splitlines()[0]}"


def _template(tokenizer, path: Path) -> Iterator[str]:
    if not tokenizer.chat_template:
        yield f"MODEL_PATH={path}: the tokenizer has no chat template (usually in chat_template.jinja)"
    else:
        end_of_turn_token_id(tokenizer)  # raises when the template takes no conversation, or replies have no end


def _files(path: Path, *, trust_remote_code: bool) -> Iterator[str]:
    """Weights, and code that would be run."""
    yield from _weights(path)
    for name in ("config.json", "tokenizer_config.json"):
        file = path / name
        if file.exists() and "auto_map" in _read_json(file) and not trust_remote_code:
            # verl's reward worker would load a tokenizer's code whatever its own option says
            yield (
                f"MODEL_PATH={path}: {name} names Python code of its own; to run it, add the override "
                "actor_rollout_ref.model.trust_remote_code=True"
            )
            return


def _read_json(file: Path) -> dict:
    try:
        return json.loads(file.read_text())
    except ValueError as error:
        raise UserError(f"{file.name} is not valid JSON ({error})") from None


def _weights(path: Path) -> Iterator[str]:
    for index in (path / "model.safetensors.index.json", path / "pytorch_model.bin.index.json"):
        if index.exists():
            shards = sorted(set(_read_json(index)["weight_map"].values()))
            missing = [name for name in shards if not (path / name).exists()]
            if missing:
                yield (
                    f"MODEL_PATH={path}: {index.name} names {len(shards)} weight files, "
                    f"{len(missing)} are missing ({', '.join(missing[:3])})"
                )
            else:
                yield from _broken_shards(path, shards)
            return
    whole = [name for name in ("model.safetensors", "pytorch_model.bin") if (path / name).exists()]
    if whole:
        yield from _broken_shards(path, whole)
    else:
        yield f"MODEL_PATH={path} has no weights (model.safetensors or an index of shards)"


def _broken_shards(path: Path, shards: list[str]) -> Iterator[str]:
    """Weight files that were cut off, as an interrupted download leaves them."""
    for name in shards:
        if name.endswith(".safetensors"):
            try:
                with safe_open(path / name, "pt"):
                    pass
            except SafetensorError as error:
                yield f"MODEL_PATH={path}: {name} is not a whole safetensors file ({error})"


def load_tokenizer(config: DictConfig):
    model = config.actor_rollout_ref.model
    return AutoTokenizer.from_pretrained(model.path, trust_remote_code=model.trust_remote_code)
