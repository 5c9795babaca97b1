"""What an evaluation tells of each domain."""

import pytest

from camp.evaluation import Result, results_by_domain
from camp.sampling.record import EpisodeRecord, success_rate
from camp.schedule import ScheduledEpisode


def row(domain):
    return ScheduledEpisode(position=0, domain=domain, task=None, seed=1, turns=3, turn_tokens=9)


def record(domain, *, reward=0.0, success=None, limit=None):
    return EpisodeRecord(
        schedule=row(domain),
        reward=reward,
        success=success,
        limit=limit,
        submitted_at=0,
        versions=(0, 0),
        seconds=1.0,
        prompt_tokens=1,
        response_tokens=1,
        task="",
        turns=[],
    )


def test_means_of_what_was_played():
    found = [
        record("b", reward=1.0, success=True),
        record("a", reward=0.5),
        "no answer within 5 s",
        record("b", reward=0.0, limit="turns"),
        "no answer within 5 s",
    ]
    results = results_by_domain([row("b"), row("a"), row("b"), row("b"), row("c")], found)
    assert list(results) == ["a", "b", "c"]
    assert results["a"] == Result(episodes=1, failed=0, reward=0.5, success=None, limit_rate=0.0)
    assert results["b"] == Result(episodes=2, failed=1, reward=0.5, success=0.5, limit_rate=0.5)
    assert results["c"] == Result(episodes=0, failed=1, reward=None, success=None, limit_rate=None)


@pytest.mark.parametrize(
    ("records", "rate"),
    [
        ([{"success": True}, {"success": False}], 0.5),
        ([{"success": True}, {"limit": "turns"}], 0.5),
        ([{"limit": "turns"}], 0.0),
        ([{"success": None}], None),
        ([{"success": None}, {"limit": "turns"}], None),
        ([{"success": None}, {"success": True}], 1.0),
    ],
)
def test_an_episode_that_was_cut_off_is_not_solved(records, rate):
    assert success_rate([record("a", **fields) for fields in records]) == rate
