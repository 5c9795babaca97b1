"""Every service over its real socket: spoken to by OpenEnv's own client, by many at one time, and by strangers."""

import asyncio
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import websockets
from openenv.core.generic_client import GenericEnvClient

PACKAGES = Path(__file__).parents[3]
DOMAINS = ("database", "games", "puzzles", "quests", "search")
SESSIONS = 128


class Service:
    """A service in a process of its own, as ``serve`` starts it."""

    def __init__(self, name: str, sessions: int):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        arguments = [name, "--port", str(port), "--sessions", str(sessions)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "camp.environments.run", *arguments],
            env={"PYTHONPATH": str(PACKAGES), "PATH": "/usr/bin:/bin"},
            stderr=subprocess.DEVNULL,
        )
        while self.process.poll() is None:
            try:
                assert json.loads(self.get("/health")) == {"status": "healthy"}
                return
            except OSError:
                time.sleep(0.1)  # there is no event to wait for: the process tells nobody that it listens
        raise AssertionError(f"{name} ended with {self.process.returncode}")

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=30) as response:
            return response.read().decode()

    def end(self) -> None:
        self.process.terminate()
        assert self.process.wait(timeout=30) in (0, -15)


@pytest.fixture(scope="module", params=DOMAINS)
def service(request):
    served = Service(request.param, SESSIONS)
    yield served
    served.end()


def tasks(service):
    return json.loads(service.get("/tasks"))["tasks"]


def test_openenvs_own_client_plays(service):
    async def play():
        async with GenericEnvClient(base_url=service.url) as client:
            first = await client.reset(seed=3, task=tasks(service)[0])
            again = await client.reset(seed=3, task=tasks(service)[0])
            turn = await client.step({"text": "<think>I do not know.</think> <action>what?</action>"})
            return first, again, turn

    first, again, turn = asyncio.run(play())
    assert first.observation["text"] == again.observation["text"] and not first.done
    assert "<action>" in first.observation["text"]
    assert turn.observation["text"] and 0 <= turn.reward <= 1 and not turn.done


async def begin(service, task, seed):
    """A session whose episode has begun, and its first text; None when no session is free."""
    connection = await websockets.connect(service.url.replace("http", "ws") + "/ws", max_size=None)
    try:
        await connection.send(json.dumps({"type": "reset", "data": {"seed": seed, "task": task}}))
        answer = json.loads(await connection.recv())
    except websockets.ConnectionClosed:  # the refusal came before our message was read
        return None
    if answer["type"] == "error" and answer["data"]["code"] == "CAPACITY_REACHED":
        return None
    assert answer["type"] == "observation", answer
    return connection, answer["data"]["observation"]["text"]


async def begin_when_free(service, task, seed):
    """The same, once sessions that were closed a moment ago have ended."""
    while (begun := await begin(service, task, seed)) is None:
        await asyncio.sleep(0.05)
    return begun


def test_as_many_sessions_as_promised_have_episodes_of_their_own(service):
    async def play():
        names = tasks(service)
        wanted = [(names[number % len(names)], number // 2) for number in range(SESSIONS)]
        opened = await asyncio.gather(*(begin_when_free(service, *which) for which in wanted))
        texts = dict(zip(wanted, (text for _, text in opened), strict=True))
        for (_, text), which in zip(opened, wanted, strict=True):
            assert text == texts[which]
        for connection, _ in opened:
            await connection.send(json.dumps({"type": "step", "data": {"text": "<action>what?</action>"}}))
        answers = [json.loads(await connection.recv()) for connection, _ in opened]
        one_more = await begin(service, names[0], 1)
        for connection, _ in opened:
            await connection.send('{"type": "close"}')
            await connection.wait_closed()
        return texts, answers, one_more

    texts, answers, one_more = asyncio.run(play())
    assert {answer["type"] for answer in answers} == {"observation"}
    assert len(set(texts.values())) > SESSIONS // 3
    assert one_more is None


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({"type": "step", "data": {"text": "go"}}, "there is no episode: reset first"),
        ({"type": "reset", "data": {"task": "easy"}}, "reset needs a seed"),
        ({"type": "reset", "data": {"seed": 1, "task": "../../etc/passwd"}}, "../../etc/passwd"),
        ({"type": "step", "data": {"words": "go"}}, "Invalid message"),
        ({"type": "dance"}, "Unknown message type"),
    ],
)
def test_what_makes_no_sense_is_told_and_ends_no_session(service, message, told):
    async def play():
        connection, _ = await begin_when_free(service, tasks(service)[0], 1)
        if message["type"] == "step":  # of a session that has had no episode yet
            await connection.close()
            connection = await websockets.connect(service.url.replace("http", "ws") + "/ws")
        await connection.send(json.dumps(message))
        error = json.loads(await connection.recv())
        await connection.send(json.dumps({"type": "reset", "data": {"seed": 1}}))
        then = json.loads(await connection.recv())
        await connection.close()
        return error, then

    error, then = asyncio.run(play())
    assert error["type"] == "error" and told in error["data"]["message"]
    assert then["type"] == "observation"


@pytest.mark.parametrize("path", ["/mcp", "/reset", "/step"])
def test_no_session_begins_without_a_connection(service, path):
    request = urllib.request.Request(service.url + path, data=b"{}", headers={"Content-Type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    assert refused.value.code in (404, 405)


def test_web_pages_are_refused(service):
    request = urllib.request.Request(service.url + "/tasks", headers={"Origin": "http://page.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    assert refused.value.code == 403

    async def connect():
        async with websockets.connect(service.url.replace("http", "ws") + "/ws", origin="http://page.example"):
            pass

    with pytest.raises(websockets.exceptions.InvalidStatus):
        asyncio.run(connect())
