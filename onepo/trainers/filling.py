"""Filling a batch: prompts go to rollout until enough groups have a signal, or until there is no sense in going on."""

import ray

from onepo.errors import ControlledStop
from onepo.rollout.ledger import GroupSignal
from onepo.trainers.replay import BoundedReplayBuffer


class FillsBatches:
    """The hooks of verl's trainer around dynamic sampling; a part of ``OnePOTrainer``.

    What is added: a limit on the prompts of a step, and stops when the waiting would have no end.
    """

    def _build_replay_buffer(self):
        return BoundedReplayBuffer.over(
            super()._build_replay_buffer(),
            poll_interval=self.settings.poll_interval,
            on_exhausted=self._stop_sampling,
            check_progress=self._check_progress,
        )

    def on_step_begin(self):
        super().on_step_begin()
        self._dispatched = 0  # prompts sent to rollout in the current step

    def on_sample_end(self):
        if stop := self._too_many_failed(planned=0):
            raise stop
        super().on_sample_end()
        self.journal.event("phase", name="learning from the batch")

    def _submit_batch_to_rollout(self, batch):
        self._dispatched += len(batch)
        return super()._submit_batch_to_rollout(batch)

    def _add_prompts_to_generate(self, num_prompts):
        """Refill filtered groups up to the limit; past it the buffer finds itself exhausted."""
        limit = self.settings.max_num_gen_batches
        if limit > 0:
            num_prompts = min(num_prompts, limit * self.config.data.train_batch_size - self._dispatched)
        return super()._add_prompts_to_generate(num_prompts) if num_prompts > 0 else 0

    def _stop_sampling(self):
        signals = ray.get(self.ledger.group_signals.remote(self.global_steps))
        counts = ", ".join(f"{signals.get(signal.value, 0)} {signal.value}" for signal in GroupSignal)
        asked = (
            f"step {self.global_steps}: {self._dispatched} prompts gave no batch of {self.config.data.train_batch_size}"
        )
        if {name for name, count in signals.items() if count} <= {GroupSignal.ALL_RIGHT.value}:
            raise ControlledStop(f"{asked}: every answer is right, there is nothing left to learn", 0)
        if ungraded := signals.get(GroupSignal.UNGRADED.value):
            raise ControlledStop(
                f"{asked} (groups: {counts}). {ungraded} were replaced because gradings failed: look at what "
                "gives the rewards.",
                3,
            )
        raise ControlledStop(
            f"{asked} (groups: {counts}). Groups whose rollouts all score the same teach nothing and were filtered. "
            "Set ENABLE_FILTER_GROUPS=False to train on them, raise MAX_NUM_GEN_BATCHES, or check data and reward.",
            3,
        )

    def _check_progress(self):
        """Raise if the waiting has no end: a grader that is lost, or a worker that died.

        A busy worker answers between two of its requests; Ray raises for a dead one.
        """
        if self._validating:
            planned = len(self.val_dataset) * self.config.actor_rollout_ref.rollout.val_kwargs.n
        else:
            planned = self.config.data.train_batch_size * self.config.actor_rollout_ref.rollout.n
        if stop := self._too_many_failed(planned=planned):
            raise stop
        workers = self.agent_loop_manager.agent_loop_workers + self.reward_loop_manager.reward_loop_workers
        ray.get([worker.__ray_ready__.remote() for worker in workers])

    def _too_many_failed(self, *, planned: int) -> ControlledStop | None:
        """The stop when too many gradings of this step, or of the validation that is running, have failed."""
        reason = ray.get(self.ledger.stop_reason.remote(self.global_steps, validate=self._validating, planned=planned))
        phase = "validation after step" if self._validating else "step"
        return ControlledStop(f"{phase} {self.global_steps}: {reason}", 3) if reason else None

    def _tell_failures(self):
        """Say of each kind of failure once what it looks like."""
        for text in ray.get(self.ledger.new_failures.remote()):
            self.journal.event("note", text=text)
