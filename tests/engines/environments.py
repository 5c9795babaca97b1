"""Environments with the real inference engines, made once per machine: their pins clash with verl's."""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

SCRIPTS = Path(__file__).parent


def engine_python(backend: str) -> Path:
    """The Python of the environment with ``backend``, "vllm" or "sglang"; made now, in minutes, where there is none.

    Environments lie in the directory ONEPO_TEST_ENGINES, or else in the user's cache. Raises CalledProcessError when
    one cannot be made; the script's own words are on stderr.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onepo-tests/engines"
    environments = Path(os.environ.get("ONEPO_TEST_ENGINES") or cache).absolute()
    environments.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with (environments / f"{backend}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # the script inherits the lock: should this process be killed, no other one starts beside the script
        subprocess.run(
            ["bash", SCRIPTS / f"setup_{backend}.sh", environments / backend],
            check=True,
            stdin=subprocess.DEVNULL,
            pass_fds=[lock.fileno()],
        )
    print(f"environment of {backend}: {time.monotonic() - started:.1f} s", file=sys.stderr)
    return environments / backend / "bin/python"
