"""The worlds: what their tables are called, and rows for them.

All worlds have one shape: things are the subject of events, which persons take part in, at places. What differs is what
they are called and how large their numbers are, so one template asks a question in each of them.
"""

import datetime
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class World:
    """The words of a world. Nouns are given as singular and plural; a plural is the table's name, too."""

    place: tuple[str, str]
    thing: tuple[str, str]
    person: tuple[str, str]
    event: tuple[str, str]
    kind: str  # column of a thing
    kinds: tuple[str, ...]
    number: str  # column of a thing
    numbers: tuple[float, float]
    measure: str  # column of an event
    unit: str  # what the measure counts, in a sentence
    measures: tuple[int, int]
    nouns: tuple[str, ...]  # for the names of things


WORLDS = (
    World(
        ("shop", "shops"), ("product", "products"), ("customer", "customers"), ("sale", "sales"),
        "category", ("kitchen", "garden", "office", "toys"), "price", (3.0, 90.0), "units", "units", (1, 20),
        ("lamp", "chair", "kettle", "basket", "clock", "blanket", "mirror", "ladder"),
    ),
    World(
        ("branch", "branches"), ("book", "books"), ("reader", "readers"), ("loan", "loans"),
        "genre", ("novel", "history", "travel", "science"), "weight_kg", (0.2, 2.5), "days_kept", "days", (2, 45),
        ("harbour", "winter", "letter", "orchard", "voyage", "island", "tower", "river"),
    ),
    World(
        ("clinic", "clinics"), ("treatment", "treatments"), ("patient", "patients"), ("visit", "visits"),
        "field", ("teeth", "skin", "eyes", "back"), "fee", (20.0, 300.0), "minutes", "minutes", (5, 90),
        ("check", "massage", "cleaning", "test", "therapy", "scan", "bandage", "exercise"),
    ),
    World(
        ("depot", "depots"), ("vehicle", "vehicles"), ("driver", "drivers"), ("trip", "trips"),
        "type", ("van", "truck", "bike", "trailer"), "payload_tons", (0.1, 24.0), "distance_km", "kilometres", (3, 400),
        ("falcon", "badger", "otter", "heron", "lynx", "beaver", "marten", "raven"),
    ),
)  # fmt: skip
_COLOURS = ("amber", "blue", "crimson", "green", "ivory", "silver", "violet", "white")
_TOWNS = ("Arlow", "Brenfield", "Corwick", "Dunmere", "Elstow", "Farnley")
_PLACES = ("Abbey", "Bridge", "Castle", "Garden", "Harbour", "Linden", "Market", "Station")
_FIRST = ("Ada", "Bela", "Carl", "Dora", "Emil", "Fay", "Gus", "Hana", "Ivo", "June", "Kai", "Lena")
_LAST = ("Ames", "Brook", "Cole", "Drake", "Ellis", "Frost", "Gray", "Holt")
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
           "December")  # fmt: skip


def draw_words(rng: random.Random, world: World) -> dict[str, Any]:
    """What the templates of a question may speak of."""
    nouns = {name: getattr(world, name) for name in ("place", "thing", "person", "event")}
    month, start = rng.randrange(12), datetime.date(2023, 1, 1) + datetime.timedelta(rng.randrange(300))
    return {
        **{name: one for name, (one, _) in nouns.items()},
        **{f"{name}s": many for name, (_, many) in nouns.items()},
        **{name: getattr(world, name) for name in ("kind", "number", "measure", "unit")},
        "town": rng.choice(("town", "city")),
        "day": rng.choice(("day", "took_place")),
        "a_kind": rng.choice(world.kinds),
        "a_town": rng.choice(_TOWNS[:3]),
        "a_place": rng.choice(_PLACES[:4]),
        "month": _MONTHS[month],
        "month_number": month + 1,
        "start": start,
        "end": start + datetime.timedelta(rng.randrange(10, 60)),
        "low": rng.randrange(*world.measures),
        "goal": world.measures[1] * rng.randrange(2, 9),
        "few": rng.randrange(3, 8),
        "year": rng.randrange(1960, 2000, 5),
    }


def draw_tables(rng: random.Random, world: World, words: dict[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    """The tables of a question; an event refers to those of them that are wanted."""
    names = {
        "place": rng.sample(_PLACES, rng.randrange(5, 8)),
        "thing": rng.sample([f"{colour} {noun}" for colour in _COLOURS for noun in world.nouns], rng.randrange(20, 40)),
        "person": rng.sample([f"{first} {last}" for first in _FIRST for last in _LAST], rng.randrange(20, 40)),
    }

    def some(draw: Any, count: int) -> list[Any]:
        return [draw() for _ in range(count)]

    def town() -> str:
        return rng.choice(_TOWNS)

    further = {
        "place": {
            f"{words['town']} VARCHAR": town,
            "opened INTEGER": lambda: rng.randrange(1950, 2020),
        },
        "thing": {
            f"{world.kind} VARCHAR": lambda: rng.choice(world.kinds),
            f"{world.number} DOUBLE": lambda: round(rng.uniform(*world.numbers), 2),
        },
        "person": {
            f"{words['town']} VARCHAR": town,
            "birth_year INTEGER": lambda: rng.randrange(1940, 2005),
        },
    }
    tables = {}
    for name in wanted[:-1]:
        count = len(names[name])
        columns = {"id INTEGER": list(range(1, count + 1)), "name VARCHAR": names[name]}
        columns.update({column: some(draw, count) for column, draw in further[name].items()})
        tables[words[f"{name}s"]] = columns
    count = rng.randrange(120, 240)
    events: dict[str, list[Any]] = {"id INTEGER": list(range(1, count + 1))}
    for name in wanted[:-1]:
        most = len(names[name])  # early ones are rarer, some have none
        events[f"{words[name]}_id INTEGER"] = some(lambda most=most: 1 + int(most * rng.random() ** 0.5), count)
    events[f"{words['day']} DATE"] = some(
        lambda: str(datetime.date(2023, 1, 1) + datetime.timedelta(rng.randrange(365))), count
    )
    events[f"{world.measure} INTEGER"] = some(lambda: rng.randint(*world.measures), count)
    tables[words["events"]] = events
    return {
        name: {"columns": [column.split() for column in columns], "values": list(columns.values())}
        for name, columns in tables.items()
    }
