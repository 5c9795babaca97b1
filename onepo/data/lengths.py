"""Which prompts fit into the prompt limit, with as little tokenising as possible."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from onepo.data.chat import prompt_text, prompt_token_ids

# What a template may write beyond its frame around the first prompt with the same roles.
TEMPLATE_MARGIN_BYTES = 256


def prompts(table: pa.Table) -> Iterator[list[dict[str, str]]]:
    """The messages of every row in order, of which few are Python objects at a time."""
    for chunk in table["prompt"].chunks:
        yield from chunk.to_pylist()


def usable_rows(table: pa.Table, tokenizer: Any, max_prompt_length: int, **template_options: Any) -> np.ndarray:
    """The numbers of the rows whose prompt has at most ``max_prompt_length`` tokens, int64, ascending.

    Most prompts need no tokenising: each token of a byte-level vocabulary stands for at least one byte of the rendered
    text, so a prompt of few bytes has few tokens. The bytes are those of the contents and of the template's frame,
    which is measured once per sequence of roles; that also shows at the start whether the template takes these roles.
    A normaliser that lengthens a text (rare compatibility characters) is covered by the four bytes or so that an
    ordinary token has.

    Raises:
        UserError: the tokenizer has no chat template, or the template refuses a prompt.
    """
    frames: dict[tuple[str, ...], int] = {}
    usable = []
    for row, messages in enumerate(prompts(table)):
        content = sum(_bytes(message["content"]) for message in messages)
        roles = tuple(message["role"] for message in messages)
        if roles not in frames:
            frames[roles] = _bytes(prompt_text(tokenizer, messages, **template_options)) - content
        if (
            content + frames[roles] + TEMPLATE_MARGIN_BYTES <= max_prompt_length
            or len(prompt_token_ids(tokenizer, messages, **template_options)) <= max_prompt_length
        ):
            usable.append(row)
    return np.array(usable, dtype=np.int64)


def count_usable(table: pa.Table, tokenizer: Any, max_prompt_length: int, **template_options: Any) -> tuple[int, int]:
    """How many prompts of the table are kept and how many are filtered. Arguments and errors as ``usable_rows``."""
    kept = len(usable_rows(table, tokenizer, max_prompt_length, **template_options))
    return kept, table.num_rows - kept


def _bytes(text: str) -> int:
    return len(text.encode())
