"""A session against servers that behave, and against those that do not."""

import asyncio
import json

import aiohttp
import pytest
from aiohttp import web

from camp.sampling.session import Session, SessionFault
from tests.camp.openenv_server import Server, address, error, observation


def run(server, work, **changes):
    async def main():
        async with server, aiohttp.ClientSession() as http:
            async with Session(http, address(server.url, **changes)) as session:
                return await work(session)

    return asyncio.run(main())


def test_an_episode():
    server = Server(observation(), observation("Well done.", reward=1, done=True, success=True))

    async def work(session):
        return await session.reset(task="easy", seed=7), await session.step("go")

    first, last = run(server, work)
    assert (first.text, first.reward, first.done, first.success) == ("You are at home.", 0.0, False, None)
    assert (last.text, last.reward, last.done, last.success) == ("Well done.", 1.0, True, True)
    assert first.seconds > 0
    assert server.received == [
        {"type": "reset", "data": {"seed": 7, "task": "easy"}},
        {"type": "step", "data": {"text": "go"}},
        {"type": "close"},
    ]


def test_a_foreign_service_is_spoken_to_in_its_own_fields():
    answer = json.dumps({"type": "observation", "data": {"observation": {"view": "a"}, "reward": 0.5, "done": False}})
    server = Server(answer, answer)

    async def work(session):
        await session.reset(task=None, seed=1)
        return await session.step("go")

    told = run(server, work, action_field="command", observation_field="view")
    assert (told.text, told.reward, told.success) == ("a", 0.5, None)
    assert server.received[:2] == [{"type": "reset", "data": {"seed": 1}}, {"type": "step", "data": {"command": "go"}}]


@pytest.mark.parametrize(
    ("answer", "kind", "told"),
    [
        ("hang up", "closed", "the service ended the session"),
        ("say nothing", "timed_out", "no answer within 0.3 s"),
        ("no json", "malformed", "no observation with the field 'text'"),
        ("[]", "malformed", "no observation"),
        ('{"type": "observation", "data": {}}', "malformed", "no observation"),
        ('{"type": "error", "data": "x"}', "malformed", "no observation"),
        (observation(["a"]), "malformed", "is no text"),
        (observation("half of a pair: \ud83d"), "malformed", "is no text"),
        (observation(reward="much"), "malformed", "the reward no number"),
        (observation(reward=True), "malformed", "the reward no number"),
        (observation(reward=float("inf")), "malformed", "the reward no number"),
        (observation(reward=10**400), "malformed", "the reward no number"),
        ("[" * 100_000, "malformed", "no observation"),
        (error("CAPACITY_REACHED", "all 4 taken"), "full", "all 4 taken"),
        (error("VALIDATION_ERROR"), "refused", "no"),
        (error("EXECUTION_ERROR", "a\nb\x1b[2J"), "failed", "a b [2J"),
        (error("SOMETHING_NEW"), "failed", "no"),
    ],
)
def test_what_goes_wrong_is_a_fault_and_ends_the_session(answer, kind, told):
    server = Server(observation(), answer)

    async def work(session):
        await session.reset(task=None, seed=1)
        with pytest.raises(SessionFault) as caught:
            await session.step("go")
        with pytest.raises(SessionFault, match="the session is closed"):
            await session.step("again")
        return caught.value

    fault = run(server, work, timeout=0.3 if answer == "say nothing" else 5.0)
    assert fault.kind == kind and told in str(fault) and "\x1b" not in str(fault)
    assert server.opened == 1 and len(server.received) == 2  # nothing more is sent over it


def test_a_cancelled_call_leaves_no_session_behind():
    server = Server(observation(), "say nothing")

    async def work(session):
        await session.reset(task=None, seed=1)
        call = asyncio.create_task(session.step("go"))
        while len(server.received) < 2:
            await asyncio.sleep(0.01)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        while not server.closed:
            await asyncio.sleep(0.01)

    run(server, work)
    assert len(server.received) == 2


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://nowhere.invalid", "no address"])
def test_nobody_there(url):
    async def main():
        async with aiohttp.ClientSession() as http, Session(http, address(url)):
            pass

    with pytest.raises(SessionFault) as caught:
        asyncio.run(main())
    assert caught.value.kind == "unreachable" and url in str(caught.value)


def test_a_server_that_is_no_websocket():
    async def main():
        app = web.Application()
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        try:
            async with aiohttp.ClientSession() as http, Session(http, address(f"http://127.0.0.1:{port}")):
                pass
        finally:
            await runner.cleanup()

    with pytest.raises(SessionFault, match="404"):
        asyncio.run(main())


def test_a_session_outlives_a_long_turn_of_the_student():
    """Servers ping, and end a connection that does not answer."""

    async def main():
        async with Server(observation(), observation("Well."), heartbeat=1.0) as server:
            async with aiohttp.ClientSession() as http, Session(http, address(server.url)) as session:
                await session.reset(task=None, seed=1)
                await asyncio.sleep(2.5)  # two pings, each to be answered within half a second
                return await session.step("At last.")

    assert asyncio.run(main()).text == "Well."


def test_a_service_that_never_stops_talking_is_left():
    async def main():
        async with Server(observation(), "talk on") as server, aiohttp.ClientSession() as http:
            async with Session(http, address(server.url)) as session:
                await session.reset(task=None, seed=1)
                with pytest.raises(SessionFault) as fault:
                    await asyncio.wait_for(session.step("go"), 30)
                return fault.value.kind

    assert asyncio.run(main()) == "malformed"


@pytest.mark.parametrize("success", [0.7, "solved", 1])
def test_success_is_true_false_or_not_told(success):
    async def main():
        async with Server(observation(success=success)) as server:
            async with aiohttp.ClientSession() as http, Session(http, address(server.url)) as session:
                await session.reset(task=None, seed=1)

    with pytest.raises(SessionFault, match="success is") as fault:
        asyncio.run(main())
    assert fault.value.kind == "malformed"
