"""An OpenAI-compatible chat server over a real socket that grades by a fixed rule and misbehaves on request.

In a test: ``with ScriptedGrader(latency=0.1) as grader: ... grader.url ... grader.behave(["429", "normal"])``.
As a process: ``python -m tests.scripted_grader --port 0``, which says ``listening on http://127.0.0.1:PORT`` and ends
on TERM; there ``POST /behaviour`` takes what ``behave`` takes, and ``GET /requests`` lists what arrived.
"""

import argparse
import asyncio
import dataclasses
import json
import signal
import socket
import struct
import threading
import time
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tests import scripted_answers as answers
from tests.scripted_answers import MODES, Behaviour


@dataclass
class Received:
    """One chat request as it arrived; ``status`` stays None when it got no whole answer."""

    body: Any
    headers: dict[str, str]
    arrived: float  # time.monotonic(), which all processes of a machine share
    peer_port: int  # the same for two requests on one connection
    in_flight: int  # requests in the server when it had arrived, this one included
    mode: str | None = None
    status: int | None = None
    finished: float | None = None


class ScriptedGrader:
    """The server, in a thread of its own while the ``with`` block lasts. Settings are those of ``Behaviour``."""

    def __init__(self, *, name: str = "grader", port: int = 0, slots: int = 64, **settings: Any):
        self.name = name
        self.behaviour = Behaviour(**settings)
        self.requests: list[Received] = []
        self._slots = slots
        self._script_position = 0
        self._arrival = threading.Condition()
        self._in_flight = 0
        self._transports: set[asyncio.Transport] = set()
        # Bound but never listening: while the server is down, connections are refused and nobody else gets the port.
        self._placeholder = _bound_socket(port)
        self.port = self._placeholder.getsockname()[1]
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.url = f"{self.base_url}/v1/chat/completions"

    def behave(self, mode: str | list[str] | None = None, **settings: Any) -> None:
        """Change what is given and leave the rest; a new ``mode`` starts its script from the first entry."""
        if mode is not None:
            settings["mode"] = mode
            self._script_position = 0
        self.behaviour = dataclasses.replace(self.behaviour, **settings)

    def wait_for_requests(self, count: int, timeout: float = 10.0) -> list[Received]:
        """Block until ``count`` chat requests have arrived, whatever became of them."""
        with self._arrival:
            if not self._arrival.wait_for(lambda: len(self.requests) >= count, timeout):
                raise TimeoutError(f"{len(self.requests)} of {count} requests arrived within {timeout} s")
            return list(self.requests)

    @property
    def max_in_flight(self) -> int:
        return max((received.in_flight for received in self.requests), default=0)

    def __enter__(self) -> "ScriptedGrader":
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._placeholder.close()

    def start(self) -> None:
        """Listen, again on the same port after ``stop``."""
        asyncio.run_coroutine_threadsafe(self.listen(), self._loop).result()

    def stop(self) -> None:
        """Die: every connection is reset, further ones are refused."""
        asyncio.run_coroutine_threadsafe(self.die(), self._loop).result()

    async def listen(self) -> None:
        self._free_slots = asyncio.Semaphore(self._slots)
        app = web.Application(client_max_size=2**26)
        app.add_routes(
            [
                web.post("/v1/chat/completions", self._chat),
                web.get("/v1/models", self._models),
                web.get("/health", self._health),
                web.post("/behaviour", self._set_behaviour),
                web.get("/requests", self._list_requests),
            ]
        )
        # as in the real engines, a request ends with its connection
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.SockSite(self._runner, _bound_socket(self.port)).start()

    async def die(self) -> None:
        for site in list(self._runner.sites):
            await site.stop()
        for transport in self._transports:
            _reset(transport)
        self._transports.clear()
        await self._runner.cleanup()

    async def _models(self, request: web.Request) -> web.Response:
        if refused := answers.refused_key(self.behaviour, request.headers.get("Authorization")):
            status, answer = refused
            return web.json_response(answer, status=status)
        model = {"id": self.name, "object": "model", "max_model_len": self.behaviour.max_model_len}
        return web.json_response({"object": "list", "data": [model]})

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self.behaviour.healthy else 503)

    async def _set_behaviour(self, request: web.Request) -> web.Response:
        self.behave(**await request.json())
        return web.json_response(dataclasses.asdict(self.behaviour))

    async def _list_requests(self, _: web.Request) -> web.Response:
        listed = [dataclasses.asdict(received) for received in list(self.requests)]
        for received in listed:
            if len(json.dumps(received["body"])) > 2_000:
                received["body"] = None
        return web.json_response(listed)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        self._transports.add(request.transport)
        self._in_flight += 1
        try:
            body = await request.json()
            peer = request.transport.get_extra_info("peername")
            received = Received(body, dict(request.headers), time.monotonic(), peer[1], self._in_flight)
            with self._arrival:
                self.requests.append(received)
                self._arrival.notify_all()
            response = await self._answer(request, received)
            received.status, received.finished = response.status, time.monotonic()
            return response
        finally:
            self._in_flight -= 1

    async def _answer(self, request: web.Request, received: Received) -> web.StreamResponse:
        behaviour, body = self.behaviour, received.body
        text = "\n".join(message["content"] for message in body.get("messages", []))
        if refused := answers.refusal(self.name, behaviour, body, received.headers.get("Authorization"), text):
            status, answer = refused
            return web.json_response(answer, status=status)
        mode = received.mode = self._next_mode(text)
        if mode == "silent":
            await asyncio.Event().wait()
        if mode == "reset":
            return await _reset_by_peer(request.transport)
        if mode == "reset_midway":
            response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "1000"})
            await response.prepare(request)
            await response.write(b'{"choices": [')
            return await _reset_by_peer(request.transport)
        if mode.isdigit():
            headers = {"Retry-After": behaviour.retry_after} if behaviour.retry_after else {}
            error = {"error": {"message": f"scripted answer {mode}", "code": int(mode)}}
            return web.json_response(error, status=int(mode), headers=headers)
        async with self._free_slots:
            due = time.monotonic() + (behaviour.slow_seconds if mode == "slow" else behaviour.latency)
            if mode == "not_json":
                response = web.Response(text="<html><title>Welcome</title></html>", content_type="text/html")
            elif mode == "no_choices":
                response = web.json_response({"object": "chat.completion", "choices": []})
            else:
                response = web.json_response(answers.completion(self.name, mode, body))
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        return response

    def _next_mode(self, text: str) -> str:
        for word, mode in self.behaviour.poison.items():
            if word in text:
                return mode
        script = self.behaviour.mode
        if isinstance(script, str):
            return script
        mode = script[min(self._script_position, len(script) - 1)]
        self._script_position += 1
        return mode


def _bound_socket(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    return bound


def _reset(transport: asyncio.Transport) -> None:
    """Close with RST: lingering for 0 s throws away what is unsent."""
    if not transport.is_closing():
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()


async def _reset_by_peer(transport: asyncio.Transport) -> web.StreamResponse:
    _reset(transport)
    raise asyncio.CancelledError


async def _serve(grader: ScriptedGrader) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await grader.listen()
    print(f"listening on {grader.base_url}", flush=True)
    await ended.wait()
    await grader.die()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--name", default="grader")
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--mode", default="normal", choices=sorted(MODES))
    asyncio.run(_serve(ScriptedGrader(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
