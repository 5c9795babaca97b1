"""The schedule as verl's training data: one row per episode, in the schedule's order."""

from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from camp.schedule import read_schedule


class ScheduleDataset(Dataset):
    """Rows for the agent loop. There is no validation set: ``camp.evaluate`` plays the episodes of one.

    Args:
        data_files: the schedule, or None.
    """

    def __init__(self, data_files: str | None, tokenizer, config, processor=None, max_samples: int = -1):
        self.episodes = read_schedule(Path(data_files))[0] if data_files else []

    def __len__(self) -> int:
        return len(self.episodes)

    def __getitem__(self, position: int) -> dict[str, Any]:
        episode = self.episodes[position]
        return {
            "raw_prompt": [{"role": "user", "content": ""}],  # verl wants one: the first text is the service's
            "dummy_tensor": torch.tensor([0]),
            "index": episode.position,
            "data_source": episode.domain,
            "episode": episode.model_dump(),
        }
