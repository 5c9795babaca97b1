"""Keeps one server running for its owner: ``python -m onepo.servers.supervisor``, which ``managed.py`` starts.

It is a process of its own so that the server ends however the owner ends. The owner holds the other end of the
standard input, which the kernel closes even when the owner is killed.

Standard input: one line of JSON (``Spec``), then nothing; its end is the order to stop, as TERM is.
Standard output: one JSON object per line.

- ``{"state": "starting", "pid", "attempt"}``: the server's process and group; attempt 0 is the first start.
- ``{"state": "ready", "seconds"}``: it is healthy, so many seconds after it was started.
- ``{"state": "ended", "exit_code", "restarts_left"}``: it ended by itself and is cleared away; a restart follows if one
  is left. The exit code is minus the signal's number after a signal, null when a restart did not get ready in time.
- ``{"state": "failed", "reason", "log_tail"}``: the last line; nothing of the server lives any more.
"""

import ctypes
import http.client
import json
import os
import select
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from onepo.servers.groups import end_group
from onepo.servers.ports import listeners, port_holder

_POLL_SECONDS = 0.25  # between two looks at what sends no signal: health, the port
_HEALTH_SECONDS = 2  # for one answer
_TAIL_LINES, _TAIL_BYTES = 20, 16384
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
_LIBC = ctypes.CDLL(None)
# the health check is of this machine: a proxy from the environment must not get it
_HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Spec:
    """One server and how to treat it; times are seconds."""

    argv: tuple[str, ...]
    env: dict[str, str]  # added to the inherited environment
    cwd: str
    log: str  # the server's output is appended
    health_url: str  # answers GET with 200 when the server is ready; its host and port are the server's
    start_timeout: float
    max_restarts: int
    leave_running: bool  # a server that is ready stays when the owner ends
    stop_timeout: float  # from TERM to KILL


class _OwnerIsGone(Exception):
    """The owner ended, or ordered the end."""


class _End(NamedTuple):
    exit_code: int | None
    reason: str


