"""Runs OnePO.sh as a user does, in an environment that holds nothing but what the test sets."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = ROOT / "OnePO.sh"

STAND_IN = """\
import os, signal, subprocess, sys
if sys.argv[1] == "-c":
    sys.exit(print("missing:"))  # the launcher looks for the packages
print(*sys.argv[1:], sep="\\x1f")
children = [subprocess.Popen(["sleep", "600"], process_group=0 if grouped else None) for grouped in (False, True)]
children.append(subprocess.Popen(["bash", "-c", "trap '' TERM; echo; exec sleep 600"], stdout=subprocess.PIPE))
children[-1].stdout.readline()  # it ignores TERM from here on
signals = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
print(os.getpid(), os.getsid(0), *[child.pid for child in children], flush=True)
if "STAND_IN_EXIT" in os.environ:
    sys.exit(int(os.environ["STAND_IN_EXIT"]))
print(signal.Signals(signal.sigwait(signals)).name, flush=True)
if "STAND_IN_STAYS" in os.environ:
    signal.sigwait({signal.SIGUSR1})
"""


class Option(NamedTuple):
    default: str
    help: str


@pytest.fixture(scope="session")
def options() -> dict[str, Option]:
    """The launcher's block: name -> default and help."""
    lines = [shlex.split(line) for line in LAUNCHER.read_text().splitlines() if line.startswith("option ")]
    return {name: Option(default, text) for _, name, default, text in lines}


@pytest.fixture(scope="session")
def documented() -> dict[str, tuple[str, str, str]]:
    """docs/options.md: name -> default, help, what it sets."""
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.*?) \| (.*) \| (.*) \|$", (ROOT / "docs/options.md").read_text(), re.M)
    return {name: (default.strip().strip("`"), text, reach.strip("`")) for name, default, text, reach in rows}


@pytest.fixture
def launch(tmp_path):
    """A finished run of the launcher in ``tmp_path``: launch(*arguments, **variables)."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess:
        command = ["bash", str(LAUNCHER), *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=_environment(variables), capture_output=True, text=True, timeout=60
        )

    return run


@pytest.fixture
def dry_run(launch):
    """The Hydra overrides of a dry run, as the shell would hand them to Python."""

    def run(*arguments: str, **variables: str) -> list[str]:
        result = launch(*arguments, DRY_RUN="1", **variables)
        assert result.returncode == 0, result.stderr
        words = shlex.split(result.stdout)
        return words[words.index("onepo.train") + 1 :]

    return run


@pytest.fixture
def inputs(tmp_path) -> dict[str, str]:
    """Existing inputs and a stand-in for Python, which records what it was given and then waits for a signal."""
    (tmp_path / "student").mkdir()
    (tmp_path / "train.json").touch()
    (tmp_path / "val.json").touch()
    stand_in = tmp_path / "python"
    stand_in.write_text(f"#!{sys.executable}\n{STAND_IN}")
    stand_in.chmod(0o755)
    return {
        "DEVICE": "cpu",
        "PYTHON": str(stand_in),
        "MODEL_PATH": "student",
        "TRAIN_FILE": "train.json",
        "VAL_FILE": "val.json",
    }


def mind_signals() -> None:
    """A test run in the background, or under nohup, hands down INT and HUP ignored, which no script can undo."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def start(tmp_path):
    """A running launcher; whatever a failing test leaves of it is ended by the recorded session."""
    started = []

    def run(*arguments: str, **variables: str) -> subprocess.Popen:
        process = subprocess.Popen(
            ["bash", str(LAUNCHER), *arguments],
            cwd=tmp_path,
            env=_environment(variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=mind_signals,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.terminate()
            process.wait(timeout=30)


def _environment(variables: dict[str, str]) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8", **variables}
