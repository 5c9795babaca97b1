"""The task services of a training: those that it starts itself, and what any of them says of itself."""

import asyncio
import hashlib
import json
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from camp.routes import Route
from camp.sampling.session import Session, SessionFault
from onepo.endpoints.address import proxy_for
from onepo.endpoints.answers import one_line
from onepo.errors import UserError
from onepo.servers.engines import Command
from onepo.servers.managed import ManagedServer, ServerStartFailed
from onepo.servers.ports import port_holder

_PROXIES = ("ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy")
_LONGEST_FACTS = 2**25  # bytes
_PACKAGES = Path(__file__).parents[1]  # where `camp` is found
_LOOK = aiohttp.ClientTimeout(10.0)


@dataclass(frozen=True)
class ServiceFacts:
    """What a service says of itself.

    Attributes:
        tasks: their names; none for a service that has only seeds.
        fingerprint: SHA-256 of its message schemas, its tasks and, where it tells, its code.
    """

    tasks: list[str]
    fingerprint: str


async def facts_of(url: str) -> ServiceFacts:
    """Ask a running service.

    Raises:
        UserError: it does not answer as an OpenEnv server.
    """
    try:
        async with aiohttp.ClientSession(timeout=_LOOK) as http:
            schema = await _get(http, url, "/schema")
            told = await _get(http, url, "/tasks", missing={})
    except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError, RecursionError) as error:
        reason = one_line(str(error), secret=None) or type(error).__name__
        raise UserError(f"{url}: no OpenEnv server answers there ({reason})") from None
    tasks = told.get("tasks") if isinstance(told, dict) else None
    if not isinstance(tasks, list) or not all(map(_is_name, tasks)):
        told, tasks = {}, []  # a service that is not ours may mean anything by it
    content = {"schema": schema, "tasks": tasks, "code": told.get("code")}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return ServiceFacts(tasks, hashlib.sha256(text.encode()).hexdigest())


def _is_name(task: object) -> bool:
    return isinstance(task, str) and task != "" and task.isprintable()


async def _get(http: aiohttp.ClientSession, url: str, path: str, *, missing: Any = None) -> Any:
    async with http.get(url + path, proxy=proxy_for(url), allow_redirects=False) as response:
        if response.status == 404 and missing is not None:  # of services that are not ours
            return missing
        if response.status != 200:
            raise ValueError(f"{path}: HTTP {response.status}")
        content = await response.content.read(_LONGEST_FACTS)
        while not response.content.at_eof() and len(content) < _LONGEST_FACTS:
            content += await response.content.read(_LONGEST_FACTS - len(content))
        return json.loads(content)


async def facts_of_all(routes: Mapping[str, Route]) -> dict[str, ServiceFacts]:
    """Ask the services of all domains at one time.

    Raises:
        UserError: with a line for each domain whose service does not answer.
    """
    answers = await _answers(routes)
    _raise_all(f"domain {name}: {answer}" for name, answer in answers.items() if isinstance(answer, UserError))
    return answers


async def check_fingerprints(routes: Mapping[str, Route]) -> None:
    """Whether the services of all domains are those that the routes were made with; they are asked at one time.

    Raises:
        UserError: with a line for each domain whose service does not answer or is another one.
    """
    problems = []
    for name, answer in (await _answers(routes)).items():
        if isinstance(answer, UserError):
            problems.append(f"domain {name}: {answer}")
        elif answer.fingerprint != routes[name].fingerprint:
            problems.append(
                f"domain {name}: the service at {routes[name].url} is not the one that the routes were made with: run "
                "that one, or make routes and schedule anew with python -m camp.routes prepare"
            )
    _raise_all(problems)


async def _answers(routes: Mapping[str, Route]) -> dict[str, ServiceFacts | UserError]:
    async def answer(route: Route) -> ServiceFacts | UserError:
        try:
            return await facts_of(route.url)
        except UserError as error:
            return error

    return dict(zip(routes, await asyncio.gather(*map(answer, routes.values())), strict=True))


def _raise_all(problems: Iterable[str | None]) -> None:
    if found := [problem for problem in problems if problem]:
        raise UserError("\n".join(found))


async def check_sessions(name: str, route: Route, *, sessions: int) -> None:
    """Whether a service has so many sessions at one time: they are opened, and an episode is begun in each.

    Raises:
        UserError: it has not.
    """
    task = route.tasks[0] if route.tasks else None
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def begin(seed: int) -> AsyncExitStack:
            async with AsyncExitStack() as opened:
                session = await opened.enter_async_context(Session(http, route.address))
                await session.reset(task=task, seed=seed)
                return opened.pop_all()

        results = await asyncio.gather(*map(begin, range(sessions)), return_exceptions=True)
        # all at one time: a service may be slow to part
        await asyncio.gather(*[opened.aclose() for opened in results if isinstance(opened, AsyncExitStack)])
    faults = [result for result in results if isinstance(result, BaseException)]
    for fault in faults:
        if not isinstance(fault, SessionFault):
            raise fault
    if faults:
        few = faults[0].kind in ("full", "timed_out")
        advice = ". Raise the session limit of the service, or train with fewer episodes at one time" if few else ""
        raise UserError(
            f"domain {name}: of {sessions} sessions, which may be under way at one time, {len(faults)} could not be "
            f"begun: {faults[0]}{advice}"
        )


