"""The configuration of a training: the method's recipe, the user's overrides, and what the named options decide."""

import copy
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from camp.sampling import AGENTS_FILE
from onepo.endpoints.address import shown
from onepo.errors import UserError
from onepo.report.secrets import masked, masked_override

# settings that belong to a named option, with everything inside them
_OWNED = {
    "camp.method": "--method",
    "trainer.v1.trainer_mode": "--method",
    "trainer.use_v1": "--method",
    "algorithm.adv_estimator": "--method",
    "critic.enable": "--method",
    "distillation.enabled": "--method",
    "actor_rollout_ref.model.path": "--student",
    "actor_rollout_ref.model.hf_config_path": "--student",
    "actor_rollout_ref.model.tokenizer_path": "--student",
    "actor_rollout_ref.model.custom_chat_template": "--student",
    "actor_rollout_ref.model.lora_adapter_path": "--student",
    "data.tokenizer": "--student",
    "critic.model.path": "--student",
    "critic.model.hf_config_path": "--student",
    "critic.model.tokenizer_path": "--student",
    "camp.teacher.url": "--teacher",
    "camp.teacher.api_key_file": "--teacher",
    "camp.teacher.server.path": "--teacher",
    "distillation.teacher_models.teacher_model.model_path": "--teacher",
    "camp.routes": "--routes",
    "camp.services.python": "--services-python",
    "actor_rollout_ref.rollout.agent.agent_loop_config_path": "--routes",
    "actor_rollout_ref.rollout.agent.agent_loop_manager_class": "--method",
    "actor_rollout_ref.rollout.agent.default_agent_loop": "--routes",
    "data.train_files": "--schedule",
    "data.val_files": "--schedule",
    "data.custom_cls": "--schedule",
    "data.shuffle": "--schedule",
    "data.sampler": "--schedule",
    "camp.output": "--output",
    "camp.attempt_dir": "--output",
    "trainer.default_local_dir": "--output",
    "trainer.default_hdfs_dir": "--output",
    "trainer.rollout_data_dir": "--output",
    "trainer.validation_data_dir": "--output",
    "camp.resume": "--resume",
    "trainer.resume_mode": "--resume",
    "trainer.resume_from_path": "--resume",
}
_SECTIONS = (
    "algorithm",
    "actor_rollout_ref.actor",
    "actor_rollout_ref.model",
    "actor_rollout_ref.rollout",
    "camp.services",
    "camp.teacher",
    "camp.teacher.server",
    "critic",
    "data",
    "distillation",
    "distillation.distillation_loss",
    "distillation.teacher_models",
    "distillation.teacher_models.teacher_model",
    "distillation.teacher_models.teacher_model.inference",
    "trainer.v1.separate_async",
)
_ABSENT = object()


@dataclass(frozen=True)
class Named:
    """What the named options say; None for one that is not given. Paths are absolute.

    Attributes:
        teacher: a model directory, or the address of an inference server.
    """

    method: str
    student: str | None
    teacher: str | None
    routes: str | None
    schedule: str | None
    output: str | None
    resume: str | None

    @property
    def teacher_is_served(self) -> bool:
        """Whether the teacher is an inference server that is asked by HTTP."""
        return self.teacher is not None and self.teacher.lower().startswith(("http://", "https://"))


def compose_config(named: Named, overrides: Sequence[str]) -> DictConfig:
    """The configuration with everything in it.

    Raises:
        UserError: an override is malformed, names a key that does not exist, or one that a named option decides; a
            reference leads nowhere; a named option holds one.
    """
    for option, value in vars(named).items():
        if value is not None and "${" in value:
            raise UserError(
                f"--{option} {shown(value)}: contains '${{', which would be taken for a reference: use another name"
            )
    for override in overrides:
        if (option := _owner_by_name(override)) is not None:
            raise UserError(
                f"{masked_override(override)}: {option} decides this, and nothing behind the --: use {option}"
            )
    config = _compose(named.method, overrides)
    plain = recipe_config(named.method, overrides)
    _refuse_missing_sections(config, plain)
    for option in _changed(config, plain):
        culprit = next(
            (one for one in overrides if option in _changed(_compose_alone(named.method, one, overrides), plain)),
            "an override",
        )
        raise UserError(f"{masked_override(culprit)}: changes what {option} decides: use {option}")
    if named.method == "opd" and _critic(config) != _critic(plain):
        alone = (one for one in overrides if _critic(_compose_alone(named.method, one, overrides)) != _critic(plain))
        raise UserError(f"{next(alone, 'an override')}: --method opd has no critic")
    _set(config, named)
    try:
        OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise UserError(f"configuration: {str(error).splitlines()[0]}") from None
    return config


def recipe_config(method: str, overrides: Sequence[str] = ()) -> DictConfig:
    """The method's own configuration, for the same device and hardware as the overrides choose."""
    return copy.deepcopy(_recipe(method, tuple(_groups(overrides))))


def _groups(overrides: Sequence[str]) -> list[str]:
    return [one for one in overrides if one.split("=", 1)[0].lstrip("+") in ("device", "hardware")]


