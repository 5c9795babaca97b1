"""Making routes and a schedule: what ``python -m camp.routes prepare`` does.

Services that run already are named by their address; the others are started for as long as it takes to look at them,
and the routes then say how a training is to start them.
"""

import asyncio
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from camp.command_line import RECIPE
from camp.prepared import check_place, fresh_files
from camp.routes import ROUTES_FILE, SCHEDULE_FILE, SERVICES, Managed, Route, Routes
from camp.schedule import make_schedule, most_under_way, write_schedule
from camp.services import ManagedServices, ServiceFacts, check_sessions, facts_of_all
from onepo.errors import UserError
from onepo.servers.managed import ServerStartFailed

_MORE_SESSIONS = 1.25
TEXT_FIELD = "text"  # of the messages of the services that ship


@dataclass(frozen=True)
class Limits:
    """Of a domain: turns of an episode, tokens of a turn, seconds for an answer and for a session to open."""

    turns: int
    turn_tokens: int
    timeout: float
    connect_timeout: float


# as many turns as the longest task of the services has, which end their episodes by themselves; an answer may take as
# long as the slowest of them allows itself, and some time on the way
LIMITS = Limits(turns=40, turn_tokens=1024, timeout=90.0, connect_timeout=30.0)


@dataclass(frozen=True)
class Running:
    """A service that runs already: its address, and the fields of its messages that hold the text."""

    url: str
    action_field: str
    observation_field: str


@dataclass(frozen=True)
class Plan:
    """What is to be prepared.

    Attributes:
        domains: names, in no order; each a service that ships or one of ``running``.
        running: services that are not to be started, by domain.
        tasks: of a domain that is not to have all tasks of its service.
        limits: by domain.
        updates, episodes: of the training: so many updates of so many episodes each.
        warmup: batches of episodes that are under way before the first update.
        host: where the managed services listen.
        first_port: of the managed services, which get this one and those behind it.
        seed: of the schedule.
    """

    domains: Iterable[str]
    running: Mapping[str, Running]
    tasks: Mapping[str, Sequence[str]]
    limits: Mapping[str, Limits]
    updates: int
    episodes: int
    warmup: float
    host: str
    first_port: int
    seed: int

    @property
    def in_flight(self) -> int:
        """The most episodes that may be under way at one time."""
        return most_under_way(self.episodes, self.warmup)

    @property
    def sessions(self) -> int:
        """What a managed service gets: one that was left still counts for a moment, when the next is opened already."""
        return math.ceil(_MORE_SESSIONS * self.in_flight)

    @property
    def rows(self) -> int:
        """Of the schedule: what the updates train on, and what is under way when the last one begins."""
        return self.updates * self.episodes + self.in_flight


def prepare(
    plan: Plan, out: Path, *, python: str, start_timeout: float, say: Callable[[str], None]
) -> tuple[Path, Path]:
    """Look at the services and write routes and schedule; returns the two files.

    Raises:
        UserError: a service does not answer, or has too few sessions, or the files cannot be written there; nothing
            is written.
    """
    check_place(out, ROUTES_FILE, SCHEDULE_FILE, say=say)
    routes = _unbound(plan)
    facts = asyncio.run(facts_of_all({name: route for name, route in routes.items() if route.managed is None}))
    logs = Path(tempfile.mkdtemp(prefix="camp-prepare-"))
    with ExitStack() as cleaning:
        cleaning.callback(shutil.rmtree, logs, ignore_errors=True)
        services = ManagedServices(
            routes,
            python=python,
            logs_dir=logs,
            start_timeout=start_timeout,
            max_restarts=0,
            say=say,
            lost=lambda name, reason: say(f"{name}: {reason}"),
        )
        try:
            services.start()
            facts |= asyncio.run(facts_of_all({name: route for name, route in routes.items() if route.managed}))
            bound = _bound(plan, routes, facts)
            for name, route in bound.items():
                _check(name, route, plan.in_flight, say)
        except ServerStartFailed as error:
            cleaning.pop_all()  # the message names the log
            raise UserError(str(error)) from None
        finally:
            services.stop()
    shares = {name: route.share for name, route in bound.items()}
    with fresh_files(out) as fresh:
        digest = write_schedule(fresh / SCHEDULE_FILE, make_schedule(shares, rows=plan.rows, seed=plan.seed))
        Routes.of(bound, schedule_sha256=digest, seed=plan.seed).write(fresh / ROUTES_FILE)
    return out / ROUTES_FILE, out / SCHEDULE_FILE


