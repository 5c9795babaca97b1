"""An episode whose tokens an inference server scores by HTTP as soon as it is over.

With verl's own teachers nothing is done here: its agent loop asks them for every row.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from verl.experimental.agent_loop import AgentLoopOutput

from camp.opd.loss import TEACHER_FIELD
from camp.opd.scoring import Unscored, score_tokens
from camp.sampling.episode import EpisodeLoop
from camp.settings import TeacherSettings
from onepo.endpoints.scoring import ScoringEndpoint

UNSCORED = "unscored"  # in a row's extra fields: why the teacher's probabilities are missing, None when they are not


class ScoredEpisodeLoop(EpisodeLoop):
    """``EpisodeLoop`` for OPD."""

    async def run(self, sampling_params: dict[str, Any], **columns: Any) -> AgentLoopOutput:
        """Play the episode and have it scored.

        One that cannot be scored stays in its update, so that the schedule's order holds, and teaches nothing.
        """
        output = await super().run(sampling_params, **columns)
        teacher = self._settings.teacher
        if teacher is None or teacher.url is None:
            return output
        prompt, response = output.prompt_ids, output.response_ids
        try:
            endpoint = _endpoint(teacher)
            scores = await score_tokens(endpoint, [*prompt, *response], start=len(prompt), retries=teacher.max_retries)
            reason = None
        except Unscored as error:
            scores, reason = [0.0] * len(response), str(error)
            output.response_mask = [0] * len(response)
            await self._ledger.note.remote(f"a row cannot be scored: {reason}")
        # verl's form: the entry of a token is about the one behind it
        row = [*[0.0] * (len(prompt) - 1), *scores, 0.0]
        output.extra_fields |= {TEACHER_FIELD: torch.tensor(row)[:, None], UNSCORED: reason}
        return output


@lru_cache
def _endpoint(teacher: TeacherSettings) -> ScoringEndpoint:
    """One for all episodes of a process."""
    key = Path(teacher.api_key_file).read_text(encoding="utf-8") if teacher.api_key_file else None
    return ScoringEndpoint(
        engine=teacher.engine,
        url=teacher.url,
        model=teacher.model,
        timeout=teacher.timeout,
        max_concurrency=teacher.max_concurrency,
        outage_limit=teacher.outage_limit,
        api_key=key,
    )
