"""verl's agent-loop worker that has every finished episode scored."""

from dataclasses import asdict

import ray
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from camp.sampling.episode import EpisodeFailed
from camp.sampling.ledger import ledger_name
from camp.settings import parse_settings
from onepo.compat import plain_class
from onepo.distillation.rows import RowScorer
from onepo.distillation.scoring import TeacherGone

SCORING = "teacher_scoring"  # in a row's extra fields: a ``Scoring`` as dict


class ScoringWorker(plain_class(AgentLoopWorkerTQ)):
    """Hook: ``_compute_teacher_logprobs``, which verl calls for each finished episode."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        settings = parse_settings(OmegaConf.to_container(self.config.camp, resolve=True))
        self._bounds = {
            "window": self.config.data.train_batch_size,
            "largest_share": settings.teacher.max_unscored_share,
        }
        self._ledger = ray.get_actor(ledger_name(settings.attempt_dir))
        self._scorer = RowScorer(settings.teacher, getattr(self, "teacher_server_manager", None))

    async def _compute_teacher_logprobs(self, output, prompt_ids, response_ids, validate, sample_kwargs=None):
        """An episode that cannot be scored stays in its update, so that the schedule's order holds.

        Raises:
            EpisodeFailed: too many cannot, or the teacher is gone; the ledger has the reason, and the run stops.
        """
        episode = sample_kwargs["episode"]
        place = (episode["position"], episode["domain"])
        await self._ledger.asked.remote()
        try:
            scoring = await self._scorer.score(output, prompt_ids, response_ids)
        except TeacherGone as error:
            await self._ledger.give_up.remote(*place, str(error))
            raise EpisodeFailed(str(error)) from None
        if not await self._ledger.scored.remote(*place, scoring.missing, **self._bounds):
            raise EpisodeFailed(scoring.missing)
        output.extra_fields[SCORING] = asdict(scoring)


class ScoringManager(AgentLoopManagerTQ):
    """verl's manager with the worker above; named in the configuration."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(ScoringWorker)
