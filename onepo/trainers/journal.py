"""What a run writes down while it trains: ``metrics.jsonl`` for people, ``events.jsonl`` for the terminal."""

import json
import math
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

METRICS_FILE = "metrics.jsonl"
EVENTS_FILE = "events.jsonl"


class Journal:
    """Appends whole lines and flushes each, so that a reader of a running or killed run sees complete records.

    Args:
        run_dir: gets the metrics.
        events_dir: gets the events; None: the same.
    """

    def __init__(self, run_dir: str, *, events_dir: str | None = None):
        self.metrics_file = Path(run_dir) / METRICS_FILE
        self._events = Path(events_dir or run_dir) / EVENTS_FILE

    def event(self, kind: str, **fields: Any) -> None:
        """Tell the terminal: plan, step, checkpoint, note."""
        _append(self._events, {"event": kind, "time": time.time(), **fields})

    def adopt(self, earlier: Path, *, last_step: int) -> list[int]:
        """Begin the metrics file with the records of an earlier run, up to a step. It may be the same file.

        Returns the steps that were found; a line that is cut or damaged is left out.
        """
        steps = []
        if not earlier.exists():
            return steps
        fresh = self.metrics_file.with_suffix(".tmp")
        with earlier.open("rb") as records, fresh.open("wb") as file:
            for line in records:
                with suppress(ValueError, LookupError, TypeError, OverflowError, RecursionError):
                    step = int(json.loads(line)["step"])
                    if step <= last_step and line.endswith(b"\n"):
                        file.write(line)
                        steps.append(step)
        fresh.replace(self.metrics_file)
        return steps

    def metrics(self, step: int, data: dict[str, Any]) -> None:
        """Record a step's metrics; values that are no numbers are left out, non-finite ones become null."""
        _append(self.metrics_file, {"step": step, "time": time.time(), **numbers(data)})


def numbers(data: dict[str, Any]) -> dict[str, float | int | None]:
    """The entries of a metrics dictionary that are numbers, as JSON can hold them."""
    found = {}
    for name, value in data.items():
        if isinstance(value, np.generic) or (hasattr(value, "numel") and value.numel() == 1):
            value = value.item()
        if isinstance(value, (bool, int, float)):
            found[name] = value if math.isfinite(value) else None
    return found


def _append(path: Path, record: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


class RecordingLogger:
    """verl's tracker with every record also written to the journal.

    Args:
        tracking: verl's ``Tracking`` (console, SwanLab, ...).
        on_log: called with (step, metrics) after the record is safe in the file.
    """

    def __init__(self, tracking: Any, journal: Journal, on_log):
        self._tracking = tracking
        self._journal = journal
        self._on_log = on_log

    def log(self, data: dict[str, Any], step: int, backend: Any = None) -> None:
        self._journal.metrics(step, data)
        self._on_log(step, data)
        self._tracking.log(data=data, step=step, backend=backend)

    def __getattr__(self, name):
        return getattr(self._tracking, name)
