"""Waiting for an endpoint that is away: a grader that restarts, a network that is interrupted, a rate limit."""

import logging
import time

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from onepo.endpoints.errors import EndpointUnavailable

_FORGOTTEN_SECONDS = 30.0  # longer than any pause between two tries
logger = logging.getLogger(__name__)

# Random, so that requests which failed together do not come back together: 0.5 to 1 s, then up to 2, 4, 8, 10 s.
_BACK_OFF = wait_random_exponential(multiplier=1, min=0.5, max=10)


class OutageClock:
    """How long the requests of one endpoint wait for it, by two clocks of which the first to end counts.

    The endpoint's runs from its first failure that no answer has followed: while it is away, all requests give up at
    the same moment, and later ones after one try, until one is answered. The request's own runs from its own first
    failure: one that the endpoint never answers gives up although others succeed.

    Args:
        limit: seconds.

    Attributes:
        given_up: the limit has passed since the endpoint's first failure, and no answer has come.
    """

    def __init__(self, limit: float):
        self._limit = limit
        self._away_since: float | None = None
        self._last_failure = 0.0
        self.given_up = False

    def answered(self) -> None:
        """The endpoint is there; its answer may be a refusal."""
        if self._away_since is not None:
            logger.warning("the endpoint is back after %.0f s", time.monotonic() - self._away_since)
        self._away_since = None
        self.given_up = False

    def retrying(self) -> AsyncRetrying:
        """The policy for one request: tries again on ``EndpointUnavailable``, for the last time when the limit ends."""
        failing_since: float | None = None

        def pause(state: RetryCallState) -> float:
            nonlocal failing_since
            now = time.monotonic()
            failing_since = now if failing_since is None else failing_since
            error = state.outcome.exception()
            if now - self._last_failure > _FORGOTTEN_SECONDS and not self.given_up:
                self._away_since = None  # nobody has asked for a while: that outage may long be over
            self._last_failure = now
            if self._away_since is None:
                self._away_since = now
                logger.warning("%s; it is tried again for up to %g s", error.reason, self._limit)
            self.given_up = self.given_up or now >= self._away_since + self._limit
            left = min(failing_since, self._away_since) + self._limit - now
            return min(left, max(_BACK_OFF(state), error.retry_after))

        return AsyncRetrying(
            retry=retry_if_exception_type(EndpointUnavailable),
            wait=pause,
            stop=lambda state: state.upcoming_sleep <= 0,  # nothing is left of the limit
            reraise=True,
        )
