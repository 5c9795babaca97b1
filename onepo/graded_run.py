"""A run of OnePO: what stands around it is the grader, and the keys of the grader and of the teacher."""

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from onepo.process import choose_ray, keep_secret
from onepo.report.lines import OnePOLines
from onepo.report.record import RunRecord
from onepo.report.secrets import masked_override
from onepo.run import Run
from onepo.servers.grader import LOCAL, LOG_FILE, SERVER, grader_facts, probe_grader
from onepo.servers.local import LocalServer
from onepo.settings import parse_settings

# the variables; their values are in no configuration
GRADER_KEY, TEACHER_KEY = "REWARD_MODEL_API_KEY", "ONEPO_TEACHER_API_KEY"


def set_values(section: DictConfig, found: dict[str, Any]) -> None:
    """Let the workers know what was found out about an endpoint."""
    with open_dict(section):
        section.update(found)


class OnePORun(Run):
    """One run of OnePO.

    Args:
        overrides: those of the command line, for the record.
        open_ended, custom: number of records of these types.
        keys: the secrets by variable, "" for one that is not set; they are no longer in the environment.
    """

    def __init__(
        self, config: DictConfig, overrides: Sequence[str], *, open_ended: int, custom: int, keys: dict[str, str]
    ):
        self._open_ended = open_ended
        self._custom = custom
        self._keys = keys
        self._settings = parse_settings(OmegaConf.to_container(config.onepo, resolve=True))
        run_dir = Path(self._settings.run_dir)
        record = RunRecord(
            run_dir,
            overrides=[*map(masked_override, overrides)],
            device=config.trainer.device,
            student=config.actor_rollout_ref.model.path,
            seed=self._settings.seed,
        )
        super().__init__(
            config,
            record=record,
            logs=Path(self._settings.logs_dir),
            events_dir=run_dir,
            config_dir=Path(self._settings.config_dir),
            lines=OnePOLines(),
            trainer_module="onepo.trainers.onepo",
        )

    def _ledger_name(self) -> str:
        from onepo.rollout.ledger import ledger_name  # with Ray, which is to be imported late

        return ledger_name(self._settings.run_dir)

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
        self._end_with_ray(clean_up)
        if grader is not None:
            self._start(grader)
        if self._open_ended:
            settings = parse_settings(OmegaConf.to_container(self._config.onepo, resolve=True))
            self._record.add(grader=grader_facts(settings.grader))

    def _keep_key(self, variable: str, section: str, ray_dir: str | None, clean_up: ExitStack, *, used: bool) -> None:
        key = self._keys[variable]
        if key and used:
            file = keep_secret(key, Path(ray_dir or self._settings.run_dir, f".{section}-key"))
            clean_up.callback(file.unlink, missing_ok=True)
            set_values(self._config.onepo[section], {"api_key_file": str(file)})

    def _local_grader(self) -> LocalServer | None:
        server = self._settings.reward_server
        if not server.start:
            return None
        if not self._open_ended:
            self._console.say("no grader is started: no record is open-ended")
            return None
        return LocalServer(
            server,
            SERVER,
            model=self._settings.grader.name,
            device="cpu" if self._config.trainer.device == "cpu" else "gpu",
            log=self._logs / LOG_FILE,
            say=self._console.say,
            lost=self._on_lost_grader,
        )

    def _start(self, grader: LocalServer) -> None:
        self._console.begin("waiting for the grader")
        self._stops.append(grader.stop)
        grader.start()
        patience = max(self._settings.grader.outage_limit, grader.longest_outage)
        local = {"url": grader.url, "name": grader.name, "outage_limit": patience}
        settings = self._settings.grader.model_copy(update=local)
        probed = probe_grader(settings, api_key=None, say=self._console.say, options=LOCAL)
        set_values(self._config.onepo.grader, {**local, **probed})

    def _on_lost_grader(self, reason: str) -> None:
        self._console.say(f"the grader is lost: {reason}")
        self._tell_ledger("report_lost_grader", reason)
