"""The games of this service, told in text. The state and its transitions are gymnasium's, made from the seed."""

from typing import Any

import gymnasium
from gymnasium.envs.toy_text.frozen_lake import generate_random_map

from camp.environments.service import Domain, Episode, Turn

_HOW = "Say one action in each turn, between tags: <action>{example}</action>. The actions are {actions}."


class Game(Episode):
    """A game of gymnasium's.

    Attributes:
        actions: the words for its actions, in the order of their numbers.
        most_turns: the game is lost when it takes longer.
    """

    actions: tuple[str, ...]
    most_turns: int

    def __init__(self, env: gymnasium.Env, seed: int):
        self._env = env
        self._state, _ = env.reset(seed=seed)
        self._turns = 0

    def begin(self) -> str:
        how = _HOW.format(example=self.actions[0], actions=", ".join(self.actions))
        return f"{self._rules()} {how}\n\n{self._view()}"

    def act(self, action: str) -> Turn:
        self._turns += 1
        word = action.casefold().strip(" .!")
        if word not in self.actions:
            return self._told(f"There is no such action. The actions are {', '.join(self.actions)}.")
        self._state, reward, terminated, _, _ = self._env.step(self.actions.index(word))
        if terminated:
            return self._end(float(reward))
        return self._told("")

    def close(self) -> None:
        self._env.close()

    def _told(self, remark: str) -> Turn:
        if self._turns >= self.most_turns:
            return Turn(f"The {self.most_turns} turns are over.", success=False)
        return Turn(f"{remark}\n\n{self._view()}".strip())

    def _rules(self) -> str:
        raise NotImplementedError

    def _view(self) -> str:
        raise NotImplementedError

    def _end(self, reward: float) -> Turn:
        raise NotImplementedError


class Lake(Game):
    """A frozen lake without wind: from the start to the goal, around the holes."""

    actions = ("left", "down", "right", "up")

    def __init__(self, size: int, seed: int):
        self.most_turns = 4 * size
        self._map = generate_random_map(size=size, p=0.8, seed=seed)
        env = gymnasium.make("FrozenLake-v1", desc=self._map, is_slippery=False, max_episode_steps=-1)
        super().__init__(env.unwrapped, seed)

    def _rules(self) -> str:
        return (
            "You walk over a frozen lake. S is the start, F is ice, H is a hole, G is the goal, and you are the star. "
            f"Reach the goal within {self.most_turns} turns and fall into no hole."
        )

    def _view(self) -> str:
        row, column = divmod(int(self._state), len(self._map))
        rows = [list(line) for line in self._map]
        rows[row][column] = "*"
        return "\n".join(" ".join(line) for line in rows)

    def _end(self, reward: float) -> Turn:
        return Turn("You are at the goal." if reward else "You fell into a hole.", reward, success=reward > 0)


class Taxi(Game):
    """A taxi in a small town: fetch the passenger, bring it where it wants to go."""

    actions = ("south", "north", "east", "west", "pickup", "dropoff")
    most_turns = 40
    _places = ("red", "green", "yellow", "blue")

    def __init__(self, seed: int):
        super().__init__(gymnasium.make("Taxi-v4", max_episode_steps=-1).unwrapped, seed)

    def _rules(self) -> str:
        return (
            "You drive a taxi in a town of 5 rows and 5 columns, counted from 0 in the north-west. Fetch the passenger "
            "and set it down at its destination. The places are red (0, 0), green (0, 4), yellow (4, 0) and blue "
            "(4, 3), as row and column. In the map, | is a wall and : can be passed. "
            f"You have {self.most_turns} turns."
        )

    def _view(self) -> str:
        row, column, passenger, destination = self._env.decode(int(self._state))
        where = "in your taxi" if passenger == len(self._places) else f"at {self._places[passenger]}"
        town = "\n".join(line.tobytes().decode() for line in self._env.desc[1:-1])
        return (
            f"{town}\n\nYour taxi is at ({row}, {column}). The passenger is {where} and wants to go to "
            f"{self._places[destination]}."
        )

    def _end(self, reward: float) -> Turn:
        return Turn("The passenger has arrived.", 1.0, success=True)


class Cards(Game):
    """One hand of blackjack."""

    actions = ("stick", "hit")
    most_turns = 20

    def __init__(self, seed: int):
        super().__init__(gymnasium.make("Blackjack-v1", sab=True, max_episode_steps=-1).unwrapped, seed)

    def _rules(self) -> str:
        return (
            "You play a hand of blackjack against a dealer who draws up to 17. Whoever is nearer to 21 without being "
            "above it wins. An ace counts 1, or 11 where that fits."
        )

    def _view(self) -> str:
        total, dealer, ace = self._state
        with_ace = " with an ace that counts 11" if ace else ""
        return f"You have {total}{with_ace}. The dealer shows {'an ace' if dealer == 1 else dealer}."

    def _end(self, reward: float) -> Turn:
        result = {1.0: "You win.", 0.0: "Nobody wins.", -1.0: "The dealer wins."}[reward]
        return Turn(f"You have {self._state[0]}. {result}", (reward + 1) / 2, success=reward > 0)


_GAMES: dict[str, Any] = {
    "lake_4": lambda seed: Lake(4, seed),
    "lake_6": lambda seed: Lake(6, seed),
    "taxi": Taxi,
    "blackjack": Cards,
}


def _open(task: str, seed: int) -> Episode:
    if task not in _GAMES:
        raise ValueError(f"there is no game {task!r}; there are {', '.join(_GAMES)}")
    return _GAMES[task](seed)


DOMAIN = Domain(name="games", tasks=tuple(_GAMES), open=_open, seconds=5.0)
