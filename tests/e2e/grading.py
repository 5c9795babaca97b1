"""What end-to-end runs with a grader need: mixed data for the quickstart's student, and an engine's interpreter."""

import json
import socket
import sys
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path

import httpx
import psutil
import pytest

from tests.conftest import ROOT
from tests.e2e.launch import QUICK, Launch

# like a grader that no prompt of theirs can confuse, `says WORD` is met when the word is in the answer
RUBRICS = [
    {"criterion": "says soup", "points": 3},
    {"criterion": "is short", "points": 2},
    {"criterion": "says tree", "points": -1},
]
TEACHER = "<think> tea </think> soup points to tea"

ENGINE_PYTHON = """\
#!{python}
# Takes the place of an engine's interpreter: has every module, and serves the scripted grader for any engine.
import os, sys
if sys.argv[1] == "-c":
    sys.exit(0)
value = {{name: sys.argv[sys.argv.index(name) + 1] for name in ("--port", "--served-model-name")}}
os.environ["PYTHONPATH"] = {root!r}
arguments = ["--port", value["--port"], "--name", value["--served-model-name"], *{extra!r}]
os.execv({python!r}, [{python!r}, "-m", "tests.scripted_grader", *arguments])
"""


def write_mixed_data(path: Path, *, each: int, skip: int = 0) -> Path:
    """As many multiple-choice records as open-ended ones, in turn, from the quickstart's behind the first ``skip``."""
    choices = Path(QUICK["TRAIN_FILE"]).read_text().splitlines()
    lines = []
    for text in islice(choices, skip, skip + each):
        record = json.loads(text)
        open_ended = {
            "type": "open_ended",
            "prompt": record["prompt"],
            "rubrics": RUBRICS,
            "teacher_response": TEACHER,
        }
        lines += [json.dumps(record), json.dumps(open_ended)]
    path.write_text("\n".join(lines) + "\n")
    return path


def local_grader(folder: Path, port: int, *arguments: str) -> dict[str, str]:
    """Options with which a run starts the scripted grader, with these arguments, as its engine."""
    model, python = folder / "the grader", folder / "python"
    model.mkdir()
    (model / "config.json").write_text("{}")  # that there are such files is all that is looked at
    (model / "pytorch_model.bin").touch()
    python.write_text(ENGINE_PYTHON.format(python=sys.executable, root=str(ROOT), extra=list(arguments)))
    python.chmod(0o755)
    return {"REWARD_MODEL_PATH": str(model), "REWARD_MODEL_PORT": str(port), "REWARD_SERVER_PYTHON": str(python)}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def wait_for_gradings(launch: Launch, port: int) -> None:
    """Return when the scripted grader of a run has been asked for gradings of the first step."""
    while launch.process.poll() is None:
        with suppress(httpx.TransportError):
            if len(httpx.get(f"http://127.0.0.1:{port}/requests", trust_env=False).json()) > 3:  # one is the probe's
                return
        time.sleep(0.05)
    pytest.fail(launch.finish().tell())


def grader_process(launch: Launch) -> psutil.Process:
    (server,) = [process for process in launch.members() if "tests.scripted_grader" in process.cmdline()]
    return server
