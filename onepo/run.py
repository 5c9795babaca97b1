"""One run: its directory, its grader, its Ray, its terminal and its end."""

import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from onepo.errors import ControlledStop, UserError, last_line
from onepo.process import choose_ray, keep_secret, keep_terminal
from onepo.report.record import RunRecord, checkpoint_lines
from onepo.servers.grader import LOCAL, LocalGrader, grader_facts, probe_grader
from onepo.servers.managed import ServerStartFailed
from onepo.settings import parse_settings

_CLEARING_SECONDS = 60.0
# the variables; their values are in no configuration
GRADER_KEY, TEACHER_KEY = "REWARD_MODEL_API_KEY", "ONEPO_TEACHER_API_KEY"


def set_values(section: DictConfig, found: dict[str, Any]) -> None:
    """Let the workers know what was found out about an endpoint."""
    with open_dict(section):
        section.update(found)


class Run:
    """One run: its directory, its terminal, its end.

    Args:
        overrides: those of the command line, for the record.
        open_ended, custom: number of records of these types.
        keys: the secrets by variable, "" for one that is not set; they are no longer in the environment.
    """

    def __init__(
        self, config: DictConfig, overrides: Sequence[str], *, open_ended: int, custom: int, keys: dict[str, str]
    ):
        self._config = config
        self._open_ended = open_ended
        self._custom = custom
        self._keys = keys
        self._settings = parse_settings(OmegaConf.to_container(config.onepo, resolve=True))
        self._dir = Path(self._settings.run_dir)
        self._logs = Path(self._settings.logs_dir)
        self._signal = signal.SIGTERM
        self._over = threading.Event()
        self._record = RunRecord(
            self._dir,
            overrides=list(overrides),
            device=config.trainer.device,
            student=config.actor_rollout_ref.model.path,
            seed=self._settings.seed,
        )

    def train(self) -> int:
        from onepo.report.console import RunConsole
        from onepo.trainers.journal import EVENTS_FILE

        self._logs.mkdir(parents=True, exist_ok=True)
        self._record.open(self._config, Path(self._settings.config_dir))
        terminal = keep_terminal(self._logs / "train.log")
        self._console = console = RunConsole(
            terminal, self._logs / "console.log", self._dir / EVENTS_FILE, self._live_view
        )
        console.say(f"run directory {self._dir}")
        console.start()
        code, reason = self._run()
        console.finish()
        if code in (1, 2):
            console.say(f"failed: {reason}\nthe whole output is in {self._logs}/train.log")
        elif code > 128:
            console.say(f"{reason}: what was learned since the last checkpoint is not saved")
        checkpoints = console.kept_checkpoints()
        self._record.close(code, reason, checkpoints)
        rollout = self._config.actor_rollout_ref.rollout
        for line in checkpoint_lines(checkpoints, engine=rollout.name, dtype=rollout.dtype):
            console.say(line)
        return code

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
                return 1, f"the grader: {error}"
            except KeyboardInterrupt:
                return 130, "interrupted"
            except SystemExit:
                return 128 + self._signal, "terminated"
            except Exception as error:
                traceback.print_exc()  # into the log
                return 1, last_line(error)
            finally:
                _ignore_signals()  # a second one must not cut the cleaning short

    def _prepare(self, clean_up: ExitStack) -> None:
        """Everything but verl: Ray's place, secrets, the grader."""
        ray_dir = choose_ray(self._config, self._settings.ray_dir)
        if ray_dir:
            clean_up.callback(shutil.rmtree, ray_dir, ignore_errors=True)
        if self._settings.reward_function.spec and not self._custom:
            self._console.say("the reward function is not called: no record is of the type custom")
            set_values(self._config.onepo.reward_function, {"spec": None})
        grader = self._local_grader()
        self._keep_key(GRADER_KEY, "grader", ray_dir, clean_up, used=self._open_ended > 0 and grader is None)
        self._keep_key(TEACHER_KEY, "teacher", ray_dir, clean_up, used=self._settings.teacher.enabled)
        if grader is not None:
            # an engine takes seconds to end, and so does Ray: they end at the same time
            stopping = threading.Thread(target=grader.stop, name="grader-stop")
            clean_up.callback(stopping.join)
            clean_up.callback(_end_ray)
            clean_up.callback(stopping.start)
            self._start(grader)
        else:
            clean_up.callback(_end_ray)

    def _keep_key(self, variable: str, section: str, ray_dir: str | None, clean_up: ExitStack, *, used: bool) -> None:
        key = self._keys[variable]
        if key and used:
            file = keep_secret(key, Path(ray_dir or self._settings.run_dir, f".{section}-key"))
            clean_up.callback(file.unlink, missing_ok=True)
            set_values(self._config.onepo[section], {"api_key_file": str(file)})

    def _run_verl(self) -> None:
        from verl.trainer.main_ppo import run_ppo

        if self._open_ended:
            settings = parse_settings(OmegaConf.to_container(self._config.onepo, resolve=True))
            self._record.add(grader=grader_facts(settings.grader))
        self._console.begin("starting Ray and the workers")
        run_ppo(self._config, task_runner_class=_TaskRunnerFactory(self._handle_signals))

    def _local_grader(self) -> LocalGrader | None:
        server = self._settings.reward_server
        if not server.start:
            return None
        if not self._open_ended:
            self._console.say("no grader is started: no record is open-ended")
            return None
        return LocalGrader(
            server,
            name=self._settings.grader.name,
            device="cpu" if self._config.trainer.device == "cpu" else "gpu",
            logs_dir=self._logs,
            say=self._console.say,
            lost=self._on_lost_grader,
        )

    def _start(self, grader: LocalGrader) -> None:
        self._console.begin("waiting for the grader")
        grader.start()
        # gradings wait for as long as a restart may take, and until what is left of the last one is gone
        restart = self._settings.reward_server.start_timeout + _CLEARING_SECONDS
        patience = max(self._settings.grader.outage_limit, restart)
        local = {"url": grader.url, "name": grader.name, "outage_limit": patience}
        settings = self._settings.grader.model_copy(update=local)
        probed = probe_grader(settings, api_key=None, say=self._console.say, options=LOCAL)
        set_values(self._config.onepo.grader, {**local, **probed})

    def _on_lost_grader(self, reason: str) -> None:
        """Tell the trainer; the ledger may not be there yet."""
        self._console.say(f"the grader is lost: {reason}")
        while not self._over.is_set():
            if (ledger := self._ledger()) is not None:
                ledger.report_lost_grader.remote(reason)
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

        from onepo.rollout.ledger import ledger_name

        if not ray.is_initialized():
            return None
        with suppress(ValueError, ray.exceptions.RayError):
            return ray.get_actor(ledger_name(self._settings.run_dir))
        return None


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

    def __init__(self, handle_signals: Callable[[], None]):
        self._handle_signals = handle_signals

    def remote(self):
        from onepo.trainers.runner import OnePOTaskRunner

        self._handle_signals()
        return OnePOTaskRunner.remote()
