"""What CAMP's command lines share: the recipe's values, the Python of the task services, and how they end."""

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import typer
from omegaconf import OmegaConf
from rich.console import Console

from onepo.errors import UserError
from onepo.terminal import say

# the values of a training, for what is prepared for one; what only a method has is in its own configuration
RECIPE = OmegaConf.load(files("camp.config").joinpath("common.yaml"))
_OWN_ENVIRONMENT = Path(__file__).parents[2] / ".venv-services" / "bin" / "python"  # which `make services` makes


def services_python(chosen: str | None, environ: Mapping[str, str]) -> str:
    """The interpreter of the task services.

    Args:
        chosen: by an option of the command line, None without one.
        environ: the variables of the process; CAMP_SERVICES_PYTHON is what counts next.
    """
    if found := chosen or environ.get("CAMP_SERVICES_PYTHON"):
        return found
    return str(_OWN_ENVIRONMENT) if _OWN_ENVIRONMENT.exists() else sys.executable


@contextmanager
def orderly_end() -> Iterator[Callable[[], None]]:
    """What happens in here ends with exit code 2 on a user's mistake, and with 128 + n on the signal n.

    Signals that are ignored, as under nohup, stay ignored. Handlers stay for the rest of the process; a library that
    puts its own in their place, as Ray does, has to give way again by a call of what this gives.
    """
    stops = [n for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]

    def stop(number: int, frame: Any) -> None:
        for each in stops:
            signal.signal(each, signal.SIG_IGN)  # a second one must not cut the cleaning short
        raise SystemExit(128 + number)

    def take_signals() -> None:
        for each in stops:
            signal.signal(each, stop)

    take_signals()
    try:
        yield take_signals
    except UserError as error:
        for line in str(error).splitlines():
            say(Console(stderr=True), f"error: {line}")
        raise typer.Exit(2) from None