class ManagedServices:
    """The services of some routes that are to be started here; they end with this process, however it ends.

    Args:
        routes: by domain; those that are not managed are left alone.
        python: the interpreter of the services.
        logs_dir: gets a log for each, named by its domain.
        start_timeout: seconds until a service is ready.
        max_restarts: of each, when it ends by itself.
        say: shows a line to the user; called from threads, too.
        lost: called from a thread, with the domain and the reason, when a service has ended for good.
    """

    def __init__(
        self,
        routes: dict[str, Route],
        *,
        python: str,
        logs_dir: Path,
        start_timeout: float,
        max_restarts: int,
        say: Callable[[str], None],
        lost: Callable[[str, str], None],
    ):
        self._routes = {name: route for name, route in routes.items() if route.managed is not None}
        self._python = python
        self._say = say
        self._lost = lost
        self._ready: set[str] = set()
        self._servers = {
            name: ManagedServer(
                _command(python, route),
                log=logs_dir / f"{name}.log",
                health_url=f"{route.url}/health",
                start_timeout=start_timeout,
                max_restarts=max_restarts,
                leave_running=False,
                on_state=lambda status, name=name: self._on_state(name, status),
            )
            for name, route in self._routes.items()
        }

    def start(self) -> None:
        """Start all of them at one time, and return when they are ready.

        Raises:
            UserError: the interpreter is none of the services, or a port is taken; nothing was started.
            ServerStartFailed: one did not come up; the others are to be stopped all the same.
        """
        if self._routes:
            _check_python(self._python)
            _raise_all(_port_problem(name, route) for name, route in self._routes.items())
        for server in self._servers.values():
            server.start()
        for name, server in self._servers.items():
            try:
                server.wait_until_ready()
            except ServerStartFailed as error:
                raise ServerStartFailed(f"the service of {name}: {error.reason}", error.log_tail) from None

    def stop(self) -> None:
        """End all of them at one time."""
        stops = [threading.Thread(target=server.stop, name="service-stop") for server in self._servers.values()]
        for stop in stops:
            stop.start()
        for stop in stops:
            stop.join()

    def _on_state(self, name: str, status: dict[str, Any]) -> None:
        if status["state"] == "ready":
            self._ready.add(name)
            self._say(f"{name} is ready after {status['seconds']:.0f} s")
        elif status["state"] == "ended" and status["restarts_left"]:
            self._say(f"the service of {name} ended (exit code {status['exit_code']}): it is started again")
        elif status["state"] == "failed" and name in self._ready:  # a first start that fails is told by `start`
            self._lost(name, status["reason"])


def _check_python(python: str) -> None:
    try:
        ended = subprocess.run([python, "-c", "import openenv"], stdin=subprocess.DEVNULL, capture_output=True)
        problem = "has no openenv-core" if ended.returncode else None
    except OSError as error:
        problem = f"cannot be started ({error.strerror})"
    if problem:
        raise UserError(
            f"the Python of the task services, {python}, {problem}: the command make services makes one that fits; "
            "--services-python or the variable CAMP_SERVICES_PYTHON names it"
        )


def _port_problem(name: str, route: Route) -> str | None:
    try:
        address = urlsplit(route.url)
        holder = port_holder(address.hostname, address.port)
        problem = holder and f"is in use by {holder}: end that, or prepare routes with another --first-port"
    except OSError as error:
        problem = f"cannot be used ({error.strerror})"
    except ValueError:  # no address, or no name
        return f"the service of {name}: {route.url} is no address to listen at: prepare routes with another --host"
    return problem and f"the service of {name}: port {address.port} of {address.hostname} {problem}"


def _command(python: str, route: Route) -> Command:
    address = urlsplit(route.url)
    arguments = ("--host", address.hostname, "--port", str(address.port), "--sessions", str(route.managed.sessions))
    # the environment of the services has nothing of ours but this package
    return Command(
        argv=(python, "-m", "camp.environments.run", route.managed.service, *arguments),
        # and asks nobody else for anything: a library of theirs stops at a proxy that it has no package for
        env={"PYTHONPATH": str(_PACKAGES), **dict.fromkeys(_PROXIES, "")},
    )
