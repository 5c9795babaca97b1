"""A player that knows how to act and not what for: the quickstart's student begins as a copy of it."""

import random
import re
from collections.abc import Sequence

_VERBS = ("take", "open", "eat")
_SAYS_THE_TASK = 0.3  # how often a quest's player says what it was told to do, whether that is possible yet or not


class RandomPlayer:
    """Plays one episode: a game, or a quest in one room.

    In a game it keeps to two of the actions, drawn for the episode: a walk over a lake then leads somewhere. In a quest
    it says the task, or a verb and a name that it has read; much of that is impossible.

    Args:
        instructions: the first text of the episode.
        chance: all that is random.
    """

    def __init__(self, instructions: str, chance: random.Random):
        self._chance = chance
        actions = re.search(r"The actions are (.*)\.", instructions)
        self._favourites = chance.sample(actions[1].split(", "), 2) if actions else []
        self._tasks = tasks_in(instructions)

    def act(self, observation: str) -> str:
        """An action, after what was said last."""
        if self._favourites:
            return self._chance.choice(self._favourites)
        if self._chance.random() < _SAYS_THE_TASK:
            return self._chance.choice(self._tasks)
        return f"{self._chance.choice(_VERBS)} {self._chance.choice(names_in(self._tasks, observation))}"


def tasks_in(instructions: str) -> list[str]:
    """What is to be done in a quest; nothing for a game."""
    found = re.search(r"have a task: (.*?)\. Find", instructions)
    return found[1].split(", then ") if found else []


def names_in(tasks: Sequence[str], observation: str) -> list[str]:
    """The names of things in the tasks and in an observation of a quest, in their order."""
    names = [name for task in tasks for name in re.split(r" (?:into|on) ", task.partition(" ")[2])]
    for listed in re.findall(r"^You (?:see|carry): (.*)$", observation, re.MULTILINE):
        plain = re.sub(r" \((?:open|closed|locked)\)", "", listed)
        names += [name.strip() for name in re.split(r"[\[\],]", plain)]
    return [name for name in names if name not in ("", "nothing")]
