"""How near the grader's client comes to what a grader can do: ``python benchmarks/grader_throughput.py``.

A grader in a process of its own answers after 100 ms and takes 64 requests at a time, further ones wait in it: 640 a
second is the ideal. It is asked for 2,000 gradings by ``ChatEndpoint`` with 64 and with 256 requests in flight, by the
same beside one grading that takes 10 s (63 slots, 630 a second), by a plain blocking client in 32 threads, and by
asynchronous httpx. Exit code 1 when ``ChatEndpoint`` stays below 90 % of the ideal (median), or when the others wait
for the slow grading. It needs both cores of a small machine: what else runs there shows in the figures.
"""

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from onepo.endpoints.chat import ChatEndpoint, RequestForm
from onepo.rewards.rubric import grading_messages, parse_met
from onepo.rewards.template import load_template

GRADINGS, REPEATS, LIMIT_SHARE = 2_000, 3, 0.9
LATENCY, SLOTS, THREADS, SLOW_SECONDS = 0.1, 64, 32, 10.0
RUBRICS = [{"criterion": f"says point {number}", "points": 1} for number in range(8)]
FORM = RequestForm(extra_body={}, json_schema=False, token_limit="max_tokens", temperature=True)

Measured = tuple[float, list[float]]  # seconds for all gradings, and for each


def messages(first_words: str) -> list[dict[str, str]]:
    reply = f"{first_words} point 1 and point 5. " + "A reply of usual length says more than that. " * 60
    conversation = [{"role": "user", "content": "What helps?"}, {"role": "assistant", "content": reply}]
    return grading_messages(load_template(None), conversation, RUBRICS)


USUAL, SLOW = messages("Think of"), messages("Tarry over")
BODY = {"model": "grader", "messages": USUAL, "temperature": 0.0, "max_tokens": 256}


def check(text: str) -> None:
    assert sum(parse_met(text, len(RUBRICS))) == 2, text


def check_answer(response: httpx.Response) -> None:
    check(response.json()["choices"][0]["message"]["content"])


async def gradings(grade: Callable[[], Awaitable[None]], in_flight: int) -> Measured:
    each = []

    async def one_after_the_other(numbers: Iterator[int]) -> None:
        for _ in numbers:
            start = time.perf_counter()
            await grade()
            each.append(time.perf_counter() - start)

    numbers, start = iter(range(GRADINGS)), time.perf_counter()
    await asyncio.gather(*(one_after_the_other(numbers) for _ in range(in_flight)))
    return time.perf_counter() - start, each


async def by_endpoint(url: str, in_flight: int, *, beside_slow: bool = False) -> Measured:
    endpoint = ChatEndpoint(
        url=url, model="grader", form=FORM, timeout=60, max_concurrency=in_flight, outage_limit=60, api_key=None
    )

    async def grade(sent: list[dict[str, str]] = USUAL) -> None:
        check((await endpoint.complete(sent, temperature=0.0, max_tokens=256)).text)

    slow = asyncio.create_task(grade(SLOW)) if beside_slow else None
    measured = await gradings(grade, in_flight - beside_slow)
    if slow is not None:
        assert not slow.done(), "the others ended after the slow grading"
        await slow
    await endpoint.aclose()
    return measured


async def by_httpx(url: str, in_flight: int) -> Measured:
    limits = httpx.Limits(max_connections=in_flight, max_keepalive_connections=in_flight)
    async with httpx.AsyncClient(limits=limits, timeout=60, trust_env=False) as client:

        async def grade() -> None:
            check_answer(await client.post(url, json=BODY))

        return await gradings(grade, in_flight)


def by_threads(url: str) -> Measured:
    numbers, each = iter(range(GRADINGS)), []

    def one_after_the_other(_: int) -> None:
        with httpx.Client(timeout=60, trust_env=False, verify=False) as client:
            for _ in numbers:
                start = time.perf_counter()
                check_answer(client.post(url, json=BODY))
                each.append(time.perf_counter() - start)

    start = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(one_after_the_other, range(THREADS)))
    return time.perf_counter() - start, each


def main() -> int:
    command = [sys.executable, "-m", "tests.scripted_grader", "--latency", str(LATENCY), "--slots", str(SLOTS)]
    server = subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True)
    base_url = server.stdout.readline().split()[-1]
    url = f"{base_url}/v1/chat/completions"
    tarrying = {"poison": {"Tarry": "slow"}, "slow_seconds": SLOW_SECONDS}
    httpx.post(f"{base_url}/behaviour", json=tarrying, trust_env=False).raise_for_status()
    ours = {
        "ChatEndpoint, 64 in flight": lambda: asyncio.run(by_endpoint(url, 64)),
        "ChatEndpoint, 256 in flight": lambda: asyncio.run(by_endpoint(url, 256)),
        "ChatEndpoint, 64, one of them slow": lambda: asyncio.run(by_endpoint(url, 64, beside_slow=True)),
    }
    others = {
        "blocking httpx, 32 threads": lambda: by_threads(url),
        "asynchronous httpx, 64 in flight": lambda: asyncio.run(by_httpx(url, 64)),
    }
    shares = {}
    try:
        for name, measure in (ours | others).items():
            runs = [measure() for _ in range(REPEATS)]
            rates = [GRADINGS / seconds for seconds, _ in runs]
            free_slots = SLOTS - name.endswith("one of them slow")
            shares[name] = statistics.median(rates) * LATENCY / free_slots
            cuts = statistics.quantiles([seconds for _, each in runs for seconds in each], n=20)
            print(
                f"{name:<36}{statistics.median(rates):5.0f}/s ({min(rates):.0f} to {max(rates):.0f}), "
                f"{shares[name]:4.0%} of the ideal; p50 {cuts[9]:.2f} s, p95 {cuts[18]:.2f} s",
                flush=True,
            )
    finally:
        server.terminate()
        server.wait()
    return int(min(shares[name] for name in ours) < LIMIT_SHARE)


if __name__ == "__main__":
    sys.exit(main())
