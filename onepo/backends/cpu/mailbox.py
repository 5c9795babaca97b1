"""A place where the learner leaves its weights and the samplers find them: one small Ray actor."""

import asyncio
from typing import Any

import ray


@ray.remote(num_cpus=0)
class Mailbox:
    """Holds the latest delivery; whoever asks before it has come waits."""

    def __init__(self):
        self._delivery: list[Any] | None = None
        self._come = asyncio.Event()

    async def put(self, delivery: list[Any]) -> None:
        """Leave object references (in a list: Ray would fetch the objects of bare ones)."""
        self._delivery = delivery
        self._come.set()

    async def get(self) -> list[Any]:
        await self._come.wait()
        return self._delivery

    async def clear(self) -> None:
        """Let go of the delivery, and with it of its memory."""
        self._delivery = None
        self._come.clear()
