"""The dataset that verl's dataloader draws from: rows of the task table in the form its V1 trainer expects."""

import json
import logging
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch
from torch.utils.data import Dataset

from onepo.data.lengths import usable_rows
from onepo.data.table import load_tasks

logger = logging.getLogger(__name__)


class OnePODataset(Dataset):
    """Tasks of one or several data files, without the prompts over the limit.

    The tasks stay in an Arrow table; a row becomes Python objects only when it is drawn.

    Args:
        data_files: a path, a list of paths, or None for a dataset without rows (a run without validation).
        tokenizer: the student's, with a chat template.
        config: verl's ``data`` section.
        processor: of a student that also takes images; the prompts are text all the same.
        max_samples: keep that many of the usable rows, drawn with the seed when the data is shuffled, else the first;
            -1 keeps all.

    Raises:
        UserError: a file is not usable, or the chat template refuses its prompts.
    """

    def __init__(self, data_files: Any, tokenizer: Any, config: Any, processor: Any = None, max_samples: int = -1):
        self.table = load_tasks(_paths(data_files))
        self.rows = np.arange(self.table.num_rows)
        if config["filter_overlong_prompts"]:
            options = config.get("apply_chat_template_kwargs") or {}
            self.rows = usable_rows(self.table, tokenizer, config["max_prompt_length"], **options)
        self.left_out = self.table.num_rows - len(self.rows)
        if self.left_out:
            text = "%d of %d prompts have more than %d tokens and are left out"
            logger.warning(text, self.left_out, self.table.num_rows, config["max_prompt_length"])
        if 0 < max_samples < len(self.rows):
            if config.get("shuffle"):
                draw = np.random.default_rng(config.get("seed"))
                self.rows = draw.choice(self.rows, size=max_samples, replace=False)
            self.rows = self.rows[:max_samples]

    def with_teacher(self) -> int:
        """Number of rows that have a teacher response."""
        counts = pc.list_value_length(self.table["teacher_responses"]).to_numpy()
        return int((counts[self.rows] > 0).sum())

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, item: int) -> dict[str, Any]:
        task = self.table.slice(int(self.rows[item]), 1).to_pylist()[0]
        return {
            "raw_prompt": task["prompt"],
            "index": task["index"],
            "data_source": task["data_source"],
            "reward_model": {
                "style": task["type"],
                "ground_truth": task["answer_idx"] or "",
                "rubrics": task["rubrics"],
                "record": task["record"],
            },
            "extra_info": json.loads(task["extra_info"]),
            "teacher": {"responses": task["teacher_responses"]},
            # verl's batches need one tensor
            "dummy_tensor": torch.tensor([0], dtype=torch.uint8),
        }

    @classmethod
    async def process_multi_modal_info(cls, messages: list, image_patch_size: int, config: Any) -> tuple:
        """verl asks for images, videos and audios when the student has a processor: there are none."""
        return None, None, None


def _paths(data_files: Any) -> list[str]:
    if data_files is None:
        return []
    return [data_files] if isinstance(data_files, str) else list(data_files)
