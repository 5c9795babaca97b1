"""Seeds for sampled responses, so that a run can be repeated whatever the order in which requests arrive. Pure."""

from collections import Counter
from random import Random


class PromptSeeds:
    """A seed for every prompt of a run, by step and record.

    Dynamic sampling may draw a record of a small data set several times in a step: each time gets a seed of its own,
    or the refill would only repeat the group that was filtered.
    """

    def __init__(self, seed: int):
        self._seed = seed
        self._step: int | None = None
        self._times_drawn: Counter[tuple[int, bool]] = Counter()

    def next(self, *, step: int, validate: bool, index: int) -> int:
        """The seed of a prompt that is about to be sampled."""
        if step != self._step:
            self._step = step
            self._times_drawn.clear()
        self._times_drawn[index, validate] += 1
        times = self._times_drawn[index, validate]
        return _number(f"{self._seed} {step} {validate} {index} {times}")


def session_seed(prompt_seed: int, session: int) -> int:
    """The seed of one of a prompt's responses."""
    return _number(f"{prompt_seed} {session}")


def _number(text: str) -> int:
    return Random(text).getrandbits(62)  # a string is hashed the same way in every process
