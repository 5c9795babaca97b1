"""The questions: for each task a few templates of a sentence and its query, filled in by the words of a world."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from camp.environments.database.engine import ENGINE
from camp.environments.database.worlds import WORLDS, draw_tables, draw_words


@dataclass(frozen=True)
class Template:
    text: str
    query: str


@dataclass(frozen=True)
class Task:
    tables: Sequence[str]
    most_turns: int
    templates: Sequence[Template]


@dataclass(frozen=True)
class Question:
    """A question.

    Attributes:
        tables: as ``worker.carry_out`` takes them.
        query: one that gives the answer.
    """

    tables: dict[str, Any]
    text: str
    query: str
    answer: int | float | str


TASKS = {
    "filter": Task(("thing", "event"), 6, (
        Template("How many {things} are of the {kind} {a_kind}?",
                 "SELECT count(*) FROM {things} WHERE {kind} = '{a_kind}'"),
        Template("How many {events} are of more than {low} {unit}?",
                 "SELECT count(*) FROM {events} WHERE {measure} > {low}"),
        Template("Which {thing} of the {kind} {a_kind} has the highest {number}? Give its name.",
                 "SELECT name FROM {things} WHERE {kind} = '{a_kind}' "
                 "QUALIFY rank() OVER (ORDER BY {number} DESC) = 1"),
        Template("How many {events} were there from {start} to {end}, both days included?",
                 "SELECT count(*) FROM {events} WHERE {day} BETWEEN '{start}' AND '{end}'"),
    )),
    "aggregate": Task(("place", "thing", "event"), 6, (
        Template("What is the average {number} of the {things} of the {kind} {a_kind}, rounded to two decimals?",
                 "SELECT round(avg({number}), 2) FROM {things} WHERE {kind} = '{a_kind}'"),
        Template("Which {kind} has the most {things}?",
                 "SELECT {kind} FROM {things} GROUP BY {kind} QUALIFY rank() OVER (ORDER BY count(*) DESC) = 1"),
        Template("How many {unit} do all {events} of {month} 2023 add up to?",
                 "SELECT sum({measure})::INTEGER FROM {events} WHERE month({day}) = {month_number}"),
        Template("In which month of 2023 were there the most {events}? Give its number, 1 to 12.",
                 "SELECT month({day}) FROM {events} GROUP BY month({day}) "
                 "QUALIFY rank() OVER (ORDER BY count(*) DESC) = 1"),
    )),
    "join": Task(("place", "thing", "event"), 8, (
        Template("How many {unit} do the {events} of the {places} in {a_town} add up to?",
                 "SELECT sum({measure})::INTEGER FROM {events} e JOIN {places} p ON p.id = e.{place}_id "
                 "WHERE p.{town} = '{a_town}'"),
        Template("How many {events} of {things} of the {kind} {a_kind} does the {place} {a_place} have?",
                 "SELECT count(*) FROM {events} e JOIN {places} p ON p.id = e.{place}_id JOIN {things} t "
                 "ON t.id = e.{thing}_id WHERE p.name = '{a_place}' AND t.{kind} = '{a_kind}'"),
        Template("Which {thing} has the most {unit} when all its {events} are added up? Give its name.",
                 "SELECT t.name FROM {events} e JOIN {things} t ON t.id = e.{thing}_id GROUP BY t.id, t.name "
                 "QUALIFY rank() OVER (ORDER BY sum({measure}) DESC) = 1"),
        Template("How many {things} have no {event} at all?",
                 "SELECT count(*) FROM {things} WHERE id NOT IN (SELECT {thing}_id FROM {events})"),
    )),
    "rank": Task(("place", "thing", "event"), 10, (
        Template("Take the {events} of the {place} {a_place} by day, and those of one day by id, and add up their "
                 "{unit} one after the other. What is the id of the {event} at which the total first reaches {goal}?",
                 "SELECT e.id FROM {events} e JOIN {places} p ON p.id = e.{place}_id WHERE p.name = '{a_place}' "
                 "WINDOW w AS (ORDER BY {day}, e.id) "
                 "QUALIFY sum({measure}) OVER w >= {goal} AND sum({measure}) OVER w - {measure} < {goal}"),
        Template("Add up the {unit} of all {events} of each {thing}. Which {thing} of the {kind} {a_kind} has the "
                 "second highest total? Give its name.",
                 "SELECT t.name FROM {events} e JOIN {things} t ON t.id = e.{thing}_id WHERE {kind} = '{a_kind}' "
                 "GROUP BY t.id, t.name QUALIFY rank() OVER (ORDER BY sum({measure}) DESC) = 2"),
        Template("Of the {place} {a_place}: how many days lie between two {events} that follow each other, at most? "
                 "From one day to the next is 1.",
                 "SELECT max(gap) FROM (SELECT {day} - lag({day}) OVER (ORDER BY {day}) AS gap "
                 "FROM {events} e JOIN {places} p ON p.id = e.{place}_id WHERE p.name = '{a_place}')"),
        Template("Add up the {unit} of all {events} in each month of 2023. In how many months is the total higher "
                 "than in the month before it? January does not count.",
                 "SELECT count(*) FROM (SELECT sum({measure}) > lag(sum({measure})) OVER (ORDER BY month({day})) "
                 "AS more FROM {events} GROUP BY month({day})) WHERE more"),
    )),
    "steps": Task(("place", "thing", "person", "event"), 12, (
        Template("How many {persons} have had a {event} of a {place} that is in the {town} they live in?",
                 "SELECT count(DISTINCT h.id) FROM {events} e JOIN {places} p ON p.id = e.{place}_id JOIN {persons} h "
                 "ON h.id = e.{person}_id WHERE h.{town} = p.{town}"),
        Template("Find the {place} whose {events} have the most {unit} in total. "
                 "Which {kind} has the most {events} there?",
                 "WITH best AS (SELECT {place}_id FROM {events} GROUP BY {place}_id "
                 "QUALIFY rank() OVER (ORDER BY sum({measure}) DESC) = 1) SELECT t.{kind} FROM {events} e JOIN best b "
                 "USING ({place}_id) JOIN {things} t ON t.id = e.{thing}_id GROUP BY t.{kind} "
                 "QUALIFY rank() OVER (ORDER BY count(*) DESC) = 1"),
        Template("How many {things} have a {number} above the average of their own {kind} and at least {few} {events}?",
                 "SELECT count(*) FROM (SELECT *, avg({number}) OVER (PARTITION BY {kind}) AS usual FROM {things}) t "
                 "WHERE {number} > usual AND (SELECT count(*) FROM {events} e WHERE e.{thing}_id = t.id) >= {few}"),
        Template("Of the {persons} born before {year}, who has had {events} of the most different {places}? "
                 "Give the name.",
                 "SELECT h.name FROM {events} e JOIN {persons} h ON h.id = e.{person}_id WHERE birth_year < {year} "
                 "GROUP BY h.id, h.name QUALIFY rank() OVER (ORDER BY count(DISTINCT {place}_id) DESC) = 1"),
    )),
}  # fmt: skip


def make_question(task: str, seed: int) -> Question:
    """The question of a task and a seed: drawn until its query gives a single answer."""
    rng = random.Random(f"database {task} {seed}")
    while True:
        world = rng.choice(WORLDS)
        words = draw_words(rng, world)
        tables = draw_tables(rng, world, words, TASKS[task].tables)
        template = rng.choice(TASKS[task].templates)
        text, query = template.text.format_map(words), template.query.format_map(words)
        reply = ENGINE.ask(tables, query)
        if "error" in reply:
            raise RuntimeError(f"the database answers a question of its own with: {reply['error']}")
        rows = reply["rows"]
        if len(rows) == 1 and rows[0][0]:  # a tie has two rows; nothing and zero are too easily guessed
            return Question(tables, text, query, rows[0][0])
