"""The student: that its directory is sound, and that it has room for what a run writes with it."""

from collections.abc import Iterator
from pathlib import Path

from omegaconf import DictConfig
from transformers import AutoConfig, AutoTokenizer

from onepo.preflight.model_directory import model_directory_problems


def student_problems(config: DictConfig) -> Iterator[str]:
    model = config.actor_rollout_ref.model
    problems = list(model_directory_problems(Path(model.path), "MODEL_PATH", trust_remote_code=model.trust_remote_code))
    yield from problems
    if not problems:
        yield from _position_problems(config)


def _position_problems(config: DictConfig) -> Iterator[str]:
    longest = config.data.max_prompt_length + config.data.max_response_length
    positions = positions_of(config)
    if positions is not None and longest > positions:
        yield (
            f"MAX_PROMPT_LENGTH + MAX_RESPONSE_LENGTH = {longest}, and the student has {positions} positions "
            "(max_position_embeddings in its config.json)"
        )


def positions_of(config: DictConfig) -> int | None:
    """How many tokens the student can tell apart by their place; None when its configuration sets no limit."""
    return getattr(load_model_config(config).get_text_config(), "max_position_embeddings", None)


def load_model_config(config: DictConfig):
    model = config.actor_rollout_ref.model
    return AutoConfig.from_pretrained(model.path, trust_remote_code=model.trust_remote_code)


def load_tokenizer(config: DictConfig):
    model = config.actor_rollout_ref.model
    return AutoTokenizer.from_pretrained(model.path, trust_remote_code=model.trust_remote_code)
