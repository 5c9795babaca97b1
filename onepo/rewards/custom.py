"""The user's reward function, called in processes of its own: whatever it does, the run goes on."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onepo.errors import UserError
from onepo.rewards.custom_process import IMPORT_SECONDS, Answer, WorkerProcess

_CALLS_AT_A_TIME = 32  # of an async function in one worker
_END_SECONDS = 10.0  # for a killed process to be gone; one that hangs in the kernel is left to it


@dataclass(frozen=True)
class CustomScore:
    """What became of one call.

    Attributes:
        value: what the function returned; None when the call failed.
        failure: ``timed_out``, ``error`` (an exception, or the end of the process) or ``not_a_number``; None when there
            is a value.
        explanation: of the failure, one line for people.
        seconds: from the call to the end, waiting for a free worker included.
    """

    value: float | None
    failure: str | None
    explanation: str | None
    seconds: float


class CustomReward:
    """Calls one function in worker processes, which end with this process, however it ends.

    A plain function gets one call at a time in each worker, an ``async`` one up to 32. A worker that gives no answer in
    time is killed and replaced. If it had several calls, any of them may be to blame: each is repeated in a worker that
    has no other.

    Args:
        spec: ``FILE.py:FUNCTION``.
        timeout: seconds for one call, from the moment when a worker has it.
        workers: how many processes there may be; they are started when they are needed.

    Raises:
        UserError: the function cannot be used. The first worker is started here and imports it.
    """

    def __init__(self, spec: str, *, timeout: float, workers: int):
        self._file, self._name = _parsed(spec)
        self._timeout = timeout
        self._processes: set[WorkerProcess] = set()
        # A thread of its own, because the kernel ends the workers together with the thread that started them, and a
        # plain event loop, whatever the callers have.
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="reward-function", daemon=True)
        self._thread.start()
        try:
            self._submit(self._open(workers)).result()
        except BaseException:
            self.close()
            raise

    async def score(self, *, messages: list[dict[str, str]], response: str, record: dict[str, Any]) -> CustomScore:
        """Call the function with values that JSON has a form for. What goes wrong in the call is told in the result."""
        began = time.monotonic()
        call = self._submit(self._score({"messages": messages, "response": response, "record": record}))
        # a caller that gives up changes nothing: the worker is busy until the function returns or its time is over
        answer = await asyncio.shield(asyncio.wrap_future(call))
        return CustomScore(
            value=answer.get("value"),
            failure=answer.get("failure"),
            explanation=answer.get("explanation"),
            seconds=time.monotonic() - began,
        )

    def close(self) -> None:
        """End the workers; calls that are under way are cancelled. A second call does no harm."""
        if self._thread.is_alive():
            self._submit(self._end()).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _submit(self, work: Coroutine[Any, Any, Any]) -> Future:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _open(self, workers: int) -> None:
        self._alone = asyncio.Semaphore(workers)
        places = [_Place(self._start_worker) for _ in range(workers)]
        first = await places[0].worker()
        self._free: asyncio.Queue[_Place] = asyncio.Queue()
        for place in places * (_CALLS_AT_A_TIME if first.concurrent else 1):
            self._free.put_nowait(place)

    async def _score(self, request: dict[str, Any]) -> Answer:
        place = await self._free.get()
        try:
            worker = await place.worker()
            answer = await worker.call(request, self._timeout)
        except UserError as error:  # the file has changed since the start
            return {"failure": "error", "explanation": str(error)}
        finally:
            self._free.put_nowait(place)
        if answer is None:
            answer = await self._score_alone(request)
        if answer.get("failure") == "timed_out":
            answer["explanation"] = f"no result within {self._timeout:g} seconds (REWARD_FUNCTION_TIMEOUT)"
        return answer

    async def _score_alone(self, request: dict[str, Any]) -> Answer:
        async with self._alone:
            try:
                worker = await self._start_worker()
            except UserError as error:
                return {"failure": "error", "explanation": str(error)}
            answer = await worker.call(request, self._timeout)
            worker.kill()
            return answer

    async def _start_worker(self) -> WorkerProcess:
        worker = WorkerProcess(self._file, self._name)
        self._processes.add(worker)
        worker.watch.add_done_callback(lambda _: self._processes.discard(worker))
        await worker.get_ready()
        return worker

    async def _end(self) -> None:
        watches = {worker.watch for worker in self._processes}
        calls = asyncio.all_tasks() - watches - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        for worker in self._processes:
            worker.kill()
        if watches:
            await asyncio.wait(watches, timeout=_END_SECONDS)


def check_reward_function(spec: str) -> None:
    """Import the function in a process of its own and look at its signature.

    Raises:
        UserError: it cannot be used.
    """
    CustomReward(spec, timeout=IMPORT_SECONDS, workers=1).close()


def _parsed(spec: str) -> tuple[Path, str]:
    path, _, name = spec.rpartition(":")
    if not path.endswith(".py") or not name.isidentifier():
        raise UserError(f"REWARD_FUNCTION={spec}: must be FILE.py:FUNCTION, for example /home/me/reward.py:score")
    file = Path(path).absolute()
    try:
        found = file.is_file()
    except OSError:  # a name that is too long
        found = False
    if not found:
        raise UserError(f"REWARD_FUNCTION={spec}: {file} is not an existing file")
    return file, name


class _Place:
    """Has one worker at a time: a new one when the last has ended."""

    def __init__(self, start: Callable[[], Awaitable[WorkerProcess]]):
        self._start = start
        self._lock = asyncio.Lock()
        self._worker: WorkerProcess | None = None

    async def worker(self) -> WorkerProcess:
        async with self._lock:
            if self._worker is None or not self._worker.alive:
                self._worker = await self._start()
            return self._worker
