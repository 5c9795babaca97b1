"""Some rollouts of a step, written down for people; ``python -m onepo.show`` prints them."""

import json
from pathlib import Path
from typing import Any

SAMPLES_DIR = "samples"


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
