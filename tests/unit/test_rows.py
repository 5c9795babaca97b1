"""Which rollouts of a group are trained on when gradings failed."""

import math

import pytest
from verl.experimental.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics

from onepo.rollout.rows import TrainingRow, is_graded, usable_rows


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
    assert sorted(usable_rows(outputs)) == kept


def test_a_zero_is_a_reward():
    assert is_graded(output(0.0)) and not is_graded(output(math.nan))


def test_a_row_carries_the_teacher_mask():
    row = TrainingRow.of(output(1.0), from_teacher=True).as_dict()
    assert row["teacher_mask"].tolist() == [True, True]
