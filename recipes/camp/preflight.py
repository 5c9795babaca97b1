"""Everything that can be checked before a process is started or a file is written; all problems are told together."""

import copy
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import torch
import transfer_queue
from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf
from verl.utils.config import omega_conf_to_dataclass

from camp.command_line import services_python
from camp.configuration import Named, gpus_of, missing, recipe_config
from camp.departures import Departure, departures
from camp.learning.state import checkpoint_problems
from camp.opd.guards import check_teacher
from camp.prepare import prepared_otherwise
from camp.routes import Routes, check_pair, read_routes
from camp.schedule import ScheduledEpisode, read_schedule
from camp.settings import Settings, parse_settings
from camp.sizes import (
    context_problems,
    count_problems,
    engine_problems,
    micro_batch_problems,
    schedule_problems,
    setting,
)
from onepo.errors import UserError, last_line
from onepo.preflight.build import verl_build_problems
from onepo.preflight.model_directory import model_directory_problems
from onepo.preflight.model_files import model_files
from onepo.preflight.options import logger_problems, upstream_problems
from onepo.report.secrets import masked_override
from onepo.trainers.checkpoints import list_checkpoints, step_of

# other values would change what is learned, or lose episodes, without an error
_FIXED = {
    "actor_rollout_ref.actor.checkpoint.async_save": False,
    "actor_rollout_ref.model.lora_rank": 0,
    "actor_rollout_ref.model.lora.rank": 0,
    "actor_rollout_ref.rollout.calculate_log_probs": True,
    "actor_rollout_ref.rollout.n": 1,
    "algorithm.filter_groups.enable": False,
    "trainer.v1.separate_async.parameter_sync_step": 1,
    "trainer.v1.separate_async.hybrid_rollout.enable_switch": False,
    "trainer.test_freq": -1,
    "trainer.val_before_train": False,
    "trainer.total_epochs": 1,
}

_LONGEST_NAME = 255
_GPUS = {
    "learners": "trainer.n_gpus_per_node",
    "samplers": "actor_rollout_ref.rollout.n_gpus_per_node",
    "teachers": "distillation.n_gpus_per_node",
}


@dataclass(frozen=True)
class Checked:
    """What a passed check knows.

    Attributes:
        departures: from the recipe.
        files: of the models, to be hashed.
        nothing_left: why a run that goes on would have nothing to do, else None.
        notes: for the user.
    """

    settings: Settings
    routes: Routes
    departures: list[Departure]
    files: Sequence[Path]
    nothing_left: str | None
    notes: Sequence[str]

    def of_attempt(self, directory: str) -> "Checked":
        """The same for an invocation whose directory is there now."""
        return replace(self, settings=self.settings.model_copy(update={"attempt_dir": directory}))


def check(config: DictConfig, named: Named, overrides: Sequence[str]) -> Checked:
    """Check a composed configuration and everything that it names.

    Args:
        overrides: those that it was composed with.

    Raises:
        UserError: with one line per problem.
    """
    _refuse([*missing(named), *_method_problems(named)])
    settings = parse_settings(OmegaConf.to_container(config.camp, resolve=True))
    _refuse([*verl_build_problems(), *_queue_problems(), *_fixed_problems(config), *count_problems(config)])
    model = config.actor_rollout_ref.model
    student = Path(model.path)
    student_problems = list(model_directory_problems(student, "--student", trust_remote_code=model.trust_remote_code))
    teacher_problems, notes = [], []
    if named.method == "opd":
        teacher_problems, notes = check_teacher(config, named, settings.teacher, student_is_sound=not student_problems)
    problems = [*student_problems, *teacher_problems]
    try:
        routes, schedule = _prepared(named)
    except UserError as error:
        raise UserError("\n".join([*problems, str(error)])) from None
    problems += [
        *_device_problems(config),
        *engine_problems(config),
        *schedule_problems(config, routes, schedule, max_staleness=settings.max_staleness),
        *_output_problems(config, settings, named, overrides),
        *logger_problems(config),
    ]
    if not student_problems:
        problems += [*context_problems(config), *micro_batch_problems(config), *_upstream_problems(config)]
    if named.resume and not problems:
        problems += checkpoint_problems(Path(named.resume), config, routes)
    _refuse(problems)
    found = departures(config, recipe_config(named.method, overrides), prepared_otherwise(routes))
    models = [named.student, *([named.teacher] if named.teacher and not named.teacher_is_served else [])]
    files = [file for folder in models for file in model_files(Path(folder))]
    return Checked(settings, routes, found, files, _nothing_left(config, named, schedule), notes)


def _prepared(named: Named) -> tuple[Routes, list[ScheduledEpisode]]:
    routes = read_routes(Path(named.routes))
    schedule, digest = read_schedule(Path(named.schedule))
    check_pair(routes, schedule, digest)
    return routes, schedule


