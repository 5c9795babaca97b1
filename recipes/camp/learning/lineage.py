"""Which rows of the schedule a checkpoint has trained on and which were under way: the proof that none is lost."""

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

_FILE = "episodes.json"


class BrokenLineage(Exception):
    """Trained and unfinished rows together are not the beginning of the schedule."""


@dataclass
class Lineage:
    """The rows that went to the samplers, from the first one of the schedule on.

    Attributes:
        submitted: how many.
        trained: positions by update, in the order of the updates.
    """

    submitted: int = 0
    trained: dict[int, list[int]] = field(default_factory=dict)

    def trained_on(self, update: int, positions: list[int]) -> None:
        self.trained[update] = sorted(positions)

    def check(self, unfinished: Collection[int]) -> None:
        """Whether trained rows and those that wait or are under way are all that were submitted, each once.

        Raises:
            BrokenLineage: with the first positions that are missing, or there twice.
        """
        rows = [*(position for batch in self.trained.values() for position in batch), *unfinished]
        if missing := sorted(set(range(self.submitted)) - set(rows)):
            raise BrokenLineage(f"{len(missing)} submitted episodes are lost, among them {missing[:3]}")
        if unknown := sorted(set(rows) - set(range(self.submitted))):
            raise BrokenLineage(f"{len(unknown)} episodes were never submitted, among them {unknown[:3]}")
        if len(rows) > self.submitted:
            twice = sorted({position for position in rows if rows.count(position) > 1})
            raise BrokenLineage(f"{len(twice)} episodes are there twice, among them {twice[:3]}")

    def write(self, checkpoint: Path, unfinished: Collection[int]) -> None:
        state = {"submitted": self.submitted, "trained": self.trained, "unfinished": sorted(unfinished)}
        (checkpoint / _FILE).write_text(json.dumps(state) + "\n")

    @classmethod
    def read(cls, checkpoint: Path) -> "Lineage":
        """What :meth:`write` kept.

        Raises:
            OSError, ValueError, LookupError, TypeError, AttributeError: it is not there, or damaged.
            BrokenLineage: its rows do not add up.
        """
        state = json.loads((checkpoint / _FILE).read_text())
        trained = {int(update): [int(row) for row in rows] for update, rows in state["trained"].items()}
        found = cls(int(state["submitted"]), trained)
        found.check([int(row) for row in state["unfinished"]])
        return found
