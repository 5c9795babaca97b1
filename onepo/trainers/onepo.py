"""The OnePO trainer: verl's V1 ``sync`` trainer with the smallest overrides that the recipe needs."""

from functools import partial

import numpy as np
import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf, open_dict
from verl.protocol import DataProto
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.debug.metrics import calculate_debug_metrics

import onepo.trainers.group_advantage  # noqa: F401  registers the estimator
from onepo.errors import ControlledStop
from onepo.rewards.manager import SCORES
from onepo.rollout.ledger import create_ledger, ledger_name
from onepo.rollout.rows import TEACHER_MASK
from onepo.rollout.teacher import create_teacher, teacher_name
from onepo.settings import parse_settings
from onepo.trainers import checkpoints
from onepo.trainers.filling import FillsBatches
from onepo.trainers.journal import Journal
from onepo.trainers.keeping import KeepsRun
from onepo.trainers.loss_metrics import step_metrics
from onepo.trainers.policy_loss import onepo_loss
from onepo.trainers.recording import RecordsMetrics
from onepo.trainers.schedule import Schedule
from onepo.trainers.validating import Validates


@register_trainer("onepo_sync")
class OnePOTrainer(KeepsRun, RecordsMetrics, FillsBatches, Validates, PPOTrainerSync):
    """Generate, replace, filter, update, synchronise, validate: the order is upstream's ``fit``.

    What is added here: the OnePO loss and group advantage, one plan for the final step and the validations, a stop on
    non-finite gradients, and the journal. Its other parts are in files of their own.
    """

    def __init__(self, config):
        with open_dict(config):
            # upstream compares this with "sync" in several places: our registered name would get the async buffer
            config.trainer.v1.trainer_mode = "sync"
        self.settings = parse_settings(OmegaConf.to_container(config.onepo, resolve=True))
        self._set_state(config)
        self.journal = Journal(self.settings.run_dir)
        self.ledger = create_ledger(ledger_name(self.settings.run_dir), self.settings)
        if self.settings.teacher.enabled:
            self.teacher = create_teacher(teacher_name(self.settings.run_dir), self.settings.teacher)
        self._rollout_awake = True
        self._validating = False
        self._failed_validation: ControlledStop | None = None
        self._trained_step = 0  # the last step whose update is complete
        self._teachers_doubted = False
        super().__init__(config)

    # ---- set-up

    def _init_dataloader(self):
        if self.config.data.val_files is None:
            with open_dict(self.config):
                self.config.data.val_batch_size = 1  # the size of an empty set is no batch size
        super()._init_dataloader()
        self.schedule = Schedule.of(self.config, self.settings, steps_per_epoch=self.steps_per_epoch)
        # upstream leaves its loop silently at the last epoch; with the smaller number both ends are the same step
        self.total_training_steps = self.schedule.final_step
        self.config.actor_rollout_ref.actor.optim.total_training_steps = self.schedule.final_step
        if beyond := [step for step in self.settings.test_steps if step > self.schedule.final_step]:
            steps = ", ".join(map(str, beyond))
            text = f"TEST_STEPS: no validation after {steps}: the final step is {self.schedule.final_step}"
            self.journal.event("note", text=text)
        self.journal.event(
            "plan",
            final_step=self.schedule.final_step,
            ends_by=self.schedule.ends_by,
            steps_per_epoch=self.steps_per_epoch,
            train_prompts=len(self.train_dataset),
            with_teacher=self.train_dataset.with_teacher(),
            val_prompts=len(self.val_dataset),
            left_out=self.train_dataset.left_out + self.val_dataset.left_out,
            train_batch_size=self.config.data.train_batch_size,
        )
        self._tell_samples()

    def _setup(self):
        super()._setup()
        actor_config = omega_conf_to_dataclass(self.config.actor_rollout_ref.actor)
        self.actor_rollout_wg.set_loss_fn(
            partial(onepo_loss, config=actor_config, probability_floor=self.settings.probability_floor)
        )

    # ---- the run

    def fit(self, agent_loop_manager):
        try:
            super().fit(agent_loop_manager)
        except ControlledStop as stop:
            stop = self._end_early(getattr(stop, "cause", stop))  # Ray wraps what a worker raised
            if stop.exit_code:
                raise stop from None
        except Exception:
            if failure := ray.get(self.ledger.first_failure.remote()):
                self.journal.event("note", text=f"the first rollout that failed said: {failure.splitlines()[-1]}")
            raise
        if stop := self._failed_validation:  # that of the final step
            self.journal.event("stop", step=self.global_steps, reason=stop.reason, exit_code=stop.exit_code)
            raise stop
        self.journal.event("end")

    def on_step_begin(self):
        if self._failed_validation:
            raise self._failed_validation
        super().on_step_begin()
        self.config.trainer.save_freq = 1 if self.schedule.saves_at(self.global_steps) else 0
        self.journal.event("begin", step=self.global_steps)

    def step(self, metrics, timing_raw):
        batch = super().step(metrics, timing_raw)
        # before the checkpoint, which is to keep what this step means for Teacher Retirement
        closed = ray.get(self.ledger.close_step.remote(self.global_steps))
        if closed["onepo/teacher_enabled"] and closed["onepo/teacher_disabled_reason"]:
            reason = ray.get(self.ledger.disabled_reason.remote()).replace("_", " ")
            self.journal.event("note", text=f"the teacher takes no part after step {self.global_steps}: {reason}")
        metrics.update(closed)
        return batch

    def on_sample_end(self):
        super().on_sample_end()
        self._rollout_awake = False

    def on_step_end(self):
        super().on_step_end()
        self._rollout_awake = True
        self._trained_step = self.global_steps
        self.config.trainer.test_freq = 1 if self.schedule.validates_at(self.global_steps) else 0

    def _end_early(self, stop: ControlledStop) -> ControlledStop:
        """Save the weights as they are, and validate when the run counts as finished; returns how it ended.

        A stop while sampling or validating leaves the weights of the last complete step. A stop in the update leaves
        those of the step's mini-batches up to the one that failed; they are saved under the number of that step.
        """
        if self._rollout_awake:
            self.global_steps = self._trained_step
            self.checkpoint_manager.abort_replicas()  # nobody waits any more for what is being generated
            self.checkpoint_manager.sleep_replicas()
        if not checkpoints.checkpoint_folder(self.config.trainer.default_local_dir, self.global_steps).exists():
            self._save_checkpoint()
        if stop.exit_code == 0 and self.schedule.validates:
            self.checkpoint_manager.update_weights(self.global_steps)
            self.checkpoint_manager.resume_generation_replicas()  # aborting has closed them to new requests
            self.logger.log(data=self._validate(), step=self.global_steps)
            stop = self._failed_validation or stop
        self._shutdown_dump_executor()
        self._tell_failures()
        self.journal.event("stop", step=self.global_steps, reason=stop.reason, exit_code=stop.exit_code)
        return stop

    # ---- update

    def _balance_batch(self, batch, metrics, **kwargs):
        """Order the rows by record and session first: upstream has them as groups finished, which no seed fixes."""
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["index"])
        records = data.pop("index").tolist()
        parts = [key.split("_") for key in batch.keys]  # uid, session, output
        batch.reorder(sorted(range(len(parts)), key=lambda row: (records[row], parts[row][0], int(parts[row][1]))))
        return super()._balance_batch(batch, metrics, **kwargs)

    def _compute_old_log_prob(self, batch, metrics):
        """Give teacher tokens, which no rollout engine sampled, the policy's own figure as their rollout figure.

        Otherwise every comparison of rollout and learner would be about the teacher's text.
        """
        batch = super()._compute_old_log_prob(batch, metrics)
        fields = ["rollout_log_probs", "old_log_probs", "response_mask", "responses", TEACHER_MASK]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
        lengths = data["responses"].offsets().diff()
        padded = data.to_padded_tensor()
        teacher = padded[TEACHER_MASK][:, : padded["response_mask"].shape[1]].bool()
        padded["rollout_log_probs"] = padded["old_log_probs"].where(teacher, padded["rollout_log_probs"])
        rows = [row[:length] for row, length in zip(padded["rollout_log_probs"], lengths.tolist(), strict=True)]
        data["rollout_log_probs"] = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
        tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=data.select("rollout_log_probs"))
        sampled = padded["response_mask"].bool() & ~teacher
        if sampled.any():
            padded["response_mask"] = sampled
            metrics.update(calculate_debug_metrics(DataProto(batch=padded)))
        return batch

    def _update_actor(self, batch, metrics):
        batch = super()._update_actor(batch, metrics)
        if not np.isfinite(metrics["actor/grad_norm"]):
            # verl skips such an update without a word
            raise ControlledStop(f"step {self.global_steps}: the gradient norm is not finite", 3)
        actor = self.config.actor_rollout_ref.actor
        rows = actor.ppo_mini_batch_size * self.config.actor_rollout_ref.rollout.n
        updates = len(batch.keys) / rows * actor.ppo_epochs
        ranks = max(self.actor_rollout_wg._dispatch_info["actor"]) + 1
        metrics.update(step_metrics(metrics, averaged_over=updates * ranks))
        return batch

    # ---- metrics

    def _compute_metrics(self, batch, metrics, timing_raw, global_steps, epoch):
        super()._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)
        keys = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]
        data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
        infos = [extra["reward_extra_info"] for extra in data.pop("extra_fields").tolist()]
        for name in SCORES:
            metrics[f"reward/{name}"] = float(np.mean([info[name] for info in infos]))
        if self.settings.rollout_dump_freq and global_steps % self.settings.rollout_dump_freq == 0:
            self._dump_rollouts(keys, batch.partition_id)
        self._tell_failures()
        if metrics.get("onepo/teacher_acc") == 0 and not self._teachers_doubted:
            self._teachers_doubted = True
            self.journal.event(
                "note",
                text=f"none of the {metrics['onepo/teacher_candidates']} teacher responses of step {global_steps} is "
                "right, so none was used: do they end with the answer as <answer>X</answer>, do they fit into "
                "MAX_RESPONSE_LENGTH"
                + (
                    ", and do they think first, as REQUIRE_THINKING wants it?"
                    if self.settings.require_thinking
                    else "?"
                ),
            )
