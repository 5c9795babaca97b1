"""A server that a run started and owns: it ends with the run, however the run ends."""

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from onepo.servers.engines import Command
from onepo.servers.groups import KILL_SECONDS, end_group
from onepo.servers.supervisor import Spec, log_tail

logger = logging.getLogger(__name__)

_STOP_SECONDS = 8  # from TERM to KILL: long enough for an engine, and all is over 15 seconds after the owner's end
_HEALTH_MARGIN = 5  # seconds; the supervisor may have to finish a health check first
_ROOT = Path(__file__).parents[2]  # where `onepo` is found


class ServerStartFailed(Exception):
    """The server never got ready.

    Args:
        reason: one line for people, which names the log.
        log_tail: the last lines of that log.
    """

    def __init__(self, reason: str, log_tail: list[str]):
        super().__init__(reason, log_tail)
        self.reason = reason
        self.log_tail = log_tail

    def __str__(self) -> str:
        return "\n".join([self.reason, *(f"  | {line}" for line in self.log_tail)])


class ManagedServer:
    """Starts a server under a supervisor process, follows its state and stops it.

    Args:
        command: the server. It runs in the current directory, and its environment is ours plus ``command.env``.
        log: the file that its output is appended to.
        health_url: answers GET with 200 when the server is ready.
        start_timeout: seconds until then, for every start.
        max_restarts: how often, over the whole run, a server that ended by itself is started again.
        leave_running: a server that is ready stays when the owner stops or dies; nobody watches it any longer.
        on_state: called in a thread with every status of the supervisor (``onepo.servers.supervisor`` lists them). It
            must not raise.
    """

    def __init__(
        self,
        command: Command,
        *,
        log: Path,
        health_url: str,
        start_timeout: float,
        max_restarts: int,
        leave_running: bool,
        on_state: Callable[[dict[str, Any]], None],
    ):
        self._spec = Spec(
            argv=command.argv,
            env=command.env,
            cwd=os.getcwd(),
            log=str(log.absolute()),
            health_url=health_url,
            start_timeout=start_timeout,
            max_restarts=max_restarts,
            leave_running=leave_running,
            stop_timeout=_STOP_SECONDS,
        )
        self._on_state = on_state
        self._supervisor: subprocess.Popen[str] | None = None
        self._reader = threading.Thread(target=self._follow, name="server-states", daemon=True)
        self._pid: int | None = None
        self._ready = False
        self._failure: dict[str, Any] | None = None
        self._stopping = False
        self._settled = threading.Event()  # the first start has succeeded or failed

    @property
    def pid(self) -> int | None:
        """Process and process group of the server that was started last."""
        return self._pid

    def start(self) -> None:
        """Start the supervisor, and with it the server. Once only."""
        self._supervisor = subprocess.Popen(
            [sys.executable, "-m", "onepo.servers.supervisor"],
            cwd=_ROOT,  # a PYTHONPATH would reach the server, which may run in another environment
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader.start()
        with suppress(BrokenPipeError):  # it died at once, which the reader reports
            self._supervisor.stdin.write(json.dumps(asdict(self._spec)) + "\n")
            self._supervisor.stdin.flush()

    def wait_until_ready(self) -> None:
        """Return when the server has become ready for the first time.

        Raises:
            ServerStartFailed: it will not, or it was stopped before.
        """
        self._settled.wait()
        if self._failure:
            raise ServerStartFailed(self._failure["reason"], self._failure["log_tail"])
        if self._stopping:
            raise ServerStartFailed("the server was stopped", [])

    def stop(self) -> None:
        """End the server, unless it is to be left running, and return when it has ended. More calls do no harm."""
        if self._supervisor is None:
            return
        self._stopping = True
        with suppress(BrokenPipeError):
            self._supervisor.stdin.close()
        try:
            self._supervisor.wait(_HEALTH_MARGIN + _STOP_SECONDS + KILL_SECONDS)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
        self._reader.join(_STOP_SECONDS + KILL_SECONDS)

    def _follow(self) -> None:
        try:
            with self._supervisor.stdout as lines:
                for line in lines:
                    self._take(json.loads(line))
            code = self._supervisor.wait()
            if not self._failure and not (self._stopping and code == 0):
                self._replace_supervisor(code)
        finally:
            self._settled.set()

    def _take(self, status: dict[str, Any]) -> None:
        state = status["state"]
        self._ready = state == "ready"
        if state == "starting":
            self._pid = status["pid"]
        elif state == "failed":
            self._failure = status
        if state in ("ready", "failed"):
            self._settled.set()
        try:
            self._on_state(status)
        except Exception:  # the reading must go on: a supervisor that nobody reads would stop the server
            logger.exception("a status of the server could not be passed on")

    def _replace_supervisor(self, code: int) -> None:
        """Do what the supervisor, which somebody else ended, cannot do any more."""
        if self._pid is not None and not (self._spec.leave_running and self._ready):
            end_group(self._pid, 0 if self._stopping else _STOP_SECONDS)
        if not self._stopping:
            reason = f"the process that watches the server ended unexpectedly (exit code {code})"
            tail = log_tail(self._spec.log)
            self._take(
                {"state": "failed", "reason": f"{reason}; the server's log is {self._spec.log}", "log_tail": tail}
            )
