"""What is wrong with a grader's endpoint, in words that say which option to change."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from onepo.endpoints.address import CHAT_PATH, proxy_for
from onepo.endpoints.chat import (
    Completion,
    ContextLengthExceeded,
    EndpointError,
    EndpointUnavailable,
    RequestRefused,
    RequestTimedOut,
)
from onepo.errors import UserError
from onepo.rewards.grader import shown

_MODELS_TIMEOUT = 10.0  # seconds; the list only makes a message better
_NAMES_SHOWN = 10
_CUT = "the token limit cuts it off"


async def explained(error: EndpointError, *, url: str, model: str, api_key: str | None, max_tokens: int) -> UserError:
    """The error to raise for a probe that failed; asks the endpoint for its models when those may be the reason."""
    if isinstance(error, EndpointUnavailable):
        advice = _reachable(error)
    elif isinstance(error, RequestTimedOut):
        advice = "A small grading should not take that long: look at the grader's load, or raise REWARD_MODEL_TIMEOUT"
    elif isinstance(error, ContextLengthExceeded):
        advice = (
            "Its context does not hold a small grading and the output: start it with a longer one, or lower "
            f"REWARD_MODEL_MAX_TOKENS (now {max_tokens})"
        )
    elif isinstance(error, RequestRefused) and error.status in (401, 403):
        advice = "Set REWARD_MODEL_API_KEY to its key" if not api_key else "Correct REWARD_MODEL_API_KEY"
    elif (names := await served_names(url, api_key)) and model not in names:
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        listed = ", ".join(names[:_NAMES_SHOWN]) + more
        return UserError(f"REWARD_MODEL_NAME={model}: the grader serves no model of this name, but {listed}.")
    elif isinstance(error, RequestRefused) and error.status not in (404, 405):
        advice = "It takes no request for a grading: look at what REWARD_MODEL_EXTRA_BODY adds, and at the grader's log"
    else:
        advice = (
            "Gradings need the complete address of chat completions, such as http://HOST:PORT/v1/chat/completions, "
            "and the name of a model that is served there in REWARD_MODEL_NAME"
        )
    return UserError(f"REWARD_MODEL_URL: {str(error).rstrip('.')}. {advice}.")


def unusable_output(completion: Completion, *, model: str, attempts: int, max_tokens: int) -> str:
    """The message for a grader whose outputs are no gradings, with the last of them."""
    limit = f"REWARD_MODEL_MAX_TOKENS (now {max_tokens})"
    cut = completion.finish_reason == "length"
    if completion.reasoning or "<think>" in completion.text:
        seen = f"Thinking seems to be on, and {_CUT}" if cut else "Thinking seems to be on"
        advice = f"{seen}: switch it off with REWARD_MODEL_EXTRA_BODY, or raise {limit}."
    elif cut:
        advice = f"{_CUT.capitalize()}: raise {limit}, or switch thinking off with REWARD_MODEL_EXTRA_BODY if it is on."
    else:
        advice = "Use a grader that follows instructions, or another REWARD_PROMPT_FILE."
    return (
        f"REWARD_MODEL_NAME={model}: asked for a JSON list with true or false for each of 3 criteria, the grader wrote "
        f"none in {attempts} attempts; its last output was {shown(completion.text)}. {advice}"
    )


def _reachable(error: EndpointUnavailable) -> str:
    """What makes the endpoint reachable, by what stands behind the error."""
    causes = list(_causes(error))
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return "The host name is not known: correct it"
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return "This machine does not trust the certificate: correct the host name, or use a trusted certificate"
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return "The encrypted connection failed: if the grader speaks plain HTTP, begin the address with http://"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return "Nothing listens there: start the grader, or correct host and port"
    return "Start the grader, relieve it, or correct the address"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


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
            listed = await response.json(content_type=None)
        return [str(entry["id"]) for entry in listed["data"]]
    except (aiohttp.ClientError, asyncio.TimeoutError, ValueError, LookupError, TypeError):
        return []
