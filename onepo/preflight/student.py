"""The student's directory: everything in it that a run will need, and nothing that it must not run."""

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from omegaconf import DictConfig
from safetensors import SafetensorError, safe_open
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM, AutoTokenizer

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
        tokenizer = load_tokenizer(config)
        yield from _template(tokenizer, path)
        yield from _sizes(config, len(tokenizer), path)
    except UserError as error:
        yield f"MODEL_PATH={path}: {error}"
    except Exception as error:  # damaged files make transformers and templates raise anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        yield f"MODEL_PATH={path} cannot be loaded: {reason}"


def _template(tokenizer, path: Path) -> Iterator[str]:
    if not tokenizer.chat_template:
        yield f"MODEL_PATH={path}: the tokenizer has no chat template (usually in chat_template.jinja)"
    else:
        end_of_turn_token_id(tokenizer)  # raises when the template takes no conversation, or replies have no end


def _sizes(config: DictConfig, tokens: int, path: Path) -> Iterator[str]:
    """Whether the weights are those of the configured model, and the model is as large as it must be."""
    model_config = load_model_config(config)
    text_config = model_config.get_text_config()
    if tokens > text_config.vocab_size:
        yield f"MODEL_PATH={path}: the tokenizer has {tokens} tokens, the model only {text_config.vocab_size}"
    longest = config.data.max_prompt_length + config.data.max_response_length
    positions = getattr(text_config, "max_position_embeddings", None)
    if positions is not None and longest > positions:
        yield (
            f"MAX_PROMPT_LENGTH + MAX_RESPONSE_LENGTH = {longest}, and the student has {positions} positions "
            "(max_position_embeddings in its config.json)"
        )
    if type(model_config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return  # text use of another kind of model: verl chooses its class
    with torch.device("meta"):  # shapes without memory
        model = AutoModelForCausalLM.from_config(model_config)
    stored = dict(stored_shapes(path))
    for name, tensor in model.state_dict().items():
        if name in stored and stored[name] != list(tensor.shape):
            yield f"MODEL_PATH={path}: {name} has the shape {stored[name]}, and config.json says {list(tensor.shape)}"
            return


def stored_shapes(path: Path) -> Iterator[tuple[str, list[int]]]:
    """Names and shapes of the tensors in a model directory's safetensors files; nothing for older formats."""
    for file in path.glob("*.safetensors"):
        with safe_open(file, "pt") as shard:
            for name in shard.keys():
                yield name, shard.get_slice(name).get_shape()


def _files(path: Path, *, trust_remote_code: bool) -> Iterator[str]:
    """Weights, and code that would be run."""
    yield from weight_problems(path, "MODEL_PATH")
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
        content = json.loads(file.read_text())
    except ValueError as error:
        raise UserError(f"{file.name} is not valid JSON ({error})") from None
    if not isinstance(content, dict):
        raise UserError(f"{file.name} holds no JSON object")
    return content


def weight_problems(path: Path, option: str) -> Iterator[str]:
    """Weight files that are missing or broken in a model directory, which the user gave by ``option``."""
    for index in (path / "model.safetensors.index.json", path / "pytorch_model.bin.index.json"):
        if index.exists():
            weight_map = _read_json(index).get("weight_map")
            if not weight_map or not isinstance(weight_map, dict):
                yield f"{option}={path}: {index.name} has no weight_map that names the weight files"
                return
            shards = sorted(set(weight_map.values()))
            missing = [name for name in shards if not (path / name).exists()]
            if missing:
                yield (
                    f"{option}={path}: {index.name} names {len(shards)} weight files, "
                    f"{len(missing)} are missing ({', '.join(missing[:3])})"
                )
            else:
                yield from _broken_shards(path, shards, option)
            return
    whole = [name for name in ("model.safetensors", "pytorch_model.bin") if (path / name).exists()]
    if whole:
        yield from _broken_shards(path, whole, option)
    else:
        yield f"{option}={path} has no weights (model.safetensors or an index of shards)"


def _broken_shards(path: Path, shards: list[str], option: str) -> Iterator[str]:
    """Weight files that were cut off, as an interrupted download leaves them."""
    for name in shards:
        if name.endswith(".safetensors"):
            try:
                with safe_open(path / name, "pt"):
                    pass
            except (SafetensorError, OSError) as error:
                yield f"{option}={path}: {name} is not a whole safetensors file ({error})"


def load_model_config(config: DictConfig):
    model = config.actor_rollout_ref.model
    return AutoConfig.from_pretrained(model.path, trust_remote_code=model.trust_remote_code)


def load_tokenizer(config: DictConfig):
    model = config.actor_rollout_ref.model
    return AutoTokenizer.from_pretrained(model.path, trust_remote_code=model.trust_remote_code)
