"""Finding out whether a teacher's endpoint answers, and what it takes, before a run relies on it."""

from contextlib import suppress
from typing import Any

from onepo.endpoints.chat import (
    Completion,
    EndpointError,
    RequestForm,
    RequestRefused,
    ServerFailed,
    chat_url,
    sendable_key,
)
from onepo.endpoints.explain import EndpointOptions, explained
from onepo.endpoints.negotiate import Settled, ask_once, negotiate, refused_fields
from onepo.errors import UserError
from onepo.teachers.online import UnusableAnswer, answer_text

QUESTION = [{"role": "user", "content": "What is the capital of France? Reply with its name."}]
TEACHER = EndpointOptions(
    who="teacher",
    work="question",
    url="TEACHER_API_URL",
    model="TEACHER_MODEL",
    api_key="ONEPO_TEACHER_API_KEY",
    timeout="TEACHER_TIMEOUT",
    max_tokens="TEACHER_MAX_TOKENS",
    refusal="It takes no question at all: look at the teacher's log, or at what its provider says of TEACHER_MODEL",
)
FULL = RequestForm(extra_body={}, json_schema=False, token_limit="max_tokens", temperature=False)
_PATIENCE = 10.0  # seconds for an endpoint that is not there
_ATTEMPTS = 3  # at a server that fails
_FEW_TOKENS = 16


async def settle_teacher(
    *,
    url: str,
    model: str,
    api_key: str | None,
    timeout: float,
    max_tokens: int,
    options: EndpointOptions = TEACHER,
) -> Settled:
    """Ask a short question, and leave out what the endpoint refuses.

    Args:
        url: of the chat completions; the path is completed.
        timeout: seconds for the answer.
        max_tokens: as for ``OnlineTeacher``.
        options: how they are called where they were given.

    Raises:
        UserError: the teacher cannot be used, with the reason and the option to change.
    """
    try:
        url = chat_url(url)
    except UserError as error:
        raise UserError(f"{options.url}: {error}") from None
    api_key = sendable_key(api_key, options.api_key)
    endpoint = {"url": url, "model": model, "api_key": api_key, "timeout": timeout, "outage_limit": _PATIENCE}
    try:
        form, completion = await _negotiated(endpoint, max_tokens)
        if form != FULL and await _is_taken(endpoint, _FEW_TOKENS):
            raise UserError(
                f"{options.max_tokens}={max_tokens}: the teacher takes a limit of {_FEW_TOKENS} tokens and refuses "
                "this one. Lower it."
            )
    except EndpointError as error:
        raise await explained(
            error, options=options, url=url, model=model, api_key=api_key, max_tokens=max_tokens
        ) from None
    try:
        answer_text(completion)
    except UnusableAnswer as error:
        raise UserError(
            f"{options.model}={model}: asked for the capital of France, {error}. Use a chat model, and raise "
            f"{options.max_tokens} (now {max_tokens}) if it thinks for long."
        ) from None
    apart = ", its reasoning apart: it becomes a think block" if completion.reasoning else ""
    return Settled(form, [f"the teacher answers{apart}", *refused_fields("the teacher", FULL, form)])


async def _negotiated(endpoint: dict[str, Any], max_tokens: int) -> tuple[RequestForm, Completion]:
    for _ in range(_ATTEMPTS - 1):
        with suppress(ServerFailed):
            return await negotiate(endpoint, FULL, QUESTION, max_tokens=max_tokens, schema=None)
    return await negotiate(endpoint, FULL, QUESTION, max_tokens=max_tokens, schema=None)


async def _is_taken(endpoint: dict[str, Any], max_tokens: int) -> bool:
    try:
        await ask_once(endpoint, FULL, QUESTION, temperature=0.0, max_tokens=max_tokens, schema=None)
    except (RequestRefused, ServerFailed):
        return False
    return True
