"""The puzzles of this service. Questions and scores are reasoning-gym's, of data sets that only compare the answer."""

import re
from random import Random
from typing import Any

import reasoning_gym
from reasoning_gym.dataset import ProceduralDataset

from camp.environments.service import Domain, Episode, Turn

_REWARDS = (1.0, 0.6, 0.3)  # of the attempt that is right
_LONGEST = 300  # characters; the longest right answer has about 100
_NUMBER = re.compile(r"=? ?(-?[0-9]{1,9})\.?")


def _data(name: str, **options: int) -> ProceduralDataset:
    """A data set that nothing changes: every puzzle is made from its index alone, so all episodes share it."""
    return reasoning_gym.create_dataset(name, seed=0, size=2**32, **options)


_TASKS = {
    "spell_backward": _data("spell_backward", min_word_len=4, max_word_len=7),
    "leg_counting": _data("leg_counting", min_animals=2, max_animals=4, max_instances=9),
    "chain_sum": _data("chain_sum", min_terms=3, max_terms=5, min_digits=2, max_digits=2),
    "word_sorting": _data("word_sorting", min_words=4, max_words=7, max_word_length=10),
    "mini_sudoku": _data("mini_sudoku", min_empty=4, max_empty=8),
    "knights_knaves": _data("knights_knaves", n_people=3, depth_constraint=2, width_constraint=2),
}


class Puzzle(Episode):
    """A question and the attempts to answer it."""

    def __init__(self, data: ProceduralDataset, index: int):
        self._data = data
        self._entry: dict[str, Any] = data[index]
        self._attempts = 0

    def begin(self) -> str:
        worth = ", then ".join(f"{reward:g}" for reward in _REWARDS)
        return (
            f"{self._entry['question'].strip()}\n\n"
            "Say nothing but the answer between tags: <action>your answer</action>. You have "
            f"{len(_REWARDS)} attempts; a right answer is worth {worth}."
        )

    def act(self, action: str) -> Turn:
        reward = _REWARDS[self._attempts]
        self._attempts += 1
        answer = _tidy(action)
        if len(answer) <= _LONGEST and self._score(answer) == 1:
            return Turn("That is right.", reward, success=True)
        remark = self._remark(answer)
        left = len(_REWARDS) - self._attempts
        if not left:
            return Turn(f"{remark} That was the last attempt.", success=False)
        return Turn(f"{remark} You have {left} more attempt{'s' if left > 1 else ''}.")

    def _remark(self, answer: str) -> str:
        """How far off an answer is, in general words."""
        if not answer:
            return "There is no answer. Say it between tags: <action>your answer</action>."
        if len(answer) > _LONGEST:
            return "That is too long for an answer. Say nothing but the answer between the tags."
        if _NUMBER.fullmatch(self._entry["answer"]):
            number = _NUMBER.fullmatch(answer)
            if not number:
                return "The answer is a number and nothing else."
            return f"That is too {'small' if int(number[1]) < int(self._entry['answer']) else 'large'}."
        score = self._score(answer)
        if score >= 0.5:
            return "That is wrong, though much of it is right."
        return "That is wrong, though some of it is right." if score else "That is wrong."

    def _score(self, answer: str) -> float:
        number = _NUMBER.fullmatch(answer)
        return self._data.score_answer(str(int(number[1])) if number else answer, self._entry)


def _tidy(answer: str) -> str:
    """The answer without blanks that mean nothing, which some scores would count against it."""
    lines = (" ".join(line.split()) for line in answer.splitlines())
    return "\n".join(line for line in lines if line)


def _open(task: str, seed: int) -> Episode:
    if task not in _TASKS:
        raise ValueError(f"there is no puzzle {task!r}; there are {', '.join(_TASKS)}")
    return Puzzle(_TASKS[task], Random(f"{task} {seed}").getrandbits(32))


DOMAIN = Domain(name="puzzles", tasks=tuple(_TASKS), open=_open, seconds=5.0)
