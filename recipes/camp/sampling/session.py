"""One session with a task service, over OpenEnv's WebSocket. Light: aiohttp, and nothing of OpenEnv.

A session that had any trouble is never used again: whoever holds it begins the episode anew, from its seed, in another.
"""

import asyncio
import json
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import aiohttp

from onepo.endpoints.address import proxy_for
from onepo.endpoints.answers import one_line

_LARGEST_REWARD = 1e6  # larger ones are a mistake: they would drown all others
_PARTING_SECONDS = 1.0
_LONGEST_MESSAGE = 2**24  # bytes; a service that sends more in a turn is out of order


class SessionFault(Exception):
    """The service did not do its part: this says nothing about the student.

    Attributes:
        kind: ``unreachable``, ``full`` (no session is free), ``timed_out``, ``closed``, ``malformed`` (no OpenEnv
            message), ``refused`` (it does not take what was sent) or ``failed`` (it broke on it).
    """

    def __init__(self, kind: str, explanation: str):
        super().__init__(kind, explanation)
        self.kind = kind

    def __str__(self) -> str:
        return self.args[1]


@dataclass(frozen=True)
class ServiceAddress:
    """Where a domain's service is, and how it speaks.

    Attributes:
        url: of the server, ``http://HOST:PORT``, without a path of OpenEnv's.
        action_field, observation_field: the fields that hold the text.
        timeout: seconds for one answer.
        connect_timeout: seconds until a session is open.
    """

    url: str
    action_field: str
    observation_field: str
    timeout: float
    connect_timeout: float


@dataclass(frozen=True)
class Observation:
    """What came back.

    Attributes:
        text: what the student reads next.
        reward: of the turn; 0 when the service gave none.
        done: the episode is over.
        success: whether the task was solved, where the service says so.
        seconds: from sending to having it.
    """

    text: str
    reward: float
    done: bool
    success: bool | None
    seconds: float = field(compare=False)


class Session:
    """``async with Session(...) as session: await session.reset(...)``.

    Raises:
        SessionFault: here and in every call.
    """

    def __init__(self, http: aiohttp.ClientSession, address: ServiceAddress):
        self._http = http
        self._address = address
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._reading: asyncio.Task[aiohttp.WSMessage] | None = None

    async def __aenter__(self) -> "Session":
        url = self._address.url.rstrip("/") + "/ws"
        try:
            connecting = self._http.ws_connect(
                url,
                proxy=proxy_for(self._address.url),
                max_msg_size=_LONGEST_MESSAGE,
                timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
            )
            self._socket = await asyncio.wait_for(connecting, self._address.connect_timeout)
        except asyncio.TimeoutError:
            limit = f"{self._address.connect_timeout:g} s"
            raise SessionFault("unreachable", f"{url}: no session within {limit}") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise SessionFault("unreachable", f"{url}: {_told(error)}") from None
        self._read_on()
        return self

    def _read_on(self) -> None:
        """Wait for the next message from now on: a server that pings is answered only while somebody reads.

        The student may take minutes for a turn, and servers end connections that do not answer for much less.
        """
        self._reading = asyncio.create_task(self._socket.receive())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._socket is not None:
            await self._close(self._socket, politely=error is None)

    async def _close(self, socket: aiohttp.ClientWebSocketResponse, *, politely: bool) -> None:
        try:
            if politely:  # else the server may be busy with what we no longer want
                await socket.send_json({"type": "close"})
                # it hangs up by itself then; one that we hang up on writes an error into its log
                await asyncio.wait([self._reading], timeout=_PARTING_SECONDS)
            self._reading.cancel()
            await asyncio.wait([self._reading])
            # aiohttp waits for the other side's goodbye, and anew with each message that comes in its place
            await asyncio.wait_for(socket.close(), 2 * _PARTING_SECONDS)
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError):
            pass  # it is gone, which is what was wanted
        finally:
            self._reading.cancel()
            if self._reading.done() and not self._reading.cancelled():
                self._reading.exception()  # nobody asks for it any more

    async def reset(self, *, task: str | None, seed: int) -> Observation:
        """Begin an episode."""
        data = {"seed": seed} if task is None else {"seed": seed, "task": task}
        return await self._call({"type": "reset", "data": data})

    async def step(self, text: str) -> Observation:
        """Say something, and read what comes of it."""
        return await self._call({"type": "step", "data": {self._address.action_field: text}})

    async def _call(self, message: dict[str, Any]) -> Observation:
        began = time.monotonic()
        socket, self._socket = self._socket, None  # it comes back with a good answer only
        if socket is None:
            raise SessionFault("closed", f"{self._address.url}: the session is closed")
        if self._reading.done():
            await self._close(socket, politely=False)
            raise SessionFault("closed", f"{self._address.url}: the service ended the session, or spoke unasked")
        try:
            await socket.send_json(message)
            await asyncio.wait([self._reading], timeout=self._address.timeout)
            if not self._reading.done():
                raise SessionFault("timed_out", f"{self._address.url}: no answer within {self._address.timeout:g} s")
            answer = self._reading.result()
        except (aiohttp.ClientError, OSError) as error:
            await self._close(socket, politely=False)
            raise SessionFault("closed", f"{self._address.url}: {_told(error)}") from None
        except BaseException:
            await self._close(socket, politely=False)
            raise
        if answer.type is not aiohttp.WSMsgType.TEXT:
            await self._close(socket, politely=False)
            raise SessionFault("closed", f"{self._address.url}: the service ended the session")
        try:
            observation = self._read(answer.data, time.monotonic() - began)
        except SessionFault:
            await self._close(socket, politely=False)
            raise
        self._socket = socket
        self._read_on()
        return observation

    def _read(self, text: str, seconds: float) -> Observation:
        """An OpenEnv message as an observation."""
        name = self._address.observation_field
        try:
            message = json.loads(text)
            kind, data = message["type"], message["data"]
            if kind == "error":
                raise SessionFault(_fault_of(data), f"{self._address.url}: {_told(data.get('message', data))}")
            observation = data["observation"]
            told, reward, done = observation[name], data["reward"] or 0.0, data["done"]
            success = observation.get("success")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise SessionFault(
                "malformed", f"{self._address.url}: no observation with the field {name!r} ({_told(error)})"
            ) from None
        if not _is_text(told) or not isinstance(done, bool) or not _is_reward(reward):
            found = f"{name!r} is no text, done no boolean, or the reward no number that can be added up"
            raise SessionFault("malformed", f"{self._address.url}: {found}")
        if success is not None and not isinstance(success, bool):
            found = f"success is {success!r}, expected true, false or null"
            raise SessionFault("malformed", f"{self._address.url}: {found}")
        return Observation(told, float(reward), done, success, seconds)


def _is_text(value: object) -> bool:
    """A half of a surrogate pair is none: no tokenizer takes it, and no file."""
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def _is_reward(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _LARGEST_REWARD


def _fault_of(error: dict[str, Any]) -> str:
    return {"CAPACITY_REACHED": "full", "VALIDATION_ERROR": "refused", "UNKNOWN_TYPE": "refused"}.get(
        error.get("code"), "failed"
    )


def _told(error: object) -> str:
    return one_line(str(error), secret=None) or type(error).__name__
