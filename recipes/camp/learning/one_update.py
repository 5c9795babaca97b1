"""One optimizer update for a whole batch, also when the learners do not divide it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transfer_queue import KVBatchMeta


class _OneMiniBatch(dict):
    """What verl tells its workers about an update, with the size of a mini-batch said by their number."""

    def update(self, told: dict[str, Any]) -> None:
        told = dict(told)
        if told.pop("mini_batch_size", None) is not None:
            told["num_mini_batch"] = 1
        super().update(told)


@contextmanager
def one_update(batch: KVBatchMeta) -> Iterator[None]:
    """Within it, verl's ``_update_actor`` and ``_update_critic`` take one step over all rows of the batch.

    verl pads the batch with masked rows to a multiple of the learners, and then asks for mini-batches of the size
    without them, which the learners need not divide. Losses are normalised by the real tokens and episodes, so the
    padding changes nothing.
    """
    told = batch.extra_info
    batch.extra_info = _OneMiniBatch(told)
    try:
        yield
    finally:
        batch.extra_info = {name: value for name, value in batch.extra_info.items() if name != "num_mini_batch"}
