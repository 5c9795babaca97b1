"""verl's own pool of teachers, asked like an inference server."""

import asyncio
from collections.abc import Sequence

import ray
from verl.experimental.teacher_loop.teacher_manager import AsyncTeacherLLMServerManager

from onepo.distillation.scoring import TeacherGone
from onepo.endpoints.errors import EndpointError, ServerFailed
from onepo.endpoints.scoring import TokenScore, aligned
from onepo.errors import last_line


class PoolTeacher:
    """verl's teachers, bounded and checked like an inference server.

    Args:
        pool: verl's client of them, of this process.
        timeout: seconds for the scores of one row.
        max_concurrency: rows that are scored at one time.
    """

    given_up = False  # one that has died is known at once

    def __init__(self, pool: AsyncTeacherLLMServerManager, *, timeout: float, max_concurrency: int):
        self._pool = pool
        self._timeout = timeout
        self._slots = asyncio.Semaphore(max_concurrency)

    async def score(self, ids: Sequence[int], *, start: int) -> list[float]:
        """As in ``onepo.distillation.scoring.Teacher``. A process of the pool that has died does not come back."""
        async with self._slots:
            asked = self._pool.compute_teacher_logprobs_single(sequence_ids=list(ids))
            try:
                tokens, log_probs = await asyncio.wait_for(asked, self._timeout)
            except asyncio.TimeoutError:
                # not to be tried again: the engine is still at it, and would have the same row twice
                raise EndpointError(f"the teacher: no scores within {self._timeout:g} s") from None
            except ray.exceptions.RayActorError as error:
                raise TeacherGone(f"a process of the teacher has died: {last_line(error)}") from None
            except Exception as error:  # the engine's own, whatever it is
                raise ServerFailed(f"the teacher: {type(error).__name__}: {last_line(error)}") from None
        # verl's form: an entry is about the token behind its own, so the last is about none
        told = zip(tokens[start - 1 : -1, 0].tolist(), log_probs[start - 1 : -1, 0].tolist(), strict=True)
        try:
            return aligned([TokenScore(*each) for each in told], ids, start)
        except ValueError as error:
            raise ServerFailed(f"the teacher: {error}") from None
