"""Whether a student comes closer to its teacher by writing without end. Pure."""

from collections import deque
from dataclasses import dataclass
from statistics import fmean

_WINDOW = 5  # updates
_CLOSER = 0.05  # share of the distance
_LONGER = 0.1  # share of the length
_MORE_CUT = 0.05


@dataclass(frozen=True)
class Update:
    """What is looked at of an update.

    Attributes:
        kl: distance from the teacher, in nats per token.
        limit_rate: share of the episodes that a limit ended.
        tokens: of an episode, mean.
    """

    kl: float
    limit_rate: float
    tokens: float


class Trends:
    """Compares the last updates with those before them."""

    def __init__(self):
        self._updates: deque[Update] = deque(maxlen=2 * _WINDOW)
        self._warned = False

    def add(self, update: Update) -> str | None:
        """A warning, when more episodes come to a limit and they get longer while the distance falls.

        It is given once, and again only after updates that it did not hold for.
        """
        self._updates.append(update)
        if len(self._updates) < 2 * _WINDOW:
            return None
        updates = list(self._updates)
        before, now = (_mean(part) for part in (updates[:_WINDOW], updates[_WINDOW:]))
        growing = now.limit_rate > before.limit_rate + _MORE_CUT and now.tokens > before.tokens * (1 + _LONGER)
        first, self._warned = not self._warned, growing and now.kl < before.kl * (1 - _CLOSER)
        if not (self._warned and first):
            return None
        return (
            f"warning: over {_WINDOW} updates the distance from the teacher fell from {before.kl:.3f} to {now.kl:.3f}, "
            f"while episodes grew from {before.tokens:.0f} to {now.tokens:.0f} tokens and the share that a limit ended "
            f"from {before.limit_rate:.0%} to {now.limit_rate:.0%}: the student may come closer by writing on and on; "
            "look at rollout_data"
        )


def _mean(updates: list[Update]) -> Update:
    return Update(*(fmean(getattr(update, name) for update in updates) for name in ("kl", "limit_rate", "tokens")))
