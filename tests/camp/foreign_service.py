"""An OpenEnv server that is none of ours, with fields and limits of its own; runs with the services' Python.

``python foreign_service.py SESSIONS`` prints its address, which takes connections from then on.
"""

import socket
import sys

import uvicorn
from openenv.core.env_server import Action, ConcurrencyConfig, Environment, Observation, State
from openenv.core.env_server.http_server import create_fastapi_app


class Purchase(Action):
    command: str


class View(Observation):
    view: str


class Shop(Environment[Purchase, View, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        return View(view=f"You are in shop {seed}.", done=False, reward=None)

    def step(self, action, timeout_s=None, **kwargs):
        return View(view=f"You say {action.command}.", done=True, reward=1.0)

    @property
    def state(self):
        return State()


def main(sessions: int) -> None:
    limits = ConcurrencyConfig(max_concurrent_envs=sessions, session_timeout=60)
    app = create_fastapi_app(Shop, Purchase, View, concurrency_config=limits)
    listening = socket.create_server(("127.0.0.1", 0))
    print("http://{}:{}".format(*listening.getsockname()), flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    main(int(sys.argv[1]))
