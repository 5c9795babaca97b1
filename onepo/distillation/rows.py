"""Having the rows of an agent-loop worker scored, by whatever teacher the run has."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from verl.experimental.agent_loop import AgentLoopOutput

from onepo.distillation.field import TEACHER_FIELD, row_of
from onepo.distillation.pool import PoolTeacher
from onepo.distillation.scoring import Unscored, score_tokens
from onepo.distillation.served import kept_key, served_teacher
from onepo.settings import ScoringTeacherSettings


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


class RowScorer:
    """The teacher of one worker process.

    Args:
        pool: verl's client of its own teachers; None where the teacher is asked by HTTP.
    """

    def __init__(self, settings: ScoringTeacherSettings, pool: object | None):
        self._retries = settings.max_retries
        if settings.url is None:
            self._teacher = PoolTeacher(pool, timeout=settings.timeout, max_concurrency=settings.max_concurrency)
        else:
            self._teacher = served_teacher(settings, api_key=kept_key(settings))

    async def score(self, output: AgentLoopOutput, prompt_ids: Sequence[int], response_ids: Sequence[int]) -> Scoring:
        """Put the scores beside a row. One that has none teaches nothing: its response mask becomes 0.

        Raises:
            TeacherGone: no other row can be scored either.
        """
        ids, start = [*prompt_ids, *response_ids], len(prompt_ids)
        began, missing = time.time(), None
        try:
            scores = await score_tokens(self._teacher, ids, start=start, retries=self._retries)
        except Unscored as error:
            scores, missing = [0.0] * len(response_ids), str(error)
            output.response_mask = [0] * len(response_ids)
        output.extra_fields[TEACHER_FIELD] = row_of(scores, prompt=start)
        return Scoring(began, time.time(), missing)
