"""The entry that the launcher starts: ``python -m onepo.train [Hydra overrides]``.

Compose and check the configuration, open the run directory, hand over to verl's ``run_ppo``, and end with an exit code
that tells what happened: 0 finished, 1 crashed, 2 wrong input (nothing was started), 3 stopped by a limit.
"""

import ctypes
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from onepo.errors import ControlledStop, UserError
from onepo.report.record import RunRecord, checkpoint_lines, reserve_directory
from onepo.settings import parse_settings

_CONFIG = Path(__file__).parent / "config"
_REQUIRED = ("onepo.run_dir", "data.train_files", "actor_rollout_ref.model.path")


def main(overrides: Sequence[str]) -> int:
    """Train; returns the exit code."""
    _end_with_the_launcher()
    try:
        _set_process_environment(overrides)
        config = compose_config(overrides)
        from onepo.preflight import check

        settings = check(config)
        run_dir = reserve_directory(Path(settings.run_dir))
    except OmegaConfBaseException as error:
        print(f"error: configuration: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    except UserError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return 2
    with open_dict(config):
        config.onepo.run_dir = str(run_dir)
    return Run(config, parse_settings(OmegaConf.to_container(config.onepo, resolve=True)), overrides).train()


def compose_config(overrides: Sequence[str]) -> DictConfig:
    """verl's configuration with ours and the overrides on top.

    Raises:
        UserError: an override is malformed or names a key that does not exist.
    """
    from hydra import compose, initialize_config_module
    from hydra.errors import HydraException

    try:
        with initialize_config_module("onepo.config", version_base=None):
            config = compose("onepo", overrides=list(overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(f"configuration: {str(error).splitlines()[0]}") from None
    # verl's own values would hide that one of these is missing
    unset = [key for key in _REQUIRED if OmegaConf.select(config, key) is None]
    if unset:
        raise UserError(f"configuration: no value for {', '.join(unset)}")
    return config


def _set_process_environment(overrides: Sequence[str]) -> None:
    """Give this process the variables that the Ray workers get: verl reads them while it is imported."""
    device = next((item.split("=", 1)[1] for item in reversed(overrides) if item.startswith("device=")), "gpu")
    for file in (_CONFIG / "onepo.yaml", _CONFIG / "device" / f"{device}.yaml"):
        if not file.exists():
            raise UserError(f"DEVICE={device} is not known: use gpu or cpu")
        variables = OmegaConf.select(OmegaConf.load(file), "ray_kwargs.ray_init.runtime_env.env_vars")
        os.environ.update({name: str(value) for name, value in (variables or {}).items()})
    if device == "cpu":
        # Ray would give each worker one thread; the processes of a synchronous step take turns
        os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))


class Run:
    """One run: its directory, its terminal, its end."""

    def __init__(self, config: DictConfig, settings, overrides: Sequence[str]):
        self._config = config
        self._settings = settings
        self._dir = Path(settings.run_dir)
        self._logs = Path(settings.logs_dir)
        self._signal = signal.SIGTERM
        self._record = RunRecord(
            self._dir,
            overrides=list(overrides),
            device=config.trainer.device,
            student=config.actor_rollout_ref.model.path,
            seed=settings.seed,
        )

    def train(self) -> int:
        from onepo.report.console import RunConsole
        from onepo.trainers.journal import EVENTS_FILE

        self._logs.mkdir(parents=True, exist_ok=True)
        self._record.open(self._config, Path(self._settings.config_dir))
        terminal = _keep_terminal(self._logs / "train.log")
        console = RunConsole(terminal, self._logs / "console.log", self._dir / EVENTS_FILE, self._live_view)
        console.say(f"run directory {self._dir}")
        console.start()
        code, reason = self._run_verl()
        console.finish()
        if code in (1, 2):
            console.say(f"failed: {reason}\nthe whole output is in {self._logs}/train.log")
        elif code > 128:
            console.say(f"{reason}: what was learned since the last checkpoint is not saved")
        checkpoints = console.kept_checkpoints()
        self._record.close(code, reason, checkpoints)
        for line in checkpoint_lines(checkpoints, engine=self._config.actor_rollout_ref.rollout.name):
            console.say(line)
        return code

    def _run_verl(self) -> tuple[int, str]:
        import ray
        from verl.trainer.main_ppo import run_ppo

        self._handle_signals()
        ray_dir = _choose_ray(self._config, self._settings.ray_dir)
        try:
            run_ppo(self._config, task_runner_class=_TaskRunnerFactory(self._handle_signals))
            return 0, "finished"
        except ControlledStop as stop:
            stop = getattr(stop, "cause", stop)
            return stop.exit_code, stop.reason
        except UserError as error:
            return 2, str(getattr(error, "cause", error))
        except KeyboardInterrupt:
            return 130, "interrupted"
        except SystemExit:
            return 128 + self._signal, "terminated"
        except Exception as error:
            traceback.print_exc()  # into the log
            return 1, _last_line(error)
        finally:
            ray.shutdown()
            if ray_dir:
                shutil.rmtree(ray_dir, ignore_errors=True)

    def _handle_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: Any) -> None:
        self._signal = number  # Ray gives the exit another code on its way up
        sys.exit()

    def _live_view(self, step: int) -> dict[str, Any] | None:
        import ray

        from onepo.rollout.ledger import ledger_name

        if not ray.is_initialized():
            return None
        try:
            ledger = ray.get_actor(ledger_name(self._settings.run_dir))
            return ray.get(ledger.live.remote(step), timeout=2)
        except (ValueError, ray.exceptions.RayError):
            return None  # not there yet, or gone already


