"""``python -m camp.environments.serve``: the services of some routes are there while it runs, and never longer."""

import asyncio
import json
import os
import signal
import socket
import urllib.request

import psutil
import pytest

from camp.prepare import LIMITS, Plan, prepare, template
from camp.routes import Routes, read_routes
from camp.services import check_fingerprints
from tests.camp.commands import SERVICES_PYTHON, begin, free_port, run, stand_in
from tests.unit.test_server_supervision import ends

SERVE = "camp.environments.serve"


def plan(*domains: str) -> Plan:
    return Plan(
        domains=domains,
        running={},
        tasks={},
        limits=dict.fromkeys(domains, LIMITS),
        updates=1,
        episodes=4,
        warmup=0.5,
        host="127.0.0.1",
        first_port=free_port(),
        seed=1,
    )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A routes file with one managed service."""
    out = tmp_path_factory.mktemp("prepared")
    return prepare(plan("games"), out, python=SERVICES_PYTHON, start_timeout=120, say=print)[0]


def changed(prepared, folder, **changes):
    """A file of routes as they would be with another service."""
    routes = read_routes(prepared)
    games = routes.domains["games"].model_copy(update=changes)
    Routes.of({"games": games}, schedule_sha256=routes.schedule_sha256, seed=42).write(folder / "routes.json")
    return folder / "routes.json"


class Serving:
    """The command under way, with everything it started."""

    def __init__(self, routes, *options):
        self.process = begin(SERVE, "--routes", routes, *options)
        self.said = []
        for line in self.process.stdout:
            self.said.append(line.rstrip())
            if line.startswith("└"):  # the table is over
                break
        self.started = {child.pid: child.cmdline() for child in psutil.Process(self.process.pid).children(True)}

    @property
    def service(self) -> int:
        (pid,) = (pid for pid, command in self.started.items() if "camp.environments.run" in command)
        return pid

    def end(self) -> tuple[int, str, str]:
        """Exit code and what was still said."""
        said = self.process.communicate(timeout=60)
        return self.process.returncode, *said


@pytest.fixture
def serving(prepared, tmp_path):
    started = []

    def start(*options) -> Serving:
        started.append(Serving(prepared, "--logs", tmp_path / "logs", *options))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


def test_the_services_are_there_until_it_is_told_to_end(prepared, serving, tmp_path):
    found = serving()
    routes = read_routes(prepared)
    url = routes.domains["games"].url
    with urllib.request.urlopen(f"{url}/health") as answer:
        assert json.loads(answer.read()) == {"status": "healthy"}
    asyncio.run(check_fingerprints(routes.domains))
    assert found.said[0].startswith("games is ready after ")
    (row,) = (line for line in found.said if url in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == ["games", url, "4", "8"]
    assert (tmp_path / "logs" / "games.log").exists() and len(found.started) >= 2

    found.process.terminate()
    assert found.end() == (143, "", "")
    assert all(ends(pid, 0) for pid in found.started)


def test_its_services_end_when_it_is_killed(serving):
    found = serving()
    found.process.kill()
    assert all(ends(pid) for pid in found.started)


def test_it_ends_when_a_service_has_ended_for_good(serving):
    found = serving("--max-restarts", "0")
    os.kill(found.service, signal.SIGKILL)
    code, _, errors = found.end()
    assert code == 1
    assert "error: the service of games has ended: the server was ended by SIGKILL after it had been ready" in errors
    assert all(ends(pid, 0) for pid in found.started)


def refused(routes, *options) -> list[str]:
    result = run(SERVE, "--routes", routes, *options)
    assert result.returncode == 2, result.stderr
    lines = result.stderr.splitlines()
    assert lines and all(line.startswith("error: ") for line in lines)
    return lines


def test_a_service_that_is_not_the_one_of_the_routes_is_refused_and_ended(prepared, tmp_path):
    port = free_port()
    (line,) = refused(changed(prepared, tmp_path, url=f"http://127.0.0.1:{port}", fingerprint="0" * 64))
    assert f"domain games: the service at http://127.0.0.1:{port} is not the one that the routes were made with" in line
    assert "make routes and schedule anew" in line
    with socket.create_server(("127.0.0.1", port)):
        pass  # nobody has it


def test_a_port_that_is_taken_is_told_with_its_holder(prepared, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (line,) = refused(changed(prepared, tmp_path, url=f"http://127.0.0.1:{port}"))
    assert f"the service of games: port {port} of 127.0.0.1 is in use by process {os.getpid()} (" in line


def test_a_service_that_does_not_come_up_is_told_with_its_last_words(prepared, tmp_path):
    python = stand_in(tmp_path, "echo no memory is left; exit 3")
    result = run(SERVE, "--routes", changed(prepared, tmp_path), "--services-python", python)
    assert result.returncode == 1
    assert "error: the service of games: the server ended with exit code 3 before it was ready" in result.stderr
    assert (tmp_path / "logs" / "games.log").read_text() == "no memory is left\n"


def test_what_cannot_be_served_is_told(prepared, tmp_path):
    assert "cannot be read (No such file" in refused(tmp_path / "none.json")[0]
    altered = tmp_path / "altered.json"
    altered.write_text(prepared.read_text().replace('"turns": 40', '"turns": 41'))
    assert "was changed after it was made" in refused(altered)[0]
    template(plan("games")).write(tmp_path / "template.json")
    assert "the routes are the template" in refused(tmp_path / "template.json")[0]
    assert "has no managed service" in refused(changed(prepared, tmp_path, managed=None))[0]
    assert "cannot be made (Not a directory)" in refused(prepared, "--logs", altered / "logs")[0]
