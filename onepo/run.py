"""One run, whatever it trains: its terminal, its Ray, what stands around it, and its end."""

import signal
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from onepo.errors import ControlledStop, UserError, last_line
from onepo.process import keep_terminal
from onepo.report.console import Lines, RunConsole
from onepo.report.record import RunRecord, checkpoint_lines
from onepo.servers.managed import ServerStartFailed


class Run(ABC):
    """One run. A subclass knows what stands around the training.

    Args:
        record: of the run; it is opened and closed here.
        logs: the folder of the logs, made here.
        events_dir: where the trainer writes its events.
        config_dir: gets the resolved configuration.
        lines: how the terminal tells the run's events.
        trainer_module: registers the trainer.
    """

    def __init__(
        self,
        config: DictConfig,
        *,
        record: RunRecord,
        logs: Path,
        events_dir: Path,
        config_dir: Path,
        lines: Lines,
        trainer_module: str,
    ):
        self._config = config
        self._record = record
        self._logs = logs
        self._events_dir = events_dir
        self._config_dir = config_dir
        self._lines = lines
        self._trainer_module = trainer_module
        self._signal = signal.SIGTERM
        self._over = threading.Event()
        self._stops: list[Callable[[], None]] = []  # of what was started for the run

    def train(self) -> int:
        """Run to the end; returns the exit code."""
        from onepo.trainers.journal import EVENTS_FILE

        self._logs.mkdir(parents=True, exist_ok=True)
        self._record.open(self._config, self._config_dir)
        terminal = keep_terminal(self._logs / "train.log")
        self._console = console = RunConsole(
            terminal, self._logs / "console.log", self._events_dir / EVENTS_FILE, self._live_view, self._lines
        )
        console.say(f"run directory {self._record.directory}")
        console.start()
        code, reason = self._run()
        console.finish()
        if code in (1, 2):
            log = self._logs / "train.log"
            console.say(f"failed: {reason}" + (f"\nthe whole output is in {log}" if log.stat().st_size else ""))
        elif code > 128:
            console.say(f"{reason}: what was learned since the last checkpoint is not saved")
        checkpoints = console.kept_checkpoints()
        self._record.close(code, reason, checkpoints)
        rollout = self._config.actor_rollout_ref.rollout
        for line in checkpoint_lines(checkpoints, engine=rollout.name, dtype=rollout.dtype):
            console.say(line)
        return code

    @abstractmethod
    def _prepare(self, clean_up: ExitStack) -> None:
        """Set up what the training needs beside verl; ``clean_up`` gets what ends it, Ray's end among it."""

    @abstractmethod
    def _ledger_name(self) -> str:
        """Of the Ray actor that knows what happens in the running step."""

    def _run(self) -> tuple[int, str]:
        """The run with everything that it needs around it; returns the exit code and the reason."""
        with ExitStack() as clean_up:
            clean_up.callback(self._over.set)
            try:
                self._handle_signals()
                self._prepare(clean_up)
                self._run_verl()
                return 0, "finished"
            except ControlledStop as stop:
                stop = getattr(stop, "cause", stop)
                return stop.exit_code, stop.reason
            except UserError as error:
                return 2, str(getattr(error, "cause", error))
            except ServerStartFailed as error:
                return 1, str(error)
            except KeyboardInterrupt:
                return 130, "interrupted"
            except SystemExit:
                return 128 + self._signal, "terminated"
            except Exception as error:
                traceback.print_exc()  # into the log
                return 1, _reason(error)
            finally:
                _ignore_signals()  # a second one must not cut the cleaning short

    def _run_verl(self) -> None:
        from verl.trainer.main_ppo import run_ppo

        self._console.begin("starting Ray and the workers")
        run_ppo(self._config, task_runner_class=_TaskRunnerFactory(self._trainer_module, self._handle_signals))

    def _end_with_ray(self, clean_up: ExitStack) -> None:
        """Register the end of Ray and of what ``self._stops`` holds by then."""
        clean_up.callback(self._end)

    def _end(self) -> None:
        """Each takes seconds, so all end at the same time."""
        stopping = [threading.Thread(target=stop, name="server-stop") for stop in self._stops]
        for thread in stopping:
            thread.start()
        _end_ray()
        for thread in stopping:
            thread.join()

    def _tell_ledger(self, method: str, *arguments: Any) -> None:
        """Let the trainer know something, as soon as its ledger is there."""
        while not self._over.is_set():
            if (ledger := self._ledger()) is not None:
                getattr(ledger, method).remote(*arguments)
                return
            self._over.wait(1.0)

    def _handle_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: Any) -> None:
        self._signal = number  # Ray gives the exit another code on its way up
        sys.exit()

    def _live_view(self, step: int) -> dict[str, Any] | None:
        import ray

        ledger = self._ledger()
        if ledger is None:
            return None
        try:
            return ray.get(ledger.live.remote(step), timeout=2)
        except ray.exceptions.RayError:
            return None  # gone already

    def _ledger(self) -> Any:
        """The run's ledger, None while there is none."""
        import ray

        if not ray.is_initialized():
            return None
        with suppress(ValueError, ray.exceptions.RayError):
            return ray.get_actor(self._ledger_name())
        return None


def _reason(error: Exception) -> str:
    import ray

    if isinstance(error, ray.exceptions.OutOfMemoryError):  # whose words end with where to read on
        return "this machine's memory was used up, and Ray ended a process of the run: the log says how much each had"
    return last_line(error)


def _ignore_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _end_ray() -> None:
    import ray

    ray.shutdown()


class _TaskRunnerFactory:
    """What verl's ``run_ppo`` takes for an actor class: it asks this for the actor right after ``ray.init``.

    That is the moment to take the signals back: Ray puts a handler of its own in the place of ours, which prints a
    stack and aborts.
    """

    def __init__(self, trainer_module: str, handle_signals: Callable[[], None]):
        self._trainer_module = trainer_module
        self._handle_signals = handle_signals

    def remote(self):
        from onepo.trainers.runner import TaskRunner

        self._handle_signals()
        return TaskRunner.remote(self._trainer_module)
