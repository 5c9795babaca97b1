"""Checkpoints that appear whole, with a model directory that engines can serve."""

from pathlib import Path

from verl.utils.config import omega_conf_to_dataclass

from onepo.data.chat import rollout_stop_ids
from onepo.trainers import checkpoints


class SavesWhole:
    """The hooks of verl's trainer around saving; a part of our trainers, before verl's class.

    Attributes:
        journal: of the trainer.
        checkpoints_to_keep: the newest ones.
    """

    def _init_tokenizer(self):
        super()._init_tokenizer()
        generation_config = omega_conf_to_dataclass(self.config.actor_rollout_ref.model).generation_config
        self._stop_ids, added = rollout_stop_ids(self.tokenizer, generation_config)
        if added is not None:
            self.journal.event(
                "note",
                text=f"the student's files do not name {self.tokenizer.convert_ids_to_tokens(added)!r}, which ends a "
                "turn in its chat template, as a stop token: it was added, here and in the checkpoints",
            )

    def _save_checkpoint(self):
        self.journal.event("phase", name="saving a checkpoint")
        root = Path(self.config.trainer.default_local_dir)
        self.config.trainer.default_local_dir = str(checkpoints.start_staging(root))
        try:
            super()._save_checkpoint()
            staged = checkpoints.checkpoint_folder(self.config.trainer.default_local_dir, self.global_steps)
        finally:
            self.config.trainer.default_local_dir = str(root)
        self._complete_checkpoint(staged)
        published = checkpoints.publish(root, self.global_steps)
        checkpoints.prune(root, self.checkpoints_to_keep)
        self.journal.event("checkpoint", step=self.global_steps, model_dir=str(checkpoints.model_folder(published)))

    def _complete_checkpoint(self, staged: Path):
        """Add what verl does not write, before the checkpoint appears."""
        checkpoints.write_stop_ids(checkpoints.model_folder(staged), self._stop_ids)
        checkpoints.write_rope_settings(checkpoints.model_folder(staged))
        checkpoints.write_dtype(checkpoints.model_folder(staged))
