"""Runs the user's reward function in a process of its own, which ``custom_process.py`` starts. Standard library only.

Arguments: the file, the name of the function, the descriptor of a socket, the process that owns this one.
The socket carries one JSON object per line. The first one comes from here, with the call number 0: ``concurrent``
(whether the function takes several calls at a time, as an ``async`` one does), or ``failure`` and ``explanation`` when
it cannot be used, and the end. Then each ``{"call", "timeout", "messages", "response", "record"}`` is answered by its
number and a ``value``, or its number, a ``failure`` and an ``explanation`` (none when it timed out).
"""

import asyncio
import ctypes
import decimal
import importlib.util
import inspect
import json
import numbers
import os
import reprlib
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

_ARGUMENTS = ("messages", "response", "record")
_PARENT_DEATH_SIGNAL, _CHILD_SUBREAPER = 1, 36  # PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER of prctl(2)
_FIRST_TO_DIE = "1000"  # of the kernel's scores for a machine that is out of memory
_LONGEST_LINE = 1 << 40  # bytes; asyncio wants a number
_ENDING_SECONDS = 5.0
_SHOWN_CHARACTERS = 300
_LARGEST = 3.4e38  # of the 32-bit numbers in which rewards are kept

Function = Callable[..., Any]
Answer = dict[str, Any]


class _Refused(Exception):
    """The function cannot be used; the text says why."""


def load_function(file: Path, name: str) -> Function:
    """The function of the file, imported as if the file were run from its own directory."""
    module = _import(file)
    function = getattr(module, name, None)
    if not callable(function):
        has = [key for key, value in vars(module).items() if getattr(value, "__module__", None) == file.stem]
        raise _Refused(f"the file has no function {name}; it has {', '.join(has) or 'none'}")
    try:
        inspect.signature(function).bind(**dict.fromkeys(_ARGUMENTS))
    except (TypeError, ValueError) as error:
        called = f"{name}(messages=..., response=..., record=...)"
        raise _Refused(f"the function cannot be called as {called}: {error}") from None
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise _Refused(f"{name} is a generator (it has a yield): it must return a number")
    return function


def _import(file: Path) -> ModuleType:
    package = str(Path(__file__).parent)  # what Python put first, because this file is what it runs
    sys.path[:] = [str(file.parent), *(entry for entry in sys.path if entry != package)]
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # SystemExit, too
        raise _Refused(f"the file cannot be imported: {_told(error, file)}") from None
    return module


def _serve_one_by_one(function: Function, channel: socket.socket, file: Path) -> None:
    """No event loop runs in here: a plain function may well start one."""
    with channel.makefile("r", encoding="utf-8") as requests:
        for line in requests:
            request = json.loads(line)
            try:
                answer = _judged(function(**_arguments(request)))
            except BaseException as error:
                answer = _error(error, file)
            channel.sendall(_line(call=request["call"], **answer))


async def _serve_concurrently(function: Function, channel: socket.socket, file: Path) -> None:
    requests, answers = await asyncio.open_unix_connection(sock=channel, limit=_LONGEST_LINE)

    async def score(request: dict[str, Any]) -> Answer:
        try:
            return _judged(await function(**_arguments(request)))
        except BaseException as error:
            return _error(error, file)

    async def answer(request: dict[str, Any]) -> None:
        scoring = asyncio.create_task(score(request))
        in_time, _ = await asyncio.wait({scoring}, timeout=request["timeout"])
        scoring.cancel()
        answers.write(_line(call=request["call"], **(scoring.result() if in_time else {"failure": "timed_out"})))

    running = set()
    while line := await requests.readline():
        task = asyncio.create_task(answer(json.loads(line)))
        running.add(task)  # the loop holds no reference of its own
        task.add_done_callback(running.discard)


def _arguments(request: dict[str, Any]) -> dict[str, Any]:
    return {name: request[name] for name in _ARGUMENTS}


