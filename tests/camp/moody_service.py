"""An OpenEnv server whose turns fail from some point on; runs with the services' Python.

``python moody_service.py FILE`` prints its address. FILE holds how many turns work, and may change while it runs.
"""

import socket
import sys
from pathlib import Path

import uvicorn
from openenv.core.env_server import Action, ConcurrencyConfig, Environment, Observation, State
from openenv.core.env_server.http_server import create_fastapi_app


class Say(Action):
    text: str


class Heard(Observation):
    text: str


class Moody(Environment[Say, Heard, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True
    allowed = Path(sys.argv[1])
    turns = 0

    def reset(self, seed=None, episode_id=None, **kwargs):
        return Heard(text=f"Say something about {seed}.", done=False, reward=None)

    def step(self, action, timeout_s=None, **kwargs):
        Moody.turns += 1
        if Moody.turns > int(Moody.allowed.read_text()):
            raise RuntimeError("no more today")
        return Heard(text="Thank you.", done=True, reward=1.0)

    @property
    def state(self):
        return State()


def main() -> None:
    limits = ConcurrencyConfig(max_concurrent_envs=64, session_timeout=60)
    app = create_fastapi_app(Moody, Say, Heard, concurrency_config=limits)
    listening = socket.create_server(("127.0.0.1", 0))
    print("http://{}:{}".format(*listening.getsockname()), flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    main()
