"""What is logged of an update's episodes, computed by hand."""

import pytest

from camp.learning.domain_metrics import domain_metrics
from camp.sampling.record import EpisodeRecord
from camp.schedule import ScheduledEpisode


def record(domain, *, reward=0.0, success=None, limit=None, versions=(0, 0), turns=1, position=0):
    return EpisodeRecord(
        schedule=ScheduledEpisode(position=position, domain=domain, task=None, seed=0, turns=9, turn_tokens=9),
        reward=reward,
        success=success,
        limit=limit,
        submitted_at=1,
        versions=versions,
        seconds=1.0,
        prompt_tokens=1,
        response_tokens=1,
        task="",
        turns=[{}] * turns,
    )


RECORDS = [
    record("quests", reward=1.0, success=True, turns=4, versions=(2, 4)),
    record("quests", reward=0.5, success=False, turns=2, versions=(4, 4)),
    record("games", reward=-0.25, turns=1, versions=(3, 3)),
    record("quests", reward=0.0, turns=3, limit="turn_tokens", versions=(4, 4)),
]


@pytest.fixture(scope="module")
def metrics():
    return domain_metrics(RECORDS, update=5)


def test_all_episodes(metrics):
    assert metrics["episodes/trained"] == 4
    assert metrics["episodes/reward"] == pytest.approx(1.25 / 4)
    assert metrics["episodes/limit_rate"] == 0.25


def test_each_domain(metrics):
    of_quests = {name.split("/")[2]: value for name, value in metrics.items() if name.startswith("domain/quests/")}
    assert of_quests == {
        "episodes": 3,
        "reward": pytest.approx(0.5),
        "limit_rate": pytest.approx(1 / 3),
        "turns": pytest.approx(3.0),
        "success": pytest.approx(1 / 3),  # an episode that came to a limit is not solved
    }


def test_a_service_that_does_not_say_success_has_no_rate_of_it(metrics):
    of_games = {name.split("/")[2]: value for name, value in metrics.items() if name.startswith("domain/games/")}
    assert of_games == {"episodes": 1, "reward": -0.25, "limit_rate": 0.0, "turns": 1.0}


def test_staleness_counts_updates_from_the_first_token_on(metrics):
    """Update 5 learns with the weights of update 4: 0 is as fresh as can be."""
    assert metrics["staleness/mean"] == pytest.approx((2 + 0 + 1 + 0) / 4)
    assert metrics["staleness/median"] == 0.5
    assert metrics["staleness/max"] == 2
    assert metrics["staleness/weights_per_episode"] == pytest.approx((3 + 1 + 1 + 1) / 4)


def test_staleness_has_its_distribution(metrics):
    shares = {name: value for name, value in metrics.items() if name.startswith("staleness/share_of_")}
    assert shares == {"staleness/share_of_0": 0.5, "staleness/share_of_1": 0.25, "staleness/share_of_2": 0.25}


def test_the_first_update_has_the_freshest_episodes():
    metrics = domain_metrics([record("games")], update=1)
    assert metrics["staleness/max"] == metrics["staleness/mean"] == 0
