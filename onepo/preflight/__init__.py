"""Everything that can be checked before a process is started or a file is written.

Each check yields the problems it found, in the words of the launcher's options; all are reported together.
"""

from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from onepo.errors import UserError
from onepo.preflight.build import device_problems, verl_build_problems
from onepo.preflight.grader import grader_problems
from onepo.preflight.options import endless_problems, fixed_key_problems, option_problems, upstream_problems
from onepo.preflight.places import directory_problems, disk_problems
from onepo.preflight.ranges import range_problems
from onepo.preflight.records import DataFiles
from onepo.preflight.resume import resume_problems
from onepo.preflight.reward_function import reward_function_problems
from onepo.preflight.student import student_problems
from onepo.preflight.teacher import teacher_problems
from onepo.settings import Settings, parse_settings
from onepo.trainers.schedule import Schedule
from onepo.trainers.training_state import find_checkpoint


@dataclass(frozen=True)
class Checked:
    """What a passed check knows.

    Attributes:
        settings: of the ``onepo`` section.
        open_ended, custom: number of records of these types.
        final_step: of the run.
        checkpoint: to go on from; what ``RESUME`` named may be a link that moves when the run begins.
    """

    settings: Settings
    open_ended: int
    custom: int
    final_step: int
    checkpoint: Path | None


def check(config: DictConfig) -> Checked:
    """Check a composed configuration, the student, the data and the grader.

    Raises:
        UserError: with one line per problem.
    """
    settings = parse_settings(OmegaConf.to_container(config.onepo, resolve=True))
    _refuse([*verl_build_problems(), *range_problems(config)])  # the other checks calculate with these
    _refuse(
        [
            *device_problems(config),
            *fixed_key_problems(config),
            *option_problems(config, settings),
            *teacher_problems(settings),
            *directory_problems(config, settings),
            *student_problems(config),
        ]
    )
    files = DataFiles(config)  # reads the student's tokenizer and the data, which takes a while
    steps_per_epoch = files.train_prompts // config.data.train_batch_size
    final_step = Schedule.of(config, settings, steps_per_epoch=steps_per_epoch).final_step
    problems = [
        *files.problems,
        *upstream_problems(config),
        *disk_problems(config, settings, final_step=final_step),
    ]
    if files.open_ended:
        problems += grader_problems(config, settings, files.open_ended)
    if files.open_ended or files.custom:
        problems += endless_problems(settings)
    checkpoint = find_checkpoint(Path(settings.resume)) if settings.resume else None
    if not problems:
        problems += resume_problems(config, settings, checkpoint)  # compares with the files just found readable
    if files.custom:
        problems += reward_function_problems(settings, files.custom)
    _refuse(problems)
    return Checked(settings, files.open_ended, files.custom, final_step, checkpoint)


def _refuse(problems: list[str]) -> None:
    if problems:
        raise UserError("\n".join(problems))
