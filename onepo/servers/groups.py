"""Ending a process group for certain."""

import os
import signal
import time
from contextlib import suppress

import psutil

KILL_SECONDS = 5  # a process that waits for a driver may outlive KILL, and is not waited for any longer
_POLL_SECONDS = 0.05


def end_group(group: int, grace: float) -> None:
    """End every process of a group: TERM, and after ``grace`` seconds KILL. Returns when none of them lives."""
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, KILL_SECONDS)):
        if not _has_living_members(group):
            return
        with suppress(ProcessLookupError):
            os.killpg(group, number)
        deadline = time.monotonic() + seconds
        while _has_living_members(group) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)


def _has_living_members(group: int) -> bool:
    """Whether a process of the group still runs; one that ended and was not collected by its parent does not."""
    for pid in psutil.pids():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getpgid(pid) == group and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                return True
    return False
