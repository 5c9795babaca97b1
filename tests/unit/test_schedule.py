"""The plan of a run's steps."""

import pytest

from onepo.trainers.schedule import Schedule


def schedule(**changes):
    values = {
        "steps_per_epoch": 10,
        "total_epochs": 5,
        "max_steps": 500,
        "test_freq": 30,
        "test_steps": [],
        "val_before_train": False,
        "save_freq": 60,
    }
    return Schedule(**{**values, **changes})


@pytest.mark.parametrize(
    ("epochs", "max_steps", "final", "ends_by"),
    [
        (5, 500, 50, "TOTAL_EPOCHS"),
        (5, 20, 20, "TOTAL_TRAINING_STEPS"),
        (5, None, 50, "TOTAL_EPOCHS"),
        (2, 20, 20, "TOTAL_TRAINING_STEPS"),
    ],
)
def test_whichever_ends_first_is_the_final_step(epochs, max_steps, final, ends_by):
    plan = schedule(total_epochs=epochs, max_steps=max_steps)
    assert (plan.final_step, plan.ends_by) == (final, ends_by)


def test_validation_by_frequency_by_list_and_at_the_end():
    plan = schedule(test_steps=[7])
    assert [step for step in range(1, 51) if plan.validates_at(step)] == [7, 30, 50]


def test_a_list_alone_also_validates_at_the_end():
    plan = schedule(test_freq=0, test_steps=[7, 900])
    assert [step for step in range(1, 51) if plan.validates_at(step)] == [7, 50]


def test_validation_before_the_first_step_means_one_after_the_last_too():
    plan = schedule(test_freq=0, val_before_train=True)
    assert [step for step in range(1, 51) if plan.validates_at(step)] == [50]


@pytest.mark.parametrize("test_freq", [0, -1])
def test_validation_off(test_freq):
    plan = schedule(test_freq=test_freq)
    assert not plan.validates
    assert not any(plan.validates_at(step) for step in range(1, 51))


def test_the_final_step_is_always_saved():
    assert [step for step in range(1, 51) if schedule(save_freq=20).saves_at(step)] == [20, 40, 50]
    assert [step for step in range(1, 51) if schedule(save_freq=0).saves_at(step)] == [50]
