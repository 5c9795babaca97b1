"""One service in one process: ``python -m camp.environments.run games --port 8100``; ``serve`` starts several of these.

Runs with the interpreter of the services, so it uses what OpenEnv brings and nothing of onepo.
"""

import importlib
from enum import Enum
from typing import Annotated

import typer
import uvicorn

from camp.environments.service import create_app

Name = Enum("Name", {name: name for name in ("database", "games", "puzzles", "quests", "search")}, type=str)


def run(
    name: Annotated[Name, typer.Argument(help="Which of the services.")],
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where to listen.")],
    host: Annotated[
        str, typer.Option(help="Other machines reach it only at another address than this one.")
    ] = "127.0.0.1",
    sessions: Annotated[int, typer.Option(min=1, help="Sessions at one time.")] = 256,
    session_timeout: Annotated[float, typer.Option(min=1, help="Seconds until an unused session ends.")] = 3600,
) -> None:
    """Serve a domain over the OpenEnv protocol, until TERM or INT."""
    domain = importlib.import_module(f"camp.environments.{name.value}").DOMAIN
    app = create_app(domain, sessions=sessions, session_timeout=session_timeout)
    uvicorn.run(app, host=host, port=port, log_level="warning", ws_max_size=2**22)


if __name__ == "__main__":
    typer.run(run)
