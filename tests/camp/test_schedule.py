"""The order of episodes, and that it belongs to its routes."""

import json
from collections import Counter

import pytest

from camp.routes import Managed, Route, Routes, check_pair, read_routes
from camp.schedule import DomainShare, make_schedule, read_schedule, write_schedule
from onepo.errors import UserError

DOMAINS = {
    "games": DomainShare(tasks=["lake", "taxi"], turns=8, turn_tokens=64),
    "puzzles": DomainShare(tasks=["sums"], turns=3, turn_tokens=128),
    "foreign": DomainShare(tasks=[], turns=5, turn_tokens=32),
}


def route(**changes):
    fields = {
        "url": "http://127.0.0.1:8101",
        "managed": Managed(service="games", sessions=64),
        "tasks": ["lake", "taxi"],
        "left_out": [],
        "action_field": "text",
        "observation_field": "text",
        "timeout": 30.0,
        "connect_timeout": 10.0,
        "turns": 8,
        "turn_tokens": 64,
        "fingerprint": "f",
    }
    return Route(**{**fields, **changes})


def rows(count=300, seed=1):
    return list(make_schedule(DOMAINS, rows=count, seed=seed))


def test_domains_are_balanced_at_every_point():
    for end in range(3, 300, 3):
        counts = Counter(row.domain for row in rows()[:end])
        assert set(counts.values()) == {end // 3}


def test_tasks_take_turns_and_limits_are_the_domains():
    games = [row for row in rows() if row.domain == "games"]
    assert all({one.task, other.task} == {"lake", "taxi"} for one, other in zip(games[::2], games[1::2], strict=True))
    assert {(row.turns, row.turn_tokens) for row in games} == {(8, 64)}
    assert {row.task for row in rows() if row.domain == "foreign"} == {None}


def test_no_episode_comes_twice():
    found = rows(3000)
    assert len({(row.domain, row.task, row.seed) for row in found}) == len(found)
    assert [row.position for row in found] == list(range(3000))


def test_the_seed_makes_the_schedule_and_more_rows_go_on():
    assert rows(30) == rows(300)[:30]
    assert rows(30, seed=1) != rows(30, seed=2)
    blocks = {tuple(row.domain for row in rows()[start : start + 3]) for start in range(0, 300, 3)}
    assert len(blocks) == 6  # every order comes up


@pytest.fixture
def pair(tmp_path):
    schedule = tmp_path / "train_schedule.jsonl"
    digest = write_schedule(schedule, make_schedule({"games": DOMAINS["games"]}, rows=6, seed=1))
    Routes.of({"games": route()}, schedule_sha256=digest, seed=42).write(tmp_path / "routes.json")
    return tmp_path / "routes.json", schedule


def test_what_was_written_together_belongs_together(pair):
    routes, schedule = read_routes(pair[0]), read_schedule(pair[1])
    check_pair(routes, *schedule)
    assert routes.domains["games"].address.url == "http://127.0.0.1:8101"
    assert routes.domains["games"].share == DOMAINS["games"]


def refused(call, *arguments) -> str:
    with pytest.raises(UserError) as caught:
        call(*arguments)
    return str(caught.value)


def test_an_altered_schedule_is_refused(pair):
    lines = pair[1].read_text().splitlines()
    pair[1].write_text("\n".join([lines[0].replace('"turns":8', '"turns":9'), *lines[1:]]) + "\n")
    assert "do not belong together" in refused(check_pair, read_routes(pair[0]), *read_schedule(pair[1]))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda lines: [*lines[:2], *lines[3:]], "line 3: its position is 3, expected 2"),
        (lambda lines: [lines[1], lines[0]], "line 1: its position is 1"),
        (lambda lines: [lines[0], "{"], "line 2: is no JSON"),
        (lambda lines: ['{"position": 0}'], "line 1: domain: Field required"),
        (lambda lines: [lines[0].replace('"seed":', '"seed":-')], "line 1: seed"),
        (lambda lines: [], "is empty"),
    ],
)
def test_a_schedule_that_is_none_is_named_with_its_line(pair, change, told):
    pair[1].write_text("".join(line + "\n" for line in change(pair[1].read_text().splitlines())))
    assert told in refused(read_schedule, pair[1])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda content: content["domains"]["games"].update(url="http://127.0.0.1:9"), "was changed after it was made"),
        (lambda content: content.update(schedule_sha256="0" * 64), "was changed after it was made"),
        (lambda content: content["domains"]["games"].update(turns=0), "domains.games.turns"),
        (lambda content: content["domains"]["games"].update(url="http://host/path?key=1"), "domains.games.url"),
        (lambda content: content.update(more=1), "more: Extra inputs"),
        (lambda content: content.update(domains={}), "domains: "),
    ],
)
def test_altered_routes_are_refused(pair, change, told):
    content = json.loads(pair[0].read_text())
    change(content)
    pair[0].write_text(json.dumps(content))
    assert told in refused(read_routes, pair[0])


def test_a_schedule_of_another_domain_is_named(pair):
    found = list(make_schedule(DOMAINS, rows=6, seed=1))
    assert "episodes of foreign, puzzles, and the routes have only games" in refused(
        check_pair, read_routes(pair[0]), found, "0"
    )


def test_the_template_runs_nothing(pair):
    template = Routes.of({"games": route()}, schedule_sha256=None, seed=42)
    assert "for inspection" in refused(check_pair, template, *read_schedule(pair[1]))


def test_files_that_are_not_there(tmp_path):
    assert "cannot be read (No such file" in refused(read_routes, tmp_path / "no.json")
    assert "cannot be read (No such file" in refused(read_schedule, tmp_path / "no.jsonl")
