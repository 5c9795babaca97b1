"""Finding out what a grader's endpoint takes, by one real grading before a run relies on it."""

import re
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from onepo.endpoints.chat import (
    ChatEndpoint,
    Completion,
    ContextLengthExceeded,
    EndpointError,
    RequestForm,
    RequestRefused,
    ServerFailed,
    chat_url,
)
from onepo.errors import UserError
from onepo.rewards.grader import temperature_of
from onepo.rewards.probe_errors import explained, unusable_output
from onepo.rewards.rubric import MalformedGrading, Messages, grading_messages, met_schema, parse_met

SAMPLE = [
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "The capital of France is Paris."},
]
SAMPLE_RUBRICS = [
    {"criterion": "Names Paris as the capital of France", "points": 5},
    {"criterion": "Claims that the capital of France is Berlin", "points": -5},
    {"criterion": "Is written in English", "points": 1},
]
SAMPLE_MET = [True, False, True]

# how servers speak of the field when they refuse it
_SCHEMA_WORDS = ("response_format", "json_schema", "schema", "grammar", "guided")


@dataclass(frozen=True)
class Settled:
    """``form``: what the endpoint takes; ``lines``: the same for people, one finding each."""

    form: RequestForm
    lines: list[str]


async def settle(
    *,
    url: str,
    model: str,
    api_key: str | None,
    extra_body: dict[str, Any],
    timeout: float,
    outage_limit: float,
    template: str,
    max_tokens: int,
    max_retries: int,
) -> Settled:
    """Grade a small sample, leaving out one field of the request after the other until the endpoint takes it.

    Fields that the refusal names go first. What was left out on suspicion only is tried again at the end. A JSON schema
    is used when it is taken and the output under it is a grading.

    Args:
        url: of the chat completions; the path is completed.
        extra_body: fields to send along, each of which may be refused.
        timeout, outage_limit: seconds for one answer; seconds to wait for an endpoint that is not there.
        template, max_tokens, max_retries: as for ``RubricGrader``.

    Raises:
        UserError: gradings are not possible, with the reason and the option to change.
    """
    try:
        url = chat_url(url)
    except UserError as error:
        raise UserError(f"REWARD_MODEL_URL: {error}") from None
    endpoint = {"url": url, "model": model, "api_key": api_key, "timeout": timeout, "outage_limit": outage_limit}
    messages = grading_messages(template, SAMPLE, SAMPLE_RUBRICS)
    try:
        return await _Probe(endpoint, messages, max_tokens=max_tokens, attempts=1 + max_retries).settle(extra_body)
    except EndpointError as error:
        raise await explained(error, url=url, model=model, api_key=api_key, max_tokens=max_tokens) from None


