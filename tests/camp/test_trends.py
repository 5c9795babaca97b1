"""A student that comes closer to its teacher by writing on and on."""

import pytest

from camp.opd.trends import Trends, Update

CLOSER, FARTHER = (1.0, 0.5), (0.5, 1.0)
LONGER, SHORTER = (100.0, 200.0), (200.0, 100.0)
MORE_CUT, LESS_CUT = (0.1, 0.6), (0.6, 0.1)


def warnings(kl, limit_rate, tokens, times=1):
    trends = Trends()
    updates = [Update(*each) for each in zip(kl, limit_rate, tokens, strict=True) for _ in range(5)]
    return [trends.add(update) for update in [*updates, *[updates[-1]] * (times - 1)]]


def test_all_three_together_are_told_once():
    *quiet, last = warnings(CLOSER, MORE_CUT, LONGER)
    assert quiet == [None] * 9
    assert "fell from 1.000 to 0.500" in last and "grew from 100 to 200 tokens" in last and "from 10% to 60%" in last


@pytest.mark.parametrize(
    "trend",
    [
        (FARTHER, MORE_CUT, LONGER),
        (CLOSER, LESS_CUT, LONGER),
        (CLOSER, MORE_CUT, SHORTER),
        ((1.0, 0.99), MORE_CUT, LONGER),
        (CLOSER, (0.1, 0.12), LONGER),
        (CLOSER, MORE_CUT, (100.0, 105.0)),
    ],
)
def test_less_than_that_is_not(trend):
    assert warnings(*trend) == [None] * 10


def test_it_is_not_repeated_while_it_lasts():
    steps = range(12)
    trends = Trends()
    told = [trends.add(Update(1.0 - 0.07 * step, 0.05 * step, 100.0 + 20 * step)) for step in steps]
    assert sum(line is not None for line in told) == 1
