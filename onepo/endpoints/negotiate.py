"""Finding out which fields of a request an endpoint takes, by asking it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from onepo.endpoints.chat import (
    ChatEndpoint,
    Completion,
    ContextLengthExceeded,
    RequestForm,
    RequestRefused,
    ServerFailed,
)

# how servers speak of the field when they refuse it
_SCHEMA_WORDS = ("response_format", "json_schema", "schema", "grammar", "guided")


@dataclass(frozen=True)
class Settled:
    """``form``: what the endpoint takes; ``lines``: what was found, for people."""

    form: RequestForm
    lines: list[str]


async def negotiate(
    endpoint: dict[str, Any],
    full: RequestForm,
    messages: list[dict[str, str]],
    *,
    max_tokens: int,
    schema: dict[str, Any] | None,
) -> tuple[RequestForm, Completion]:
    """Leave out one field of a request after the other until the endpoint takes it.

    Fields that the refusal names go first. What was left out on suspicion only is tried again at the end.

    Args:
        endpoint: the arguments of ``ChatEndpoint`` without ``form`` and ``max_concurrency``.
        full: all that is worth sending.
        schema: of the answer; None when ``full`` has none.

    Returns:
        The fullest form that is taken, and the answer to it.

    Raises:
        EndpointError: the request is not taken in any form, or the endpoint is not there.
    """

    async def ask(dropped: Sequence[str]) -> tuple[RequestForm, Completion]:
        form = reduce(_without, dropped, full)
        return form, await ask_once(endpoint, form, messages, temperature=0.0, max_tokens=max_tokens, schema=schema)

    dropped: list[str] = []
    suspected: list[str] = []
    while True:
        try:
            taken = await ask(dropped)
            break
        except (RequestRefused, ServerFailed) as error:
            field, named = _suspect(reduce(_without, dropped, full), error)
            if field is None:
                raise
            dropped.append(field)
            suspected += [] if named else [field]
    for field in reversed(suspected):
        fuller = [name for name in dropped if name != field]
        try:
            taken = await ask(fuller)
        except (RequestRefused, ServerFailed):
            continue
        dropped = fuller
    return taken


async def ask_once(
    endpoint: dict[str, Any],
    form: RequestForm,
    messages: list[dict[str, str]],
    *,
    temperature: float,
    max_tokens: int,
    schema: dict[str, Any] | None,
) -> Completion:
    """One question over a connection of its own; ``endpoint`` and the errors as for ``negotiate``."""
    client = ChatEndpoint(form=form, max_concurrency=1, **endpoint)
    try:
        return await client.complete(messages, temperature=temperature, max_tokens=max_tokens, schema=schema)
    finally:
        await client.aclose()


def refused_fields(who: str, full: RequestForm, form: RequestForm) -> list[str]:
    """One line for each field of ``full`` that ``form`` lacks, but for the schema and the temperature."""
    lines = [f"{who} refuses {name}, so it is not sent" for name in full.extra_body if name not in form.extra_body]
    if form.token_limit == "max_completion_tokens":
        lines.append(f"{who} refuses max_tokens: the limit is sent as max_completion_tokens")
    elif form.token_limit is None:
        lines.append(f"{who} refuses max_tokens and max_completion_tokens: its output is not limited")
    return lines


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
