"""Some rollouts of a step, written down for people; ``python -m onepo.show`` prints them."""

from pathlib import Path

from omegaconf import DictConfig
from pydantic import BaseModel, TypeAdapter

from onepo.settings import Settings

SAMPLES_DIR = "samples"
_BYTES_PER_TOKEN = 6  # of JSON; English text has about 4, other scripts may have more


class Message(BaseModel):
    """One message of a prompt."""

    role: str
    content: str


class Rubric(BaseModel):
    """A criterion of a record, and what it is worth."""

    criterion: str
    points: float


class Sample(BaseModel):
    """One kept rollout."""

    group: str
    record: int
    data_source: str
    prompt: list[Message]
    response: str
    teacher: bool
    score: float
    acc: float
    met: str
    rubrics: list[Rubric]

    def met_criteria(self) -> list[bool]:
        """For each rubric whether it was met; empty without a grading."""
        return TypeAdapter(list[bool]).validate_json(self.met) if self.met else []


def samples_file(run_dir: str | Path, step: int) -> Path:
    return Path(run_dir) / SAMPLES_DIR / f"{step}.jsonl"


def chosen_groups(uids: list[str], records: list[int], count: int) -> list[int]:
    """The rows of the ``count`` groups whose records come first in the data, group by group.

    Args:
        uids, records: per row, the group and the number of its record.
    """
    groups = sorted({(record, uid) for record, uid in zip(records, uids, strict=True)})[:count]
    return [row for _, group in groups for row, uid in enumerate(uids) if uid == group]


def write_samples(file: Path, rows: list[Sample]) -> None:
    """One JSON object per rollout; the file appears as a whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".tmp")
    with fresh.open("w", encoding="utf-8") as stream:
        for row in rows:
            stream.write(row.model_dump_json() + "\n")
    fresh.replace(file)


def samples_bytes(config: DictConfig, settings: Settings, *, final_step: int) -> int:
    """About the most that a run's files can come to: every response as long as may be."""
    if not settings.rollout_dump_freq:
        return 0
    prompts = min(settings.rollout_dump_samples, config.data.train_batch_size)
    tokens = config.data.max_prompt_length + config.data.max_response_length
    dumps = final_step // settings.rollout_dump_freq
    return dumps * prompts * config.actor_rollout_ref.rollout.n * tokens * _BYTES_PER_TOKEN
