"""Sending rows of the schedule to the samplers: in its order, each once, until its end."""

from typing import Any

import transfer_queue as tq
from verl.utils import tensordict_utils as tu

from camp.learning.lineage import Lineage
from camp.schedule import most_under_way

_PARTITION = "train"


class FeedsSchedule:
    """The hooks of verl's trainer around submission; a part of ``CampTrainer``.

    verl adds a batch before each update and, at the begin, some more. Here every update fills up what is under way,
    which is the same, and right as well after a stop, on resume and at the schedule's end. A row is known by its
    position everywhere.
    """

    lineage: Lineage

    @property
    def _most_under_way(self) -> int:
        warmup = self.config.trainer.v1.separate_async.num_warmup_batches
        return most_under_way(self.config.data.train_batch_size, warmup)

    def on_train_begin(self):
        """The first update fills up: verl's warm-up would come on top of it, at the pinned commit on resume, too."""

    def _add_batch_to_generate(self):
        rows = min(self._most_under_way - len(unfinished_positions()), len(self.train_dataset) - self.lineage.submitted)
        if rows > 0:
            self._add_prompts_to_generate(rows)

    def _fetch_one_gen_batch(self):
        batch = super()._fetch_one_gen_batch()
        (position,) = [int(index) for index in batch["index"]]
        if position != self.lineage.submitted:
            raise RuntimeError(
                f"the data loader gave row {position} of the schedule, expected {self.lineage.submitted}"
            )
        tu.assign_non_tensor_stack(batch, "uid", [str(position)])
        self.lineage.submitted += 1
        return batch


def unfinished_positions() -> list[int]:
    """Rows that were submitted and not trained on yet."""
    return [int(key) for key in _prompts(_tags())]


def reissue_failed() -> None:
    """Let rows that failed be played anew by the run that goes on from the next checkpoint."""
    failed = {key: tag for key, tag in _prompts(_tags()).items() if tag["status"] == "failure"}
    if failed:
        pending = [{**tag, "status": "pending"} for tag in failed.values()]
        tq.kv_batch_put(keys=list(failed), partition_id=_PARTITION, tags=pending)


def drop_orphans() -> None:
    """Remove what a checkpoint still has of the episodes of its update: verl saves before it clears them."""
    tags = _tags()
    waiting = _prompts(tags)
    if orphans := [key for key in tags if key.split("_")[0] not in waiting]:
        tq.kv_clear(keys=orphans, partition_id=_PARTITION)


def _tags() -> dict[str, dict[str, Any]]:
    """What verl's queue says of the training rows: one entry for an episode, and one for what it became."""
    return (tq.kv_list(_PARTITION) or {}).get(_PARTITION, {})


def _prompts(tags: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {key: tag for key, tag in tags.items() if tag.get("is_prompt", False)}
