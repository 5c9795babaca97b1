"""Which settings make a run another experiment than the recipe."""

import dataclasses
import json

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from camp.departures import FACTS, Departure, departure_lines, departures
from tests.conftest import ROOT

UNLIKE_ANY = 12345


def recipe(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(ROOT / "recipes" / "camp" / "rl"), version_base=None):
        return compose("recipe", overrides=list(overrides))


@pytest.fixture(scope="module")
def shipped() -> DictConfig:
    return recipe()


def test_the_recipe_itself_departs_in_nothing(shipped):
    assert departures(recipe(), shipped) == []
    assert departure_lines([]) == []


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.key)
def test_every_fact_of_the_table_is_a_setting_and_is_read(shipped, fact):
    value = OmegaConf.select(shipped, fact.key, default=UNLIKE_ANY)  # the default for a key that does not exist
    assert value != UNLIKE_ANY, f"neither verl nor this package has {fact.key}"
    config = shipped.copy()
    OmegaConf.update(config, fact.key, UNLIKE_ANY)
    found = {departure.key: departure for departure in departures(config, shipped)}
    assert found[fact.key] == Departure(fact.name, fact.key, value, UNLIKE_ANY)


def test_no_fact_is_told_twice():
    assert len({fact.key for fact in FACTS}) == len({fact.name for fact in FACTS}) == len(FACTS)


def test_settings_of_machine_and_place_are_no_departures(shipped):
    config = recipe(
        "camp.output=/runs/one",
        "camp.keep_checkpoints=3",
        "actor_rollout_ref.model.path=/models/student",
        "actor_rollout_ref.rollout.gpu_memory_utilization=0.4",
        "trainer.n_gpus_per_node=4",
        "trainer.logger=[console,swanlab]",
    )
    assert departures(config, shipped) == []


def test_a_setting_that_follows_another_departs_with_it(shipped):
    found = departures(recipe("data.train_batch_size=32"), shipped)
    assert {(departure.recipe_value, departure.value) for departure in found} == {(shipped.data.train_batch_size, 32)}
    assert {"data.train_batch_size", "actor_rollout_ref.actor.ppo_mini_batch_size"} <= {each.key for each in found}


def test_the_same_number_in_another_spelling_is_no_departure(shipped):
    assert departures(recipe("algorithm.gamma=1", "actor_rollout_ref.actor.optim.lr=0.000001"), shipped) == []


def test_facts_outside_of_the_configurations_are_compared_too(shipped):
    outside = {"seed of the schedule": (0, 7), "turns of games": (8, 8), "tasks": (None, ["lake"])}
    assert departures(shipped, shipped, outside) == [
        Departure("seed of the schedule", None, 0, 7),
        Departure("tasks", None, None, ["lake"]),
    ]


def test_lines_for_people_say_what_it_means(shipped):
    config = recipe("trainer.total_training_steps=1", "actor_rollout_ref.rollout.max_model_len=4096")
    *lines, meaning = departure_lines(departures(config, shipped, {"seed of the schedule": (0, 7)}))
    assert lines == [
        f"updates: 1, in the recipe {shipped.trainer.total_training_steps} (trainer.total_training_steps)",
        "context of the sampler: 4096, in the recipe not set (actor_rollout_ref.rollout.max_model_len)",
        "seed of the schedule: 7, in the recipe 0",
    ]
    assert "another experiment" in meaning


def test_departures_go_into_a_json_file(shipped):
    config = recipe()
    OmegaConf.update(config, "camp.max_staleness", [1, 2])
    (found,) = departures(config, shipped)
    assert json.loads(json.dumps(dataclasses.asdict(found)))["value"] == [1, 2]
