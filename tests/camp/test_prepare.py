"""Routes and a schedule made with real services: started, looked at, filled with sessions, and gone afterwards."""

import asyncio
import socket
from pathlib import Path

import psutil
import pytest

from camp.prepare import Limits, Plan, Running, prepare, template
from camp.routes import check_pair, read_routes
from camp.schedule import read_schedule
from camp.services import ManagedServices, check_fingerprints, check_sessions, facts_of
from onepo.errors import UserError
from tests.camp.commands import SERVICES_PYTHON, free_port

LIMITS = Limits(turns=8, turn_tokens=64, timeout=30.0, connect_timeout=30.0)


def plan(**changes) -> Plan:
    fields = {
        "domains": ["games"],
        "running": {},
        "tasks": {},
        "limits": {"games": LIMITS, "shop": LIMITS},
        "updates": 3,
        "episodes": 8,
        "warmup": 1.5,
        "host": "127.0.0.1",
        "first_port": free_port(),
        "seed": 1,
    }
    return Plan(**{**fields, **changes})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The two files, what was said, and what lived on."""
    said = []
    files = prepare(
        plan(tasks={"games": ["taxi", "lake_4"]}),
        tmp_path_factory.mktemp("prepared"),
        python=SERVICES_PYTHON,
        start_timeout=120,
        say=said.append,
    )
    left = psutil.Process().children(recursive=True)
    return (*files, said, left)


def test_the_two_files_belong_together_and_nothing_is_left(prepared):
    routes_file, schedule_file, said, left = prepared
    routes, schedule = read_routes(routes_file), read_schedule(schedule_file)
    check_pair(routes, *schedule)
    games = routes.domains["games"]
    assert games.tasks[:2] == ["lake_4", "taxi"] and len(games.fingerprint) == 64
    assert games.managed.sessions == 25  # 2.5 batches of 8 may be under way, and some are just being left
    assert len(schedule[0]) == 3 * 8 + 20
    assert said[0].startswith("games is ready after ") and left == []


@pytest.fixture(scope="module")
def running(prepared, tmp_path_factory):
    """The services of the routes, as a training starts them."""
    routes = read_routes(prepared[0]).domains
    services = ManagedServices(
        routes,
        python=SERVICES_PYTHON,
        logs_dir=tmp_path_factory.mktemp("logs"),
        start_timeout=120,
        max_restarts=0,
        say=print,
        lost=lambda name, reason: None,
    )
    services.start()
    yield routes
    services.stop()


def test_the_service_of_the_training_is_the_one_that_was_looked_at(running):
    assert asyncio.run(facts_of(running["games"].url)).fingerprint == running["games"].fingerprint


def test_all_services_that_are_dead_or_others_are_told_at_one_time(running):
    games = running["games"]
    nobody = f"http://127.0.0.1:{free_port()}"
    asyncio.run(check_fingerprints(running))
    dead = games.model_copy(update={"url": nobody, "managed": None})
    other = games.model_copy(update={"fingerprint": "0" * 64})
    with pytest.raises(UserError) as caught:
        asyncio.run(check_fingerprints({"dead": dead, "games": games, "other": other}))
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"domain dead: {nobody}: no OpenEnv server answers there (")
    assert second.startswith(f"domain other: the service at {games.url} is not the one that the routes were made with")


def test_a_domain_may_have_some_tasks_of_its_service(prepared):
    games = read_routes(prepared[0]).domains["games"]
    assert (games.tasks, games.left_out) == (["lake_4", "taxi"], ["lake_6", "blackjack"])  # in the service's order
    assert {row.task for row in read_schedule(prepared[1])[0]} == {"lake_4", "taxi"}


def test_too_few_sessions_are_told(running):
    with pytest.raises(UserError, match=r"domain games: of 30 sessions, .* 5 could not be begun"):
        asyncio.run(check_sessions("games", running["games"], sessions=30))


def test_a_service_that_runs_already_is_named_by_its_address(running, tmp_path):
    url = running["games"].url
    files = prepare(
        plan(domains=["shop"], running={"shop": Running(url, "text", "text")}, episodes=4),
        tmp_path,
        python="/nonexistent",
        start_timeout=1,
        say=print,
    )
    shop = read_routes(files[0]).domains["shop"]
    assert (shop.url, shop.managed, shop.fingerprint) == (url, None, running["games"].fingerprint)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"tasks": {"games": ["chess"]}}, "--tasks games=...: the service of games has no task chess; it has lake_4, "),
        ({"domains": ["shop"]}, "domain shop: is none of the services that ship"),
        (
            {"domains": ["shop"], "running": {"shop": Running("http://127.0.0.1:1", "text", "text")}},
            "no OpenEnv server answers there",
        ),
    ],
)
def test_what_cannot_be_prepared_writes_nothing(changes, told, tmp_path):
    with pytest.raises(UserError, match=told):
        prepare(plan(**changes), tmp_path / "out", python=SERVICES_PYTHON, start_timeout=120, say=print)
    assert not Path(tmp_path / "out").exists()


def test_a_service_that_does_not_start_is_told_with_its_last_words(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UserError, match="the service of games: "):
        port = taken.getsockname()[1]
        prepare(plan(first_port=port), tmp_path / "out", python=SERVICES_PYTHON, start_timeout=60, say=print)
    assert not Path(tmp_path / "out").exists()


def test_the_template_asks_nobody():
    routes = template(plan(domains=["games", "search"], limits={"games": LIMITS, "search": LIMITS}))
    assert sorted(routes.domains) == ["games", "search"] and routes.schedule_sha256 is None
