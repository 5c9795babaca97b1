"""The quests of this service. TextWorld keeps the facts of a world, knows what can be done in it, and scores it."""

from textworld.generator.game import GameProgression
from textworld.logic import Action

from camp.environments.quests.words import view
from camp.environments.quests.worlds import Plan, make
from camp.environments.service import Domain, Episode, Turn

_COMMANDS = (
    "go north (or south, east, west), open X, close X, unlock X with KEY, lock X with KEY, take X, drop X, put X on Y, "
    "insert X into Y, eat X, look"
)
_VERBS = {command.split()[0] for command in _COMMANDS.split(", ")}
_ARTICLES = {"a", "an", "the"}

_TASKS = {
    "room": (Plan(rooms=1, steps=2), 8),
    "rooms": (Plan(rooms=3, steps=3), 15),
    "errands": (Plan(rooms=4, steps=3, quests=2), 25),
    "doors": (Plan(rooms=4, steps=4, doors=True, needs="open/d"), 20),
    "locks": (Plan(rooms=4, steps=6, doors=True, needs="unlock/d"), 30),
}


class Quest(Episode):
    """A house in which something has to be done.

    Attributes:
        most_turns: the quest is lost when it takes longer.
    """

    def __init__(self, task: str, seed: int):
        plan, self.most_turns = _TASKS[task]
        self._game = make(plan, f"{task} {seed}")
        self._names = {key: info.name for key, info in self._game.infos.items()}
        self._world = GameProgression(self._game)
        self._turns = 0

    def begin(self) -> str:
        # What is to be taken from where is for the player to find out.
        goals = ", then ".join(quest.commands[-1].partition(" from ")[0] for quest in self._game.quests)
        return (
            f"You are in a house and have a task: {goals}. Find what you need; it may lie in another room or inside "
            "something closed. What is locked needs its key.\n"
            f"The commands are: {_COMMANDS}. X, Y and KEY stand for names of things. Say one command in each turn, "
            f"between tags: <action>go north</action>. You have {self.most_turns} turns.\n\n{self._view()}"
        )

    def act(self, action: str) -> Turn:
        self._turns += 1
        command = _plain(action)
        step = self._possible().get(command)
        if step is None:
            if command.partition(" ")[0] in _VERBS:
                return self._told("That cannot be done here and now.")
            return self._told(f"There is no such command. The commands are: {_COMMANDS}.")
        before = self._world.score
        self._world.update(step)
        reward = (self._world.score - before) / self._game.max_score
        if self._world.completed:
            return Turn("Well done: your task is fulfilled.", reward, success=True)
        if self._world.failed:
            return Turn("Your task can no longer be fulfilled.", reward, success=False)
        return self._told("One part of your task is fulfilled." if reward else "", reward)

    def _told(self, remark: str, reward: float = 0.0) -> Turn:
        if self._turns >= self.most_turns:
            return Turn(f"The {self.most_turns} turns are over.", reward, success=False)
        return Turn(f"{remark}\n\n{self._view()}".strip(), reward)

    def _view(self) -> str:
        return view(self._world.state, self._names)

    def _possible(self) -> dict[str, Action]:
        possible = {}
        for action in self._world.valid_actions:
            command = action.format_command(self._names)
            possible[_plain(command)] = action
            if action.name.startswith("take/"):  # TextWorld wants to hear where from; players seldom say it
                possible[_plain(command.partition(" from ")[0])] = action
        return possible


def _plain(command: str) -> str:
    words = command.casefold().strip(" .!").split()
    return " ".join(word for word in words if word not in _ARTICLES)


def _open(task: str, seed: int) -> Episode:
    if task not in _TASKS:
        raise ValueError(f"there is no quest {task!r}; there are {', '.join(_TASKS)}")
    return Quest(task, seed)


DOMAIN = Domain(name="quests", tasks=tuple(_TASKS), open=_open, seconds=10.0)