class _TaskRunnerFactory:
    """What verl's ``run_ppo`` takes for an actor class: it asks this for the actor right after ``ray.init``.

    That is the moment to take the signals back: Ray puts a handler of its own in the place of ours, which prints a
    stack and aborts.
    """

    def __init__(self, handle_signals: Callable[[], None]):
        self._handle_signals = handle_signals

    def remote(self):
        from onepo.trainers.runner import OnePOTaskRunner

        self._handle_signals()
        return OnePOTaskRunner.remote()


def _choose_ray(config: DictConfig, private_dir: str | None) -> str | None:
    """A private Ray unless RAY_ADDRESS names a cluster; a foreign one on this machine is never joined by chance.

    Returns the directory of the private Ray, which goes when the run ends, or None.
    """
    address = os.environ.get("RAY_ADDRESS")
    with open_dict(config.ray_kwargs.ray_init):
        options = config.ray_kwargs.ray_init
        options.address = address or "local"
        if address:
            for name in ("num_cpus", "num_gpus", "include_dashboard"):  # the cluster has its own
                options.pop(name, None)
            return None
        private_dir = private_dir or tempfile.mkdtemp(prefix="onepo-")
        # Ray opens its own directory to everybody, so it gets one inside the directory that only this user can enter
        options._temp_dir = f"{private_dir}/r"
        return private_dir


def _end_with_the_launcher() -> None:
    """Let the kernel send TERM when the launcher dies, even by KILL, so that no Ray is left behind.

    Only in a process session of our own, which is how the launcher starts us: a run that somebody started by hand may
    outlive the shell.
    """
    if os.getsid(0) != os.getpid():
        return
    launcher = os.getppid()
    parent_death_signal = 1  # PR_SET_PDEATHSIG of prctl(2)
    ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGTERM)
    if os.getppid() != launcher:  # it died before the kernel knew
        sys.exit(143)


def _keep_terminal(log: Path) -> TextIO:
    """Send this process's output, and with it Ray's and verl's, to the log; return the terminal it had."""
    sys.stdout.flush()
    sys.stderr.flush()
    terminal = os.fdopen(os.dup(1), "w", encoding="utf-8")
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)
    return terminal


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)  # Ray's threads may abort an interpreter that ends after a signal, and hide the exit code
