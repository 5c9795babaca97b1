"""A real model that scores given tokens over HTTP, in the form of SGLang's ``/generate``; it can fail on request."""

import asyncio
import math
import threading
from pathlib import Path

import torch
from aiohttp import web
from transformers import AutoModelForCausalLM


class ScoringServer:
    """The server, in a thread of its own while the ``with`` block lasts.

    Attributes:
        fail: of the next requests, so many are answered with HTTP 500.
        last: after so many answers it has no time for anybody (HTTP 503).
        answered: requests that got their scores.
    """

    def __init__(self, folder: Path):
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.fail = self.answered = 0
        self.last = math.inf

    async def _generate(self, request: web.Request) -> web.Response:
        asked = await request.json()
        if self.answered >= self.last:
            return web.json_response({}, status=503)
        if self.fail:
            self.fail -= 1
            return web.json_response({"error": {"message": "out of order"}}, status=500)
        ids, start = asked["input_ids"], asked["logprob_start_len"]
        with torch.no_grad():
            scores = torch.log_softmax(self._model(torch.tensor([ids])).logits[0, :-1], -1)
        own = scores.gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()
        told = [[None, ids[start], None], *([own[place - 1], ids[place], None] for place in range(start + 1, len(ids)))]
        self.answered += 1
        return web.json_response({"text": "", "meta_info": {"input_token_logprobs": told}})

    def __enter__(self) -> "ScoringServer":
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        self._thread.start()
        assert ready.wait(30)
        return self

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/generate", self._generate)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        ready.set()
        await self._over.wait()
        await runner.cleanup()

    def __exit__(self, *_) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(30)