def _compose_alone(method: str, override: str, overrides: Sequence[str]) -> DictConfig:
    """With one override only, for the device and hardware that all of them choose."""
    return _compose(method, [*_groups(overrides), *([override] if override not in _groups(overrides) else [])])


def _refuse_missing_sections(config: DictConfig, plain: DictConfig) -> None:
    """What is a section in the recipe must be one in the run, and verl's teachers must be the one of ``--teacher``."""
    for key in _SECTIONS:
        if OmegaConf.is_dict(OmegaConf.select(plain, key)) and not OmegaConf.is_dict(OmegaConf.select(config, key)):
            raise UserError(f"{key}: is a section, and an override has put something else in its place")
    if others := sorted(set(config.distillation.teacher_models) - set(plain.distillation.teacher_models)):
        raise UserError(f"distillation.teacher_models.{others[0]}: --teacher decides who teaches, and it is one")


@lru_cache
def _recipe(method: str, groups: tuple[str, ...]) -> DictConfig:
    return _compose(method, groups)


def _compose(method: str, overrides: Sequence[str]) -> DictConfig:
    from hydra import compose, initialize_config_module
    from hydra.errors import HydraException, OverrideParseException

    try:
        with initialize_config_module(f"camp.{method}", version_base=None):
            return compose("recipe", overrides=list(overrides))
    except OverrideParseException as error:
        raise UserError(f"{masked_override(error.override)}: {str(error).splitlines()[0]}") from None
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise UserError(f"configuration: {str(error).splitlines()[0]}") from None


def _owner_by_name(override: str) -> str | None:
    """The named option that owns an override's key or what it is in, in whatever spelling, also in wrong ones."""
    key, *_ = re.split("[=@]", override, maxsplit=1)
    key = ".".join(re.findall(r"\w+", key))
    removed = override.lstrip().startswith("~")  # with everything in it, and a group's defaults where it is one
    return next(
        (
            option
            for owned, option in _OWNED.items()
            if key == owned or key.startswith(f"{owned}.") or (removed and owned.startswith(f"{key}."))
        ),
        None,
    )


def _changed(config: DictConfig, plain: DictConfig) -> list[str]:
    """The named options whose settings differ, by whatever override: as written, before references are followed."""
    first, second = (OmegaConf.to_container(one, resolve=False) for one in (config, plain))
    return [option for key, option in _OWNED.items() if _at(first, key) != _at(second, key)]


def _critic(config: DictConfig) -> Any:
    return OmegaConf.to_container(config.critic, resolve=False)  # what follows other settings is not changed


def _at(content: Any, key: str) -> Any:
    for part in key.split("."):
        if not isinstance(content, dict):
            return content  # a reference or a value in place of the section
        content = content.get(part, _ABSENT)
    return content


def _set(config: DictConfig, named: Named) -> None:
    found = {
        "actor_rollout_ref.model.path": named.student,
        "camp.routes": named.routes,
        "data.train_files": named.schedule,
        "camp.output": named.output,
        "camp.resume": named.resume,
        "trainer.resume_from_path": named.resume,
        "trainer.resume_mode": "resume_path" if named.resume else "disable",
        "actor_rollout_ref.rollout.agent.agent_loop_config_path": str(AGENTS_FILE),
    }
    if named.teacher_is_served:
        found |= {"camp.teacher.url": named.teacher, "distillation.enabled": False}
    else:
        found["distillation.teacher_models.teacher_model.model_path"] = named.teacher
        if OmegaConf.select(config, "camp.teacher.server.start"):
            found |= {"camp.teacher.server.path": named.teacher, "distillation.enabled": False}
    with open_dict(config):
        for key, value in found.items():
            OmegaConf.update(config, key, value)
        if config.trainer.device == "cpu":  # logical: each learner, sampler and teacher is scheduled on one
            with suppress(TypeError, OmegaConfBaseException):  # what is no number is told by the preflight
                config.ray_kwargs.ray_init.num_gpus = sum(gpus_of(config).values())


def gpus_of(config: DictConfig) -> dict[str, int]:
    """How many GPUs, or processes on the CPU, learn, sample and teach."""
    rollout, trainer, distillation = config.actor_rollout_ref.rollout, config.trainer, config.distillation
    return {
        "learners": trainer.n_gpus_per_node * trainer.nnodes,
        "samplers": rollout.n_gpus_per_node * rollout.nnodes,
        "teachers": distillation.n_gpus_per_node * distillation.nnodes if distillation.enabled else 0,
    }


def teacher_directory(config: DictConfig) -> str | None:
    """Of the teacher's model, or at least of its tokenizer; None for RL, and where nothing but an address is known."""
    if config.camp.teacher is None:
        return None
    return config.camp.teacher.tokenizer or config.distillation.teacher_models.teacher_model.model_path


def printable(config: DictConfig) -> str:
    """The configuration as YAML, resolved, without secrets."""
    content = OmegaConf.to_container(config, resolve=True)
    return OmegaConf.to_yaml(OmegaConf.create(masked(content)))


def missing(named: Named) -> Iterator[str]:
    """The options that a training needs and that are not given."""
    wanted = {"--student": named.student, "--routes": named.routes, "--schedule": named.schedule}
    for option, value in {**wanted, "--output": named.output}.items():
        if value is None:
            yield f"{option} is missing"
