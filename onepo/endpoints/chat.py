"""An asynchronous client of one OpenAI-compatible chat endpoint."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from onepo.endpoints.address import chat_url
from onepo.endpoints.answers import Completion, read_completion
from onepo.endpoints.errors import (
    ContextLengthExceeded,
    EndpointError,
    EndpointUnavailable,
    RequestRefused,
    RequestTimedOut,
    ServerFailed,
)
from onepo.endpoints.transport import JsonEndpoint, sendable_key

__all__ = [
    "ChatEndpoint",
    "Completion",
    "ContextLengthExceeded",
    "EndpointError",
    "EndpointUnavailable",
    "RequestForm",
    "RequestRefused",
    "RequestTimedOut",
    "ServerFailed",
    "chat_url",
    "sendable_key",
]

_LONGEST_ANSWER = 2**22  # bytes; no answer that is asked for has a hundredth of it


@dataclass(frozen=True)
class RequestForm:
    """Which fields an endpoint takes.

    Attributes:
        extra_body: merged into each request, such as ``{"chat_template_kwargs": {"enable_thinking": False}}``.
        json_schema: it takes a ``response_format`` with a JSON schema.
        token_limit: the name of the output's limit, ``max_tokens`` or ``max_completion_tokens``; None: it takes none.
        temperature: it takes a temperature.
    """

    extra_body: dict[str, Any]
    json_schema: bool
    token_limit: str | None
    temperature: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; ``RequestForm(**values)`` is the way back."""
        return dataclasses.asdict(self)


class ChatEndpoint(JsonEndpoint):
    """A ``JsonEndpoint`` whose answers are chat completions.

    Args:
        url: complete, as ``chat_url`` gives it.
        model: the name it is served by.
        form: the fields it takes.
        options: the others of ``JsonEndpoint``.

    Raises:
        UserError: the key cannot be sent.
    """

    def __init__(self, *, url: str, model: str, form: RequestForm, **options: Any):
        super().__init__(url=url, answers="chat completion", longest_answer=_LONGEST_ANSWER, **options)
        self._model = model
        self._form = form

    async def complete(
        self,
        messages: list[dict[str, str]],
        *,
        temperature: float,
        max_tokens: int,
        schema: dict[str, Any] | None = None,
    ) -> Completion:
        """The model's answer to a conversation.

        Args:
            schema: JSON schema of the answer, sent when the endpoint takes one.

        Raises:
            EndpointError: there is none; the subclasses tell why.
        """
        body = self._body(messages, temperature, max_tokens, schema)
        completion, requests = await self.post(body, read=read_completion)
        return dataclasses.replace(completion, requests=requests)

    def _body(
        self, messages: list[dict[str, str]], temperature: float, max_tokens: int, schema: dict[str, Any] | None
    ) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self._model, "messages": messages}
        if self._form.temperature:
            body["temperature"] = temperature
        if self._form.token_limit is not None:
            body[self._form.token_limit] = max_tokens
        if self._form.json_schema and schema is not None:
            named = {"name": "answer", "schema": schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        return body | self._form.extra_body
