"""The rollouts of a prompt as rows: which of them may be trained on, and the form in which they are stored."""

import math
from typing import Any

import torch
from verl.experimental.agent_loop import AgentLoopOutput

from onepo.rewards.manager import MET, SCORES, TYPE

TEACHER_MASK = "teacher_mask"


class TrainingRow(AgentLoopOutput):
    """A rollout as it is stored for training, with the per-token teacher mask [T] beside the response mask."""

    teacher_mask: list[int]

    @classmethod
    def of(cls, output: AgentLoopOutput, *, from_teacher: bool) -> "TrainingRow":
        fields = {name: getattr(output, name) for name in output.model_fields_set}
        return cls(**fields, teacher_mask=[int(from_teacher)] * len(output.response_ids))

    def as_dict(self) -> dict[str, Any]:
        fields = super().as_dict()
        fields[TEACHER_MASK] = torch.tensor(fields.pop("teacher_mask"), dtype=torch.bool)
        return fields


def reward_info(output: AgentLoopOutput) -> dict[str, Any]:
    """What the reward manager told about a scored rollout."""
    return output.extra_fields["reward_extra_info"]


def is_graded(output: AgentLoopOutput) -> bool:
    """Whether a scored rollout has a reward: the reward manager gives NaN when the grading failed."""
    return not math.isnan(output.reward_score)


def mark_ungraded(output: AgentLoopOutput, task_type: str) -> None:
    """Give a rollout whose reward raised the figures of a failed grading."""
    output.reward_score = math.nan
    output.extra_fields["reward_extra_info"] = {**dict.fromkeys(SCORES, math.nan), TYPE: task_type, MET: ""}


def usable_rows(outputs: dict[int, AgentLoopOutput], *, size: int) -> dict[int, AgentLoopOutput]:
    """The graded rollouts of a group of ``size`` by session.

    None when a grading failed and more than one rollout is missing in all, or nothing is left to compare: a response
    whose grading failed is not a bad response, so it takes no part and never counts as 0.
    """
    graded = {session: output for session, output in outputs.items() if is_graded(output)}
    if len(graded) == len(outputs) or (len(graded) == size - 1 and len(graded) >= 2):
        return graded
    return {}