def _judged(value: Any) -> Answer:
    """The answer for what the function returned; scalars of NumPy and PyTorch are numbers, too."""
    try:
        number = value.item() if hasattr(value, "item") else value
        usable = isinstance(number, numbers.Real | decimal.Decimal) and abs(float(number)) <= _LARGEST
    except Exception:  # too large for a float, or an array
        usable = False
    if usable:
        return {"value": float(number)}
    found = _one_line(reprlib.repr(value))
    return {"failure": "not_a_number", "explanation": f"found {found}, expected a finite number of 32 bits"}


def _error(error: BaseException, file: Path) -> Answer:
    return {"failure": "error", "explanation": _told(error, file)}


def _told(error: BaseException, file: Path) -> str:
    """The error on one line, with the place in the user's file that led to it."""
    try:
        text = _one_line(f"{type(error).__name__}: {error}").rstrip(": ")
    except Exception:  # of its __str__
        text = type(error).__name__
    places = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f"{text} ({file.name}, line {places[-1]})" if places else text


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[: _SHOWN_CHARACTERS + 1])
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."


def _line(**message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _watch(child: int, *, leaving_nothing: bool) -> NoReturn:
    """Wait for the child's end, or order it when TERM comes; then end in the same way.

    Args:
        leaving_nothing: end all that the child started, too. Whatever it was started with, even in a session of its
            own, is a child of this process once its parent is gone.
    """
    status = None
    while status is None:
        if signal.sigwait([signal.SIGCHLD, signal.SIGTERM]) == signal.SIGTERM:
            if leaving_nothing:
                break
            os.kill(child, signal.SIGTERM)
        for pid, code in _ended():
            status = code if pid == child else status
    if leaving_nothing:
        _end_children()
    code = os.waitstatus_to_exitcode(status or 0)
    if code < 0:  # so that whoever asks how it ended learns of the signal
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):  # KILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        os.kill(os.getpid(), -code)
    os._exit(code)


def _ended() -> Iterator[tuple[int, int]]:
    """The children that have ended, with their statuses; orphans, which came to a subreaper, are among them."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            yield ended


def _end_children() -> None:
    until = time.monotonic() + _ENDING_SECONDS  # one that hangs in the kernel, or has another user, is left to it
    while (children := _children()) and time.monotonic() < until:
        for pid in children:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        list(_ended())
        time.sleep(0.01)


def _children() -> list[int]:
    """The processes whose parent is this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, ValueError):
                # the name in brackets may hold anything; the parent is the second field behind it
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                    found.append(int(entry.name))
    return found


def _fork(owner: int) -> int:
    """Fork; the child gets TERM when its parent dies. Returns the child's number, 0 in the child."""
    parent = os.getpid()
    if os.getppid() != owner:  # it died before the kernel knew
        os._exit(0)
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(0)
    return child


def main(file: Path, name: str, descriptor: int, owner: int) -> None:
    """Three processes: the owner's child, which Ray kills with its own; a guard; and the one that has the function."""
    for number in (signal.SIGINT, signal.SIGHUP):  # of a terminal: the owner's to decide
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD])
    libc = ctypes.CDLL(None)
    libc.prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    first = os.getpid()
    if guard := _fork(owner):
        os.close(descriptor)
        _watch(guard, leaving_nothing=False)
    libc.prctl(_CHILD_SUBREAPER, 1)
    guard = os.getpid()
    if child := _fork(first):
        os.close(descriptor)
        _watch(child, leaving_nothing=True)
    libc.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != guard:
        return
    os.setpgid(0, 0)  # out of the terminal's reach
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGCHLD])
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_DIE)
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    try:
        function = load_function(file, name)
    except _Refused as refusal:
        channel.sendall(_line(call=0, failure="error", explanation=str(refusal)))
        return
    # of an object that can be called, its class tells
    concurrent = any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))
    channel.sendall(_line(call=0, concurrent=concurrent))
    if concurrent:
        asyncio.run(_serve_concurrently(function, channel, file))
    else:
        _serve_one_by_one(function, channel, file)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
