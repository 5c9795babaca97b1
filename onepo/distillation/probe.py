"""A teacher is asked before it is relied on: for a short conversation, and for a row as long as an episode may be."""

import time
from collections.abc import Sequence

import torch
from omegaconf import DictConfig
from transformers import PreTrainedTokenizerBase

from onepo.distillation.metrics import knows_nothing
from onepo.distillation.scoring import Teacher, TeacherGone, Unscored, score_tokens
from onepo.endpoints.errors import (
    ContextLengthExceeded,
    EndpointUnavailable,
    RequestRefused,
    RequestTimedOut,
    ServerFailed,
)
from onepo.errors import UserError

CONVERSATION = [
    {"role": "user", "content": "Name the seasons of the year in order."},
    {"role": "assistant", "content": "Spring, summer, autumn and winter."},
]
_ADVICE = {
    401: "TEACHER_API_KEY must be its key",
    403: "TEACHER_API_KEY must be its key",
    404: "is it a server of the kind that TEACHER_BACKEND says, and is TEACHER_NAME the name of its model?",
    405: "is it a server of the kind that TEACHER_BACKEND says?",
}


async def probe_teacher(teacher: Teacher, tokenizer: PreTrainedTokenizerBase, *, prompt: int, longest: int) -> str:
    """Have both scored once; returns a line for the user.

    Args:
        tokenizer: the student's.
        prompt, longest: largest number of tokens of an episode's first text, and of all of it.

    Raises:
        UserError: there are no scores, or they are those of a model that knows nothing.
    """
    text = tokenizer.apply_chat_template(CONVERSATION, tokenize=False)
    ids = tokenizer.encode(text, add_special_tokens=False)
    began = time.monotonic()
    scores = torch.tensor(await _score(teacher, ids, start=1, what="a short conversation"))
    if knows_nothing(scores, len(tokenizer)):
        raise UserError(
            f"--teacher: finds every token of a short conversation about as likely as any other of {len(tokenizer)} "
            f"(mean log-probability {scores.mean():.2f}): its weights are broken, or were not loaded"
        )
    short = time.monotonic() - began
    row = (ids * (longest // len(ids) + 1))[:longest]
    await _score(teacher, row, start=prompt, what=f"an episode of {longest} tokens, the longest that there may be")
    return (
        f"the teacher scores a conversation of {len(ids)} tokens in {short:.1f} s: mean log-probability "
        f"{scores.mean():.2f}; one of {longest} tokens, the longest, in {time.monotonic() - began - short:.1f} s"
    )


def longest_episode(config: DictConfig) -> dict[str, int]:
    """``prompt`` and ``longest`` of a run's configuration."""
    prompt = config.data.max_prompt_length
    return {"prompt": prompt, "longest": prompt + config.data.max_response_length}


async def _score(teacher: Teacher, ids: Sequence[int], *, start: int, what: str) -> list[float]:
    try:
        return await score_tokens(teacher, ids, start=start, retries=1)
    except (Unscored, TeacherGone) as error:
        advice = _advice(error.__cause__)
        raise UserError(f"--teacher: cannot score {what}: {error}" + (f"; {advice}" if advice else "")) from None


def _advice(error: BaseException | None) -> str | None:
    if isinstance(error, EndpointUnavailable):
        return "does it run, and is this its address?"
    if isinstance(error, RequestTimedOut):
        return "TEACHER_TIMEOUT may be too short"
    if isinstance(error, ContextLengthExceeded):
        return "lower MAX_PROMPT_LENGTH or MAX_RESPONSE_LENGTH, or give the server a longer context"
    if isinstance(error, RequestRefused):
        return _ADVICE.get(error.status)
    wrong = isinstance(error, ServerFailed) and "answered no" in str(error)
    return "is it of the kind that TEACHER_BACKEND says, and has its model the student's tokens?" if wrong else None
