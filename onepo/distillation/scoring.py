"""Asking a teacher for the probabilities of a row, as often as it takes."""

from collections.abc import Sequence
from typing import Protocol

from onepo.endpoints.attempts import pause_after, worth_another_attempt
from onepo.endpoints.errors import EndpointError, EndpointUnavailable


class Teacher(Protocol):
    """Whatever says how likely given tokens are.

    Attributes:
        given_up: it has been away for longer than its outage limit.
    """

    @property
    def given_up(self) -> bool: ...

    async def score(self, ids: Sequence[int], *, start: int) -> list[float]:
        """The log-probability of each of ``ids[start:]`` behind all tokens before it, at temperature 1.

        Raises:
            EndpointError: there are none; the subclasses tell why.
            TeacherGone: it will not come back by itself.
        """


class Unscored(Exception):
    """The teacher has no probabilities for a row."""


class TeacherGone(Exception):
    """No other row can be scored either."""


async def score_tokens(teacher: Teacher, ids: Sequence[int], *, start: int, retries: int) -> list[float]:
    """The log-probability of each of ``ids[start:]``.

    Args:
        retries: further attempts after a time-out or a failure of the teacher; one that is away is waited for.

    Raises:
        Unscored: with the last attempt's reason, and its error as the cause.
        TeacherGone: it was away for longer than its outage limit, or is gone for good.
    """
    attempt = 0
    while True:
        try:
            return await teacher.score(ids, start=start)
        except EndpointError as error:
            if isinstance(error, EndpointUnavailable) and teacher.given_up:  # else it is so for this row only
                raise TeacherGone(str(error)) from error
            if attempt == retries or not worth_another_attempt(error):
                raise Unscored(str(error)) from error
            await pause_after(error, attempt)
            attempt += 1
