"""Make routes and a schedule: ``python -m camp.routes prepare --out DIR``.

Without options, the services that ship are started, looked at and ended again; the training starts them anew. A number
that is a limit may be for all domains or, as NAME=NUMBER, for one.
"""

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from rich.console import Console

from camp.command_line import RECIPE, orderly_end, services_python
from camp.prepare import LIMITS, TEXT_FIELD, Limits, Plan, Running, prepare, write_template
from camp.routes import SERVICES, read_routes
from onepo.errors import UserError
from onepo.terminal import say

_NAMED = re.compile(r"([A-Za-z0-9_-]+)=(.+)")
_MOST_UNDER_WAY, _MOST_ROWS = 20_000, 100_000_000
_HOST = re.compile(r"[A-Za-z0-9.:-]+")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def routes() -> None:
    """Which service serves which domain of a CAMP training, and the order of its episodes."""


def _limit(what: str, default: float) -> typer.models.OptionInfo:
    return typer.Option(
        metavar="[NAME=]NUMBER", help=f"{what}, for all domains or for one.", show_default=f"{default:g}"
    )


@app.command("prepare")
def prepare_command(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Gets routes.json and train_schedule.jsonl.")],
    domain: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A domain of the training.", show_default=", ".join(SERVICES)),
    ] = None,
    url: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=URL", help="A domain whose OpenEnv server runs already, as http://HOST:PORT."),
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=ACTION,OBSERVATION",
            help="The text fields in the messages of a server of --url.",
            show_default=f"{TEXT_FIELD},{TEXT_FIELD}",
        ),
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TASK,TASK", help="The tasks of a domain that is not to have all of its service's."),
    ] = None,
    updates: Annotated[int, typer.Option(min=1, help="Of the training.")] = RECIPE.trainer.total_training_steps,
    episodes: Annotated[int, typer.Option(min=1, help="Of an update.")] = RECIPE.data.train_batch_size,
    warmup: Annotated[
        float, typer.Option(min=0, help="Batches of episodes that are under way before the first update.")
    ] = RECIPE.trainer.v1.separate_async.num_warmup_batches,
    seed: Annotated[int, typer.Option(help="Of the schedule.")] = RECIPE.camp.seed,
    turns: Annotated[list[str] | None, _limit("Turns of an episode", LIMITS.turns)] = None,
    turn_tokens: Annotated[list[str] | None, _limit("Tokens of one of the student's turns", LIMITS.turn_tokens)] = None,
    timeout: Annotated[list[str] | None, _limit("Seconds for an answer", LIMITS.timeout)] = None,
    connect_timeout: Annotated[
        list[str] | None, _limit("Seconds until a session is open", LIMITS.connect_timeout)
    ] = None,
    host: Annotated[
        str, typer.Option(help="Where the services that ship listen; others reach them only at another one than this.")
    ] = "127.0.0.1",
    first_port: Annotated[
        int, typer.Option(min=1, max=65535, help="Of the services that ship; each has the next one.")
    ] = 18731,
    python: Annotated[
        str | None,
        typer.Option(
            "--services-python",
            metavar="PYTHON",
            help="Runs the services that ship.",
            show_default="CAMP_SERVICES_PYTHON, else what make services made",
        ),
    ] = None,
    start_timeout: Annotated[
        float, typer.Option(min=1, help="Seconds until a service is ready.")
    ] = RECIPE.camp.services.start_timeout,
    template: Annotated[
        bool, typer.Option("--template", help="Only show the form of routes.json: nothing can run with that.")
    ] = False,
) -> None:
    """Bind domains to their services, and fix the order of the episodes. Exit code 2 when something is in the way."""
    tell = partial(say, Console())
    with orderly_end():
        running = _running(url or (), fields or ())
        domains = {*(domain or SERVICES), *running}
        limits = _limits(
            domains, turns=turns, turn_tokens=turn_tokens, timeout=timeout, connect_timeout=connect_timeout
        )
        if not math.isfinite(warmup):
            raise UserError(f"--warmup {warmup}: expected a number")
        if not _HOST.fullmatch(host):
            raise UserError(f"--host {host}: is no address of a machine")
        chosen = _tasks(domains, tasks or ())
        plan = Plan(domains, running, chosen, limits, updates, episodes, warmup, host, first_port, seed)
        if plan.in_flight > _MOST_UNDER_WAY or plan.rows > _MOST_ROWS:
            raise UserError(
                f"--updates {updates} --episodes {episodes} --warmup {warmup:g}: at most {_MOST_ROWS} episodes in all "
                f"and {_MOST_UNDER_WAY} at one time are possible"
            )
        if template:
            tell(f"written: {write_template(plan, out, say=tell)}; it shows the form, and nothing can run with it")
            return
        interpreter = services_python(python, os.environ)
        routes_file, schedule_file = prepare(plan, out, python=interpreter, start_timeout=start_timeout, say=tell)
        made = read_routes(routes_file)
        tell(f"written: {routes_file} ({made.sha256[:12]}): {', '.join(made.domains)}")
        tell(
            f"written: {schedule_file} ({made.schedule_sha256[:12]}), {plan.rows} episodes: enough for {updates} "
            f"updates of {episodes}, with up to {plan.in_flight} under way"
        )


