"""Rubrics: what the grader is asked, how its answer is read, and the score (algorithms page, section 3).

``rubrics`` are dicts with ``criterion`` (text) and ``points`` (finite number); ``conversation`` is a list of messages
with ``role`` and ``content`` whose last one is the assistant's visible answer.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from onepo.rewards.visible_answer import after_thinking

Messages = list[dict[str, str]]
PLACEHOLDERS = ("{conversation}", "{rubrics}")
GAP = "[...]"

_PLACEHOLDER = re.compile("|".join(map(re.escape, PLACEHOLDERS)))
# What JSON may leave as it is, though a reader could take it for the end of a line, and what UTF-8 cannot hold.
# beside those: "<" before what makes it a tag, because a tokenizer reads a written <|im_end|> or </s> as the real token
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]|<(?=[|\uff5c/a-zA-Z_])")
_BOOLEANS = {"true": True, "false": False}


class MalformedGrading(ValueError):
    """The grader's output is no list of booleans of the right length.

    Args:
        kind: ``no_list`` (none, or cut off), ``not_boolean`` or ``wrong_length``.
        message: one line that says what was found.
    """

    def __init__(self, kind: str, message: str):
        super().__init__(kind, message)
        self.kind = kind

    def __str__(self) -> str:
        return self.args[1]


def rubric_score(rubrics: Sequence[dict[str, Any]], met: Sequence[bool]) -> float:
    """The share of the positive points that was earned, in [0, 1]; 0 when there are no positive points.

    Args:
        met: for each rubric in order, whether the answer meets its criterion.

    Raises:
        ValueError: ``met`` does not have one item per rubric.
    """
    if len(met) != len(rubrics):
        raise ValueError(f"{len(rubrics)} rubrics need as many decisions, found {len(met)}")
    available = sum(max(rubric["points"], 0) for rubric in rubrics)
    if available == 0:
        return 0.0
    earned = sum(rubric["points"] for rubric, is_met in zip(rubrics, met, strict=True) if is_met)
    return min(max(0.0, earned / available), 1.0)


def check_template(text: str) -> None:
    """Whether a grading prompt has each of ``PLACEHOLDERS`` exactly once.

    Raises:
        ValueError: it has not.
    """
    for placeholder in PLACEHOLDERS:
        if (count := text.count(placeholder)) != 1:
            raise ValueError(f"found {placeholder} {count} times, expected it exactly once")


def grading_messages(template: str, conversation: Messages, rubrics: Sequence[dict[str, Any]]) -> Messages:
    """The request for one grading: a single user message, the template with its placeholders replaced.

    ``{conversation}`` becomes one JSON object per message and line, so that no text in it can pass for a part of the
    prompt; ``{rubrics}`` one numbered line per criterion, without the points. Inserted text is not searched again.
    """
    sections = {
        "{conversation}": "\n".join(_json_line(message) for message in conversation),
        "{rubrics}": "\n".join(
            f"{number}. {' '.join(rubric['criterion'].split())}" for number, rubric in enumerate(rubrics, start=1)
        ),
    }
    return [{"role": "user", "content": _PLACEHOLDER.sub(lambda match: sections[match[0]], template)}]


def met_schema(count: int) -> dict[str, Any]:
    """The JSON schema of the output: an array of ``count`` booleans."""
    return {"type": "array", "items": {"type": "boolean"}, "minItems": count, "maxItems": count}


def parse_met(text: str, count: int) -> list[bool]:
    """Read the grader's output: the list that begins at the first ``[`` behind the thinking.

    Text around the list, a code fence included, and capitals are tolerated; nothing else is. A thought that is not
    closed hides the list in it.

    Args:
        count: number of rubrics, and so of items.

    Raises:
        MalformedGrading: there is no such list.
    """
    _, found, listed = after_thinking(text).partition("[")
    body, closed, _ = listed.partition("]")
    if not (found and closed):
        raise MalformedGrading("no_list", "a list that is not closed" if found else "no list")
    items = [item.strip() for item in body.split(",")] if body.strip() else []
    if any(item.lower() not in _BOOLEANS for item in items):
        raise MalformedGrading("not_boolean", "a list with an item that is neither true nor false")
    if len(items) != count:
        raise MalformedGrading("wrong_length", f"a list of {len(items)} for {count} criteria")
    return [_BOOLEANS[item.lower()] for item in items]


def cut_conversation(conversation: Messages) -> Messages:
    """The conversation at about half of its characters, with ``GAP`` where text is missing.

    The oldest text goes first. The reply stays whole when it fits into that half; else its middle goes, and a quarter
    of what is kept belongs to the messages before it, since a reply without its question cannot be judged.
    """
    *earlier, reply = conversation
    before = sum(len(message["content"]) for message in earlier)
    kept = (before + len(reply["content"])) // 2
    if len(reply["content"]) <= kept:
        return [*_without_oldest(earlier, before + len(reply["content"]) - kept), reply]
    kept_before = min(before, kept // 4)
    return [*_without_oldest(earlier, before - kept_before), _without_middle(reply, kept - kept_before)]


def _without_oldest(messages: Messages, characters: int) -> Messages:
    """Drop that many characters from the start, whole messages included, but keep one to show the gap."""
    if not messages or characters == 0:
        return messages
    first = 0
    while first < len(messages) - 1 and characters >= len(messages[first]["content"]):
        characters -= len(messages[first]["content"])
        first += 1
    cut = {**messages[first], "content": GAP + messages[first]["content"][characters:]}
    return [cut, *messages[first + 1 :]]


def _without_middle(message: dict[str, str], characters: int) -> dict[str, str]:
    content = message["content"]
    tail = characters // 2
    return {**message, "content": content[: characters - tail] + GAP + content[len(content) - tail :]}


def _json_line(message: dict[str, str]) -> str:
    text = json.dumps({"role": message["role"], "content": message["content"]}, ensure_ascii=False)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
