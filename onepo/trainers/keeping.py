"""What the trainer keeps: checkpoints that appear whole, the state to go on from, rollouts for people."""

from pathlib import Path

import ray
import transfer_queue as tq
from omegaconf import open_dict

from onepo.trainers import checkpoints
from onepo.trainers.samples import COLUMNS, chosen_groups, sample, samples_bytes, samples_file, write_samples
from onepo.trainers.training_state import LOADED, SAVED, find_checkpoint, metrics_file, run_facts, write_state


class KeepsRun:
    """The hooks of verl's trainer that save and load; a part of ``OnePOTrainer``."""

    def _set_state(self, config):
        """Tell verl what to save, and where to go on."""
        checkpoint = config.actor_rollout_ref.actor.checkpoint
        with open_dict(config):
            if self.settings.save_training_state:
                checkpoint.save_contents = list(SAVED)
                self._facts = run_facts(config)  # of the files as they are now: they may move while the run goes on
            if self.settings.resume:
                checkpoint.load_contents = list(LOADED)
                config.trainer.resume_mode = "resume_path"
                config.trainer.resume_from_path = str(find_checkpoint(Path(self.settings.resume)))

    def _load_checkpoint(self):
        super()._load_checkpoint()
        if self.settings.resume:
            checkpoint = Path(self.config.trainer.resume_from_path)
            ray.get(self.ledger.load_state_dict.remote(checkpoints.read_retirement(checkpoint)))
            self._trained_step = self.global_steps
            self.journal.event("note", text=f"goes on behind step {self.global_steps}, from {checkpoint}")
            earlier = metrics_file(checkpoint)
            steps = self.journal.adopt(earlier, last_step=self.global_steps)
            if self.global_steps not in steps:  # the run ended between the checkpoint and the record, or the file moved
                lost = "has no record of that step" if steps else "is not there, or empty"
                self.journal.event("note", text=f"metrics of the earlier run are missing: {earlier} {lost}")

    def _save_checkpoint(self):
        root = Path(self.config.trainer.default_local_dir)
        self.config.trainer.default_local_dir = str(checkpoints.start_staging(root))
        try:
            super()._save_checkpoint()
            staged = checkpoints.checkpoint_folder(self.config.trainer.default_local_dir, self.global_steps)
        finally:
            self.config.trainer.default_local_dir = str(root)
        checkpoints.write_stop_ids(checkpoints.model_folder(staged), self._stop_ids)
        checkpoints.write_rope_theta(checkpoints.model_folder(staged))
        checkpoints.write_retirement(staged, ray.get(self.ledger.state_dict.remote()))
        if self.settings.save_training_state:
            write_state(staged, facts=self._facts, metrics_file=self.journal.metrics_file)
        published = checkpoints.publish(root, self.global_steps)
        checkpoints.prune(root, self.settings.max_checkpoints)
        self.journal.event("checkpoint", step=self.global_steps, model_dir=str(checkpoints.model_folder(published)))

    def _tell_samples(self):
        if size := samples_bytes(self.config, self.settings, final_step=self.schedule.final_step):
            every = f"every {self.settings.rollout_dump_freq} steps"
            text = f"rollouts are kept {every} for python -m onepo.show, at most about {size / 1e6:.1f} MB in all"
            self.journal.event("note", text=text)

    def _dump_rollouts(self, keys, partition_id):
        names = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["uid", "index"])
        uids, records = list(names["uid"]), [int(index) for index in names["index"]]
        chosen = [keys[row] for row in chosen_groups(uids, records, self.settings.rollout_dump_samples)]
        data = tq.kv_batch_get(keys=chosen, partition_id=partition_id, select_fields=list(COLUMNS))
        columns = {name: list(data[name]) for name in COLUMNS}
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        texts = [self.tokenizer.decode(row["responses"], skip_special_tokens=True) for row in rows]
        samples = [sample(row, text) for row, text in zip(rows, texts, strict=True)]
        write_samples(samples_file(self.settings.run_dir, self.global_steps), samples)
