"""What the scripted grader says: its behaviours, its grading rule, its refusals; ``scripted_grader`` serves them."""

import contextlib
import json
import re
import zlib
from dataclasses import dataclass, field

MODES = frozenset(
    # answers of the model: a list, or what a weak model makes of it
    "normal fenced think unclosed_think reasoning only_reasoning schema_only python_case trailing_text "
    "garbage truncated wrong_length not_boolean "
    # answers of the server; "slow" is normal after `slow_seconds`, "not_json" and "no_choices" come with status 200
    "slow 429 500 502 503 504 not_json no_choices "
    # no answer: reset before it, reset in the middle of it, never
    "reset reset_midway silent".split()
)


@dataclass(frozen=True)
class Behaviour:
    mode: str | list[str] = "normal"  # a list is a script for successive requests, its last entry stays
    latency: float = 0.0  # seconds a normal answer takes, spent in one of the slots
    slow_seconds: float = 10.0
    retry_after: str | None = None  # the header of 429 and 503 answers: seconds or a date
    poison: dict[str, str] = field(default_factory=dict)  # word in the messages -> mode; takes nothing from the script
    accepts: list[str] | None = None  # the fields a request may have; None: all
    refusal: str = "openai"  # the words for another field: "openai", "pydantic" (400) or "fastapi" (422)
    api_key: str | None = None  # without it in the header: 401
    max_characters: int | None = None  # of all messages together; above it: 400, context length
    context_words: str = "vllm"  # the words for it: "vllm", "sglang" or "openai"
    max_model_len: int = 32768  # as /v1/models gives it
    healthy: bool = True  # False: /health answers 503

    def __post_init__(self):
        modes = [self.mode] if isinstance(self.mode, str) else self.mode
        if unknown := {*modes, *self.poison.values()} - MODES:
            raise ValueError(f"no mode {sorted(unknown)}; there are {sorted(MODES)}")


CONTEXT_LENGTH_WORDS = {
    "vllm": "This model's maximum context length is {limit} tokens. However, you requested {asked} tokens.",
    "sglang": "The input ({asked} tokens) is longer than the model's context length ({limit} tokens).",
    "openai": "Your messages resulted in {asked} tokens, the limit is {limit}.",
}


def is_met(criterion: str, reply: str) -> bool:
    """The grading rule: ``says WORD`` looks for the word, any other criterion is a coin that always falls the same."""
    if criterion.startswith("says "):
        return criterion.removeprefix("says ") in reply
    return zlib.crc32((criterion + reply).encode()) % 2 == 0


def criteria_and_reply(prompt: str) -> tuple[list[str], str]:
    """The last run of lines "1. ...", "2. ..." of a grading prompt, and the assistant's last JSON line."""
    criteria: list[str] = []
    reply = ""
    for line in prompt.split("\n"):  # not splitlines: JSON leaves U+2028 and its like in a line
        if numbered := re.match(r"\s*(\d+)\. (.*)", line):
            number, criterion = int(numbered[1]), numbered[2].strip()
            if number == 1:
                criteria = [criterion]
            elif number == len(criteria) + 1:
                criteria.append(criterion)
        elif (start := line.find('{"role"')) >= 0:
            with contextlib.suppress(ValueError):
                message, _ = json.JSONDecoder().raw_decode(line[start:])
                reply = message["content"] if message["role"] == "assistant" else reply
    return criteria, reply


def completion(model: str, mode: str, body: dict) -> dict:
    """A chat completion: the list of booleans for the last user message of ``body``, spoiled as ``mode`` says."""
    schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
    prompt = next(message["content"] for message in reversed(body["messages"]) if message["role"] == "user")
    criteria, reply = criteria_and_reply(prompt)
    met = [is_met(criterion, reply) for criterion in criteria]
    if schema is not None:
        count = schema.get("minItems", len(met))
        met = (met + [False] * count)[:count]
    text = json.dumps(met)
    by_mode = {
        "fenced": f"```json\n{text}\n```",
        "think": f"<think>\nThe first draft was [true].\n</think>\n\n{text}",
        "unclosed_think": f"<think>\nThe list would be {text}",
        "python_case": str(met),
        "trailing_text": f"{text}\nI hope this helps!",
        "garbage": "The answer is thorough and mostly right.",
        "truncated": text[: text.rindex(",") + 1] if "," in text else text[:-1],
        "wrong_length": json.dumps([*met, True]),
        "not_boolean": json.dumps([1] * len(met)),
        "schema_only": text if schema is not None else "Sure! Let me grade this.",
        "only_reasoning": None,
    }
    message = {"role": "assistant", "content": by_mode.get(mode, text)}
    if mode in ("reasoning", "only_reasoning"):
        message["reasoning_content"] = "Let me see."
    choice = {"index": 0, "message": message, "finish_reason": "length" if mode == "only_reasoning" else "stop"}
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    return {"id": "chatcmpl-0", "object": "chat.completion", "model": model, "choices": [choice], "usage": usage}


def refused_key(behaviour: Behaviour, authorization: str | None) -> tuple[int, dict] | None:
    if behaviour.api_key is None or authorization == f"Bearer {behaviour.api_key}":
        return None
    return _error(401, f"Incorrect API key provided: {(authorization or 'none').removeprefix('Bearer ')}")


def refusal(
    name: str, behaviour: Behaviour, body: dict, authorization: str | None, text: str
) -> tuple[int, dict] | None:
    """Status and body when the request is not taken, else None; ``text`` is that of all messages."""
    if refused := refused_key(behaviour, authorization):
        return refused
    if body.get("model") != name:
        return _error(404, f"The model `{body.get('model')}` does not exist.")
    unknown = [field for field in body if behaviour.accepts is not None and field not in behaviour.accepts]
    if unknown:
        return _unknown_fields(unknown, behaviour.refusal)
    limit, asked = behaviour.max_characters, len(text)
    if limit is not None and asked > limit:
        words = behaviour.context_words
        code = "context_length_exceeded" if words == "openai" else None
        return _error(400, CONTEXT_LENGTH_WORDS[words].format(limit=limit, asked=asked), code)
    return None


def _unknown_fields(names: list[str], words: str) -> tuple[int, dict]:
    if words == "openai":
        return _error(400, f"Unrecognized request argument supplied: {names[0]}")
    found = [
        {"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs are not permitted"} for name in names
    ]
    return (422, {"detail": found}) if words == "fastapi" else _error(400, str(found))


def _error(status: int, message: str, code: str | None = None) -> tuple[int, dict]:
    return status, {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}
