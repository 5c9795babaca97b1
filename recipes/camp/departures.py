"""What a run does otherwise than the recipe, as far as it makes it another experiment.

Machine and memory settings are none: they change how fast a run learns, not what.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from omegaconf import DictConfig, OmegaConf

_NOTHING: Mapping[str, tuple[Any, Any]] = MappingProxyType({})


@dataclass(frozen=True)
class Fact:
    """A setting that makes the experiment: its name for people, and where it is in the configuration."""

    name: str
    key: str


@dataclass(frozen=True)
class Departure:
    """A fact that is not as in the recipe.

    Attributes:
        key: of the configuration, None for what is not in it.
        recipe_value, value: of recipe and run, as JSON values; None for one that is not set.
    """

    name: str
    key: str | None
    recipe_value: Any
    value: Any


# the rest of what is learned with, and what in it is the machine's
_SECTIONS = ("algorithm", "actor_rollout_ref.actor", "actor_rollout_ref.model", "critic", "data", "distillation")
_MACHINE = re.compile(
    r"fsdp|megatron|profiler|\.checkpoint|path$|_files$|custom_cls|micro_batch|token_len|dynamic_bsz|remove_padding"
    r"|gradient_checkpointing|offload|compile|external_lib|attn_implementation|num_workers|strategy$|seed$|chunk"
    r"|total_training_steps|n_gpus|nnodes|num_replicas|inference|use_shm|kernel|liger|tiled_mlp|ulysses|\.val_"
    r"|distillation\.enabled"  # which says by whom the teacher is served
)

FACTS = (
    Fact("episodes per update", "data.train_batch_size"),
    Fact("episodes per optimizer step of the actor", "actor_rollout_ref.actor.ppo_mini_batch_size"),
    Fact("episodes per optimizer step of the critic", "critic.ppo_mini_batch_size"),
    Fact("passes of the actor over an update's episodes", "actor_rollout_ref.actor.ppo_epochs"),
    Fact("passes of the critic over an update's episodes", "critic.ppo_epochs"),
    Fact("samples per scheduled episode", "actor_rollout_ref.rollout.n"),
    Fact("updates", "trainer.total_training_steps"),
    Fact("updates of the critic alone", "trainer.critic_warmup"),
    Fact("shuffled schedule", "data.shuffle"),
    Fact("longest prompt", "data.max_prompt_length"),
    Fact("longest response", "data.max_response_length"),
    Fact("context of the sampler", "actor_rollout_ref.rollout.max_model_len"),
    Fact("temperature", "actor_rollout_ref.rollout.temperature"),
    Fact("top-p", "actor_rollout_ref.rollout.top_p"),
    Fact("top-k", "actor_rollout_ref.rollout.top_k"),
    Fact("learning rate of the actor", "actor_rollout_ref.actor.optim.lr"),
    Fact("learning rate of the critic", "critic.optim.lr"),
    Fact("gamma", "algorithm.gamma"),
    Fact("lambda", "algorithm.lam"),
    Fact("advantage", "algorithm.adv_estimator"),
    Fact("lower clip of the policy ratio", "actor_rollout_ref.actor.clip_ratio_low"),
    Fact("upper clip of the policy ratio", "actor_rollout_ref.actor.clip_ratio_high"),
    Fact("dual clip of the policy ratio", "actor_rollout_ref.actor.clip_ratio_c"),
    Fact("clip of the value", "critic.cliprange_value"),
    Fact("bonus for entropy", "actor_rollout_ref.actor.entropy_coeff"),
    Fact("KL loss to the first student", "actor_rollout_ref.actor.use_kl_loss"),
    Fact("KL penalty in the reward", "algorithm.use_kl_in_reward"),
    Fact("mean over tokens or episodes", "actor_rollout_ref.actor.loss_agg_mode"),
    Fact("staleness, in versions of the weights", "camp.max_staleness"),
    Fact("batches under way beside the update's", "trainer.v1.separate_async.num_warmup_batches"),
    Fact("updates between two versions of the sampler's weights", "trainer.v1.separate_async.parameter_sync_step"),
    Fact("clamp of the teacher's signal", "distillation.distillation_loss.loss_max_clamp"),
)


def departures(
    config: DictConfig, recipe: DictConfig, outside: Mapping[str, tuple[Any, Any]] = _NOTHING
) -> list[Departure]:
    """The settings in which a run differs from the recipe: those of the table first, in its order.

    Args:
        config: of the run, composed.
        recipe: the method's own configuration, composed for the same device.
        outside: facts that no configuration holds: the recipe's value and the run's, by the name for people.
    """
    facts = [fact for fact in FACTS if config.critic.enable or not fact.key.startswith("critic.")]
    compared = [(fact.name, fact.key, value_of(recipe, fact.key), value_of(config, fact.key)) for fact in facts]
    compared += [(name, None, *values) for name, values in outside.items()]
    first, second = dict(learned_with(recipe)), dict(learned_with(config))
    others = sorted({*first, *second} - {fact.key for fact in FACTS})
    compared += [(key, key, first.get(key), second.get(key)) for key in others]
    return [Departure(*fact) for fact in compared if fact[2] != fact[3]]


def learned_with(config: DictConfig) -> Iterator[tuple[str, Any]]:
    """The settings that have to do with what is learned, with their keys: lists and values, no sections."""
    for section in _SECTIONS:
        if section == "critic" and not config.critic.enable:
            continue
        yield from _leaves(section, value_of(config, section))


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if _MACHINE.search(key):
        return
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _leaves(f"{key}.{name}", part)
    else:
        yield key, value


def departure_lines(found: Sequence[Departure]) -> list[str]:
    """The departures for people, with what they mean; nothing when there are none."""
    if not found:
        return []
    return [*map(_line, found), "A run with other settings than the recipe's is another experiment than the recipe."]


def _line(found: Departure) -> str:
    key = f" ({found.key})" if found.key and found.key != found.name else ""
    return f"{found.name}: {_told(found.value)}, in the recipe {_told(found.recipe_value)}{key}"


def _told(value: Any) -> str:
    return "not set" if value is None else str(value)


def value_of(config: DictConfig, key: str) -> Any:
    """A setting as a JSON value, None when it is not there."""
    value = OmegaConf.select(config, key)
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
