"""OpenEnv's WebSocket over a real socket, with answers of a test's choice."""

import asyncio
import json

from aiohttp import web

from camp.sampling.session import ServiceAddress


class Server:
    """OpenEnv's WebSocket with answers of a test's choice: one per message, as text, or a way to break off."""

    def __init__(self, *answers, heartbeat=None):
        self.answers = list(answers)
        self.heartbeat = heartbeat  # seconds between two pings; who does not answer in half of it is gone
        self.received = []
        self.opened = self.closed = 0

    async def __aenter__(self):
        app = web.Application()
        app.router.add_get("/ws", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = site._server.sockets[0].getsockname()[:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()

    async def _serve(self, request):
        socket = web.WebSocketResponse(heartbeat=self.heartbeat)
        await socket.prepare(request)
        self.opened += 1
        async for message in socket:
            self.received.append(json.loads(message.data))
            if self.received[-1]["type"] == "close":
                break
            answer = self.answers.pop(0)
            if answer == "hang up":
                request.transport.close()
                break
            if answer == "say nothing":
                continue
            while answer == "talk on":  # and read nothing more
                await socket.send_str("{}")
                await asyncio.sleep(0.1)
            await socket.send_str(answer)
        self.closed += 1
        return socket


def observation(text="You are at home.", *, reward=None, done=False, **fields):
    return json.dumps(
        {"type": "observation", "data": {"observation": {"text": text, **fields}, "reward": reward, "done": done}}
    )


def error(code, message="no"):
    return json.dumps({"type": "error", "data": {"message": message, "code": code}})


def address(url, **changes):
    fields = {"action_field": "text", "observation_field": "text", "timeout": 5.0, "connect_timeout": 5.0}
    return ServiceAddress(url, **{**fields, **changes})
