"""An OpenEnv server with a latency: ``python slow_service.py SECONDS TURNS`` prints its address."""

import asyncio
import socket
import sys

import uvicorn
from openenv.core.env_server import Action, ConcurrencyConfig, Environment, Observation, State
from openenv.core.env_server.http_server import create_fastapi_app

LATENCY, TURNS = float(sys.argv[1]), int(sys.argv[2])


class Say(Action):
    text: str


class Heard(Observation):
    text: str


class Slow(Environment[Say, Heard, State]):
    """Listens for some turns; the reward says nothing."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        raise NotImplementedError("sessions are asynchronous")

    def step(self, action, timeout_s=None, **kwargs):
        raise NotImplementedError("sessions are asynchronous")

    async def reset_async(self, seed=None, episode_id=None, **kwargs):
        self.turns = 0
        await asyncio.sleep(LATENCY)
        return Heard(text=f"Talk to me about {seed}.", done=False, reward=None)

    async def step_async(self, action, timeout_s=None, **kwargs):
        self.turns += 1
        await asyncio.sleep(LATENCY)
        return Heard(text="Go on.", done=self.turns == TURNS, reward=0.0)

    @property
    def state(self):
        return State()


if __name__ == "__main__":
    limits = ConcurrencyConfig(max_concurrent_envs=256, session_timeout=600)
    app = create_fastapi_app(Slow, Say, Heard, concurrency_config=limits)
    listening = socket.create_server(("127.0.0.1", 0))
    print("http://{}:{}".format(*listening.getsockname()), flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])
