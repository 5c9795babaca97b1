"""Asking a teacher for the probabilities of a row, as often as it takes."""

from collections.abc import Sequence

from onepo.endpoints.attempts import pause_after, worth_another_attempt
from onepo.endpoints.errors import EndpointError
from onepo.endpoints.scoring import ScoringEndpoint


class Unscored(Exception):
    """The teacher has no probabilities for a row."""


async def score_tokens(endpoint: ScoringEndpoint, ids: Sequence[int], *, start: int, retries: int) -> list[float]:
    """The log-probability of each of ``ids[start:]``.

    Args:
        retries: further attempts after a time-out or a failure of the server; one that is away is waited for.

    Raises:
        Unscored: with the last attempt's reason.
    """
    attempt = 0
    while True:
        try:
            return await endpoint.score(ids, start=start)
        except EndpointError as error:
            if attempt == retries or not worth_another_attempt(error):
                raise Unscored(str(error)) from None
            await pause_after(error, attempt)
            attempt += 1
