"""Which of the finished episodes an update may take so that none gets too old. Pure."""

from collections.abc import Mapping, Sequence, Set


def choose_batch(
    finished: Set[str], submitted_at: Mapping[str, int], *, update: int, size: int, max_staleness: int
) -> Sequence[str] | None:
    """The episodes of an update, or None when it has to wait.

    An episode that was submitted before update ``s`` was written with the weights of update ``s - 1`` or later, so it
    must be trained on at update ``s + max_staleness`` at the latest. The batch is the oldest finished ones; it may go
    ahead if what it leaves behind, under way or finished, can still be trained on in time, ``size`` at each update to
    come. Otherwise the update waits for older episodes to finish. Nothing is ever dropped.

    Args:
        finished: names of episodes that are ready.
        submitted_at: of each episode that is not trained yet, the update before which it was submitted; in their order.
        update: the one that is to begin, counted from 1.
        size: episodes of an update.
    """
    in_order = sorted(submitted_at, key=submitted_at.__getitem__)
    batch = [name for name in in_order if name in finished][:size]
    if len(batch) < size:
        return None
    if batch == in_order[:size]:
        return batch  # there is nothing to wait for
    taken = set(batch)
    left = (name for name in in_order if name not in taken)
    for number, name in enumerate(left, 1):
        updates_needed = -(-number // size)  # to train on it and all older ones
        if update + updates_needed > submitted_at[name] + max_staleness:
            return None
    return batch
