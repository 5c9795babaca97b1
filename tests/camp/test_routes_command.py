"""``python -m camp.routes prepare`` as people use it, with real services."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from camp import command_line
from camp.command_line import services_python
from camp.routes import check_pair, read_routes
from camp.schedule import read_schedule
from onepo.errors import UserError
from onepo.servers.ports import port_holder
from tests.camp.commands import SERVICES_PYTHON, begin, free_port, run, stand_in
from tests.unit.test_server_supervision import ends

SESSIONS = 12


def prepare(out, *options, **variables) -> subprocess.CompletedProcess:
    return run("camp.routes", "prepare", "--out", out, *options, **variables)


def told(result, code=2) -> list[str]:
    """The lines of errors, which are all there is."""
    assert result.returncode == code, result.stderr
    lines = result.stderr.splitlines()
    assert lines and all(line.startswith("error: ") for line in lines)
    return lines


@pytest.fixture(scope="module")
def foreign():
    """Options for an OpenEnv server that is none of ours."""
    program = [SERVICES_PYTHON, Path(__file__).with_name("foreign_service.py"), str(SESSIONS)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as server:
        yield "--url", f"shop={server.stdout.readline().strip()}/", "--fields", "shop=command,view"
        server.kill()


# ---- what is written ----


@pytest.fixture(scope="module")
def prepared(foreign, tmp_path_factory):
    """What was said of a service that ships and a foreign one, and the folder."""
    out = tmp_path_factory.mktemp("prepared") / "new" / "folder"
    limits = ("--turns", "6", "--turns", "shop=3", "--turn-tokens", "shop=32", "--timeout", "20")
    size = ("--updates", "3", "--episodes", "4", "--warmup", "1.5", "--first-port", free_port())
    result = prepare(out, "--domain", "games", *foreign, *limits, *size)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.splitlines(), out


def test_the_two_files_belong_together(prepared):
    lines, out = prepared
    assert sorted(file.name for file in out.iterdir()) == ["routes.json", "train_schedule.jsonl"]
    routes, (schedule, digest) = read_routes(out / "routes.json"), read_schedule(out / "train_schedule.jsonl")
    check_pair(routes, schedule, digest)
    assert len(schedule) == 3 * 4 + 10
    assert lines[0].startswith("games is ready after ")
    assert lines[1].startswith("games: 4 tasks; 10 episodes begun at one time in ")
    assert lines[2].startswith("shop: no names of tasks, its episodes have seeds alone; 10 episodes begun ")
    assert lines[3:] == [
        f"written: {out}/routes.json ({routes.sha256[:12]}): games, shop",
        f"written: {out}/train_schedule.jsonl ({digest[:12]}), 22 episodes: enough for 3 updates of 4, with up to 10 "
        "under way",
    ]


def test_each_domain_has_its_service_and_its_limits(prepared):
    domains = read_routes(prepared[1] / "routes.json").domains
    games, shop = domains["games"], domains["shop"]
    assert (games.managed.service, games.managed.sessions, games.turns, games.turn_tokens) == ("games", 13, 6, 1024)
    assert (games.action_field, games.observation_field, games.timeout) == ("text", "text", 20.0)
    assert (shop.managed, shop.tasks, shop.turns, shop.turn_tokens) == (None, [], 3, 32)
    assert (shop.action_field, shop.observation_field, shop.timeout) == ("command", "view", 20.0)
    assert not shop.url.endswith("/") and len(shop.fingerprint) == 64


def test_the_services_have_ended_with_the_command(prepared):
    address = urlsplit(read_routes(prepared[1] / "routes.json").domains["games"].url)
    assert port_holder(address.hostname, address.port) is None


def test_the_same_command_writes_the_same_files_over_those_that_were_altered(foreign, tmp_path):
    options = ("--domain", "shop", *foreign, "--updates", "2", "--episodes", "3")
    assert prepare(tmp_path, *options).returncode == 0
    files = {file: file.read_bytes() for file in tmp_path.iterdir()}
    for file in files:
        file.write_bytes(files[file].replace(b'"turns"', b'"turns" '))
    again = prepare(tmp_path, *options)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == files
    assert again.stdout.splitlines()[:2] == [
        f"{tmp_path}/{name} is there from before: it will be replaced"
        for name in ("routes.json", "train_schedule.jsonl")
    ]


def test_the_template_needs_no_service_and_runs_nothing(tmp_path):
    result = prepare(tmp_path, "--template", "--domain", "search", "--host", "::1", CAMP_SERVICES_PYTHON="/nonexistent")
    routes = read_routes(tmp_path / "routes.json")
    assert result.stdout.endswith("routes.json; it shows the form, and nothing can run with it\n")
    assert [file.name for file in tmp_path.iterdir()] == ["routes.json"]
    assert routes.domains["search"].url == "http://[::1]:18731"
    assert routes.domains["search"].managed.sessions == 160  # two updates of the recipe, and some more
    with pytest.raises(UserError, match="the routes are the template"):
        check_pair(routes, [], "0")


# ---- what is refused ----


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--domain", "shop"], "domain shop: is none of the services that ship (database, games,"),
        (["--tasks", "shop=a"], "--tasks shop=...: there is no domain shop; there are database, games,"),
        (["--tasks", "chess"], "--tasks: expected NAME=TASK,TASK"),
        (["--turns", "games=many"], "--turns games=many: expected a whole number from 1"),
        (["--turn-tokens", "0"], "--turn-tokens 0: expected a whole number from 1"),
        (["--timeout", "nan"], "--timeout nan: expected seconds above 0"),
        (["--turns", "shop=3"], "--turns shop=3: there is no domain shop; there are database, games,"),
        (["--url", "http://127.0.0.1:1"], "--url: expected NAME=http://HOST:PORT"),
        (["--url", "shop=http://me:k-5ecret@host"], "--url shop=...: expected the address of an OpenEnv server"),
        (["--url", "a=http://h", "--url", "a=http://g"], "--url a=...: is there twice"),
        (["--url", "a=http://h", "--fields", "a=text"], "--fields a=text: expected a=ACTION,OBSERVATION"),
        (["--fields", "games=a,b"], "--fields games=...: is for servers that --url names"),
        (["--first-port", "65533"], "--first-port 65533: 5 ports from there on go beyond 65535"),
        (["--warmup", "1e300"], "at most 100000000 episodes in all and 20000 at one time are possible"),
        (["--episodes", "1000000000000"], "at most 100000000 episodes in all"),
        (["--domain", "games", "--host", ".."], "is no address to listen at: prepare routes with another --host"),
        (["--warmup", "inf"], "--warmup inf: expected a number"),
        (["--services-python", "/nonexistent/python"], "/nonexistent/python, cannot be started (No such file"),
        (["--services-python", "/bin/false"], "/bin/false, has no openenv-core: the command make services makes"),
    ],
)
def test_what_makes_no_sense_is_told_in_a_line(options, expected, tmp_path):
    result = prepare(tmp_path / "out", *options)
    (line,) = told(result)
    assert expected in line and "k-5ecret" not in line
    assert not (tmp_path / "out").exists()


def test_all_dead_services_are_told_before_any_is_started(foreign, tmp_path):
    dead = ("--url", f"a=http://127.0.0.1:{free_port()}", "--url", f"b=http://127.0.0.1:{free_port()}")
    lines = told(prepare(tmp_path / "out", *foreign, *dead, "--domain", "games"))
    assert [line.split(": http://")[0] for line in lines] == ["error: domain a", "error: domain b"]
    assert all("no OpenEnv server answers there" in line for line in lines)


def test_too_few_sessions_and_wrong_fields_are_told(foreign, tmp_path):
    few = told(prepare(tmp_path / "out", *foreign, "--domain", "shop", "--episodes", "7"))
    assert "domain shop: of 14 sessions, which may be under way at one time, " in few[0]
    assert " could not be begun" in few[0]
    wrong = told(prepare(tmp_path / "out", *foreign[:2], "--domain", "shop", "--episodes", "2"))
    assert "no observation with the field 'text'" in wrong[0]
    assert not (tmp_path / "out").exists()


def test_a_port_that_is_taken_is_told_with_its_holder(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (line,) = told(prepare(tmp_path / "out", "--domain", "games", "--first-port", port))
    assert f"the service of games: port {port} of 127.0.0.1 is in use by process {os.getpid()} (" in line
    assert "prepare routes with another --first-port" in line


def test_a_service_that_does_not_come_up_is_told_with_its_last_words(tmp_path):
    python = stand_in(tmp_path, "echo no memory is left; exit 3")
    options = ("--domain", "games", "--first-port", free_port(), "--services-python", python)
    first, last = told(prepare(tmp_path / "out", *options, TMPDIR=str(tmp_path)))
    assert "the service of games: the server ended with exit code 3 before it was ready" in first
    assert last == "error:   | no memory is left"
    assert Path(first.rpartition(" ")[2]).read_text() == "no memory is left\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["routes.json", "train_schedule.jsonl"])
def test_files_of_another_kind_are_not_replaced(name, tmp_path):
    (tmp_path / name).write_text('{"mine": true}\n')
    (line,) = told(prepare(tmp_path, "--domain", "games"))
    assert f"{name} is there and was not made by this command: name another folder" in line
    assert (tmp_path / name).read_text() == '{"mine": true}\n'


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "out").touch()
    assert told(prepare(tmp_path / "out" / "more")) == [
        f"error: --out {tmp_path}/out/more: {tmp_path}/out is a file, expected a folder"
    ]


@pytest.mark.parametrize("options", [["--updates", "few"], ["--episodes", "0"], ["--outt", "x"]])
def test_options_of_the_wrong_form_are_told(options, tmp_path):
    result = prepare(tmp_path / "out", *options)
    assert result.returncode == 2 and options[0] in result.stderr and "Traceback" not in result.stderr


# ---- how it ends ----


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_services_and_leaves_nothing_behind(number, tmp_path):
    (own := tmp_path / "tmp").mkdir()
    os.mkfifo(tmp_path / "pid")
    python = stand_in(tmp_path, f"echo $$ > {tmp_path}/pid", "exec sleep 600")
    options = ("--domain", "games", "--first-port", free_port(), "--services-python", python)
    process = begin("camp.routes", "prepare", "--out", tmp_path / "out", *options, TMPDIR=str(own))
    service = int((tmp_path / "pid").read_text())
    process.send_signal(number)
    said = process.communicate(timeout=60)
    assert (process.returncode, said) == (128 + number, ("", ""))
    assert ends(service, 0)
    assert not (tmp_path / "out").exists() and list(own.iterdir()) == []


# ---- the Python of the services ----


def test_the_python_of_the_services_is_the_one_that_was_said_most_clearly(tmp_path, monkeypatch):
    made = tmp_path / "python"
    monkeypatch.setattr(command_line, "_OWN_ENVIRONMENT", made)
    variables = {"CAMP_SERVICES_PYTHON": "/variable"}
    assert services_python("/option", variables) == "/option"
    assert services_python(None, variables) == "/variable"
    assert services_python(None, {"CAMP_SERVICES_PYTHON": ""}) == sys.executable
    made.touch()
    assert services_python(None, {}) == str(made)
