"""Everything that can be checked before a process is started or a file is written.

Each check yields the problems it found, in the words of the launcher's options; all are reported together.
"""

from omegaconf import DictConfig, OmegaConf

from onepo.errors import UserError
from onepo.preflight.build import device_problems, verl_build_problems
from onepo.preflight.options import fixed_key_problems, option_problems, upstream_problems
from onepo.preflight.places import directory_problems, disk_problems
from onepo.preflight.ranges import range_problems
from onepo.preflight.records import data_problems
from onepo.preflight.student import student_problems
from onepo.settings import Settings, parse_settings


def check(config: DictConfig) -> Settings:
    """Check a composed configuration, the student and the data.

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
            *directory_problems(config, settings),
            *student_problems(config),
        ]
    )
    # these read the student's tokenizer and the data, which takes a while
    _refuse([*data_problems(config), *upstream_problems(config), *disk_problems(config, settings)])
    return settings


def _refuse(problems: list[str]) -> None:
    if problems:
        raise UserError("\n".join(problems))
