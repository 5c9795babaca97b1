"""verl's replay buffer with our rule of what an update trains on."""

import time
from collections.abc import Callable

from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync

from camp.sampling.staleness import choose_batch
from onepo.errors import ControlledStop

_CHECK_SECONDS = 5.0


class EpisodeBuffer(ReplayBufferAsync):
    """Waits for the episodes of an update. verl's own would replace failed and old ones by later rows of the schedule.

    Args:
        buffer: verl's, whose place it takes: its constructor's arguments differ between builds.
        max_staleness: weight versions between the first token of an episode and its update.
        poll_interval: seconds between two looks.
        check_progress: called every few seconds; it raises when the waiting has no end.
    """

    def __init__(
        self,
        buffer: ReplayBufferAsync,
        *,
        max_staleness: int,
        poll_interval: float,
        check_progress: Callable[[], None],
    ):
        self.__dict__.update(vars(buffer))
        self.poll_interval = poll_interval
        self._max_staleness = max_staleness
        self._check_progress = check_progress

    def sample(self, global_steps, partition_id, batch_size):
        """verl's interface: the batch, and metrics."""
        began = checked = time.monotonic()
        last_debug_time = time.time()
        while True:
            self._sync_metadata_from_transfer_queue()
            failed = self.failure_keys[partition_id]
            if failed or time.monotonic() - checked > _CHECK_SECONDS:
                self._check_progress()
                checked = time.monotonic()
            if failed:
                raise ControlledStop(f"the episodes {', '.join(sorted(failed))} failed; the log says why", 3)
            batch = choose_batch(
                self.finished_keys[partition_id],
                self.prompt_global_steps[partition_id],
                update=global_steps,
                size=batch_size,
                max_staleness=self._max_staleness,
            )
            if batch is not None:
                break
            last_debug_time = self._wait_for_next_poll(partition_id, last_debug_time)
        waited = {"staleness/waiting_seconds": time.monotonic() - began}
        return self._materialize_batch(partition_id, list(batch), dict(self.partitions[partition_id])), waited