class _Probe:
    def __init__(self, endpoint: dict[str, Any], messages: Messages, *, max_tokens: int, attempts: int):
        self._endpoint = endpoint
        self._messages = messages
        self._max_tokens = max_tokens
        self._attempts = attempts

    async def settle(self, extra_body: dict[str, Any]) -> Settled:
        full = RequestForm(extra_body=extra_body, json_schema=True, token_limit="max_tokens", temperature=True)
        form, completion = await self._taken(full)
        lines = _findings(full, form)
        met, completion = await self._graded(form, completion)
        if met is None and form.json_schema:
            form = replace(form, json_schema=False)
            met, completion = await self._graded(form, await self._ask(form, attempt=0))
            lines[0] = "the grader takes a JSON schema, but its output under one is no grading: none is sent"
        if met is None:
            model, attempts, limit = self._endpoint["model"], self._attempts, self._max_tokens
            raise UserError(unusable_output(completion, model=model, attempts=attempts, max_tokens=limit))
        return Settled(form, [*lines, _verdict(met)])

    async def _taken(self, full: RequestForm) -> tuple[RequestForm, Completion]:
        """The fullest form that the endpoint takes, and its answer."""
        dropped, suspected = [], []
        while True:
            form = reduce(_without, dropped, full)
            try:
                completion = await self._ask(form, attempt=0)
                break
            except (RequestRefused, ServerFailed) as error:
                field, named = _suspect(form, error)
                if field is None:
                    raise
                dropped.append(field)
                suspected += [] if named else [field]
        for field in reversed(suspected):
            fuller = [name for name in dropped if name != field]
            try:
                completion = await self._ask(reduce(_without, fuller, full), attempt=0)
            except (RequestRefused, ServerFailed):
                continue
            dropped = fuller
        return reduce(_without, dropped, full), completion

    async def _graded(self, form: RequestForm, completion: Completion) -> tuple[list[bool] | None, Completion]:
        """The grading in an output, or in that of one of the further attempts, and the last output."""
        for attempt in range(self._attempts):
            if attempt > 0:
                completion = await self._ask(form, attempt)
            try:
                return parse_met(completion.text, len(SAMPLE_RUBRICS)), completion
            except MalformedGrading:
                continue
        return None, completion

    async def _ask(self, form: RequestForm, attempt: int) -> Completion:
        endpoint = ChatEndpoint(form=form, max_concurrency=1, **self._endpoint)
        try:
            return await endpoint.complete(
                self._messages,
                temperature=temperature_of(attempt),
                max_tokens=self._max_tokens,
                schema=met_schema(len(SAMPLE_RUBRICS)),
            )
        finally:
            await endpoint.aclose()


def _suspect(form: RequestForm, error: RequestRefused | ServerFailed) -> tuple[str | None, bool]:
    """The field to leave out next, None when none is left or to blame; and whether the error names it."""
    fields = [
        *(["response_format"] if form.json_schema else []),
        *form.extra_body,
        *([form.token_limit] if form.token_limit else []),
        *(["temperature"] if form.temperature else []),
    ]
    if isinstance(error, ServerFailed):
        # a server may break on a schema; every other field is ordinary
        return ("response_format" if form.json_schema else None), False
    if isinstance(error, ContextLengthExceeded) or error.status < 400:
        return None, False
    for field in fields:
        words = _SCHEMA_WORDS if field == "response_format" else (field,)
        if any(re.search(rf"\b{re.escape(word)}\b", str(error)) for word in words):
            return field, True
    return (fields[0] if fields and error.status in (400, 422) else None), False


def _without(form: RequestForm, field: str) -> RequestForm:
    if field in form.extra_body:
        return replace(form, extra_body={name: value for name, value in form.extra_body.items() if name != field})
    if field == "response_format":
        return replace(form, json_schema=False)
    if field == "temperature":
        return replace(form, temperature=False)
    if field != form.token_limit:
        return form
    return replace(form, token_limit="max_completion_tokens" if field == "max_tokens" else None)


def _findings(full: RequestForm, form: RequestForm) -> list[str]:
    schema = "takes a JSON schema" if form.json_schema else "refuses a JSON schema (response_format), so none is sent"
    lines = [f"the grader {schema}"]
    lines += [
        f"the grader refuses {name}, so it is not sent" for name in full.extra_body if name not in form.extra_body
    ]
    if form.token_limit == "max_completion_tokens":
        lines.append("the grader refuses max_tokens: the limit is sent as max_completion_tokens")
    elif form.token_limit is None:
        lines.append("the grader refuses max_tokens and max_completion_tokens: its output is not limited")
    if not form.temperature:
        lines.append("the grader refuses temperature, so it is not sent: further attempts are no more random")
    return lines


def _verdict(met: list[bool]) -> str:
    if met == SAMPLE_MET:
        return "the grader graded the sample correctly"
    found, expected = (str(decisions).lower() for decisions in (met, SAMPLE_MET))
    return (
        f"warning: the grader graded the sample as {found} where {expected} is right: "
        "look at its gradings with python -m onepo.rewards.check"
    )
