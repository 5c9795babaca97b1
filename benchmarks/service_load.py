"""128 sessions at one time on each task service: ``python -m benchmarks.service_load [NAME ...]``.

Every session plays ``EPISODES`` episodes with nonsense for actions, one after the other; then all of it again. Exit
code 1 when a session is lost, or when the second round leaves the service clearly larger than the first.
"""

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import psutil

from camp.command_line import services_python
from camp.routes import SERVICES
from camp.sampling.session import ServiceAddress, Session
from camp.services import facts_of

SESSIONS, EPISODES, TURNS = 128, 3, 40
GROWTH = 1.15  # of the second round over the first
PACKAGES = Path(__file__).parents[1] / "recipes"


@contextmanager
def service(name: str):
    """A running service: its address and its process."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [services_python(None, os.environ), "-m", "camp.environments.run", name]
    arguments = ["--host", "127.0.0.1", "--port", str(port), "--sessions", str(SESSIONS)]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGES)}
    process = subprocess.Popen([*command, *arguments], env=environment, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        while not healthy(url):
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended with exit code {process.returncode}")
            time.sleep(0.1)
        yield url, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def memory(process: psutil.Process) -> float:
    """MiB of a process and its children, shared pages counted once."""
    return sum(one.memory_full_info().pss for one in [process, *process.children(recursive=True)]) / 2**20


async def play(url: str, tasks: list[str]) -> list[float]:
    """All sessions to their end; the latency of every answer, in seconds."""
    address = ServiceAddress(url, "text", "text", timeout=120.0, connect_timeout=120.0)
    latencies: list[float] = []
    together = asyncio.Barrier(SESSIONS) if hasattr(asyncio, "Barrier") else None

    async def one(http: aiohttp.ClientSession, number: int) -> None:
        async with Session(http, address) as session:
            for episode in range(EPISODES):
                seed = number * EPISODES + episode
                found = await session.reset(task=tasks[seed % len(tasks)], seed=seed)
                latencies.append(found.seconds)
                if together is not None and episode == 0:
                    await together.wait()  # every session is open
                for turn in range(TURNS):
                    found = await session.step(f"<action>look {turn}</action>")
                    latencies.append(found.seconds)
                    if found.done:
                        break

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        await asyncio.gather(*(one(http, number) for number in range(SESSIONS)))
    return latencies


def main(names: list[str]) -> int:
    missed = []
    for name in names or SERVICES:
        with service(name) as (url, process):
            tasks = asyncio.run(facts_of(url)).tasks
            sizes = [memory(process)]
            for _ in range(2):
                began = time.monotonic()
                latencies = asyncio.run(play(url, tasks))  # a lost session raises
                seconds = time.monotonic() - began
                sizes.append(memory(process))
            quantiles = statistics.quantiles(latencies, n=100)
            print(
                f"{name:<9} {SESSIONS} sessions x {EPISODES} episodes: none lost; {len(latencies) / seconds:5.0f} "
                f"answers a second, p50 {quantiles[49] * 1000:.0f} ms, p95 {quantiles[94] * 1000:.0f} ms; memory "
                f"{sizes[0]:.0f} MiB before, {sizes[1]:.0f} and {sizes[2]:.0f} MiB after the rounds",
                flush=True,
            )
            if sizes[2] > GROWTH * sizes[1]:
                missed.append(name)
    for name in missed:
        print(f"{name} grew by more than {GROWTH - 1:.0%} in the second round")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
