"""The order of the episodes: one JSON object per line, fixed before the training begins.

Each block of as many rows as there are domains has every domain once, in an order drawn anew for each block, so every
update of whole blocks is balanced. A domain's tasks take turns, and no two of its episodes have the same seed.
"""

import hashlib
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from onepo.errors import UserError

_LARGEST_SEED = 2**31 - 1


class ScheduledEpisode(BaseModel):
    """One row.

    Attributes:
        position: of the row, from 0; it names the episode for the whole training.
        task: of the domain's, None for a service that has only seeds.
        turns, turn_tokens: limits of the episode and of one of the student's turns.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    position: int = Field(ge=0)
    domain: str = Field(min_length=1)
    task: str | None
    seed: int = Field(ge=0, le=_LARGEST_SEED)
    turns: int = Field(ge=1)
    turn_tokens: int = Field(ge=1)


class DomainShare(BaseModel):
    """What the schedule needs of a domain: its tasks, and the limits that its rows get."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tasks: list[str]
    turns: int = Field(ge=1)
    turn_tokens: int = Field(ge=1)


def make_schedule(domains: Mapping[str, DomainShare], *, rows: int, seed: int) -> Iterator[ScheduledEpisode]:
    """The first ``rows`` rows; fewer rows of the same seed are a beginning of more."""
    order = random.Random(f"order {seed}")
    seeds = {name: _different_seeds(f"seeds {seed} {name}") for name in domains}
    tasks = {name: _in_turn(share.tasks, f"tasks {seed} {name}") for name, share in domains.items()}
    block: list[str] = []
    for position in range(rows):
        if not block:
            block = sorted(domains)
            order.shuffle(block)
        name = block.pop()
        share = domains[name]
        yield ScheduledEpisode(
            position=position,
            domain=name,
            task=next(tasks[name]),
            seed=next(seeds[name]),
            turns=share.turns,
            turn_tokens=share.turn_tokens,
        )


def most_under_way(episodes: int, warmup: float) -> int:
    """How many episodes may be under way at one time: those of an update, and so many batches beside it."""
    return math.ceil((1 + warmup) * episodes)


def _different_seeds(name: str) -> Iterator[int]:
    draw, used = random.Random(name), set()
    while True:
        seed = draw.randrange(_LARGEST_SEED)
        if seed not in used:
            used.add(seed)
            yield seed


def _in_turn(tasks: Sequence[str], name: str) -> Iterator[str | None]:
    draw = random.Random(name)
    while True:
        round_of_tasks: list[str | None] = list(tasks) or [None]
        draw.shuffle(round_of_tasks)
        yield from round_of_tasks


def write_schedule(file: Path, rows: Iterator[ScheduledEpisode]) -> str:
    """Write the rows; returns the SHA-256 of the file."""
    digest = hashlib.sha256()
    fresh = file.with_suffix(".tmp")
    with fresh.open("wb") as stream:
        for row in rows:
            line = row.model_dump_json().encode() + b"\n"
            digest.update(line)
            stream.write(line)
    fresh.replace(file)
    return digest.hexdigest()


def read_schedule(file: Path) -> tuple[list[ScheduledEpisode], str]:
    """The rows, and the SHA-256 of the file.

    Raises:
        UserError: it cannot be read, or a row is none.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UserError(f"schedule {file}: cannot be read ({error.strerror})") from None
    rows = []
    for number, line in enumerate(content.splitlines()):
        try:
            rows.append(ScheduledEpisode.model_validate(json.loads(line)))
        except ValidationError as error:
            (problem, *_) = error.errors()
            where = ".".join(map(str, problem["loc"]))
            raise UserError(f"schedule {file}, line {number + 1}: {where}: {problem['msg']}") from None
        except (ValueError, RecursionError) as error:
            raise UserError(f"schedule {file}, line {number + 1}: is no JSON ({error})") from None
        if rows[-1].position != number:
            raise UserError(
                f"schedule {file}, line {number + 1}: its position is {rows[-1].position}, expected {number}: lines "
                "were moved, removed or added; make it anew with python -m camp.routes prepare"
            )
    if not rows:
        raise UserError(f"schedule {file}: is empty")
    return rows, hashlib.sha256(content).hexdigest()
