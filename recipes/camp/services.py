"""The task services of a training: those that it starts itself, and what any of them says of itself."""

import asyncio
import hashlib
import json
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from camp.routes import Route
from camp.sampling.session import Session, SessionFault
from onepo.endpoints.address import proxy_for
from onepo.errors import UserError
from onepo.servers.engines import Command
from onepo.servers.managed import ManagedServer, ServerStartFailed

_PACKAGES = Path(__file__).parents[1]  # where `camp` is found
_LOOK_SECONDS = 10.0


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
    timeout = aiohttp.ClientTimeout(_LOOK_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as http:
            schema = await _get(http, url, "/schema")
            told = await _get(http, url, "/tasks", missing={})
    except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise UserError(f"{url}: no OpenEnv server answers there ({reason})") from None
    tasks = [str(name) for name in told.get("tasks", [])]
    content = {"schema": schema, "tasks": tasks, "code": told.get("code")}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return ServiceFacts(tasks, hashlib.sha256(text.encode()).hexdigest())


async def _get(http: aiohttp.ClientSession, url: str, path: str, *, missing: Any = None) -> Any:
    async with http.get(url + path, proxy=proxy_for(url)) as response:
        if response.status == 404 and missing is not None:  # of services that are not ours
            return missing
        response.raise_for_status()
        return await response.json(content_type=None)


async def check_sessions(name: str, route: Route, *, sessions: int) -> None:
    """Whether a service has so many sessions at one time: they are opened, and an episode is begun in each.

    Raises:
        UserError: it has not.
    """
    task = route.tasks[0] if route.tasks else None
    async with AsyncExitStack() as opened:
        http = await opened.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))

        async def begin(seed: int) -> None:
            session = await opened.enter_async_context(Session(http, route.address))
            await session.reset(task=task, seed=seed)

        results = await asyncio.gather(*map(begin, range(sessions)), return_exceptions=True)
    faults = [result for result in results if isinstance(result, BaseException)]
    for fault in faults:
        if not isinstance(fault, SessionFault):
            raise fault
    if faults:
        raise UserError(
            f"domain {name}: of {sessions} sessions, which may be under way at one time, {len(faults)} could not be "
            f"begun: {faults[0]}. Raise the session limit of the service, or train with fewer episodes at one time"
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
            for name, route in routes.items()
            if route.managed is not None
        }

    def start(self) -> None:
        """Start all of them at one time, and return when they are ready.

        Raises:
            ServerStartFailed: one did not come up. The others are to be stopped all the same.
        """
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


def _command(python: str, route: Route) -> Command:
    address = urlsplit(route.url)
    arguments = ("--host", address.hostname, "--port", str(address.port), "--sessions", str(route.managed.sessions))
    # the environment of the services has nothing of ours but this package
    return Command(
        argv=(python, "-m", "camp.environments.run", route.managed.service, *arguments),
        env={"PYTHONPATH": str(_PACKAGES)},
    )
