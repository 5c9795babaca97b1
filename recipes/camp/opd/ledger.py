"""The ledger of an OPD run: it also knows how many episodes the teacher could not score."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from camp.sampling.ledger import EpisodeLedger


class OPDLedger(EpisodeLedger):
    """``EpisodeLedger`` with one more rule: some episodes may stay without scores, and no more."""

    def __init__(self, domains: Sequence[str]):
        super().__init__(domains)
        self._told_of_missing = False
        self._at_teacher = 0
        self._missing: deque[bool] = deque()  # of the last episodes that were at the teacher

    def asked(self) -> None:
        """An episode is over, and on its way to the teacher."""
        self._at_teacher += 1

    def scored(self, position: int, domain: str, missing: str | None, *, window: int, largest_share: float) -> bool:
        """Note that an episode was at the teacher.

        Args:
            missing: why it has no scores, None when it has.
            window: episodes that are looked back at, an update's.
            largest_share: of them that may have no scores.

        Returns:
            Whether it can be used as it is. Else the run is to save and stop, and the episode to be played again.
        """
        self._at_teacher -= 1
        self._missing.append(missing is not None)
        while len(self._missing) > window:
            self._missing.popleft()
        if missing is None:
            return True
        if not self._told_of_missing:
            self._told_of_missing = True
            self.note(f"an episode cannot be scored: {missing} (further ones are only counted)")
        if (found := sum(self._missing)) <= largest_share * window:
            return True
        self.give_up(
            position,
            domain,
            f"{found} of the last {len(self._missing)} episodes have no scores of the teacher, more than a share of "
            f"{largest_share:g}: {missing}",
        )
        return False

    def live(self, step: int) -> dict[str, Any]:
        return super().live(step) | {"at_teacher": self._at_teacher}
