"""One process that calls the user's reward function, seen from the run; ``custom_worker.py`` is what runs in it."""

import asyncio
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from onepo.errors import UserError

IMPORT_SECONDS = 300  # the file may import something big from a slow disk
_GRACE_SECONDS = 1.0  # for what should happen by itself at once
_WORKER = Path(__file__).with_name("custom_worker.py")

Answer = dict[str, Any]  # "value", or "failure" and "explanation" (none when it timed out)


class WorkerProcess:
    """Starts the process; to be used in one event loop.

    Attributes:
        alive: it takes calls.
        concurrent: it takes several at a time.
        watch: a task that is done when the process has ended and nothing is left of it.
    """

    def __init__(self, file: Path, name: str):
        self._spec = f"{file}:{name}"
        self._socket, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-u", "-X", "faulthandler", str(_WORKER), str(file), name]
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what the function prints goes to the log
                pass_fds=[theirs.fileno()],
            )
        self.alive = True
        self.concurrent = False
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Answer | None]] = {}  # by the number of the call; the import is 0
        self.watch = asyncio.create_task(self._watch())

    async def get_ready(self) -> None:
        """Return when the function is imported. Raises UserError when it cannot be used."""
        answer = await self._answer(0, IMPORT_SECONDS)
        if "concurrent" not in answer:
            self.kill()
            late = f"importing the file takes more than {IMPORT_SECONDS:g} seconds"
            raise UserError(f"REWARD_FUNCTION={self._spec}: {answer.get('explanation', late)}")
        self.concurrent = answer["concurrent"]

    async def call(self, request: dict[str, Any], timeout: float) -> Answer | None:
        """The worker's answer; None when the process had to end and another call may be to blame for that."""
        number = next(self._numbers)
        self._writer.write(json.dumps({**request, "call": number, "timeout": timeout}).encode() + b"\n")
        # a concurrent worker ends a late call by itself, as long as it is not blocked
        return await self._answer(number, timeout + _GRACE_SECONDS * self.concurrent)

    async def _answer(self, number: int, seconds: float) -> Answer | None:
        answer = self._pending[number] = asyncio.get_running_loop().create_future()
        await asyncio.wait({answer}, timeout=seconds)
        if not answer.done():
            self._fail({"failure": "timed_out"})
        return answer.result()

    def _fail(self, answer: Answer) -> None:
        self.kill()
        blamed = answer if len(self._pending) == 1 else None
        for pending in self._pending.values():
            pending.set_result(blamed)
        self._pending.clear()

    def kill(self) -> None:
        self.alive = False
        with suppress(OSError):  # ends our reading even if the function left a process that holds the other end
            self._socket.shutdown(socket.SHUT_RDWR)
        self._process.terminate()  # it ends the process that has the function, and all that this one started

    async def _watch(self) -> None:
        answers, self._writer = await asyncio.open_unix_connection(sock=self._socket)
        # it ended with a call unread, or the function wrote something of its own there
        with suppress(ConnectionError, ValueError, LookupError, TypeError, AttributeError):
            while line := await answers.readline():
                answer = _checked(json.loads(line))
                pending = self._pending.pop(answer.pop("call"), None)
                if pending is not None:
                    pending.set_result(answer)
        by_itself, self.alive = self.alive, False
        how = await asyncio.to_thread(self._how_it_ended)
        if by_itself:
            what = "imports" if 0 in self._pending else "calls"
            self._fail({"failure": "error", "explanation": f"the process that {what} the function {how}"})
        self._writer.close()
        await asyncio.to_thread(self._process.wait)

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return "broke its connection"
        return (
            f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code} ({signal.strsignal(-code)})"
        )


def _checked(answer: Answer) -> Answer:
    """The answer, if it has the form that our side of the socket gives it.

    Raises:
        TypeError: it has not.
    """
    if not isinstance(answer["call"], int) or not isinstance(answer.get("value", 0.0), float | int):
        raise TypeError("no answer of ours")
    return answer
