"""Making routes and a schedule: what ``python -m camp.routes prepare`` does.

Services that run already are named by their address; the others are started for as long as it takes to look at them,
and the routes then say how a training is to start them.
"""

import asyncio
import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from camp.routes import ROUTES_FILE, SCHEDULE_FILE, SERVICES, Managed, Route, Routes
from camp.schedule import make_schedule, write_schedule
from camp.services import ManagedServices, check_sessions, facts_of
from onepo.errors import UserError
from onepo.servers.managed import ServerStartFailed


@dataclass(frozen=True)
class Limits:
    """Of a domain: turns of an episode, tokens of a turn, seconds for an answer and for a session to open."""

    turns: int
    turn_tokens: int
    timeout: float
    connect_timeout: float


@dataclass(frozen=True)
class Plan:
    """What is to be prepared.

    Attributes:
        domains: names, in no order; each a service that ships or one of ``urls``.
        urls: of services that run already, by domain.
        limits: by domain.
        updates, episodes: of the training: so many updates of so many episodes each.
        warmup: batches of episodes that are under way before the first update.
        first_port: of the managed services, which get this one and those behind it.
        seed: of the schedule.
    """

    domains: list[str]
    urls: Mapping[str, str]
    limits: Mapping[str, Limits]
    updates: int
    episodes: int
    warmup: float
    first_port: int
    seed: int

    @property
    def in_flight(self) -> int:
        """The most episodes that may be under way at one time."""
        return math.ceil((1 + self.warmup) * self.episodes)

    @property
    def rows(self) -> int:
        """Of the schedule: what the updates train on, and what is under way when the last one begins."""
        return self.updates * self.episodes + self.in_flight


def prepare(
    plan: Plan, out: Path, *, python: str, start_timeout: float, say: Callable[[str], None]
) -> tuple[Path, Path]:
    """Look at the services and write routes and schedule; returns the two files.

    Raises:
        UserError: a service does not answer, or has too few sessions; nothing is written.
    """
    routes = _unbound(plan)
    with tempfile.TemporaryDirectory(prefix="camp-prepare-") as logs:
        services = ManagedServices(
            routes,
            python=python,
            logs_dir=Path(logs),
            start_timeout=start_timeout,
            max_restarts=0,
            say=say,
            lost=lambda name, reason: say(f"{name}: {reason}"),
        )
        try:
            services.start()
            bound = {name: asyncio.run(_bound(name, route, plan)) for name, route in routes.items()}
        except ServerStartFailed as error:
            raise UserError(str(error)) from None
        finally:
            services.stop()
    out.mkdir(parents=True, exist_ok=True)
    shares = {name: route.share for name, route in bound.items()}
    digest = write_schedule(out / SCHEDULE_FILE, make_schedule(shares, rows=plan.rows, seed=plan.seed))
    Routes.of(bound, schedule_sha256=digest).write(out / ROUTES_FILE)
    return out / ROUTES_FILE, out / SCHEDULE_FILE


def template(plan: Plan) -> Routes:
    """Routes that no service was asked for: they show the form, and nothing can run with them."""
    return Routes.of(_unbound(plan), schedule_sha256=None)


def _unbound(plan: Plan) -> dict[str, Route]:
    return {name: _route(plan, name, port) for port, name in enumerate(sorted(plan.domains), plan.first_port)}


def _route(plan: Plan, name: str, port: int) -> Route:
    if name not in plan.urls and name not in SERVICES:
        raise UserError(
            f"domain {name}: is none of the services that ship ({', '.join(SERVICES)}), and no address was given for it"
        )
    limits = plan.limits[name]
    return Route(
        url=plan.urls.get(name, f"http://127.0.0.1:{port}"),
        managed=None if name in plan.urls else Managed(service=name, sessions=plan.in_flight),
        tasks=[],
        action_field="text",
        observation_field="text",
        timeout=limits.timeout,
        connect_timeout=limits.connect_timeout,
        turns=limits.turns,
        turn_tokens=limits.turn_tokens,
        fingerprint=None,
    )


async def _bound(name: str, route: Route, plan: Plan) -> Route:
    facts = await facts_of(route.url)
    bound = route.model_copy(update={"tasks": facts.tasks, "fingerprint": facts.fingerprint})
    await check_sessions(name, bound, sessions=plan.in_flight)
    return bound
