"""A run of OPD: beside the task services there may be an inference server that has the teacher."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from omegaconf import DictConfig
from transformers import AutoTokenizer

from camp.opd.server import SERVER
from camp.preflight import Checked
from camp.run import CampRun
from onepo.distillation.probe import longest_episode, probe_teacher
from onepo.distillation.served import served_teacher
from onepo.process import keep_secret
from onepo.servers.local import LocalServer
from onepo.settings import ScoringTeacherSettings

_LOG_FILE = "teacher.log"
_PROBE_PATIENCE = 10.0  # seconds for a server that is not there yet
_PROBE_TIMEOUT = 120.0


class OPDRun(CampRun):
    """One invocation of ``camp.train --method opd``.

    Args:
        teacher_key: for a teacher's server that wants one, else "".
    """

    def __init__(self, config: DictConfig, checked: Checked, overrides: Sequence[str], *, teacher_key: str):
        super().__init__(config, checked, overrides)
        self._teacher_key = teacher_key

    def _prepare(self, clean_up: ExitStack) -> None:
        super()._prepare(clean_up)
        teacher = self._settings.teacher
        if teacher.server.start:
            self._start(teacher)
        elif teacher.url is not None and self._teacher_key:
            file = keep_secret(self._teacher_key, self._private_dir / ".teacher-key")
            clean_up.callback(file.unlink, missing_ok=True)
            self._tell_workers({"api_key_file": str(file)})

    def _start(self, teacher: ScoringTeacherSettings) -> None:
        server = LocalServer(
            teacher.server,
            SERVER,
            model=teacher.model,
            device="cpu" if self._config.trainer.device == "cpu" else "gpu",
            log=self._logs / _LOG_FILE,
            say=self._console.say,
            lost=lambda reason: self._on_lost("the teacher", reason),
        )
        self._console.begin("waiting for the teacher")
        self._stops.append(server.stop)
        server.start()
        patience = max(teacher.outage_limit, server.longest_outage)
        found = {"url": server.address, "outage_limit": patience}
        ask_once(self._config, teacher.model_copy(update=found), api_key=None, say=self._console.say)
        self._tell_workers(found)

    def _tell_workers(self, found: dict[str, Any]) -> None:
        self._config.camp.teacher.update(found)


def ask_once(
    config: DictConfig, teacher: ScoringTeacherSettings, *, api_key: str | None, say: Callable[[str], None]
) -> None:
    """Have a served teacher score something, and tell how it went.

    Raises:
        UserError: it cannot, or knows nothing.
    """
    model = config.actor_rollout_ref.model
    tokenizer = AutoTokenizer.from_pretrained(model.path, trust_remote_code=model.trust_remote_code)
    bounds = {"outage_limit": _PROBE_PATIENCE, "timeout": min(teacher.timeout, _PROBE_TIMEOUT)}
    patient = teacher.model_copy(update=bounds)

    async def ask() -> str:
        endpoint = served_teacher(patient, api_key=api_key)
        try:
            return await probe_teacher(endpoint, tokenizer, **longest_episode(config))
        finally:
            await endpoint.aclose()

    say(f"asking the teacher at {teacher.url} for the scores of a conversation")
    say(asyncio.run(ask()))
