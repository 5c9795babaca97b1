"""What the task services share: an episode takes text and answers with text, over the OpenEnv protocol.

A domain is a module with a ``DOMAIN``; everything about its tasks and their state is in there. One connection is one
session, and a session has one episode at a time: ``reset`` with a task and a seed begins it, and the same two begin the
same episode again.
"""

import asyncio
import hashlib
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from openenv.core.env_server import Action, ConcurrencyConfig, Environment, Observation, State
from openenv.core.env_server.http_server import create_fastapi_app
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

LONGEST_ACTION = 2**15  # characters of a response that are looked at, from its end
_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL | re.IGNORECASE)


class TextAction(Action):
    """What the student wrote in its turn."""

    text: str


class TextObservation(Observation):
    """What the student reads next; ``success`` is told when the episode is over."""

    text: str
    success: bool | None = None


@dataclass(frozen=True)
class Turn:
    """What became of an action.

    Attributes:
        text: the observation.
        reward: of this turn; those of an episode add up to at most 1.
        success: whether the task is solved, once the episode is over; None while it goes on.
    """

    text: str
    reward: float = 0.0
    success: bool | None = None


class Episode:
    """One task under way. Its methods are called one after the other, each in some thread."""

    def begin(self) -> str:
        """The instructions and the task: all that the student has to know."""
        raise NotImplementedError

    def act(self, action: str) -> Turn:
        """Carry out an action, as :func:`action_of` read it. What makes no sense is a turn too, and says so."""
        raise NotImplementedError

    def interrupt(self) -> None:
        """End an ``act`` that takes too long; called from another thread."""

    def close(self) -> None:
        """Give up what the episode holds."""


@dataclass(frozen=True)
class Domain:
    """A kind of tasks.

    Attributes:
        name: of the service.
        tasks: what a task may be called; with a seed each name stands for very many.
        open: makes an episode of a task and a seed; ValueError when it knows no such task.
        seconds: one ``begin`` or ``act`` may take.
    """

    name: str
    tasks: Sequence[str]
    open: Callable[[str, int], Episode]
    seconds: float


def action_of(text: str) -> str:
    """The action in a response: what the last pair of action tags holds behind the thinking, or all behind it."""
    spoken = text[-LONGEST_ACTION:].rpartition("</think>")[2]
    tagged = _ACTION.findall(spoken)
    return (tagged[-1] if tagged else spoken).strip()


class TextEnvironment(Environment[TextAction, TextObservation, State]):
    """One session of a domain."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, domain: Domain):
        super().__init__()
        self._domain = domain
        self._episode: Episode | None = None
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> TextObservation:
        raise NotImplementedError("only sessions, whose calls are asynchronous, are served")

    def step(self, action: TextAction, timeout_s: float | None = None, **kwargs: Any) -> TextObservation:
        raise NotImplementedError("only sessions, whose calls are asynchronous, are served")

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, task: str | None = None
    ) -> TextObservation:
        if seed is None:
            raise ValueError("reset needs a seed")
        name = self._domain.tasks[0] if task is None else task
        self.close()
        episode = self._episode = await asyncio.to_thread(self._domain.open, name, seed)
        self._state = State(episode_id=episode_id, step_count=0)
        return TextObservation(text=await self._in_time(episode.begin), done=False, reward=None)

    async def step_async(self, action: TextAction, timeout_s: float | None = None, **kwargs: Any) -> TextObservation:
        if self._episode is None:
            raise ValueError("there is no episode: reset first")
        episode = self._episode
        turn = await self._in_time(lambda: episode.act(action_of(action.text)))
        self._state.step_count += 1
        if done := turn.success is not None:
            self.close()
        return TextObservation(text=turn.text, reward=turn.reward, done=done, success=turn.success)

    @property
    def state(self) -> State:
        return self._state

    def close(self) -> None:
        episode, self._episode = self._episode, None
        if episode is not None:
            episode.close()

    async def _in_time(self, call: Callable[..., Any], *arguments: Any) -> Any:
        episode, loop, started = self._episode, asyncio.get_running_loop(), asyncio.Event()

        def timed() -> Any:
            loop.call_soon_threadsafe(started.set)  # waiting for a thread is nobody's fault
            return call(*arguments)

        running = asyncio.create_task(asyncio.to_thread(timed))
        await started.wait()
        done, _ = await asyncio.wait({running}, timeout=self._domain.seconds)
        if done:
            return running.result()
        self._episode = None  # whatever state it is in, nobody steps it any more
        episode.interrupt()
        running.add_done_callback(lambda task: (task.exception(), episode.close()))
        raise TimeoutError(f"the {self._domain.name} service took more than {self._domain.seconds:g} s for a turn")


class _NoWebPages:
    """Refuses what a page in a browser sends, which can reach a service of this machine: nothing else has an origin."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if any(name == b"origin" for name, _ in scope.get("headers", ())):
            if scope["type"] == "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1008})
            else:
                await PlainTextResponse("not for web pages", 403)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def create_app(domain: Domain, *, sessions: int, session_timeout: float) -> FastAPI:
    """The service of a domain.

    Args:
        sessions: at one time.
        session_timeout: seconds after which a session that nobody uses ends.
    """
    limits = ConcurrencyConfig(max_concurrent_envs=sessions, session_timeout=session_timeout)
    app = create_fastapi_app(lambda: TextEnvironment(domain), TextAction, TextObservation, concurrency_config=limits)

    # one WebSocket is one session: these would begin others, which no connection ends
    app.router.routes[:] = [route for route in app.router.routes if route.path not in ("/mcp", "/reset", "/step")]
    app.add_middleware(_NoWebPages)
    facts = {"name": domain.name, "tasks": list(domain.tasks), "sessions": sessions, "code": code_of(domain)}

    @app.get("/tasks")
    def tasks() -> dict[str, Any]:
        return facts

    return app


def code_of(domain: Domain) -> str:
    """SHA-256 of the code that makes the domain's episodes: with other code, a seed may mean another episode."""
    digest = hashlib.sha256()
    for file in [Path(__file__), *sorted(Path(inspect.getfile(domain.open)).parent.glob("*.py"))]:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()
