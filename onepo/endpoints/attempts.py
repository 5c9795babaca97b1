"""Which failures of a request are worth another attempt, and the pause before it."""

import asyncio
import random

from onepo.endpoints.errors import EndpointError, RequestTimedOut, ServerFailed

_PAUSE_SECONDS = 2.0


def worth_another_attempt(error: EndpointError) -> bool:
    """Whether the same request may succeed. One that found nobody has been tried again already (``OutageClock``)."""
    return isinstance(error, (RequestTimedOut, ServerFailed))


async def pause_after(error: EndpointError, attempt: int) -> None:
    """Wait before the next attempt; ``attempt`` is the number of the failed one, from 0.

    An engine that breaks down answers 500 for seconds before it is gone, and can be waited for. One that was too slow
    has had its pause.
    """
    if isinstance(error, ServerFailed):
        await asyncio.sleep(random.uniform(0.5, 1.0) * _PAUSE_SECONDS * (attempt + 1))
