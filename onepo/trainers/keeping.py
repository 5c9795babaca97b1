"""What the trainer keeps: checkpoints that appear whole, the state to go on from, rollouts for people."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
import torch
import transfer_queue as tq
from omegaconf import open_dict

from onepo.errors import UserError, last_line
from onepo.rewards.manager import MET
from onepo.rollout.rows import TEACHER_MASK
from onepo.trainers import checkpoints
from onepo.trainers.samples import Sample, chosen_groups, samples_bytes, samples_file, write_samples
from onepo.trainers.saving import SavesWhole
from onepo.trainers.training_state import LOADED, SAVED, metrics_file, run_facts, write_state

_SAMPLE_COLUMNS = (
    "uid",
    "index",
    "data_source",
    "raw_prompt",
    "responses",
    "reward_model",
    "extra_fields",
    TEACHER_MASK,
)
# what may go wrong while a checkpoint is loaded and says nothing about its files
_NO_DAMAGE = (MemoryError, torch.OutOfMemoryError, ray.exceptions.RayActorError)
logger = logging.getLogger(__name__)


class KeepsRun(SavesWhole):
    """The hooks of verl's trainer that save and load; a part of ``OnePOTrainer``."""

    def _set_state(self, config):
        """Tell verl what to save, and where to go on."""
        self.checkpoints_to_keep = self.settings.max_checkpoints
        checkpoint = config.actor_rollout_ref.actor.checkpoint
        with open_dict(config):
            if self.settings.save_training_state:
                checkpoint.save_contents = list(SAVED)
                self._facts = run_facts(config)  # of the files as they are now: they may move while the run goes on
            if self.settings.resume:
                checkpoint.load_contents = list(LOADED)
                config.trainer.resume_mode = "resume_path"
                config.trainer.resume_from_path = self.settings.resume  # a checkpoint, since the start looked at it

    def _load_checkpoint(self):
        try:
            super()._load_checkpoint()
        except Exception as error:
            if not self.settings.resume or isinstance(getattr(error, "cause", error), _NO_DAMAGE):
                raise
            logger.exception("the checkpoint cannot be loaded")
            raise UserError(f"RESUME={self.settings.resume}: cannot be loaded: {last_line(error)}") from None
        if self.settings.resume:
            checkpoint = Path(self.config.trainer.resume_from_path)
            ray.get(self.ledger.load_state_dict.remote(checkpoints.read_retirement(checkpoint)))
            self._trained_step = self.global_steps
            going_on = ray.get(self.ledger.teacher_enabled.remote(self.global_steps + 1))
            teacher = "with a teacher" if going_on else "without a teacher"
            self.journal.event("note", text=f"goes on behind step {self.global_steps}, {teacher}, from {checkpoint}")
            earlier = metrics_file(checkpoint)
            steps = self.journal.adopt(earlier, last_step=self.global_steps)
            if self.global_steps not in steps:  # the run ended between the checkpoint and the record, or the file moved
                lost = "has no record of that step" if steps else "is not there, or empty"
                self.journal.event("note", text=f"metrics of the earlier run are missing: {earlier} {lost}")

    def _complete_checkpoint(self, staged):
        super()._complete_checkpoint(staged)
        checkpoints.write_retirement(staged, ray.get(self.ledger.state_dict.remote()))
        if self.settings.save_training_state:
            write_state(staged, step=self.global_steps, facts=self._facts, metrics_file=self.journal.metrics_file)

    def _tell_samples(self):
        if size := samples_bytes(self.config, self.settings, final_step=self.schedule.final_step):
            freq = self.settings.rollout_dump_freq
            every = f"every {freq} steps" if freq > 1 else "at every step"
            told = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"
            text = f"rollouts are kept {every} for python -m onepo.show, at most about {told} in all"
            self.journal.event("note", text=text)

    def _dump_rollouts(self, keys, partition_id):
        names = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["uid", "index"])
        uids, records = list(names["uid"]), [int(index) for index in names["index"]]
        chosen = [keys[row] for row in chosen_groups(uids, records, self.settings.rollout_dump_samples)]
        data = tq.kv_batch_get(keys=chosen, partition_id=partition_id, select_fields=list(_SAMPLE_COLUMNS))
        columns = {name: list(data[name]) for name in _SAMPLE_COLUMNS}
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        texts = [self.tokenizer.decode(row["responses"], skip_special_tokens=True) for row in rows]
        samples = [_sample(row, text) for row, text in zip(rows, texts, strict=True)]
        write_samples(samples_file(self.settings.run_dir, self.global_steps), samples)


def _sample(row: Mapping[str, Any], response: str) -> Sample:
    """What is kept of a rollout.

    Args:
        row: its columns of ``_SAMPLE_COLUMNS`` in the trainer's batch.
        response: the text.
    """
    info = row["extra_fields"]["reward_extra_info"]
    return Sample(
        group=row["uid"],
        record=int(row["index"]),
        data_source=row["data_source"],
        prompt=[dict(message) for message in row["raw_prompt"]],
        response=response,
        teacher=bool(row[TEACHER_MASK].any()),
        score=info["score"],
        acc=info["acc"],
        met=info[MET],
        rubrics=[dict(rubric) for rubric in row["reward_model"]["rubrics"]],
    )
