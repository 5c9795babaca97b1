"""verl's replay buffer, made to notice that no more groups will come."""

import time
from collections.abc import Callable

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

_CHECK_SECONDS = 10.0


class BoundedReplayBuffer(ReplayBuffer):
    """Ends the waits that verl's buffer would never end.

    It calls ``on_exhausted`` when a training batch waits for groups and none is under way: verl refills filtered groups
    for ever, the trainer stops doing so at its limit. And it calls ``check_progress`` every few seconds: the groups of
    a worker that died stay under way for ever. Both are expected to raise.

    A finished group without rows, because its gradings failed, counts as failed: verl replaces such groups.
    """

    on_exhausted: Callable[[], None]
    check_progress: Callable[[], None]

    @classmethod
    def over(
        cls,
        buffer: ReplayBuffer,
        *,
        poll_interval: float,
        on_exhausted: Callable[[], None],
        check_progress: Callable[[], None],
    ) -> "BoundedReplayBuffer":
        """Take the place of a buffer that verl built: its constructor's arguments differ between builds."""
        bounded = cls.__new__(cls)
        bounded.__dict__.update(vars(buffer))
        bounded.poll_interval = poll_interval  # no option of verl reaches it
        bounded.on_exhausted = on_exhausted
        bounded.check_progress = check_progress
        bounded._checked_at = time.monotonic()
        return bounded

    def _wait_for_next_poll(self, partition_id, last_debug_time):
        if partition_id == "train" and not self.pending_keys[partition_id] and not self.running_keys[partition_id]:
            self.on_exhausted()
        if time.monotonic() - self._checked_at > _CHECK_SECONDS:
            self.check_progress()
            self._checked_at = time.monotonic()
        return super()._wait_for_next_poll(partition_id, last_debug_time)

    def _terminal_eviction_reasons(self, global_steps, partition_id):
        if partition_id == "train":
            with_rows = {key.split("_")[0] for key in self.partitions[partition_id]}
            without = self.finished_keys[partition_id] - with_rows
            self.finished_keys[partition_id] -= without
            self.failure_keys[partition_id] |= without
        return super()._terminal_eviction_reasons(global_steps, partition_id)
