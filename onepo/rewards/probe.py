"""Finding out what a grader's endpoint takes, by one real grading before a run relies on it."""

from dataclasses import replace
from typing import Any

from onepo.endpoints.chat import Completion, EndpointError, RequestForm, chat_url, sendable_key
from onepo.endpoints.explain import EndpointOptions, explained
from onepo.endpoints.negotiate import Settled, ask_once, negotiate, refused_fields
from onepo.errors import UserError
from onepo.rewards.grader import temperature_of
from onepo.rewards.probe_errors import GRADER, unusable_output
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
    options: EndpointOptions = GRADER,
) -> Settled:
    """Grade a small sample, leaving out one field of the request after the other until the endpoint takes it.

    A JSON schema is used when it is taken and the output under it is a grading.

    Args:
        url: of the chat completions; the path is completed.
        extra_body: fields to send along, each of which may be refused.
        timeout, outage_limit: seconds for one answer; seconds to wait for an endpoint that is not there.
        template, max_tokens, max_retries: as for ``RubricGrader``.
        options: how they are called where they were given.

    Raises:
        UserError: gradings are not possible, with the reason and the option to change.
    """
    try:
        url = chat_url(url)
    except UserError as error:
        raise UserError(f"{options.url}: {error}") from None
    api_key = sendable_key(api_key, options.api_key)
    endpoint = {"url": url, "model": model, "api_key": api_key, "timeout": timeout, "outage_limit": outage_limit}
    messages = grading_messages(template, SAMPLE, SAMPLE_RUBRICS)
    try:
        probe = _Probe(endpoint, messages, max_tokens=max_tokens, attempts=1 + max_retries, options=options)
        return await probe.settle(extra_body)
    except EndpointError as error:
        raise await explained(
            error, options=options, url=url, model=model, api_key=api_key, max_tokens=max_tokens
        ) from None


class _Probe:
    def __init__(
        self,
        endpoint: dict[str, Any],
        messages: Messages,
        *,
        max_tokens: int,
        attempts: int,
        options: EndpointOptions,
    ):
        self._options = options
        self._endpoint = endpoint
        self._messages = messages
        self._limits = {"max_tokens": max_tokens, "schema": met_schema(len(SAMPLE_RUBRICS))}
        self._attempts = attempts

    async def settle(self, extra_body: dict[str, Any]) -> Settled:
        full = RequestForm(extra_body=extra_body, json_schema=True, token_limit="max_tokens", temperature=True)
        form, completion = await negotiate(self._endpoint, full, self._messages, **self._limits)
        lines = _findings(full, form)
        met, completion = await self._graded(form, completion)
        if met is None and form.json_schema:
            form = replace(form, json_schema=False)
            met, completion = await self._graded(form, await self._ask(form, attempt=0))
            lines[0] = "the grader takes a JSON schema, but its output under one is no grading: none is sent"
        if met is None:
            model, attempts, limit = self._endpoint["model"], self._attempts, self._limits["max_tokens"]
            raise UserError(
                unusable_output(completion, options=self._options, model=model, attempts=attempts, max_tokens=limit)
            )
        return Settled(form, [*lines, _verdict(met)])

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
        temperature = temperature_of(attempt)
        return await ask_once(self._endpoint, form, self._messages, temperature=temperature, **self._limits)


def _findings(full: RequestForm, form: RequestForm) -> list[str]:
    schema = "takes a JSON schema" if form.json_schema else "refuses a JSON schema (response_format), so none is sent"
    lines = [f"the grader {schema}", *refused_fields("the grader", full, form)]
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
