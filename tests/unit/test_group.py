"""The barrier of a prompt's rollouts."""

import asyncio

import pytest

from onepo.rollout.group import Group


def test_one_decision_is_made_when_all_have_arrived():
    calls = []

    async def decide(outcomes):
        calls.append(dict(outcomes))
        return max(outcomes, key=outcomes.get)

    async def run():
        group = Group(3, decide)
        return await asyncio.gather(*(group.arrive(session, outcome=session * 10) for session in (2, 0, 1)))

    assert asyncio.run(run()) == [2, 2, 2]
    assert calls == [{0: 0, 1: 10, 2: 20}]


def test_a_failed_session_holds_nobody_up():
    async def decide(outcomes):
        return sorted(outcomes)

    async def run():
        group = Group(3, decide)
        waiting = [asyncio.create_task(group.arrive(session, outcome=None)) for session in (0, 2)]
        await group.fail(1)
        return await asyncio.gather(*waiting), group.failed

    assert asyncio.run(run()) == ([[0, 2], [0, 2]], 1)


def test_a_group_of_failures_is_decided_too():
    seen = []

    async def decide(outcomes):
        seen.append(outcomes)

    async def run():
        group = Group(2, decide)
        await group.fail(0)
        await group.fail(1)

    asyncio.run(run())
    assert seen == [{}]


def test_an_error_in_the_decision_reaches_every_session():
    async def decide(outcomes):
        raise RuntimeError("no reward")

    async def run():
        group = Group(2, decide)
        return await asyncio.gather(*(group.arrive(s, outcome=None) for s in (0, 1)), return_exceptions=True)

    errors = asyncio.run(run())
    assert [str(error) for error in errors] == ["no reward", "no reward"]


def test_a_decision_that_is_cancelled_leaves_nobody_waiting():
    async def decide(outcomes):
        await asyncio.Event().wait()

    async def run():
        group = Group(2, decide)
        first = asyncio.create_task(group.arrive(0, outcome=None))
        last = asyncio.create_task(group.arrive(1, outcome=None))
        await asyncio.sleep(0)  # both arrive, the last one decides
        last.cancel()
        return await asyncio.gather(first, last, return_exceptions=True)

    assert [type(error) for error in asyncio.run(run())] == [asyncio.CancelledError] * 2


def test_a_session_that_fails_after_its_arrival_is_not_counted_twice():
    async def decide(outcomes):
        return len(outcomes)

    async def run():
        group = Group(2, decide)
        first = asyncio.create_task(group.arrive(0, outcome=None))
        await asyncio.sleep(0)  # let it arrive
        await group.fail(0)
        assert not first.done()
        assert await group.arrive(1, outcome=None) == 2
        return await first

    assert asyncio.run(run()) == 2


@pytest.mark.parametrize("size", [1, 8])
def test_order_of_arrival_does_not_matter(size):
    async def decide(outcomes):
        return [outcomes[session] for session in sorted(outcomes)]

    async def run(order):
        group = Group(size, decide)
        return (await asyncio.gather(*(group.arrive(s, outcome=s) for s in order)))[0]

    assert asyncio.run(run(range(size))) == asyncio.run(run(reversed(range(size)))) == list(range(size))
