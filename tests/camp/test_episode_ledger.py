"""The counting of what happened to the episodes, without Ray."""

import json

import pytest

from camp.sampling.ledger import EpisodeLedger, EpisodeReport


def report(domain="games", *, reward=1.0, limit=None, latencies=(0.5,)):
    return EpisodeReport(domain, reward, limit, 2.0, list(latencies))


@pytest.fixture
def ledger():
    return EpisodeLedger(["quests", "games"])


def play(ledger, position, **told):
    ledger.begin(position, told.get("domain", "games"), again=False)
    ledger.finish(position, report(**told))


def test_what_was_finished(ledger):
    play(ledger, 0)
    play(ledger, 1, limit="turns")
    play(ledger, 2, limit="turns", domain="quests", latencies=())
    counters = ledger.counters()
    assert counters["games"]["finished"] == 2 and counters["games"]["limits"] == {"turns": 1}
    assert counters["quests"]["finished"] == 1 and counters["quests"]["limits"] == {"turns": 1}
    assert ledger.stop_reason() is None and ledger.new_notes() == []


def test_how_long_the_services_took(ledger):
    play(ledger, 0, latencies=[1.0, 3.0])
    first = ledger.close_step()
    play(ledger, 1, latencies=[5.0])
    second = ledger.close_step()
    assert (first["domain/games/latency_mean"], first["domain/games/latency_max"]) == (2.0, 3.0)
    assert (second["domain/games/latency_mean"], second["domain/games/latency_max"]) == (5.0, 5.0)
    games = ledger.counters()["games"]
    assert (games["answers"], games["latency_mean"], games["latency_max"]) == (3, 3.0, 5.0)
    assert "domain/games/latency_mean" not in ledger.close_step()
    assert ledger.counters()["quests"]["latency_mean"] is None


def test_a_step_tells_what_is_new_and_the_counters_tell_all(ledger):
    play(ledger, 0)
    ledger.fault("quests", "timed_out", "no answer")
    ledger.begin(5, "quests", again=True)
    first = ledger.close_step()
    play(ledger, 1)
    second = ledger.close_step()
    names = ("episodes/finished", "episodes/retried", "domain/quests/retried", "domain/games/retried")
    assert [first[name] for name in names] == [1, 1, 1, 0]
    assert [second[name] for name in names] == [1, 0, 0, 0]
    assert ledger.counters()["games"]["finished"] == 2


def test_every_step_has_the_same_names():
    """A curve that begins with its first failure would look like a run that had none before."""
    ledger = EpisodeLedger(["quests", "games"])
    quiet = ledger.close_step()
    assert {"domain/games/failed", "domain/quests/failed", "episodes/failed", "episodes/retried"} <= quiet.keys()
    assert set(quiet.values()) == {0}
    assert set(ledger.counters()) == {"games", "quests"}


def test_a_fault_is_never_a_reward(ledger):
    """It ends no episode, is no latency, and what it counts has names of its own."""
    ledger.begin(0, "games", again=False)
    ledger.fault("games", "timed_out", "no answer within 90 s")
    ledger.begin(0, "games", again=True)
    ledger.fault("games", "closed", "the service ended the session")
    ledger.begin(0, "games", again=True)
    games = ledger.counters()["games"]
    assert (games["finished"], games["limits"], games["answers"]) == (0, {}, 0)
    assert (games["faults"], games["retried"], games["failed"]) == ({"timed_out": 1, "closed": 1}, 1, 0)
    metrics = ledger.close_step()
    assert metrics["episodes/finished"] == 0 and metrics["episodes/retried"] == 1
    assert not any("reward" in name for name in metrics)
    ledger.finish(0, report(reward=0.75))  # in another session
    assert ledger.counters()["games"]["finished"] == 1


def test_an_episode_that_failed_for_good_stops_the_run_and_is_not_finished(ledger):
    ledger.begin(7, "games", again=False)
    ledger.fault("games", "failed", "out of memory")
    ledger.give_up(7, "games", "out of memory")
    assert ledger.stop_reason() == "episode 7 of games: out of memory"
    games = ledger.counters()["games"]
    assert (games["finished"], games["failed"]) == (0, 1)
    metrics = ledger.close_step()
    assert (metrics["episodes/failed"], metrics["domain/games/failed"], metrics["episodes/finished"]) == (1, 1, 0)


def test_the_first_reason_to_stop_is_the_one_that_is_told(ledger):
    ledger.report_lost("the service of quests", "it ended 4 times")
    ledger.give_up(3, "quests", "connection refused")
    assert ledger.stop_reason() == "the service of quests is lost: it ended 4 times"


def test_each_kind_of_fault_is_told_once_for_a_domain(ledger):
    ledger.fault("games", "timed_out", "no answer within 90 s")
    ledger.fault("games", "timed_out", "no answer within 90 s")
    ledger.fault("quests", "timed_out", "no answer within 30 s")
    told = ledger.new_notes()
    assert [note.split(" (")[0] for note in told] == [
        "games: no answer within 90 s",
        "quests: no answer within 30 s",
    ]
    ledger.fault("games", "closed", "the service ended the session")
    assert [note.split(" (")[0] for note in ledger.new_notes()] == ["games: the service ended the session"]
    assert ledger.new_notes() == []


def test_what_the_terminal_shows_of_a_step_under_way(ledger):
    for position in range(4):
        ledger.begin(position, "games", again=False)
    ledger.finish(0, report())
    ledger.close_step()
    ledger.finish(1, report())
    ledger.fault("games", "closed", "gone")
    ledger.begin(2, "games", again=True)
    ledger.give_up(2, "games", "gone")
    assert ledger.live(2) == {"under_way": 1, "finished": 1, "retried": 1}


def test_an_episode_that_begins_anew_is_under_way_once(ledger):
    ledger.begin(0, "games", again=False)
    ledger.begin(0, "games", again=True)
    assert ledger.live(1)["under_way"] == 1


def test_counters_go_into_a_json_file(ledger):
    play(ledger, 0, limit="turns")
    ledger.fault("quests", "full", "no session is free")
    assert json.loads(json.dumps(ledger.counters())) == ledger.counters()
