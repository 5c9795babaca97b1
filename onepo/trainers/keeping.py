"""What the trainer keeps: checkpoints that appear whole, the state to go on from, rollouts for people."""

from pathlib import Path

import ray
import transfer_queue as tq
from omegaconf import open_dict

from onepo.rewards.manager import MET
from onepo.rollout.rows import TEACHER_MASK
from onepo.trainers import checkpoints
from onepo.trainers.samples import chosen_groups, samples_file, write_samples
from onepo.trainers.training_state import LOADED, SAVED, find_checkpoint, metrics_file, run_facts, write_state


class KeepsRun:
    """The hooks of verl's trainer that save and load; a part of ``OnePOTrainer``."""

    def _set_state(self, config):
        """Tell verl what to save, and where to go on."""
        checkpoint = config.actor_rollout_ref.actor.checkpoint
        with open_dict(config):
            if self.settings.save_training_state:
                checkpoint.save_contents = list(SAVED)
            if self.settings.resume:
                checkpoint.load_contents = list(LOADED)
                config.trainer.resume_mode = "resume_path"
                config.trainer.resume_from_path = str(find_checkpoint(Path(self.settings.resume)))

    def _load_checkpoint(self):
        super()._load_checkpoint()
        if self.settings.resume:
            checkpoint = Path(self.config.trainer.resume_from_path)
            ray.get(self.ledger.load_state_dict.remote(checkpoints.read_retirement(checkpoint)))
            self.journal.adopt(metrics_file(checkpoint), last_step=self.global_steps)
            self._trained_step = self.global_steps
            self.journal.event("note", text=f"goes on behind step {self.global_steps}, from {checkpoint}")

    def _save_checkpoint(self):
        root = Path(self.config.trainer.default_local_dir)
        self.config.trainer.default_local_dir = str(checkpoints.start_staging(root))
        try:
            super()._save_checkpoint()
            staged = checkpoints.checkpoint_folder(self.config.trainer.default_local_dir, self.global_steps)
        finally:
            self.config.trainer.default_local_dir = str(root)
        checkpoints.write_stop_ids(checkpoints.model_folder(staged), self._stop_ids)
        checkpoints.write_retirement(staged, ray.get(self.ledger.state_dict.remote()))
        if self.settings.save_training_state:
            write_state(staged, facts=run_facts(self.config), metrics_file=self.journal.metrics_file)
        published = checkpoints.publish(root, self.global_steps)
        checkpoints.prune(root, self.settings.max_checkpoints)
        self.journal.event("checkpoint", step=self.global_steps, model_dir=str(checkpoints.model_folder(published)))

    def _dump_rollouts(self, keys, partition_id):
        fields = [
            "uid",
            "index",
            "data_source",
            "raw_prompt",
            "responses",
            "reward_model",
            "extra_fields",
            TEACHER_MASK,
        ]
        data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=fields)
        columns = {name: list(data[name]) for name in fields}
        rows = []
        for row in chosen_groups(
            columns["uid"], [int(index) for index in columns["index"]], self.settings.rollout_dump_samples
        ):
            info = columns["extra_fields"][row]["reward_extra_info"]
            rows.append(
                {
                    "group": columns["uid"][row],
                    "record": int(columns["index"][row]),
                    "data_source": columns["data_source"][row],
                    "prompt": [dict(message) for message in columns["raw_prompt"][row]],
                    "response": self.tokenizer.decode(columns["responses"][row], skip_special_tokens=True),
                    "teacher": bool(columns[TEACHER_MASK][row].any()),
                    "score": info["score"],
                    "acc": info["acc"],
                    "met": info[MET],
                    "rubrics": [dict(rubric) for rubric in columns["reward_model"][row]["rubrics"]],
                }
            )
        write_samples(samples_file(self.settings.run_dir, self.global_steps), rows)
