"""verl's agent-loop worker that has every finished episode scored, by whatever teacher the run has."""

import time
from dataclasses import asdict, dataclass

import ray
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from camp.sampling.episode import EpisodeFailed
from camp.sampling.ledger import ledger_name
from camp.settings import parse_settings
from onepo.compat import plain_class
from onepo.distillation.field import TEACHER_FIELD, row_of
from onepo.distillation.pool import PoolTeacher
from onepo.distillation.scoring import TeacherGone, Unscored, score_tokens
from onepo.distillation.served import kept_key, served_teacher

SCORING = "teacher_scoring"  # in a row's extra fields: a ``Scoring`` as dict


@dataclass(frozen=True)
class Scoring:
    """How the scoring of a row went.

    Attributes:
        began, ended: seconds since the epoch.
        missing: why there are no scores; None when there are.
    """

    began: float
    ended: float
    missing: str | None


class ScoringWorker(plain_class(AgentLoopWorkerTQ)):
    """Hook: ``_compute_teacher_logprobs``, which verl calls for each finished episode."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        settings = parse_settings(OmegaConf.to_container(self.config.camp, resolve=True))
        self._settings = settings.teacher
        self._window = self.config.data.train_batch_size
        self._ledger = ray.get_actor(ledger_name(settings.attempt_dir))
        if self._settings.url is None:
            bounds = {"timeout": self._settings.timeout, "max_concurrency": self._settings.max_concurrency}
            self._teacher = PoolTeacher(self.teacher_server_manager, **bounds)
        else:
            self._teacher = served_teacher(self._settings, api_key=kept_key(self._settings))

    async def _compute_teacher_logprobs(self, output, prompt_ids, response_ids, validate, sample_kwargs=None):
        """An episode that cannot be scored stays in its update, so that the schedule's order holds, and teaches
        nothing.

        Raises:
            EpisodeFailed: too many cannot, or the teacher is gone; the ledger has the reason, and the run stops.
        """
        episode = sample_kwargs["episode"]
        place = (episode["position"], episode["domain"])
        ids, start = [*prompt_ids, *response_ids], len(prompt_ids)
        await self._ledger.asked.remote()
        began, missing = time.time(), None
        try:
            scores = await score_tokens(self._teacher, ids, start=start, retries=self._settings.max_retries)
        except Unscored as error:
            scores, missing = [0.0] * len(response_ids), str(error)
            output.response_mask = [0] * len(response_ids)
        except TeacherGone as error:
            await self._ledger.give_up.remote(*place, str(error))
            raise EpisodeFailed(str(error)) from None
        bounds = {"window": self._window, "largest_share": self._settings.max_unscored_share}
        if not await self._ledger.scored.remote(*place, missing, **bounds):
            raise EpisodeFailed(missing)
        scoring = Scoring(began, time.time(), missing)
        output.extra_fields |= {TEACHER_FIELD: row_of(scores, prompt=start), SCORING: asdict(scoring)}


class ScoringManager(AgentLoopManagerTQ):
    """verl's manager with the worker above; named in the configuration."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(ScoringWorker)
