"""A run of CAMP: what stands around it are the task services, and the hashes of what it works with."""

import asyncio
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from omegaconf import DictConfig

import camp
import onepo
from camp.departures import departure_lines
from camp.preflight import Checked
from camp.report import CampLines
from camp.services import ManagedServices, check_fingerprints
from onepo.process import choose_ray
from onepo.report.hashes import Hashes, HashingThread, code_sha256
from onepo.report.record import RunRecord
from onepo.run import Run


class CampRun(Run):
    """One invocation of ``camp.train``.

    Args:
        checked: what the preflight knows.
        overrides: those behind the ``--``, for the record.
    """

    def __init__(self, config: DictConfig, checked: Checked, overrides: Sequence[str]):
        self._checked = checked
        self._settings = checked.settings
        self._attempt = Path(self._settings.attempt_dir)
        teacher = config.distillation.teacher_models.teacher_model
        record = RunRecord(
            Path(self._settings.output),
            copy_in=self._attempt,
            method=self._settings.method,
            overrides=list(overrides),
            device=config.trainer.device,
            student=config.actor_rollout_ref.model.path,
            teacher=self._settings.teacher and (self._settings.teacher.url or teacher.model_path),
            seed=self._settings.seed,
            resumed_from=self._settings.resume,
            routes={"file": self._settings.routes, "sha256": checked.routes.sha256},
            schedule={"file": config.data.train_files, "sha256": checked.routes.schedule_sha256},
            code_sha256=code_sha256({"onepo": Path(onepo.__file__).parent, "camp": Path(camp.__file__).parent}),
            departures=[vars(departure) for departure in checked.departures],
        )
        super().__init__(
            config,
            record=record,
            logs=self._attempt / "logs",
            events_dir=self._attempt,
            config_dir=self._attempt / "config",
            lines=CampLines(),
            trainer_module=f"camp.{self._settings.method}.trainer",
        )

    def _ledger_name(self) -> str:
        from camp.sampling.ledger import ledger_name  # with Ray, which is to be imported late

        return ledger_name(self._settings.attempt_dir)

    def _prepare(self, clean_up: ExitStack) -> None:
        """Everything but verl: Ray's place, the services, hashes."""
        for line in [*self._checked.notes, *departure_lines(self._checked.departures)]:
            self._console.say(line)
        ray_dir = choose_ray(self._config, self._settings.ray_dir)
        if ray_dir:
            clean_up.callback(shutil.rmtree, ray_dir, ignore_errors=True)
        self._private_dir = Path(ray_dir or self._attempt)
        files = {str(file): file for file in self._checked.files}
        cache = Path(self._settings.output, ".hashes.json")  # also for the runs that go on from this one
        hashing = HashingThread(files, cache=cache, done=self._record_hashes)
        hashing.start()
        clean_up.callback(hashing.stop)
        routes = self._checked.routes.domains
        services = ManagedServices(
            routes,
            python=self._settings.services.python,
            logs_dir=self._logs,
            start_timeout=self._settings.services.start_timeout,
            max_restarts=self._settings.services.max_restarts,
            say=self._console.say,
            lost=self._on_lost_service,
        )
        self._end_with_ray(clean_up)
        self._stops.append(services.stop)
        self._console.begin("waiting for the task services")
        services.start()
        asyncio.run(check_fingerprints(routes))

    def _record_hashes(self, found: Hashes) -> None:
        self._record.add(model_files=found.sha256, unread_model_files=found.problems)

    def _on_lost_service(self, domain: str, reason: str) -> None:
        self._on_lost(f"the service of {domain}", reason)

    def _on_lost(self, what: str, reason: str) -> None:
        self._console.say(f"{what} is lost: {reason}")
        self._tell_ledger("report_lost", what, reason)