def _running(urls: Sequence[str], fields: Sequence[str]) -> dict[str, Running]:
    """The services that run already, by domain."""
    spoken = _named("--fields", fields, "ACTION,OBSERVATION")
    found = {}
    for name, url in _named("--url", urls, "http://HOST:PORT").items():
        if not _is_address(url):
            raise UserError(f"--url {name}=...: expected the address of an OpenEnv server, as http://HOST:PORT")
        pair = spoken.pop(name, f"{TEXT_FIELD},{TEXT_FIELD}").split(",")
        if len(pair) != 2 or not all(pair):
            raise UserError(f"--fields {name}={','.join(pair)}: expected {name}=ACTION,OBSERVATION")
        found[name] = Running(url.rstrip("/"), *pair)
    for name in spoken:
        raise UserError(f"--fields {name}=...: is for servers that --url names, and there is no --url {name}=...")
    return found


def _tasks(domains: Iterable[str], words: Sequence[str]) -> dict[str, list[str]]:
    """The tasks of the domains that are not to have all."""
    found = {}
    for name, listed in _named("--tasks", words, "TASK,TASK").items():
        if name not in domains:
            raise UserError(f"--tasks {name}=...: there is no domain {name}; there are {', '.join(sorted(domains))}")
        found[name] = [task.strip() for task in listed.split(",")]
    return found


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and "@" not in parts.netloc  # a password would be written down
            and parts.path in ("", "/")
            and not (parts.query or parts.fragment)
        )
    except ValueError:  # brackets or a port that are none
        return False


def _limits(domains: Iterable[str], **words: Sequence[str] | None) -> dict[str, Limits]:
    defaults = asdict(LIMITS)
    columns = {name: _by_domain(name, given or (), domains, defaults[name]) for name, given in words.items()}
    return {domain: Limits(**{name: column[domain] for name, column in columns.items()}) for domain in domains}


def _by_domain(name: str, words: Sequence[str], domains: Iterable[str], default: float) -> Mapping[str, float]:
    """The value of one limit for each domain: its own, else the one for all."""
    option = f"--{name.replace('_', '-')}"
    read, expected = (_count, "a whole number from 1") if isinstance(default, int) else (_seconds, "seconds above 0")
    own: dict[str, float] = {}
    for word in words:
        domain, named, number = word.rpartition("=")
        if named and domain not in domains:
            raise UserError(f"{option} {word}: there is no domain {domain}; there are {', '.join(sorted(domains))}")
        try:
            value = read(number)
        except ValueError:
            raise UserError(f"{option} {word}: expected {expected}, or NAME= and that") from None
        if named:
            own[domain] = value
        else:
            default = value
    return {domain: own.get(domain, default) for domain in domains}


def _named(option: str, words: Sequence[str], value: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        parts = _NAMED.fullmatch(word)
        if parts is None:
            raise UserError(f"{option}: expected NAME={value}, with a NAME of letters, digits, _ and -")
        if parts[1] in found:
            raise UserError(f"{option} {parts[1]}=...: is there twice")
        found[parts[1]] = parts[2]
    return found


def _count(number: str) -> int:
    return _checked(int(number))


def _seconds(number: str) -> float:
    return _checked(float(number))


def _checked(value: float) -> float:
    if not 0 < value < math.inf:
        raise ValueError
    return value


if __name__ == "__main__":
    app(prog_name="python -m camp.routes")
