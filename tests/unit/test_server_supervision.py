"""A managed server starts, survives and stops, however it or its owner ends: real processes and sockets."""

import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from onepo.servers import managed
from onepo.servers.engines import Command
from onepo.servers.managed import ManagedServer, ServerStartFailed
from onepo.servers.ports import port_holder
from onepo.servers.supervisor import Spec
from tests.conftest import ROOT

PROMISED = 15  # seconds after which nothing is left
STAND_IN = ROOT / "tests" / "stand_in_server.py"
# a process that owns a server: prints each status, waits for a signal
OWNER = """\
import json, pathlib, signal, sys
from onepo.servers import managed
from onepo.servers.engines import Command

managed._STOP_SECONDS = 1
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it
argv, log, options = sys.argv[1].split("\\x1f"), pathlib.Path(sys.argv[2]), json.loads(sys.argv[3])
server = managed.ManagedServer(
    Command(tuple(argv), {}), log=log, on_state=lambda status: print(json.dumps(status), flush=True), **options
)
try:
    server.start()
    server.wait_until_ready()
    signal.pause()
finally:
    server.stop()
"""


def ends(pid: int, seconds: float = PROMISED) -> bool:
    """Whether the process ends within so many seconds."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], seconds)[0])
    finally:
        os.close(process)


def lives(pid: int) -> bool:
    return not ends(pid, 0)


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def options(port):
    """What ManagedServer takes beside the command, the log and the callback."""
    url = f"http://127.0.0.1:{port}/health"
    return {"health_url": url, "start_timeout": 60, "max_restarts": 0, "leave_running": False}


@pytest.fixture
def log(tmp_path) -> Path:
    return tmp_path / "server.log"


@pytest.fixture
def argv(port):
    return lambda *arguments: (sys.executable, str(STAND_IN), "--port", str(port), *map(str, arguments))


@pytest.fixture
def left_running():
    """left_running(process): ends a server, by its recorded group, that the code under test leaves on purpose."""
    recorded = []
    yield recorded.append
    for group in filter(lives, recorded):
        os.killpg(group, signal.SIGKILL)


class Served:
    """A managed server and the statuses it reports."""

    def __init__(self, command: Command, **options):
        self._statuses: queue.Queue = queue.Queue()
        self.server = ManagedServer(command, on_state=self._statuses.put, **options)
        self.server.start()

    def next(self, state: str) -> dict:
        status = self._statuses.get(timeout=30)
        assert status["state"] == state, status
        return status

    def ready(self) -> list[int]:
        """The server's process and its children, once it is ready."""
        self.next("starting")
        self.next("ready")
        url = self.server._spec.health_url.replace("health", "children")
        with urllib.request.urlopen(url, timeout=10) as answer:
            return [self.server.pid, *json.load(answer)]

    def no_more(self) -> bool:
        return self._statuses.empty()


@pytest.fixture
def serve(monkeypatch, argv, log, options):
    """serve(*arguments of the stand-in, **options of the managed server)."""
    started = []

    def run(*arguments, **changes) -> Served:
        command = Command(argv(*arguments), {"STAND_IN": "1"})
        started.append(Served(command, log=log, **{**options, **changes}))
        return started[-1]

    monkeypatch.setattr(managed, "_STOP_SECONDS", 0.3)
    yield run
    for served in started:
        served.server.stop()


@pytest.fixture
def own(argv, log, options):
    """own(*arguments, **options): a process that owns a server, and what it prints."""
    started = []

    def run(*arguments, **changes) -> subprocess.Popen:
        values = json.dumps({**options, **changes})
        command = [sys.executable, "-c", OWNER, "\x1f".join(argv(*arguments)), str(log), values]
        started.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield run
    for owner in started:
        owner.kill()
        owner.communicate()


