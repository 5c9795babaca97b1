"""What is wrong with an endpoint, in words that say which option to change."""

import asyncio
import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from onepo.endpoints.address import CHAT_PATH, proxy_for
from onepo.endpoints.answers import one_line
from onepo.endpoints.chat import (
    ContextLengthExceeded,
    EndpointError,
    EndpointUnavailable,
    RequestRefused,
    RequestTimedOut,
    ServerFailed,
)
from onepo.errors import UserError

# how a request's failure is called where failures are counted
FAILURES = {
    RequestTimedOut: "timed_out",
    ServerFailed: "server_error",
    EndpointUnavailable: "unavailable",
    ContextLengthExceeded: "context_length",
    RequestRefused: "refused",
}

_MODELS_TIMEOUT = 10.0  # seconds; the list only makes a message better
_NAMES_SHOWN = 10
_LONGEST_LIST = 2**20  # bytes


@dataclass(frozen=True)
class EndpointOptions:
    """How messages speak of an endpoint, and the options that it is set by.

    Attributes:
        who: such as ``grader``.
        work: what it is asked for, one of them.
        url, model, api_key, timeout, max_tokens: names of options.
        refusal: what to look at when it takes no request at all, as a sentence without its full stop.
    """

    who: str
    work: str
    url: str
    model: str
    api_key: str
    timeout: str
    max_tokens: str
    refusal: str


async def explained(
    error: EndpointError, *, options: EndpointOptions, url: str, model: str, api_key: str | None, max_tokens: int
) -> UserError:
    """The error to raise for a probe that failed; asks the endpoint for its models when those may be the reason."""
    if isinstance(error, EndpointUnavailable):
        advice = _reachable(error, options.who)
    elif isinstance(error, RequestTimedOut):
        advice = (
            f"A small {options.work} should not take that long: look at the {options.who}'s load, or raise "
            f"{options.timeout}"
        )
    elif isinstance(error, ContextLengthExceeded):
        advice = (
            f"Its context does not hold a small {options.work} and the output: start it with a longer one, or lower "
            f"{options.max_tokens} (now {max_tokens})"
        )
    elif isinstance(error, RequestRefused) and error.status in (401, 403):
        advice = f"Set {options.api_key} to its key" if not api_key else f"Correct {options.api_key}"
    elif (names := await served_names(url, api_key)) and model not in names:
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        listed = ", ".join(names[:_NAMES_SHOWN]) + more
        return UserError(f"{options.model}={model}: the {options.who} serves no model of this name, but {listed}.")
    elif isinstance(error, RequestRefused) and error.status not in (404, 405):
        advice = options.refusal
    elif isinstance(error, ServerFailed) and error.broke:
        advice = f"Look at the {options.who}'s log"
    else:
        advice = (
            f"{options.work.capitalize()}s need the complete address of chat completions, such as "
            f"http://HOST:PORT/v1/chat/completions, and the name of a model that is served there in {options.model}"
        )
    return UserError(f"{options.url}: {str(error).rstrip('.')}. {advice}.")


async def served_names(url: str, api_key: str | None) -> list[str]:
    """The models that the endpoint lists beside its chat completions; none when it lists nothing."""
    parts = urlsplit(url)
    address = urlunsplit(parts._replace(path=parts.path.removesuffix(CHAT_PATH) + "/models"))
    headers = {} if not api_key else {"Authorization": f"Bearer {api_key}"}
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(_MODELS_TIMEOUT)) as session,
            session.get(address, headers=headers, allow_redirects=False, proxy=proxy_for(url)) as response,
        ):
            listed = json.loads(await _beginning(response))
        return [one_line(str(entry["id"]), secret=api_key) for entry in listed["data"]]
    except (aiohttp.ClientError, asyncio.TimeoutError, ValueError, LookupError, TypeError, RecursionError):
        return []


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    """The body, or so much of it that the rest makes no message better; that is no JSON then."""
    content = bytearray()
    async for part in response.content.iter_chunked(2**16):
        content += part
        if len(content) > _LONGEST_LIST:
            break
    return bytes(content)


def _reachable(error: EndpointUnavailable, who: str) -> str:
    """What makes the endpoint reachable, by what stands behind the error."""
    causes = list(_causes(error))
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return "The host name is not known: correct it"
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return "This machine does not trust the certificate: correct the host name, or use a trusted certificate"
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return f"The encrypted connection failed: if the {who} speaks plain HTTP, begin the address with http://"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return f"Nothing listens there: start the {who}, or correct host and port"
    return f"Start the {who}, relieve it, or correct the address"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
