"""Runs the launchers as a user does, in an environment that holds nothing but what the test sets.

A test runs OnePO.sh unless it is marked with ``every_launcher``, or its file chooses another one.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

import pytest
from hydra import compose, initialize_config_module
from omegaconf import DictConfig

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, eq=False)
class Launcher:
    """A launcher and what it starts.

    Attributes:
        module: that it runs.
        section: of the configuration, where its own keys are.
        documentation: of its options.
        requirements: of its environment on GPUs.
        inputs: options that a run needs, with a path in the test's folder for each; a directory ends with a slash.
        compose: the configuration that comes of the words behind the module.
    """

    script: Path
    module: str
    section: str
    documentation: Path
    requirements: str
    inputs: Mapping[str, str]
    compose: Callable[[list[str]], DictConfig]

    def settings(self, words: list[str]) -> dict[str, str]:
        """Named options and overrides by their names."""
        behind = words.index("--") if "--" in words else -1
        named = words[: max(behind, 0)]
        overrides = (word.split("=", 1) for word in words[behind + 1 :])
        return {**dict(zip(named[::2], named[1::2], strict=True)), **dict(overrides)}


def _compose_onepo(words: list[str]) -> DictConfig:
    with initialize_config_module("onepo.config", version_base=None):
        return compose("onepo", overrides=words)


def _compose_camp(words: list[str]) -> DictConfig:
    from camp.configuration import Named, compose_config

    behind = words.index("--")
    named = dict(zip(words[:behind:2], words[1:behind:2], strict=True))
    return compose_config(Named(*(named.get(f"--{field.name}") for field in fields(Named))), words[behind + 1 :])


ONEPO = Launcher(
    script=ROOT / "OnePO.sh",
    module="onepo.train",
    section="onepo",
    documentation=ROOT / "docs/options.md",
    requirements="requirements.txt",
    inputs={"MODEL_PATH": "student/", "TRAIN_FILE": "train.json", "VAL_FILE": "val.json"},
    compose=_compose_onepo,
)
CAMP = Launcher(
    script=ROOT / "CAMP_RL.sh",
    module="camp.train",
    section="camp",
    documentation=ROOT / "docs/camp-options.md",
    requirements="requirements-training.txt",
    inputs={"STUDENT_PATH": "student/", "ROUTES": "routes.json", "SCHEDULE": "train_schedule.jsonl"},
    compose=_compose_camp,
)
OPD = Launcher(
    script=ROOT / "CAMP_OPD.sh",
    module="camp.train",
    section="camp",
    documentation=ROOT / "docs/camp-opd-options.md",
    requirements="requirements-training.txt",
    inputs={
        "STUDENT_PATH": "student/",
        "TEACHER_PATH": "teacher/",
        "ROUTES": "routes.json",
        "SCHEDULE": "train_schedule.jsonl",
    },
    compose=_compose_camp,
)
every_launcher = pytest.mark.parametrize(
    "launcher", [ONEPO, CAMP, OPD], ids=lambda launcher: launcher.script.name, indirect=True
)
every_input = pytest.mark.parametrize(
    ("launcher", "name"),
    [pytest.param(launcher, name, id=name) for launcher in (ONEPO, CAMP, OPD) for name in launcher.inputs],
    indirect=["launcher"],
)
AWKWARD = [
    "/data/with space/train.json",
    "/data/a,b=c/[x]{y}(z).json",
    '/data/it\'s "quoted".json',
    "/data/übung/训练.json",
    "/data/$HOME ${oc.env:HOME} $(id) `id`.json",
    "/data/back\\slash\\'quote\\${x}\\\\${y}.json",
    "/data/ends with\\",
    "/data/*?#!&;|<>~%+:@.json",
    "/data/null",
]

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


@pytest.fixture
def launcher(request) -> Launcher:
    return getattr(request, "param", ONEPO)


@pytest.fixture
def options(launcher) -> dict[str, Option]:
    """The launcher's block: name -> default and help."""
    lines = [shlex.split(line) for line in launcher.script.read_text().splitlines() if line.startswith("option ")]
    return {name: Option(default, text) for _, name, default, text in lines}


@pytest.fixture
def documented(launcher) -> dict[str, tuple[str, str, str]]:
    """The page of its options: name -> default, help, what it sets."""
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.*?) \| (.*) \| (.*) \|$", launcher.documentation.read_text(), re.M)
    return {name: (default.strip().strip("`"), text, reach.strip("`")) for name, default, text, reach in rows}


@pytest.fixture
def launch(launcher, tmp_path):
    """A finished run of the launcher in ``tmp_path``: launch(*arguments, **variables)."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess:
        command = ["bash", str(launcher.script), *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=_environment(variables), capture_output=True, text=True, timeout=60
        )

    return run


@pytest.fixture
def dry_run(launcher, launch):
    """The words behind the module in a dry run, as the shell would hand them to Python."""

    def run(*arguments: str, **variables: str) -> list[str]:
        result = launch(*arguments, DRY_RUN="1", **variables)
        assert result.returncode == 0, result.stderr
        words = shlex.split(result.stdout)
        return words[words.index(launcher.module) + 1 :]

    return run


@pytest.fixture
def inputs(launcher, tmp_path) -> dict[str, str]:
    """Existing inputs and a stand-in for Python, which records what it was given and then waits for a signal."""
    for path in launcher.inputs.values():
        if path.endswith("/"):
            (tmp_path / path).mkdir()
        else:
            (tmp_path / path).touch()
    stand_in = tmp_path / "python"
    stand_in.write_text(f"#!{sys.executable}\n{STAND_IN}")
    stand_in.chmod(0o755)
    named = {name: path.rstrip("/") for name, path in launcher.inputs.items()}
    return {"DEVICE": "cpu", "PYTHON": str(stand_in), **named}


def mind_signals() -> None:
    """A test run in the background, or under nohup, hands down INT and HUP ignored, which no script can undo."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def start(launcher, tmp_path):
    """A running launcher; whatever a failing test leaves of it is ended by the recorded session."""
    started = []

    def run(*arguments: str, **variables: str) -> subprocess.Popen:
        process = subprocess.Popen(
            ["bash", str(launcher.script), *arguments],
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