def template(plan: Plan) -> Routes:
    """Routes that no service was asked for: they show the form, and nothing can run with them."""
    return Routes.of(_unbound(plan), schedule_sha256=None, seed=None)


def write_template(plan: Plan, out: Path, *, say: Callable[[str], None]) -> Path:
    """Write the template routes; returns the file.

    Raises:
        UserError: the plan has an unknown domain, or the file cannot be written there.
    """
    check_place(out, ROUTES_FILE, say=say)
    routes = template(plan)
    with fresh_files(out) as fresh:
        routes.write(fresh / ROUTES_FILE)
    return out / ROUTES_FILE


def _bound(plan: Plan, routes: Mapping[str, Route], facts: Mapping[str, ServiceFacts]) -> dict[str, Route]:
    """The routes with what their services said of themselves.

    Raises:
        UserError: with a line for each domain that was to have tasks which its service has not.
    """
    chosen = {name: dict.fromkeys(plan.tasks.get(name) or facts[name].tasks) for name in routes}
    offered = {name: set(found.tasks) for name, found in facts.items()}
    if problems := [
        f"--tasks {name}=...: the service of {name} has no task {task}; it has {', '.join(facts[name].tasks) or 'none'}"
        for name, tasks in chosen.items()
        for task in tasks
        if task not in offered[name]
    ]:
        raise UserError("\n".join(problems))
    return {
        name: route.model_copy(
            update={
                "tasks": [task for task in facts[name].tasks if task in chosen[name]],
                "left_out": [task for task in facts[name].tasks if task not in chosen[name]],
                "fingerprint": facts[name].fingerprint,
            }
        )
        for name, route in routes.items()
    }


def _check(name: str, route: Route, sessions: int, say: Callable[[str], None]) -> None:
    began = time.monotonic()
    asyncio.run(check_sessions(name, route, sessions=sessions))
    tasks = f"{len(route.tasks)} tasks" if route.tasks else "no names of tasks, its episodes have seeds alone"
    say(f"{name}: {tasks}; {sessions} episodes begun at one time in {time.monotonic() - began:.1f} s")


def _unbound(plan: Plan) -> dict[str, Route]:
    names = sorted(set(plan.domains))
    if unknown := [name for name in names if name not in SERVICES and name not in plan.running]:
        raise UserError(
            "\n".join(
                f"domain {name}: is none of the services that ship ({', '.join(SERVICES)}), and no address was given "
                f"for it (--url {name}=http://HOST:PORT)"
                for name in unknown
            )
        )
    managed = [name for name in names if name not in plan.running]
    if plan.first_port + len(managed) - 1 > 65535:
        raise UserError(f"--first-port {plan.first_port}: {len(managed)} ports from there on go beyond 65535")
    host = f"[{plan.host}]" if ":" in plan.host else plan.host
    urls = {name: f"http://{host}:{port}" for port, name in enumerate(managed, plan.first_port)}
    return {name: _route(plan, name, urls.get(name)) for name in names}


def _route(plan: Plan, name: str, own_url: str | None) -> Route:
    limits = plan.limits[name]
    service = Running(own_url, TEXT_FIELD, TEXT_FIELD) if own_url else plan.running[name]
    return Route(
        url=service.url,
        managed=Managed(service=name, sessions=plan.sessions) if own_url else None,
        tasks=[],
        left_out=[],
        action_field=service.action_field,
        observation_field=service.observation_field,
        timeout=limits.timeout,
        connect_timeout=limits.connect_timeout,
        turns=limits.turns,
        turn_tokens=limits.turn_tokens,
        fingerprint=None,
    )


def prepared_otherwise(routes: Routes) -> dict[str, tuple[Any, Any]]:
    """What belongs to the experiment and is in no configuration: the recipe's value and that of routes, by its name."""
    found: dict[str, tuple[Any, Any]] = {
        "domains": (sorted(SERVICES), sorted(routes.domains)),
        "seed of the schedule": (RECIPE.camp.seed, routes.seed),
    }
    for name, route in routes.domains.items():
        found[f"turns of an episode of {name}"] = (LIMITS.turns, route.turns)
        found[f"tokens of a turn of {name}"] = (LIMITS.turn_tokens, route.turn_tokens)
        found[f"tasks left out of {name}"] = ([], route.left_out)
    return found
