"""How often an episode whose service failed begins anew."""

import time

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from camp.sampling.session import SessionFault

# Random, so that episodes which failed together do not come back together: up to 1, 2, 4, 8, 10 s.
_PAUSE = wait_random_exponential(multiplier=1, min=0.2, max=10)
_AWAY = ("unreachable", "full")


def retrying(*, retries: int, outage_limit: float) -> AsyncRetrying:
    """The policy for one episode: it tries again on ``SessionFault``, and raises the last one in the end.

    A service that is away, as one that is started again, is waited for; it is given up after ``outage_limit`` seconds
    without a session. Every other fault counts, and ``retries`` of them are forgiven.
    """
    faults = 0
    away_since: float | None = None

    def give_up(state: RetryCallState) -> bool:
        nonlocal faults, away_since
        if state.outcome.exception().kind in _AWAY:
            away_since = away_since or time.monotonic()
            return time.monotonic() - away_since >= outage_limit
        away_since = None  # there was a session
        faults += 1
        return faults > retries

    return AsyncRetrying(retry=retry_if_exception_type(SessionFault), wait=_PAUSE, stop=give_up, reraise=True)
