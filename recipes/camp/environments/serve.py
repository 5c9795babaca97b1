"""Start the services that routes call managed: ``python -m camp.environments.serve --routes FILE``.

It runs where the training runs, and has the services run with their own interpreter. A training starts them by itself;
this is for trying them out, for several trainings that share them, and for services on another machine.
"""

import asyncio
import os
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from camp.command_line import RECIPE, orderly_end, services_python
from camp.routes import Route, read_routes, refuse_template
from camp.services import ManagedServices, check_fingerprints
from onepo.errors import UserError
from onepo.servers.managed import ServerStartFailed
from onepo.terminal import say

_SERVICES = RECIPE.camp.services


def serve(
    routes: Annotated[Path, typer.Option(metavar="FILE", help="That python -m camp.routes prepare wrote.")],
    python: Annotated[
        str | None,
        typer.Option(
            "--services-python",
            metavar="PYTHON",
            help="Runs the services.",
            show_default="CAMP_SERVICES_PYTHON, else what make services made",
        ),
    ] = None,
    logs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Gets a log of each service.", show_default="logs beside FILE")
    ] = None,
    start_timeout: Annotated[
        float, typer.Option(min=1, help="Seconds until a service is ready.")
    ] = _SERVICES.start_timeout,
    max_restarts: Annotated[
        int, typer.Option(min=0, help="Of each service, when it ends by itself.")
    ] = _SERVICES.max_restarts,
) -> None:
    """Serve until TERM, INT or HUP. Exit code 1 when a service ends for good, 2 when something is in the way."""
    out, complain = Console(), partial(say, Console(stderr=True))
    with orderly_end():
        bound = read_routes(routes)
        refuse_template(bound)
        managed = {name: route for name, route in bound.domains.items() if route.managed is not None}
        if not managed:
            raise UserError(f"--routes {routes}: has no managed service, so there is nothing to start")
        ended: SimpleQueue[tuple[str, str]] = SimpleQueue()
        services = ManagedServices(
            managed,
            python=services_python(python, os.environ),
            logs_dir=_folder(logs or routes.absolute().parent / "logs"),
            start_timeout=start_timeout,
            max_restarts=max_restarts,
            say=partial(say, out),
            lost=lambda name, reason: ended.put((name, reason)),
        )
        try:
            services.start()
            asyncio.run(check_fingerprints(managed))
            out.print(_drawn(managed))
            name, reason = ended.get()
            complain(f"error: the service of {name} has ended: {reason}")
        except ServerStartFailed as error:
            complain(f"error: {error}")
        finally:
            services.stop()
        raise typer.Exit(1)


def _folder(logs: Path) -> Path:
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--logs {logs}: cannot be made ({error.strerror})") from None
    return logs.absolute()


def _drawn(managed: dict[str, Route]) -> Table:
    table = Table(title="task services, until this command ends")
    for heading in ("domain", "address"):
        table.add_column(heading)
    for heading in ("tasks", "sessions"):
        table.add_column(heading, justify="right")
    for name, route in managed.items():
        table.add_row(name, route.url, str(len(route.tasks)), str(route.managed.sessions))
    return table


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(serve)
    app()
