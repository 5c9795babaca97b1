"""Teacher responses that came with the data: which one a group may use, and its tokens for the student."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from onepo.data.chat import ends_with_open_think
from onepo.teachers.retirement import draw_response

_THINK = "<think>"


def cached_response(responses: Sequence[str], *, seed: int, step: int, index: int) -> str | None:
    """The response offered to a prompt at a step: one drawn from the record's list, None when it has none."""
    if not responses:
        return None
    return responses[draw_response(seed=seed, step=step, index=index, count=len(responses))]


def response_token_ids(
    text: str,
    *,
    tokenizer: PreTrainedTokenizerBase,
    prompt_ids: Sequence[int],
    end_of_turn_id: int,
    stop_ids: Sequence[int],
    max_tokens: int,
) -> list[int]:
    """Tokens of a teacher response as if the student had written them after ``prompt_ids``.

    A leading ``<think>`` is dropped when the prompt already ends with one. The end-of-turn token, on which the rollout
    engine stops, closes the response when it fits into ``max_tokens``; a longer response is cut. What follows a stop
    token in the text, and that token itself, is left out: no rollout gets there.
    """
    if ends_with_open_think(tokenizer, prompt_ids):
        text = text.lstrip().removeprefix(_THINK)
    ids = tokenizer.encode(text, add_special_tokens=False)
    stops = {end_of_turn_id, *stop_ids}
    end = next((place for place, token in enumerate(ids) if token in stops), len(ids))
    return [*ids[:end], end_of_turn_id][:max_tokens]
