"""Splitting a response into the thinking and the answer that a reader sees."""

import re

_OPEN, _CLOSE = "<think>", "</think>"


def whole_turn(response: str, *, opened_in_prompt: bool) -> str:
    """The response with the opening tag that belongs to it, where the prompt has written that already."""
    return f"{_OPEN}\n{response}" if opened_in_prompt else response


def after_thinking(text: str) -> str:
    """What follows the last ``</think>``. A thought that was opened after it and never closed is not visible either."""
    return text.rpartition(_CLOSE)[2].partition(_OPEN)[0].strip()


def visible_answer(text: str, *, marker: str) -> str:
    """The visible part of a response, without the blanks around it.

    Args:
        text: the response.
        marker: everything before a line equal to it counts as thinking, too. An empty marker is never found.
    """
    return after_thinking(text[_end_of_last_marker(text, marker) :])


def has_closed_thinking(text: str, *, marker: str) -> bool:
    """Whether the response thinks and comes to an end of it: a closed think block, or the marker line."""
    return _CLOSE in text.partition(_OPEN)[2] or _end_of_last_marker(text, marker) > 0


def thinking_is_open(text: str, *, marker: str) -> bool:
    """Whether the response ends within a thought that nothing closes, so that it has no answer yet."""
    return _OPEN in text[_end_of_last_marker(text, marker) :].rpartition(_CLOSE)[2]


def _end_of_last_marker(text: str, marker: str) -> int:
    """Position behind the last line that equals the marker, 0 when there is none."""
    if not marker.strip():
        return 0
    line = re.compile(rf"^[ \t]*{re.escape(marker.strip())}[ \t\r]*$", re.MULTILINE)
    return max((match.end() for match in line.finditer(text)), default=0)
