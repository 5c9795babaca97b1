"""A place where the learner leaves its weights and the samplers find them: one small Ray actor."""

import asyncio
from typing import Any

import ray


@ray.remote(num_cpus=0)
class Mailbox:
    """Holds the latest delivery; whoever asks before it has come waits.

    Deliveries are numbered, since Ray keeps no order among the calls of an asynchronous actor: a sampler that asks for
    the next weights may come before the learner's word that the last ones can go.
    """

    def __init__(self):
        self._delivery: list[Any] | None = None
        self._number = 0
        self._come = asyncio.Condition()

    async def put(self, number: int, delivery: list[Any]) -> None:
        """Leave object references (in a list: Ray would fetch the objects of bare ones)."""
        async with self._come:
            self._number, self._delivery = number, delivery
            self._come.notify_all()

    async def get(self, number: int) -> list[Any]:
        async with self._come:
            await self._come.wait_for(lambda: self._number == number and self._delivery is not None)
            return self._delivery

    async def clear(self, number: int) -> None:
        """Let go of this delivery, and with it of its memory."""
        if self._number == number:
            self._delivery = None