@pytest.fixture
def supervise(argv, log, options, tmp_path):
    """supervise(*arguments): a supervisor without an owner's handle, which was given its specification."""
    started = []

    def run(*arguments) -> subprocess.Popen:
        spec = Spec(argv=argv(*arguments), env={}, cwd=str(tmp_path), log=str(log), stop_timeout=1, **options)
        command = [sys.executable, "-m", "onepo.servers.supervisor"]
        started.append(subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        started[-1].stdin.write(json.dumps(asdict(spec)) + "\n")
        started[-1].stdin.flush()
        return started[-1]

    yield run
    for supervisor in started:
        with supervisor:  # closes the pipes, too
            supervisor.terminate()


# ---- start and stop ----
def test_start_and_stop_leave_nothing(serve, port):
    served = serve("--children")
    served.server.wait_until_ready()
    pids = served.ready()
    supervisor = psutil.Process(served.server.pid).ppid()
    assert len(pids) == 3 and all(map(lives, pids))
    assert {os.getpgid(pid) for pid in pids} == {served.server.pid}
    assert os.getpgid(supervisor) == supervisor != os.getpgid(0)
    assert {os.getsid(pid) for pid in (*pids, supervisor)} == {os.getsid(0)}, "the launcher ends its session"
    served.server.stop()
    assert served.server._supervisor.returncode == 0, "it had to be killed"
    assert not any(map(lives, (*pids, supervisor)))
    assert port_holder("127.0.0.1", port) is None
    assert served.no_more()
    served.server.stop()


def test_stop_waits_no_longer_than_the_server_takes(serve, monkeypatch):
    monkeypatch.setattr(managed, "_STOP_SECONDS", 60)
    served = serve()
    served.ready()
    began = time.monotonic()
    served.server.stop()
    assert time.monotonic() - began < 30


def test_environment_and_signals_of_the_server(serve):
    server = serve().ready()[0]
    assert psutil.Process(server).environ()["STAND_IN"] == "1"
    assert psutil.Process(server).cwd() == os.getcwd()
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{server}/status").read_text().splitlines())
    ignored = int(status["SigIgn"], 16)
    for number in (signal.SIGHUP, signal.SIGINT):
        assert not ignored & 1 << number - 1


def test_ready_means_healthy(serve, log):
    served = serve("--refuse", 2)
    assert served.next("starting")["attempt"] == 0
    assert served.next("ready")["seconds"] > 0
    assert log.read_text().count('"GET /health HTTP/1.1" 503') == 2


def test_proxies_of_the_environment_are_not_asked(serve, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    served = serve()
    served.next("starting")
    served.next("ready")


def test_stop_while_it_starts(serve, tmp_path):
    served = serve("--ready-file", tmp_path / "never")
    served.next("starting")
    served.server.stop()
    assert not lives(served.server.pid)
    with pytest.raises(ServerStartFailed, match="stopped"):
        served.server.wait_until_ready()


# ---- a start that fails ----
def test_a_server_that_ends_before_it_is_ready(serve, log):
    log.write_text("an earlier run\n")
    served = serve("--exit", 3, max_restarts=5)
    with pytest.raises(ServerStartFailed) as failure:
        served.server.wait_until_ready()
    assert "exit code 3 before it was ready" in failure.value.reason and str(log) in failure.value.reason
    assert failure.value.log_tail == ["loading the model", "the model cannot be loaded"]
    assert "the model cannot be loaded" in str(failure.value)
    assert log.read_text().startswith("an earlier run\nloading")
    served.next("starting")
    assert served.next("failed")["log_tail"] == failure.value.log_tail
    served.server._reader.join(30)  # until the supervisor has ended, too
    assert served.no_more()


def test_a_server_that_never_becomes_healthy(serve, tmp_path):
    served = serve("--ready-file", tmp_path / "never", start_timeout=0.5, max_restarts=5)
    with pytest.raises(ServerStartFailed, match=r"not ready within 0\.5 seconds"):
        served.server.wait_until_ready()
    served.next("starting")
    served.next("failed")
    assert not lives(served.server.pid)


def test_a_port_in_use(serve, port):
    with socket.create_server(("127.0.0.1", port)):
        served = serve()
        with pytest.raises(
            ServerStartFailed, match=rf"port {port} of 127\.0\.0\.1 is in use by process {os.getpid()} "
        ):
            served.server.wait_until_ready()
    assert served.server.pid is None


@pytest.mark.parametrize("missing", ["program", "log"])
def test_what_cannot_be_started(missing, log, options, argv):
    program = ("/missing/python",) if missing == "program" else argv()
    log = log if missing == "program" else Path("/missing/log")
    served = Served(Command(program, {}), log=log, **options)
    with pytest.raises(ServerStartFailed, match=r"cannot be started: .*No such file.*/missing/"):
        served.server.wait_until_ready()
    served.server.stop()


# ---- a server that dies ----
def test_a_killed_server_is_restarted_at_its_port(serve):
    served = serve("--children", max_restarts=2)
    first, *children = served.ready()
    os.kill(first, signal.SIGKILL)
    assert served.next("ended") == {"state": "ended", "exit_code": -signal.SIGKILL, "restarts_left": 2}
    assert not any(map(lives, children)), "they hold the port"
    second, *_ = served.ready()
    assert second != first and lives(second)


def test_the_limit_of_restarts(serve, log):
    served = serve("--children", max_restarts=1)
    for left in (1, 0):
        pids = served.ready()
        os.kill(pids[0], signal.SIGTERM)
        assert served.next("ended")["restarts_left"] == left
    failure = served.next("failed")
    assert "SIGTERM after it had been ready, and the limit of 1 restarts is reached" in failure["reason"]
    assert str(log) in failure["reason"] and "loading the model" in failure["log_tail"]
    assert not any(map(lives, pids))


def test_a_restart_that_fails_counts(serve, tmp_path):
    served = serve("--once", tmp_path / "started", max_restarts=2)
    os.kill(served.ready()[0], signal.SIGKILL)
    expected = [(-signal.SIGKILL, 2), (7, 1), (7, 0)]
    for attempt, (code, left) in enumerate(expected, start=1):
        assert served.next("ended") == {"state": "ended", "exit_code": code, "restarts_left": left}
        if left:
            assert served.next("starting")["attempt"] == attempt
    assert "exit code 7 before it was ready" in served.next("failed")["reason"]


# ---- a supervisor or an owner that dies ----
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_supervisor_that_somebody_ends(number, serve, log):
    served = serve("--children", max_restarts=5)
    pids = served.ready()
    supervisor = psutil.Process(pids[0]).ppid()
    os.kill(supervisor, number)
    failure = served.next("failed")
    assert "ended unexpectedly" in failure["reason"] and str(log) in failure["reason"]
    assert not any(map(lives, pids))
    served.server.stop()


def test_a_supervisor_that_does_not_stop(serve, monkeypatch):
    monkeypatch.setattr(managed, "_HEALTH_MARGIN", 0.1)
    monkeypatch.setattr(managed, "KILL_SECONDS", 0.1)
    served = serve("--children")
    pids = served.ready()
    supervisor = psutil.Process(pids[0]).ppid()
    os.kill(supervisor, signal.SIGSTOP)
    served.server.stop()
    assert not lives(supervisor)
    assert all(map(ends, pids))
    assert served.no_more()


def test_a_killed_supervisor_whose_owner_is_gone_too(supervise):
    supervisor = supervise()
    server = json.loads(supervisor.stdout.readline())["pid"]
    supervisor.kill()
    assert ends(server)


def test_a_killed_owner(own):
    owner = own("--children")
    server = json.loads(owner.stdout.readline())["pid"]
    assert json.loads(owner.stdout.readline())["state"] == "ready"
    process = psutil.Process(server)
    pids = [server, process.ppid(), *(child.pid for child in process.children())]
    assert len(pids) == 4 and all(map(lives, pids))
    owner.kill()
    assert all(map(ends, pids))


def test_an_owner_that_is_interrupted_while_it_waits(own, tmp_path):
    owner = own("--ready-file", tmp_path / "never")
    server = json.loads(owner.stdout.readline())["pid"]
    supervisor = psutil.Process(server).ppid()
    owner.send_signal(signal.SIGINT)
    assert owner.wait(timeout=PROMISED) == -signal.SIGINT
    assert not lives(server) and not lives(supervisor)


def test_nobody_reads_the_statuses(supervise, tmp_path):
    supervisor = supervise("--ready-file", tmp_path / "ready")
    server = json.loads(supervisor.stdout.readline())["pid"]
    supervisor.stdout.close()
    (tmp_path / "ready").touch()
    assert supervisor.wait(timeout=PROMISED) == 0
    assert not lives(server)


def test_term_stops_a_supervisor_and_nothing_less(supervise):
    supervisor = supervise("--children")
    server = json.loads(supervisor.stdout.readline())["pid"]
    assert json.loads(supervisor.stdout.readline())["state"] == "ready"
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):  # delivered in this order
        supervisor.send_signal(number)
    assert supervisor.wait(timeout=PROMISED) == 0
    assert not lives(server)


# ---- a server that is to stay ----
def test_a_ready_server_is_left_running(serve, port, left_running):
    served = serve("--children", leave_running=True)
    pids = served.ready()
    left_running(pids[0])
    supervisor = psutil.Process(pids[0]).ppid()
    assert os.getsid(pids[0]) == pids[0], "the launcher ends its own session"
    served.server.stop()
    assert not lives(supervisor)
    assert all(map(lives, pids))
    assert port_holder("127.0.0.1", port) is not None


def test_a_ready_server_is_left_running_by_a_killed_owner(own, left_running):
    owner = own(leave_running=True)
    server = json.loads(owner.stdout.readline())["pid"]
    left_running(server)
    assert json.loads(owner.stdout.readline())["state"] == "ready"
    supervisor = psutil.Process(server).ppid()
    owner.kill()
    assert ends(supervisor)
    assert lives(server)


def test_an_unready_server_is_not_left_running(serve, tmp_path):
    served = serve("--ready-file", tmp_path / "never", leave_running=True)
    served.next("starting")
    served.server.stop()
    assert not lives(served.server.pid)


# ---- ports ----
def test_a_free_port(port):
    assert port_holder("127.0.0.1", port) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("asked", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_a_port_that_somebody_has(host, asked):
    with socket.create_server((host, 0)) as server:
        name = psutil.Process().name()
        assert port_holder(asked, server.getsockname()[1]) == f"process {os.getpid()} ({name})"


def test_connections_of_an_ended_server_do_not_count():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            server.accept()[0].close()  # this side closes first and keeps the port for a while
            assert client.recv(1) == b""
    with socket.socket() as strict, pytest.raises(OSError):
        strict.bind(("127.0.0.1", port))
    assert port_holder("127.0.0.1", port) is None


def test_an_address_of_another_machine():
    with pytest.raises(OSError):
        port_holder("192.0.2.1", 8000)


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_another_server_at_the_port_is_not_taken_for_ours(port, log, options):
    """It takes the port while ours is still loading, and answers as healthy."""
    loading = Command((sys.executable, "-c", "import time; time.sleep(600)"), {})
    served = Served(loading, log=log, **{**options, "start_timeout": 2})
    try:
        served.next("starting")
        with ThreadingHTTPServer(("127.0.0.1", port), Healthy) as other:
            threading.Thread(target=other.serve_forever, daemon=True).start()
            assert "was not ready within 2 seconds" in served.next("failed")["reason"]
            other.shutdown()
    finally:
        served.server.stop()
