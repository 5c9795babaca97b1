"""The run in the launcher's terminal: a live line within a step and one readable line per step.

It reads what the trainer writes down and asks the ledger about the running step; verl's and Ray's own output goes to a
log file.
"""

import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TextIO

_POLL_SECONDS = 0.5
_QUIET_SECONDS = 30.0  # between two progress lines when the output is no terminal


class Lines(Protocol):
    """How a run's events are told, one line each."""

    def plan(self, event: dict[str, Any]) -> str: ...

    def step(self, metrics: dict[str, Any], seconds: list[float]) -> str:
        """A finished step; ``seconds`` are the durations of the steps so far."""

    def validation(self, metrics: dict[str, Any]) -> str: ...

    def progress(self, step: int, plan: dict[str, Any], live: dict[str, Any] | None, seconds: float) -> str:
        """What a running step is doing."""


class RunConsole:
    """Renders a run's events in a thread, from :meth:`start` to :meth:`finish`.

    Args:
        stream: where to write; a live line is drawn when it is a terminal.
        log: what is said is also appended to this file.
        events: the trainer's event file, which need not exist yet.
        live: given a step, the ledger's view of it, or None while there is none.
        lines: the words.
    """

    def __init__(
        self, stream: TextIO, log: Path, events: Path, live: Callable[[int], dict[str, Any] | None], lines: Lines
    ):
        self._stream = stream
        self._log = log
        self._events = events
        self._live = live
        self._lines = lines
        self._position = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="onepo-console", daemon=True)
        self._started = self._step_started = self._last_progress = time.monotonic()
        self._step: int | None = None
        self._doing: str | None = None  # when it is not sampling
        self._plan: dict[str, Any] = {}
        self._seconds: list[float] = []
        self._live_line = False
        self._over = False
        self._phase = "starting"
        self._lock = threading.RLock()  # the grader's state is told from a thread of its own
        self.validations: dict[int, float | None] = {}
        self.checkpoints: dict[int, str] = {}

    def start(self) -> None:
        self._thread.start()

    def begin(self, phase: str) -> None:
        """Name what is being waited for until the first step begins."""
        self._phase, self._started = phase, time.monotonic()

    def finish(self) -> None:
        """Show what is left in the event file and stop."""
        self._done.set()
        self._thread.join()
        self._show_events()
        self._clear()

    def kept_checkpoints(self) -> list[dict[str, Any]]:
        """The run's checkpoints that are still there, with their validation accuracy if they have one."""
        return [
            {"step": step, "model_dir": path} | self._score(step)
            for step, path in sorted(self.checkpoints.items())
            if Path(path).exists()
        ]

    def _score(self, step: int) -> dict[str, float | None]:
        return {"validation_accuracy": self.validations[step]} if step in self.validations else {}

    def say(self, text: str) -> None:
        with self._lock, suppress(OSError):  # the run goes on when its terminal is gone
            self._clear()
            self._stream.write(text + "\n")
            self._stream.flush()
        with suppress(OSError), self._log.open("a", encoding="utf-8") as file:  # a full disk must not silence the run
            file.write(text + "\n")

    def _run(self) -> None:
        while not self._done.wait(_POLL_SECONDS):
            self._show_events()
            self._show_progress()

    def _show_events(self) -> None:
        if not self._events.exists():
            return
        with self._events.open("rb") as file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # still being written
                self._position += len(line)
                event = json.loads(line)
                getattr(self, f"_on_{event['event']}")(event)

    def _on_plan(self, event: dict[str, Any]) -> None:
        self._plan = event
        self.say(self._lines.plan(event))

    def _on_begin(self, event: dict[str, Any]) -> None:
        self._step, self._doing = event["step"], None
        self._step_started = self._last_progress = time.monotonic()

    def _on_phase(self, event: dict[str, Any]) -> None:
        self._doing = event["name"]

    def _on_step(self, event: dict[str, Any]) -> None:
        if "timing_s/step" in event:
            self._seconds.append(event["timing_s/step"] + event.get("timing_s/testing", 0.0))
            self.say(self._lines.step(event, self._seconds))
        if "validation/acc" in event or "validation/gradings" in event:
            self.validations[event["step"]] = event.get("validation/acc")
            self.say(self._lines.validation(event))

    def _on_checkpoint(self, event: dict[str, Any]) -> None:
        self.checkpoints[event["step"]] = event["model_dir"]

    def _on_note(self, event: dict[str, Any]) -> None:
        self.say(event["text"])

    def _on_stop(self, event: dict[str, Any]) -> None:
        self.say(f"stopped: {event['reason']}")
        self._over = True

    def _on_end(self, event: dict[str, Any]) -> None:
        self._over = True  # what follows is the workers' shutdown, and no step

    def _show_progress(self) -> None:
        now = time.monotonic()
        terminal = self._stream.isatty()
        if self._over or (not terminal and now - self._last_progress < _QUIET_SECONDS):
            return
        self._last_progress = now
        if self._step is None:
            text = f"{self._phase}: {now - self._started:.0f} s"
        elif self._doing:
            text = f"step {self._step}: {self._doing}, {now - self._step_started:.0f} s"
        else:
            live = self._live(self._step)
            text = self._lines.progress(self._step, self._plan, live, now - self._step_started)
        with self._lock, suppress(OSError):
            if terminal:
                self._clear()
                # a line that wraps could not be taken back
                self._stream.write(text[: os.get_terminal_size(self._stream.fileno()).columns - 1])
                self._live_line = True
            else:
                self._stream.write(text + "\n")
            self._stream.flush()

    def _clear(self) -> None:
        if self._live_line:
            self._stream.write("\r\x1b[2K")
            self._live_line = False
