"""Some rollouts of a step, written down for people; ``python -m onepo.show`` prints them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from onepo.rewards.manager import MET
from onepo.rollout.rows import TEACHER_MASK
from onepo.settings import Settings

SAMPLES_DIR = "samples"
COLUMNS = ("uid", "index", "data_source", "raw_prompt", "responses", "reward_model", "extra_fields", TEACHER_MASK)
_BYTES_PER_TOKEN = 6  # of JSON; English text has about 4, other scripts may have more


def samples_file(run_dir: str | Path, step: int) -> Path:
    return Path(run_dir) / SAMPLES_DIR / f"{step}.jsonl"


def chosen_groups(uids: list[str], records: list[int], count: int) -> list[int]:
    """The rows of the ``count`` groups whose records come first in the data, group by group.

    Args:
        uids, records: per row, the group and the number of its record.
    """
    groups = sorted({(record, uid) for record, uid in zip(records, uids, strict=True)})[:count]
    return [row for _, group in groups for row, uid in enumerate(uids) if uid == group]


def write_samples(file: Path, rows: list[dict[str, Any]]) -> None:
    """One JSON object per rollout; the file appears as a whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".tmp")
    with fresh.open("w", encoding="utf-8") as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
    fresh.replace(file)


def sample(row: Mapping[str, Any], response: str) -> dict[str, Any]:
    """What is kept of a rollout.

    Args:
        row: its columns of ``COLUMNS`` in the trainer's batch.
        response: the text.
    """
    info = row["extra_fields"]["reward_extra_info"]
    return {
        "group": row["uid"],
        "record": int(row["index"]),
        "data_source": row["data_source"],
        "prompt": [dict(message) for message in row["raw_prompt"]],
        "response": response,
        "teacher": bool(row[TEACHER_MASK].any()),
        "score": info["score"],
        "acc": info["acc"],
        "met": info[MET],
        "rubrics": [dict(rubric) for rubric in row["reward_model"]["rubrics"]],
    }


def samples_bytes(config: DictConfig, settings: Settings, *, final_step: int) -> int:
    """About the most that a run's files can come to: every response as long as may be."""
    if not settings.rollout_dump_freq:
        return 0
    prompts = min(settings.rollout_dump_samples, config.data.train_batch_size)
    tokens = config.data.max_prompt_length + config.data.max_response_length
    dumps = final_step // settings.rollout_dump_freq
    return dumps * prompts * config.actor_rollout_ref.rollout.n * tokens * _BYTES_PER_TOKEN
