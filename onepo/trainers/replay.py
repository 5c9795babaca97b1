"""verl's replay buffer, made to notice that no more groups will come."""

from collections.abc import Callable

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer


class BoundedReplayBuffer(ReplayBuffer):
    """Calls ``on_exhausted(sampleable)`` when a training batch waits for groups and none is under way.

    verl refills filtered groups for ever; the trainer bounds the refill, after which this is the state that would
    never end.
    """

    on_exhausted: Callable[[], None]

    @classmethod
    def over(
        cls, buffer: ReplayBuffer, *, poll_interval: float, on_exhausted: Callable[[], None]
    ) -> "BoundedReplayBuffer":
        """Take the place of a buffer that verl built: its constructor's arguments differ between builds."""
        bounded = cls.__new__(cls)
        bounded.__dict__.update(vars(buffer))
        bounded.poll_interval = poll_interval  # no option of verl reaches it
        bounded.on_exhausted = on_exhausted
        return bounded

    def _wait_for_next_poll(self, partition_id, last_debug_time):
        if partition_id == "train" and not self.pending_keys[partition_id] and not self.running_keys[partition_id]:
            self.on_exhausted()
        return super()._wait_for_next_poll(partition_id, last_debug_time)
