"""A player with a plan: what the teacher of OPD's quickstart is a copy of."""

import random
import re

from recipes.camp_quickstart.random_player import names_in, tasks_in

_TOWARDS_THE_GOAL = ("down", "right")


class KeenPlayer:
    """Plays one episode: a walk over the lake, or a quest in one room.

    On the lake it keeps to the two directions in which the goal lies, and does not see the holes. In a quest it takes
    what the task is about, out of what is closed if it must, and then does the task.

    Args:
        instructions: the first text of the episode.
        chance: all that is random.
    """

    def __init__(self, instructions: str, chance: random.Random):
        self._chance = chance
        self._tasks = tasks_in(instructions)

    def act(self, observation: str) -> str:
        """An action, after what was said last."""
        if not self._tasks:
            return self._chance.choice(_TOWARDS_THE_GOAL)
        task = self._tasks[-1]
        verb, _, _ = task.partition(" ")
        thing, *_ = names_in([task], "")
        if verb in ("take", "open") or _has(observation, "You carry", thing):
            return task
        if _has(observation, "You see", thing):
            return f"take {thing}"
        closed = re.search(r"([^\[\],:]+) \(closed\)", observation)
        return f"open {closed[1].strip()}" if closed else task


def _has(observation: str, where: str, thing: str) -> bool:
    line = re.search(rf"^{where}: (.*)$", observation, re.MULTILINE)
    return line is not None and thing in names_in([], line[0])
