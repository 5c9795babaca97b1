"""CAMP's command lines as processes, for several tests."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.launchers.conftest import mind_signals

SERVICES_PYTHON = os.environ.get("CAMP_SERVICES_PYTHON", str(ROOT / ".venv-services" / "bin" / "python"))
_LONGEST = 120  # seconds; a command takes a few


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def begin(module: str, *arguments: object, **variables: str) -> subprocess.Popen:
    """A command under way, with both outputs as pipes."""
    environment = {
        # without what the tests set for verl: a command has to do that by itself
        **{name: value for name, value in os.environ.items() if not name.startswith("VERL_")},
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'recipes'}",
        "CAMP_SERVICES_PYTHON": SERVICES_PYTHON,
        "COLUMNS": "200",
    }
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", module, *map(str, arguments)],
        env={**environment, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=mind_signals,
    )


def run(module: str, *arguments: object, **variables: str) -> subprocess.CompletedProcess:
    """A command that has ended."""
    process = begin(module, *arguments, **variables)
    try:
        told = process.communicate(timeout=_LONGEST)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, *told)


def stand_in(folder: Path, *lines: str) -> Path:
    """A Python for the services that passes for one with OpenEnv, and then does what the lines of shell say."""
    script = folder / "python"
    script.write_text("\n".join(["#!/bin/sh", '[ "$1" = -c ] && exit 0', *lines]) + "\n")
    script.chmod(0o755)
    return script
