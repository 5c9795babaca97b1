"""Which rollouts of a group are trained on when gradings failed."""

import math

import pytest
from verl.experimental.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics

from onepo.rollout.rows import TrainingRow, is_graded, mark_ungraded, reward_info, usable_rows


def output(reward):
    return AgentLoopOutput(
        prompt_ids=[1],
        response_ids=[2, 3],
        response_mask=[1, 1],
        reward_score=reward,
        metrics=AgentLoopMetrics(),
        extra_fields={},
    )


@pytest.mark.parametrize(
    ("rewards", "kept"),
    [
        ([0.0, 1.0, 0.5, 0.0], [0, 1, 2, 3]),
        ([0.0, math.nan, 0.5, 0.0], [0, 2, 3]),  # at least n - 1 are graded: the group goes on with the rest
        ([0.0, math.nan, math.nan, 0.0], []),
        ([math.nan, 1.0], []),  # one row has nothing to be compared with
        ([math.nan, 1.0, 0.0], [1, 2]),
        ([math.nan] * 4, []),
        ([], []),
    ],
)
def test_a_group_goes_on_if_at_most_one_grading_failed(rewards, kept):
    outputs = {session: output(reward) for session, reward in enumerate(rewards)}
    assert sorted(usable_rows(outputs, size=len(outputs))) == kept


def test_a_zero_is_a_reward():
    assert is_graded(output(0.0)) and not is_graded(output(math.nan))


def test_a_row_carries_the_teacher_mask():
    row = TrainingRow.of(output(1.0), from_teacher=True).as_dict()
    assert row["teacher_mask"].tolist() == [True, True]


def test_a_rollout_that_raised_is_missing_too():
    outputs = {0: output(0.0), 1: output(1.0), 2: output(math.nan)}  # of four
    assert usable_rows(outputs, size=4) == {}
    assert len(usable_rows({0: output(0.0), 1: output(1.0)}, size=4)) == 2  # no grading failed: as upstream has it


def test_a_reward_that_raised_leaves_the_figures_of_a_failed_grading():
    broken = output(1.0)
    mark_ungraded(broken, "open_ended")
    assert not is_graded(broken) and math.isnan(reward_info(broken)["acc"]) and reward_info(broken)["met"] == ""
