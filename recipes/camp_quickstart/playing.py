"""Episodes of the random player's in real services: what the quickstart's student learns from."""

import asyncio
import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp

from camp.command_line import RECIPE, services_python
from camp.routes import Route
from camp.sampling.session import Session
from camp.services import ManagedServices
from onepo.errors import UserError
from onepo.servers.managed import ServerStartFailed
from recipes.camp_quickstart.random_player import RandomPlayer

PLAYABLE = {"games", "quests"}
_SESSIONS = 16  # at one time

Told = list[str]  # what the service said in one episode, turn by turn


def watch(routes: Mapping[str, Route], *, episodes: int, seed: int, say: Callable[[str], None]) -> list[Told]:
    """Start the services, play so many episodes of each task, and end the services. The seed decides everything.

    Raises:
        UserError: a domain is none that the player knows, or a service does not start.
    """
    if unknown := sorted(routes.keys() - PLAYABLE):
        raise UserError(f"the random player knows {', '.join(sorted(PLAYABLE))}, and not {', '.join(unknown)}")
    with TemporaryDirectory(prefix="camp-quickstart-") as logs:
        services = ManagedServices(
            dict(routes),
            python=services_python(None, os.environ),
            logs_dir=Path(logs),
            start_timeout=RECIPE.camp.services.start_timeout,
            max_restarts=0,
            say=say,
            lost=lambda name, reason: say(f"{name}: {reason}"),
        )
        try:
            services.start()
            return asyncio.run(_play_all(routes, episodes, seed))
        except ServerStartFailed as error:
            raise UserError(str(error)) from None
        finally:
            services.stop()


async def _play_all(routes: Mapping[str, Route], episodes: int, seed: int) -> list[Told]:
    free = asyncio.Semaphore(_SESSIONS)

    async def one(http: aiohttp.ClientSession, route: Route, task: str, number: int) -> Told:
        async with free:
            return await _play(http, route, task, random.Random(f"{seed} {task} {number}"))

    async with aiohttp.ClientSession() as http:
        tasks = [(route, task) for route in routes.values() for task in route.tasks]
        return await asyncio.gather(*(one(http, route, task, n) for route, task in tasks for n in range(episodes)))


async def _play(http: aiohttp.ClientSession, route: Route, task: str, chance: random.Random) -> Told:
    async with Session(http, route.address) as session:
        heard = await session.reset(task=task, seed=chance.randrange(2**31))
        player = RandomPlayer(heard.text, chance)
        told = [heard.text]
        while len(told) < route.turns:
            heard = await session.step(player.act(heard.text))
            if heard.done:
                break
            told.append(heard.text)
    return told
