"""How often an episode begins anew, on a clock of the test's own."""

import asyncio

import pytest

from camp.sampling import retrying as module
from camp.sampling.retrying import retrying
from camp.sampling.session import SessionFault


class Clock:
    """Time that passes only while something waits for it."""

    def __init__(self):
        self.now = 1000.0
        self.pauses = []

    def monotonic(self):
        return self.now

    async def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    return found


def play(clock, *kinds, retries=2, outage_limit=60.0, takes=0.0):
    """Attempts that end with these faults, then one that ends well; the number of attempts that there were."""
    left = list(kinds)
    attempts = 0

    async def main():
        nonlocal attempts
        policy = retrying(retries=retries, outage_limit=outage_limit)
        policy.sleep = clock.sleep
        async for attempt in policy:
            with attempt:
                attempts += 1
                clock.now += takes
                if left:
                    raise SessionFault(left[0], f"fault {attempts}: {left.pop(0)}")
        return attempts

    return asyncio.run(main())


def test_an_episode_without_a_fault_is_played_once(clock):
    assert play(clock) == 1 and clock.pauses == []


@pytest.mark.parametrize("kind", ["timed_out", "closed", "malformed", "refused", "failed"])
def test_so_many_faults_are_forgiven(kind, clock):
    assert play(clock, *[kind] * 2) == 3
    with pytest.raises(SessionFault, match="fault 3"):  # the last one is told
        play(clock, *[kind] * 3)


def test_none_is_forgiven_without_retries(clock):
    with pytest.raises(SessionFault, match="fault 1"):
        play(clock, "closed", retries=0)


@pytest.mark.parametrize("kind", ["unreachable", "full"])
def test_a_service_that_is_away_is_waited_for_however_often_it_takes(kind, clock):
    assert play(clock, *[kind] * 5, retries=0, takes=10.0, outage_limit=200.0) == 6


@pytest.mark.parametrize("kind", ["unreachable", "full"])
def test_a_service_that_stays_away_is_given_up_after_the_limit(kind, clock):
    began = clock.now
    with pytest.raises(SessionFault):
        play(clock, *[kind] * 10_000, outage_limit=60.0)
    assert 60.0 <= clock.now - began <= 60.0 + 10.0  # the longest pause


def test_the_outage_begins_with_the_first_fault_and_not_with_the_episode(clock):
    """It had been played for an hour before the service went away."""
    assert play(clock, "closed", "unreachable", takes=3600.0, outage_limit=60.0) == 3


def test_other_faults_between_show_that_the_service_was_there(clock):
    kinds = ["unreachable", "closed", "unreachable", "timed_out", "full"]
    assert play(clock, *kinds, retries=2, takes=50.0, outage_limit=60.0) == 6


def test_an_outage_forgives_no_other_fault(clock):
    with pytest.raises(SessionFault, match="fault 5"):
        play(clock, "closed", "unreachable", "closed", "full", "closed", retries=2)


def test_pauses_are_random_and_bounded(clock):
    play(clock, *["unreachable"] * 30, outage_limit=10_000.0)
    assert len(set(clock.pauses)) > 20 and all(0.2 <= pause <= 10.0 for pause in clock.pauses)
    assert max(clock.pauses) > 4.0  # they grow


def test_a_mistake_of_our_own_is_not_retried(clock):
    attempts = 0

    async def main():
        nonlocal attempts
        async for attempt in retrying(retries=5, outage_limit=60.0):
            with attempt:
                attempts += 1
                raise ValueError("no fault of a service")

    with pytest.raises(ValueError, match="no fault"):
        asyncio.run(main())
    assert attempts == 1


def test_episodes_do_not_share_their_faults(clock):
    for _ in range(3):
        assert play(clock, "closed", "closed") == 3
