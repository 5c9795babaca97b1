"""The ``camp`` section: each bad value is told with its key, what was found, and what is allowed."""

import pytest
from omegaconf import OmegaConf

from camp.configuration import recipe_config
from camp.settings import Settings, parse_settings
from onepo.errors import UserError


@pytest.fixture(scope="module")
def section():
    """The recipe's, with what the named options give."""
    found = OmegaConf.to_container(recipe_config("rl").camp, resolve=True)
    return {**found, "output": "/runs/one", "routes": "/prepared/routes.json"}


def changed(section, key, value):
    name, _, inner = key.partition(".")
    return {**section, name: {**section[name], inner: value} if inner else value}


def problems(section):
    with pytest.raises(UserError) as caught:
        parse_settings(section)
    return str(caught.value).splitlines()


def test_the_recipe_is_right(section):
    settings = parse_settings(section)
    assert settings.model_dump() == section
    assert set(Settings.model_fields) == set(section)


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("method", "ppo", "'rl' or 'opd'"),
        ("output", None, "valid string"),
        ("routes", None, "valid string"),
        ("seed", -1, "greater than or equal to 0"),
        ("seed", 2**32, "less than or equal to 4294967295"),
        ("seed", 1.5, "valid integer"),
        ("max_staleness", 0, "greater than or equal to 1"),
        ("max_staleness", "many", "valid integer"),
        ("max_staleness", None, "valid integer"),
        ("episode_retries", -1, "greater than or equal to 0"),
        ("outage_limit", 0, "greater than 0"),
        ("outage_limit", float("inf"), "finite number"),
        ("keep_checkpoints", 0, "greater than or equal to 1"),
        ("poll_interval", 0, "greater than 0"),
        ("poll_interval", float("nan"), "finite number"),
        ("resume", 3, "valid string"),
        ("services.python", 3, "valid string"),
        ("services.start_timeout", 0, "greater than 0"),
        ("services.start_timeout", "soon", "valid number"),
        ("services.max_restarts", -1, "greater than or equal to 0"),
        ("services", None, "valid dictionary"),
    ],
)
def test_a_bad_value(key, value, allowed, section):
    (line,) = problems(changed(section, key, value))
    name, _, reason = line.partition(": ")
    assert name == f"camp.{key}={value!r}" and allowed in reason


@pytest.mark.parametrize("key", ["max_stalenes", "services.port"])
def test_a_key_that_does_not_exist(key, section):
    (line,) = problems(changed(section, key, 3))
    assert line.startswith(f"camp.{key}=3: ") and "not permitted" in line


@pytest.mark.parametrize("key", ["seed", "services"])
def test_a_key_that_was_taken_out(key, section):
    (line,) = problems({name: value for name, value in section.items() if name != key})
    assert line == f"camp.{key}: Field required"


def test_all_of_them_are_told_at_one_time(section):
    lines = problems({**section, "seed": -1, "keep_checkpoints": 0, "poll_interval": "x"})
    assert [line.split("=")[0] for line in lines] == ["camp.seed", "camp.keep_checkpoints", "camp.poll_interval"]
