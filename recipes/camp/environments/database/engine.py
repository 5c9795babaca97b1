"""A few processes that carry out the statements of all sessions, one statement at a time each, and remember nothing."""

import json
import os
import queue
import subprocess
import sys
from pathlib import Path
from typing import Any


class Engine:
    """Starts its processes when they are needed, and another one for each that ends."""

    def __init__(self, processes: int):
        self._free: queue.LifoQueue[subprocess.Popen[str] | None] = queue.LifoQueue()
        for _ in range(processes):
            self._free.put(None)

    def ask(self, tables: dict[str, Any], sql: str) -> dict[str, Any]:
        """What ``worker.carry_out`` answers; waits for a free process."""
        worker = self._free.get()
        try:
            if worker is None or worker.poll() is not None:
                worker = _start()
            reply = _exchange(worker, json.dumps({"tables": tables, "sql": sql}))
            if reply:
                return json.loads(reply)
            worker.communicate()
            return {"error": "The statement took too much time or memory and was stopped."}
        finally:
            self._free.put(worker)


def _start() -> subprocess.Popen[str]:
    """A worker without the environment of the service, so that no statement can learn from it."""
    return subprocess.Popen(
        [sys.executable, "-I", str(Path(__file__).with_name("worker.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="ascii",  # JSON escapes all else
        env={},
        cwd="/",
        start_new_session=True,  # an interrupt from the keyboard is the service's; the worker ends with its input
    )


def _exchange(worker: subprocess.Popen[str], request: str) -> str:
    """The worker's reply, empty when it has ended over the request."""
    try:
        worker.stdin.write(request + "\n")
        worker.stdin.flush()
    except BrokenPipeError:
        return ""
    return worker.stdout.readline()


ENGINE = Engine(processes=max(2, min(16, os.cpu_count() or 1)))
