"""A teacher is asked once before it is relied on."""

import time

import torch
from transformers import PreTrainedTokenizerBase

from camp.opd.metrics import knows_nothing
from camp.opd.scoring import Teacher, TeacherGone, Unscored, score_tokens
from onepo.errors import UserError

CONVERSATION = [
    {"role": "user", "content": "Name the seasons of the year in order."},
    {"role": "assistant", "content": "Spring, summer, autumn and winter."},
]


async def probe_teacher(teacher: Teacher, tokenizer: PreTrainedTokenizerBase, *, retries: int) -> str:
    """Have a short conversation scored, every token behind the first; returns a line for the user.

    Args:
        tokenizer: the student's.

    Raises:
        UserError: there are no scores, or they are those of a model that knows nothing.
    """
    text = tokenizer.apply_chat_template(CONVERSATION, tokenize=False)
    ids = tokenizer.encode(text, add_special_tokens=False)
    began = time.monotonic()
    try:
        scores = torch.tensor(await score_tokens(teacher, ids, start=1, retries=retries))
    except (Unscored, TeacherGone) as error:
        raise UserError(f"--teacher: cannot score a short conversation: {error}") from None
    if knows_nothing(scores, len(tokenizer)):
        raise UserError(
            f"--teacher: finds nearly every token of a short conversation as likely as any other of {len(tokenizer)} "
            f"(mean log-probability {scores.mean():.2f}): its weights are broken, or were not loaded"
        )
    return (
        f"the teacher scores a conversation of {len(ids)} tokens in {time.monotonic() - began:.1f} s: mean "
        f"log-probability {scores.mean():.2f}"
    )