class Supervisor:
    """Runs the server of ``spec`` until the owner is gone or the server cannot be kept running.

    ``wake`` is a file descriptor that delivers the numbers of arriving signals, one byte each.
    """

    def __init__(self, spec: Spec, wake: int):
        self._spec = spec
        self._wake = wake
        self._pid = os.getpid()
        self._server: subprocess.Popen | None = None
        self._ready = False
        self._log_start = 0

    def run(self) -> int:
        """The exit code: 0 when the owner ended it, 1 when the server failed."""
        try:
            self._keep_serving()
            return 1
        except _OwnerIsGone:
            if not (self._spec.leave_running and self._ready and self._exit_code() is None):
                self._clear()
            return 0

    def _keep_serving(self) -> None:
        for attempt in range(self._spec.max_restarts + 1):
            end = self._serve(attempt)
            was_ready = self._ready
            # a dead server's children hold its port and memory; with time to end they also free what they share
            self._clear()
            if attempt == 0 and not was_ready:
                return self._fail(end.reason)
            restarts_left = self._spec.max_restarts - attempt
            self._emit(state="ended", exit_code=end.exit_code, restarts_left=restarts_left)
        self._fail(f"{end.reason}, and the limit of {self._spec.max_restarts} restarts is reached")

    def _serve(self, attempt: int) -> _End:
        """Start the server, wait for its health and then for its end."""
        began = time.monotonic()
        deadline = began + self._spec.start_timeout
        address = urlsplit(self._spec.health_url)
        try:
            while holder := port_holder(address.hostname, address.port):
                if attempt == 0 or time.monotonic() > deadline:
                    return _End(None, f"port {address.port} of {address.hostname} is in use by {holder}")
                self._pause(_POLL_SECONDS)
            self._pause(0)
            self._start()
        except OSError as error:
            return _End(None, f"the server cannot be started: {error}")
        self._emit(state="starting", pid=self._server.pid, attempt=attempt)
        while not self._is_healthy():
            if (code := self._exit_code()) is not None:
                return _End(code, f"the server {_ended(code)} before it was ready")
            if time.monotonic() > deadline:
                limit = f"{self._spec.start_timeout:g} seconds"
                return _End(None, f"the server was not ready within {limit} (GET {self._spec.health_url})")
            self._pause(_POLL_SECONDS)
        self._ready = True
        self._emit(state="ready", seconds=round(time.monotonic() - began, 1))
        while (code := self._exit_code()) is None:
            self._pause(None)
        return _End(code, f"the server {_ended(code)} after it had been ready")

    def _start(self) -> None:
        with open(self._spec.log, "ab") as log:
            self._log_start = log.tell()
            self._server = subprocess.Popen(
                self._spec.argv,
                env={**os.environ, **self._spec.env},
                cwd=self._spec.cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=self._enter_own_group,
            )

    def _enter_own_group(self) -> None:
        for number in (signal.SIGINT, signal.SIGHUP):  # ignored ones would stay ignored in the server
            signal.signal(number, signal.SIG_DFL)
        if self._spec.leave_running:
            os.setsid()  # the launcher ends all of its own session
            return
        os.setpgid(0, 0)
        _LIBC.prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() != self._pid:  # it died before the kernel knew
            os._exit(128 + signal.SIGTERM)

    def _exit_code(self) -> int | None:
        """The server's exit code, once it has ended.

        It is left to the kernel as a zombie until its group is cleared, so that nobody else can get the number.
        """
        end = os.waitid(os.P_PID, self._server.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if end is None:
            return None
        return end.si_status if end.si_code == os.CLD_EXITED else -end.si_status

    def _is_healthy(self) -> bool:
        try:
            with _HTTP.open(self._spec.health_url, timeout=_HEALTH_SECONDS) as answer:
                return answer.status == 200 and self._listens()
        except (OSError, http.client.HTTPException):
            return False

    def _listens(self) -> bool:
        """Whether it is our server that has the port: another one may have taken it while ours was loading."""
        return any(_group_of(pid) == self._server.pid for pid in listeners(urlsplit(self._spec.health_url).port))

    def _pause(self, seconds: float | None) -> None:
        """Wait for a signal, at most so long.

        Raises:
            _OwnerIsGone: it is time to stop.
        """
        lifeline = sys.stdin.fileno()
        ready, _, _ = select.select([lifeline, self._wake], [], [], seconds)
        if self._wake in ready and signal.SIGTERM in os.read(self._wake, 4096):
            raise _OwnerIsGone
        if lifeline in ready and not os.read(lifeline, 4096):
            raise _OwnerIsGone

    def _clear(self) -> None:
        if self._server is not None:
            end_group(self._server.pid, self._spec.stop_timeout)
            self._server.poll()
        self._server, self._ready = None, False

    def _fail(self, reason: str) -> None:
        tail = log_tail(self._spec.log, self._log_start)
        self._emit(state="failed", reason=f"{reason}; its log is {self._spec.log}", log_tail=tail)

    def _emit(self, **status: object) -> None:
        try:
            os.write(sys.stdout.fileno(), json.dumps(status).encode() + b"\n")
        except BrokenPipeError:
            raise _OwnerIsGone from None


def log_tail(log: str | Path, start: int = 0) -> list[str]:
    """The last lines of a log, as far as they stand behind byte ``start``."""
    try:
        with open(log, "rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(start, end - _TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]
    except OSError:
        return []


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _ended(code: int) -> str:
    return f"ended with exit code {code}" if code >= 0 else f"was ended by {signal_name(-code)}"


def signal_name(number: int) -> str:
    """SIGKILL and the like; real-time signals have a number only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def main() -> int:
    os.setpgid(0, 0)  # of its own, but still in the owner's session, where the launcher finds it
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    wake, signals = os.pipe()
    os.set_blocking(signals, False)
    signal.set_wakeup_fd(signals)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)  # the number arrives at `wake`
    line = sys.stdin.readline()
    return Supervisor(Spec(**json.loads(line)), wake).run() if line else 0


if __name__ == "__main__":
    sys.exit(main())
