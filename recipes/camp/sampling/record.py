"""What is written down of an episode: a line of ``rollout_data/``."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ConfigDict

from camp.sampling.loop import Ending
from camp.sampling.transcript import Transcript
from camp.schedule import ScheduledEpisode


class EpisodeRecord(BaseModel):
    """One finished episode.

    Attributes:
        schedule: its row.
        reward: of the whole episode, from the service.
        success: whether its task was solved, where the service says so.
        limit: what ended it in place of the service; None: the service did.
        submitted_at: the update before which it was submitted.
        versions: of the weights that wrote its first and its last token.
        seconds: from its begin to its end, in the attempt that counted.
        task: what the service said first.
        turns: as in ``camp.sampling.transcript.Turn``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schedule: ScheduledEpisode
    reward: float
    success: bool | None
    limit: str | None
    submitted_at: int
    versions: tuple[int | None, int | None]
    seconds: float
    prompt_tokens: int
    response_tokens: int
    task: str
    turns: list[dict[str, Any]]


def record_of(
    row: ScheduledEpisode, transcript: Transcript, ending: Ending, *, seconds: float, submitted_at: int
) -> EpisodeRecord:
    return EpisodeRecord(
        schedule=row,
        reward=transcript.reward,
        success=ending.success,
        limit=ending.limit,
        submitted_at=submitted_at,
        versions=transcript.versions,
        seconds=seconds,
        prompt_tokens=len(transcript.prompt_ids),
        response_tokens=len(transcript.response_ids),
        task=transcript.task,
        turns=[asdict(turn) for turn in transcript.turns],
    )


def success_rate(records: Sequence[EpisodeRecord]) -> float | None:
    """The share of solved tasks; None where the service does not say of some that ended by it.

    An episode that came to a limit of ours is not solved, so it is 0 when all of them did. Pure.
    """
    told = any(record.success is not None for record in records)
    if not told and not all(record.limit is not None for record in records):
        return None
    decided = [record for record in records if record.success is not None or record.limit is not None]
    return sum(record.success is True for record in decided) / len(decided)
