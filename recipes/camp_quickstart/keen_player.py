"""A player that knows what for: what the teacher of OPD's quickstart is a copy of."""

import random

from recipes.camp_quickstart.random_player import names_in, tasks_in

_TOWARDS_THE_GOAL = ("down", "right")


class KeenPlayer:
    """Plays one episode: a walk over the lake, or a quest in one room.

    On the lake it keeps to the two directions in which the goal lies, and does not see the holes. In a quest it takes
    what the task is about or does the task, whether that is possible yet or not.

    Args:
        instructions: the first text of the episode.
        chance: all that is random.
    """

    def __init__(self, instructions: str, chance: random.Random):
        self._chance = chance
        self._actions = _TOWARDS_THE_GOAL
        if tasks := tasks_in(instructions):
            thing, *_ = names_in(tasks[-1:], "")
            self._actions = (f"take {thing}", tasks[-1])

    def act(self, observation: str) -> str:
        """An action, after what was said last."""
        return self._chance.choice(self._actions)