def _nothing_left(config: DictConfig, named: Named, schedule: list[ScheduledEpisode]) -> str | None:
    final = min(config.trainer.total_training_steps, len(schedule) // config.data.train_batch_size)
    done = step_of(Path(named.resume)) if named.resume else 0
    if done < final:
        return None
    ends_by = "the schedule" if final < config.trainer.total_training_steps else "trainer.total_training_steps"
    return (
        f"nothing is left to train: {Path(named.resume).name} is not before the final update, {final} (from {ends_by})"
    )


def _refuse(problems: list[str]) -> None:
    if problems:
        raise UserError("\n".join(problems))


def _method_problems(named: Named) -> Iterator[str]:
    if named.method == "rl" and named.teacher is not None:
        yield "--teacher: --method rl has no teacher"
    if named.method == "opd" and named.teacher is None:
        yield "--teacher is missing"


def _queue_problems() -> Iterator[str]:
    if not hasattr(transfer_queue, "save_checkpoint"):
        yield (
            f"TransferQueue {metadata.version('TransferQueue')} cannot be saved, so no run could be gone on with: "
            "install the version of requirements-training.txt or requirements-cpu.txt"
        )


def _fixed_problems(config: DictConfig) -> Iterator[str]:
    for key, value in _FIXED.items():
        found = OmegaConf.select(config, key, default=value)  # the pinned commit does not have all of them
        if found != value:
            yield f"{key}={found}: CAMP needs {value}"
    size = config.data.train_batch_size
    for key in ("actor_rollout_ref.actor.ppo_mini_batch_size", "critic.ppo_mini_batch_size"):
        if (found := OmegaConf.select(config, key)) != size:
            yield f"{key}={found}: an update is one optimizer step over its data.train_batch_size={size} episodes"
    for network in ("actor_rollout_ref.actor", "critic"):
        wanted = {"model", "optimizer", "extra"} | ({"hf_model"} if network != "critic" else set())
        for name, needed in (("save_contents", wanted), ("load_contents", wanted - {"hf_model"})):
            if lacking := needed - set(OmegaConf.select(config, f"{network}.checkpoint.{name}") or ()):
                yield f"{network}.checkpoint.{name}: must contain {', '.join(sorted(lacking))}"


def _device_problems(config: DictConfig) -> Iterator[str]:
    if config.trainer.device == "cpu" or os.environ.get("RAY_ADDRESS"):
        return  # the GPUs of a cluster need not be on this machine
    wanted, found = gpus_of(config), torch.cuda.device_count()
    if found == 0:
        yield "no GPU is visible: add device=cpu behind the -- to train on the CPU, or check the driver"
    elif found < sum(wanted.values()):
        told = ", ".join(f"{count} {name}" for name, count in wanted.items() if count)
        yield (
            f"{told}: that needs {sum(wanted.values())} GPUs, and {found} are visible: set "
            f"{', '.join(setting(_GPUS[name]) for name, count in wanted.items() if count)}"
        )
    if config.critic.enable and find_spec("flash_attn") is None:
        yield "flash-attn is not installed, and verl builds critics with nothing else: see runtime-overrides.txt"


def _upstream_problems(config: DictConfig) -> Iterator[str]:
    try:
        yield from upstream_problems(config)
        if config.distillation.enabled:
            omega_conf_to_dataclass(copy.deepcopy(config.distillation))
    except InstantiationException as error:  # verl makes the critic's and the teacher's own objects for it
        yield f"verl refuses the configuration: {last_line(error.__cause__ or error)}"
    except (TypeError, ValueError, AssertionError) as error:
        yield f"verl refuses the configuration of the teacher: {last_line(error)}"


def _output_problems(config: DictConfig, settings: Settings, named: Named, overrides: Sequence[str]) -> Iterator[str]:
    output, place = Path(settings.output), Path(settings.output)
    while not os.path.lexists(place):
        place = place.parent
    if len(os.fsencode(output.name)) > _LONGEST_NAME:
        yield f"--output {output}: its name is longer than {_LONGEST_NAME} bytes, which no file system takes"
        return
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        yield f"--output {output} cannot be made: {place} is not a directory that you may write to"
        return
    kept = list_checkpoints(config.trainer.default_local_dir)
    if kept and named.resume is None:
        yield (
            f"--output {output} holds checkpoints of a run, and a fresh one never goes on from them: name another "
            "directory to begin anew. To go on:"
        )
        yield f"  with the launcher, its other options as before: RESUME={shlex.quote(str(kept[-1]))}"
        python = None if settings.services.python == services_python(None, os.environ) else settings.services.python
        yield f"  else: {_command(replace(named, resume=str(kept[-1])), overrides, python)}"
    elif kept and step_of(Path(named.resume)) is not None and not _same(Path(named.resume).parent, kept[0].parent):
        yield (
            f"--output {output} holds checkpoints of a run, and --resume {named.resume} is none of them: go on from "
            "one of these, or name another output"
        )
    elif named.resume is not None and (resumed := step_of(Path(named.resume))) is not None:
        if later := [path.name for path in kept if step_of(path) > resumed]:
            yield (
                f"--output {output} holds checkpoints of later updates than the one to go on from ({', '.join(later)}):"
                " go on from the last one, name another output, or move them away"
            )


def _same(first: Path, second: Path) -> bool:
    return first.resolve() == second.resolve()


def _command(named: Named, overrides: Sequence[str], python: str | None) -> str:
    """The command line of a training, without what is one run's own; a secret has to be filled in."""
    named_options = {**vars(named), "services-python": python}
    options = [part for option, value in named_options.items() if value is not None for part in (f"--{option}", value)]
    lasting = [masked_override(override) for override in overrides if not override.startswith("camp.ray_dir=")]
    return shlex.join(["python", "-m", "camp.train", *options, *(["--", *lasting] if lasting else [])])
