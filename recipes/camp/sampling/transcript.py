"""The tokens of an episode as they came about, and what each of them is. Pure.

Response tokens are those behind the first prompt: the student's own (mask 1, which learning is about) and those of
observations and of the chat template (mask 0). Nothing is ever tokenised again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Turn:
    """One of the student's turns.

    Attributes:
        start, end: of its tokens within the response, end exclusive.
        said, heard: the text, and the observation that answered it; None when nothing was asked of the service.
        reward: that the service gave for it.
        limited: it came to its limit of tokens before its end.
        versions: of the weights that wrote its first and its last token.
        generating, waiting: seconds for the text, and for the service.
    """

    start: int
    end: int
    said: str
    heard: str | None
    reward: float
    limited: bool
    versions: tuple[int | None, int | None]
    generating: float
    waiting: float


@dataclass
class Transcript:
    """An episode under way.

    Args:
        task: what the student reads first, as the service said it.
        prompt_ids: the same as tokens, in the chat template.
        limit: the most response tokens.
    """

    task: str
    prompt_ids: list[int]
    limit: int
    response_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)

    @property
    def ids(self) -> list[int]:
        """All that the student has read and written."""
        return [*self.prompt_ids, *self.response_ids]

    @property
    def room(self) -> int:
        """How many tokens the next turn may have."""
        return self.limit - len(self.response_ids)

    def take(self, ids: Sequence[int], mask: Sequence[int], log_probs: Sequence[float], *, removed: int = 0) -> None:
        """The episode as it is after one more piece.

        Args:
            ids: prompt and response.
            mask, log_probs: of the response; a log-probability counts where the mask is 1.
            removed: tokens of the last turn that are gone; some templates write a turn's end as the next one's begin.

        Raises:
            ValueError: the lengths do not agree, the prompt has changed, or it is too long.
        """
        response = list(ids[len(self.prompt_ids) :])
        if list(ids[: len(self.prompt_ids)]) != self.prompt_ids:
            raise ValueError("the tokens of the prompt have changed")
        if not len(response) == len(mask) == len(log_probs):
            raise ValueError(
                f"{len(response)} response tokens, {len(mask)} marks and {len(log_probs)} log-probabilities"
            )
        if len(response) > self.limit:
            raise ValueError(f"{len(response)} response tokens are more than {self.limit}")
        if removed:
            self.turns[-1] = replace(self.turns[-1], end=self.turns[-1].end - removed)
        self.response_ids, self.mask, self.log_probs = response, list(mask), list(log_probs)

    @property
    def reward(self) -> float:
        return sum(turn.reward for turn in self.turns)

    @property
    def versions(self) -> tuple[int | None, int | None]:
        """Of the weights that wrote the first and the last of its tokens."""
        return (self.turns[0].versions[0], self.turns[-1].versions[1]) if self.turns else (None, None)
