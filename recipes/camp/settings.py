"""Types and checks of what this package adds to verl's configuration (the ``camp`` section).

The values live in ``config/common.yaml``; what each option does is in ``docs/camp.md``.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from onepo.errors import UserError
from onepo.settings import ScoringTeacherSettings

_LARGEST_SEED = 2**32 - 1  # numpy takes no larger one


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ServiceSettings(_Section):
    """The services that a run starts by itself.

    Attributes:
        python: the interpreter of their environment.
        start_timeout: seconds until one is ready.
        max_restarts: of each, when it ends by itself.
    """

    python: str | None
    start_timeout: float = Field(gt=0)
    max_restarts: int = Field(ge=0)


class Settings(_Section):
    """The ``camp`` section.

    Attributes:
        output: the directory of the run and of those that go on from it.
        attempt_dir: of this invocation.
        max_staleness: weight versions between an episode's first token and its update.
        episode_retries: further attempts at an episode whose service failed.
        outage_limit: seconds to wait for a service that is away.
        poll_interval: seconds between two looks at the finished episodes.
        teacher: of OPD; None for RL.
    """

    method: Literal["rl", "opd"]
    output: str
    attempt_dir: str | None
    ray_dir: str | None
    routes: str
    resume: str | None
    seed: int = Field(ge=0, le=_LARGEST_SEED)
    max_staleness: int = Field(ge=1)
    episode_retries: int = Field(ge=0)
    outage_limit: float = Field(gt=0)
    keep_checkpoints: int = Field(ge=1)
    poll_interval: float = Field(gt=0)
    services: ServiceSettings
    teacher: ScoringTeacherSettings | None


def parse_settings(section: dict[str, Any]) -> Settings:
    """Check the resolved ``camp`` section.

    Raises:
        UserError: one line per bad value, with the value found and what is allowed.
    """
    try:
        return Settings.model_validate(section)
    except ValidationError as error:
        raise UserError("\n".join(map(_told, error.errors()))) from None


def _told(problem: Mapping[str, Any]) -> str:
    name = ".".join(("camp", *map(str, problem["loc"])))
    found = "" if problem["type"] == "missing" else f"={problem['input']!r}"  # else it would be the whole section
    return f"{name}{found}: {problem['msg']}"
