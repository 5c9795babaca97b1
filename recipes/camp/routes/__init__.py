"""Which service serves which domain: ``routes.json``, bound to the services that were there when it was made.

``python -m camp.routes prepare`` makes it.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from camp.sampling.session import ServiceAddress
from camp.schedule import DomainShare, ScheduledEpisode
from onepo.errors import UserError
from onepo.whole import write_whole

SERVICES = ("database", "games", "puzzles", "quests", "search")
ROUTES_FILE, SCHEDULE_FILE = "routes.json", "train_schedule.jsonl"
_PREPARE = "python -m camp.routes prepare"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Managed(_Part):
    """A service that the run starts and stops by itself."""

    service: Literal["database", "games", "puzzles", "quests", "search"]
    sessions: int = Field(ge=1)


class Route(_Part):
    """One domain.

    Attributes:
        url: of its OpenEnv server; for a managed one the address that it will have.
        managed: how to start it, None for a service that runs already.
        tasks: names of its tasks; none for a service that has only seeds.
        left_out: names of the service's other tasks, which the training is not to have.
        action_field, observation_field: of its messages, which hold the text.
        timeout, connect_timeout: seconds for one answer, and until a session is open.
        turns, turn_tokens: limits of an episode, and of one of the student's turns.
        fingerprint: of what the service said of itself when the routes were made.
    """

    url: str = Field(pattern=r"^https?://[^/?#]+$")
    managed: Managed | None
    tasks: list[str]
    left_out: list[str]
    action_field: str = Field(min_length=1)
    observation_field: str = Field(min_length=1)
    timeout: float = Field(gt=0)
    connect_timeout: float = Field(gt=0)
    turns: int = Field(ge=1)
    turn_tokens: int = Field(ge=1)
    fingerprint: str | None

    @property
    def address(self) -> ServiceAddress:
        return ServiceAddress(
            url=self.url,
            action_field=self.action_field,
            observation_field=self.observation_field,
            timeout=self.timeout,
            connect_timeout=self.connect_timeout,
        )

    @property
    def share(self) -> DomainShare:
        return DomainShare(tasks=self.tasks, turns=self.turns, turn_tokens=self.turn_tokens)


class Routes(_Part):
    """The whole file.

    Attributes:
        schedule_sha256: of the schedule that belongs to it; None in the template, which nothing can run with.
        seed: of the schedule.
        sha256: of everything else in here, as canonical JSON.
    """

    domains: dict[str, Route] = Field(min_length=1)
    schedule_sha256: str | None
    seed: int | None
    sha256: str

    @classmethod
    def of(cls, domains: dict[str, Route], *, schedule_sha256: str | None, seed: int | None) -> "Routes":
        digest = _digest(domains, schedule_sha256, seed)
        return cls(domains=domains, schedule_sha256=schedule_sha256, seed=seed, sha256=digest)

    def write(self, file: Path) -> None:
        write_whole(file, json.dumps(self.model_dump(), indent=2) + "\n")


def _digest(domains: dict[str, Route], schedule_sha256: str | None, seed: int | None) -> str:
    content: dict[str, Any] = {
        "domains": {name: route.model_dump() for name, route in domains.items()},
        "schedule_sha256": schedule_sha256,
        "seed": seed,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_routes(file: Path) -> Routes:
    """The routes of a file.

    Raises:
        UserError: it cannot be read, is not of this form, or was changed by hand.
    """
    try:
        routes = Routes.model_validate(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise UserError(f"routes {file}: cannot be read ({error.strerror})") from None
    except ValidationError as error:
        (problem, *_) = error.errors()
        where = ".".join(map(str, problem["loc"]))
        raise UserError(f"routes {file}: {where}: {problem['msg']}: make it anew with {_PREPARE}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"routes {file}: is no JSON ({error})") from None
    if _digest(routes.domains, routes.schedule_sha256, routes.seed) != routes.sha256:
        raise UserError(f"routes {file}: was changed after it was made: make it anew with {_PREPARE}")
    return routes


def refuse_template(routes: Routes) -> None:
    """Whether something can run with the routes.

    Raises:
        UserError: nothing can, as they are the template.
    """
    if routes.schedule_sha256 is None:
        raise UserError(f"the routes are the template, which is for inspection: make routes with {_PREPARE} --out DIR")


def check_pair(routes: Routes, schedule: list[ScheduledEpisode], schedule_sha256: str) -> None:
    """Whether a schedule is the one that routes were made with.

    Raises:
        UserError: it is not, or the routes are the template.
    """
    refuse_template(routes)
    if unknown := sorted({row.domain for row in schedule} - routes.domains.keys()):
        raise UserError(
            f"the schedule has episodes of {', '.join(unknown)}, and the routes have only {', '.join(routes.domains)}"
        )
    if schedule_sha256 != routes.schedule_sha256:
        raise UserError(
            f"routes and schedule do not belong together: the routes name {routes.schedule_sha256[:12]}, the schedule "
            f"is {schedule_sha256[:12]}. Use the two files that {_PREPARE} wrote together"
        )
