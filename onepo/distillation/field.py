"""How a row keeps the teacher's log-probabilities in verl's queue: those of the whole row, each before its token."""

from collections.abc import Sequence

import torch
from torch import Tensor

TEACHER_FIELD = "teacher_logprobs"  # [S, 1] for each row: the entry of a token is about the token behind it


def row_of(scores: Sequence[float], *, prompt: int) -> Tensor:
    """The field [S, 1], from the log-probabilities of the response tokens behind a prompt of so many tokens."""
    return torch.tensor([*[0.0] * (prompt - 1), *scores, 0.0])[:, None]


def of_response(row: Tensor, *, prompt: int, response: int) -> Tensor:
    """Of the response tokens [R], from the field [S, 1]."""
    return row.squeeze(-1)[prompt - 1 : prompt - 1 + response]
