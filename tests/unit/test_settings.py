"""The checks of the options that this package adds."""

import pytest

from onepo.errors import UserError
from onepo.settings import parse_settings
from tests.configs import onepo_section


def test_the_shipped_values_are_valid():
    assert parse_settings(onepo_section()).probability_floor == 0.1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("probability_floor", 0.0),
        ("probability_floor", 1.0),
        ("probability_floor", float("nan")),
        ("teacher_max_steps", -2),
        ("retirement_plateau_window", 0),
        ("retirement_plateau_min_rate", 1.5),
        ("test_steps", [0]),
        ("test_steps", "50"),
        ("max_checkpoints", 0),
        ("poll_interval", 0),
        ("seed", -1),
        ("seed", 2**32),
        ("overlong_penalty_factor", float("inf")),
        ("run_dir", ""),
    ],
)
def test_a_bad_value_is_named(name, value):
    with pytest.raises(UserError, match=f"(?i){name}"):
        parse_settings(onepo_section(**{name: value}))


def test_an_unknown_option_is_refused():
    with pytest.raises(UserError, match="probability_flor"):
        parse_settings(onepo_section(probability_flor=0.1))


def test_all_bad_values_are_told_at_once():
    with pytest.raises(UserError) as error:
        parse_settings(onepo_section(seed=-1, max_checkpoints=0))
    lines = str(error.value).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["SEED", "MAX_ACTOR_CHECKPOINTS"]
