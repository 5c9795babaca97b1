"""Grading one response: the requests, the retries, and the failure that is never a score."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onepo.endpoints.attempts import pause_after, worth_another_attempt
from onepo.endpoints.chat import ChatEndpoint, ContextLengthExceeded, EndpointError
from onepo.endpoints.explain import FAILURES
from onepo.rewards.rubric import (
    MalformedGrading,
    Messages,
    cut_conversation,
    grading_messages,
    met_schema,
    parse_met,
)
from onepo.terminal import harmless

TEMPERATURE_STEP = 0.2  # each attempt is that much more random than the one before, the first takes the likeliest words
SHOWN_CHARACTERS = 200


@dataclass(frozen=True)
class Grading:
    """What became of one grading.

    Attributes:
        met: for each rubric in order, whether the answer meets its criterion; None when the grading failed.
        failure: ``malformed``, ``timed_out``, ``server_error``, ``unavailable``, ``refused`` or ``context_length``;
            None when it is graded.
        explanation: of the failure, one line for people.
        requests: all that were sent for it.
        seconds: from the call to the end, waiting for a free slot and through outages included.
        malformed: the outputs that were refused.
        cut: the conversation was cut because the grader's context did not hold it.
    """

    met: list[bool] | None
    failure: str | None
    explanation: str | None
    requests: int
    seconds: float
    malformed: list[str]
    cut: bool


class RubricGrader:
    """Asks an endpoint which criteria an answer meets, one request for all of them.

    Args:
        template: the grading prompt, checked (``rubric.check_template``).
        max_tokens: of the grader's output.
        max_retries: further attempts for an output that is no grading, a time-out or a server error.
    """

    def __init__(self, endpoint: ChatEndpoint, *, template: str, max_tokens: int, max_retries: int):
        self._endpoint = endpoint
        self._template = template
        self._max_tokens = max_tokens
        self._max_retries = max_retries

    async def grade(self, conversation: Messages, rubrics: Sequence[dict[str, Any]]) -> Grading:
        """Grade the last message of a conversation. Every trouble with the endpoint is told in the result."""
        started = time.monotonic()
        met, failure, explanation = None, None, None
        requests, malformed, cut = 0, [], False
        attempt = 0
        while met is None and attempt <= self._max_retries:
            try:
                completion = await self._endpoint.complete(
                    grading_messages(self._template, conversation, rubrics),
                    temperature=temperature_of(attempt),
                    max_tokens=self._max_tokens,
                    schema=met_schema(len(rubrics)),
                )
                requests += completion.requests
                met = parse_met(completion.text, len(rubrics))
            except MalformedGrading as error:
                malformed.append(completion.text)
                failure, explanation = "malformed", f"found {error} in the grader's output: {shown(completion.text)}"
            except EndpointError as error:
                requests += error.requests
                if isinstance(error, ContextLengthExceeded) and not cut:
                    conversation, cut = cut_conversation(conversation), True
                    continue
                failure, explanation = FAILURES[type(error)], str(error)
                if not worth_another_attempt(error):
                    break
                if attempt < self._max_retries:
                    await pause_after(error, attempt)
            attempt += 1
        if met is not None:
            failure = explanation = None
        seconds = time.monotonic() - started
        return Grading(met, failure, explanation, requests, seconds, malformed, cut)


def temperature_of(attempt: int) -> float:
    """The sampling temperature of an attempt, counted from 0."""
    return round(TEMPERATURE_STEP * attempt, 1)


def shown(output: str) -> str:
    """An output on one line of about ``SHOWN_CHARACTERS``, quoted, with nothing in it that a terminal would obey."""
    text = harmless(" ".join(output.split())[: SHOWN_CHARACTERS + 1])
    return f'"{text}"' if len(text) <= SHOWN_CHARACTERS else f'"{text[: SHOWN_CHARACTERS - 3]}..."'
