"""The rollouts of one prompt, gathered until all are scored. Pure asyncio: no verl, no Ray.

Session = one of the n rollouts of a prompt; an outcome is whatever the caller stores for it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Outcome = TypeVar("Outcome")
Decision = TypeVar("Decision")


class Group(Generic[Outcome, Decision]):
    """A barrier for n sessions behind which exactly one decision is made.

    Args:
        size: n, the number of sessions that will call :meth:`arrive` or :meth:`fail`.
        decide: awaited once, with the outcomes of the sessions that did not fail, by session number.
    """

    def __init__(self, size: int, decide: Callable[[dict[int, Outcome]], Awaitable[Decision]]):
        self.size = size
        self._decide = decide
        self._outcomes: dict[int, Outcome] = {}
        self._failed: set[int] = set()
        self._decision: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()

    @property
    def failed(self) -> int:
        """Number of sessions that failed."""
        return len(self._failed)

    async def arrive(self, session: int, outcome: Outcome) -> Decision:
        """Hand in a session's outcome and wait for the group's decision."""
        self._outcomes[session] = outcome
        await self._decide_when_complete()
        return await self._decision

    async def fail(self, session: int) -> None:
        """Say that a session has no outcome, so that the others do not wait for it."""
        if session not in self._outcomes:
            self._failed.add(session)
            await self._decide_when_complete()

    async def _decide_when_complete(self) -> None:
        if len(self._outcomes) + len(self._failed) < self.size:
            return
        try:
            self._decision.set_result(await self._decide(self._outcomes))
        except BaseException as error:  # every waiting session must see it, else it would wait for ever
            if isinstance(error, asyncio.CancelledError):
                self._decision.cancel()
            else:
                self._decision.set_exception(error)
