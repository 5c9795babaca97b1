"""Reading what an OpenAI-compatible endpoint answers: a completion, or the reason why there is none."""

import json
import math
import re
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

SHOWN_CHARACTERS = 300
_LOOKED_AT = 2**13  # bytes of an error's answer
_HIDDEN = "\0"
_TELLING = 12  # letters and digits of a key; fewer are what many keys begin with

# Engines and gateways word it differently, most give no code for it: vLLM, SGLang, OpenAI, llama.cpp, TGI, Gemini.
_TOO_LONG = re.compile(
    r"context[ _-]?(length|window|size)|too long|longer than|maximum (input |prompt |sequence )?length"
    r"|maximum number of tokens|max_new_tokens. must be",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Completion:
    """The model's answer.

    Attributes:
        text: what it says, without the reasoning where the endpoint separates the two; "" when it ends within that.
        reasoning: the separated reasoning, None when there is none.
        finish_reason: as the endpoint gives it, such as ``stop`` or ``length``.
        requests: how many were sent for it, those answered by an outage included.
    """

    text: str
    reasoning: str | None
    finish_reason: str | None
    requests: int


def read_completion(content: bytes) -> Completion:
    """The first choice of a chat completion.

    Raises:
        ValueError: it is no chat completion.
    """
    try:
        choice = json.loads(content)["choices"][0]
        message = choice["message"]
        text = message["content"]
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        finish_reason = choice.get("finish_reason")
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("no choice with a message") from error
    if not (text is None or isinstance(text, str)):
        raise ValueError("the content is no text")
    # some gateways put structures there
    reasoning, finish_reason = (value if isinstance(value, str) else None for value in (reasoning, finish_reason))
    return Completion(text or "", reasoning, finish_reason, requests=1)


def own_words(content: bytes, *, secret: str | None) -> str:
    """What an answer says about an error: one line of at most ``SHOWN_CHARACTERS``, ``secret`` blanked out."""
    text = content[:_LOOKED_AT].decode(errors="replace")
    try:
        text = _message(json.loads(text))
    except (ValueError, RecursionError):
        text = re.sub(r"<[^>]*>", " ", text)
    return one_line(text, secret=secret) or "no explanation"


def one_line(text: str, *, secret: str | None) -> str:
    """Text of an endpoint on one line of at most ``SHOWN_CHARACTERS``, printable, ``secret`` blanked out.

    Where more than a few characters of the secret are left, in whatever spelling, nothing of the text is shown.
    """
    if secret:
        text = text.replace(secret, _HIDDEN)
        if _holds_a_part(text, secret):
            return "its words are not shown, because they hold a part of the key"
        text = text.replace(_HIDDEN, "[key]")
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return line if len(line) <= SHOWN_CHARACTERS else line[: SHOWN_CHARACTERS - 3] + "..."


def _holds_a_part(text: str, secret: str) -> bool:
    """Whether a piece of the secret stands in the text: cut short, broken by blanks or tags, or escaped."""
    unescaped = re.sub(r"(?:\\u|%)(?:00)?([0-9a-fA-F]{2})", lambda code: chr(int(code[1], 16)), text)
    for spelling in (text, unescaped):
        plain = re.sub(r"[\W_]", "", re.sub(r"<[^>]*>", "", spelling))
        key = re.sub(r"[\W_]", "", secret)
        size = min(len(key), _TELLING)
        if size and any(key[start : start + size] in plain for start in range(len(key) - size + 1)):
            return True
    return False


def is_context_length(status: int, words: str) -> bool:
    """Whether a refusal is one of too many tokens. A payload too large (413) is, since a shorter one would pass."""
    return status == 413 or (status in (400, 422) and _TOO_LONG.search(words) is not None)


def seconds_to_wait(retry_after: str | None) -> float:
    """A Retry-After header, which is a number of seconds or a date; 0 without one, or when it cannot be read."""
    try:
        seconds = float(retry_after or 0)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(retry_after).timestamp() - time.time()
        except ValueError:
            return 0.0
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


def _message(answer: Any) -> str:
    """The text in the forms of OpenAI (error, message, code), FastAPI (detail, loc, msg) and gateways."""
    if isinstance(answer, list):
        return "; ".join(_message(item) for item in answer)
    if isinstance(answer, dict):
        for name in ("error", "message", "detail"):
            if answer.get(name):
                code = answer.get("code")
                return _message(answer[name]) + (f" ({code})" if isinstance(code, str) else "")
        if "msg" in answer:
            place = answer.get("loc")
            return f"{'.'.join(map(str, place)) if isinstance(place, list) else ''}: {answer['msg']}"
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
