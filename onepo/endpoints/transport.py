"""An asynchronous client of one address that takes JSON and answers JSON.

What is tried again here is an endpoint that is away (``OutageClock``), and nothing else: a request that timed out or
broke the server is for the caller to repeat, who may want to change it, and one that was refused is for nobody.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import aiohttp

from onepo.endpoints.address import proxy_for, without_query
from onepo.endpoints.answers import is_context_length, one_line, own_words, seconds_to_wait
from onepo.endpoints.errors import (
    ContextLengthExceeded,
    EndpointError,
    EndpointUnavailable,
    RequestRefused,
    RequestTimedOut,
    ServerFailed,
)
from onepo.endpoints.outage import OutageClock
from onepo.errors import UserError

_CONNECT_TIMEOUT = 10.0  # seconds; a connection comes about at once, or the endpoint is away
_KEEP_ALIVE = 4.0  # seconds; the servers of vLLM and SGLang close a connection after 5 idle ones, and must not be first
# busy or not reachable behind a gateway; the numbers from 520 on are those of common proxies
_AWAY = frozenset({408, 425, 429, 502, 503, 504, *range(520, 525), 529, 530})

Answer = TypeVar("Answer")


class WrongAnswer(ValueError):
    """What is wrong with an answer, in words that say more than the answer itself."""


class JsonEndpoint:
    """One address for the whole run, in one event loop.

    The HTTP client is aiohttp. At 64 requests in flight, answered after 100 ms, httpx came to an eighth of the possible
    throughput at 11 ms of CPU time a request, since its pool looks through all connections for each request. aiohttp
    came to 93 % at 0.2 ms (``benchmarks/grader_throughput.py``, on two cores with nothing else running).

    Args:
        url: complete.
        answers: what it answers, as messages call it, such as ``chat completion``.
        longest_answer: bytes; more than any answer that is asked for.
        timeout: seconds for one whole answer, connecting included.
        max_concurrency: requests in flight; the others wait their turn, which is not part of ``timeout``. A request
            that waits for an absent endpoint keeps its place.
        outage_limit: seconds to wait for an endpoint that is away.
        api_key: sent as bearer token; without one there is no such header.

    Raises:
        UserError: the key cannot be sent.
    """

    def __init__(
        self,
        *,
        url: str,
        answers: str,
        longest_answer: int,
        timeout: float,
        max_concurrency: int,
        outage_limit: float,
        api_key: str | None,
    ):
        self._url = url
        self._answers = answers
        self._longest_answer = longest_answer
        self._shown = without_query(url)
        self._proxy = proxy_for(url)
        self._timeout = timeout
        self._outage_limit = outage_limit
        self._api_key = sendable_key(api_key, f"the API key for {self._shown}")
        self._slots = asyncio.Semaphore(max_concurrency)
        self._outages = OutageClock(outage_limit)
        self._session: aiohttp.ClientSession | None = None

    async def post(self, body: dict[str, Any], *, read: Callable[[bytes], Answer]) -> tuple[Answer, int]:
        """What the endpoint answers, and how many requests were sent for it.

        Args:
            read: makes the answer of the bytes; a ValueError says that it is none.

        Raises:
            EndpointError: there is none; the subclasses tell why.
        """
        retrying = self._outages.retrying()
        async with self._slots:
            try:
                answer = await retrying(self._send, body, read)
            except EndpointError as error:
                error.requests = retrying.statistics["attempt_number"]
                raise
        return answer, retrying.statistics["attempt_number"]

    @property
    def given_up(self) -> bool:
        """The outage limit has passed, and no answer has come since; each request is tried once."""
        return self._outages.given_up

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _send(self, body: dict[str, Any], read: Callable[[bytes], Answer]) -> Answer:
        try:
            async with self._client().post(self._url, json=body, allow_redirects=False, proxy=self._proxy) as response:
                content = await self._read(response)
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
            raise self._unavailable(one_line(_broken(error), secret=self._api_key)) from error
        except asyncio.TimeoutError:
            raise RequestTimedOut(f"{self._shown} had not answered after {self._timeout:g} s") from None
        except aiohttp.ClientResponseError as error:
            # without its cause, which shows the request's headers and with them the key
            raise ServerFailed(f"{self._shown} gave no HTTP answer: {self._words(error.message.encode())}") from None
        except (aiohttp.ClientError, ValueError) as error:  # an address that only the library finds wrong
            raise ServerFailed(f"{self._shown} cannot be asked: {self._words(str(error).encode())}") from None
        if response.status in _AWAY:
            retry_after = seconds_to_wait(response.headers.get("Retry-After"))
            raise self._unavailable(f"HTTP {response.status}: {self._words(content)}", retry_after)
        self._outages.answered()
        if response.status >= 300:
            raise self._refusal(response, content)
        try:
            return read(content)
        except WrongAnswer as error:
            raise ServerFailed(f"{self._shown} answered no {self._answers}: {error}") from None
        except ValueError:
            raise ServerFailed(f"{self._shown} answered no {self._answers}: {self._words(content)}") from None

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        content = bytearray()
        async for part in response.content.iter_chunked(2**16):
            content += part
            if len(content) > self._longest_answer:
                raise ServerFailed(f"{self._shown} answered more than {self._longest_answer // 2**20} MiB")
        return bytes(content)

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:  # made by the first request, which runs in the loop that it belongs to
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE),  # the slots are the limit
                timeout=aiohttp.ClientTimeout(total=self._timeout, sock_connect=_CONNECT_TIMEOUT),
                headers={} if self._api_key is None else {"Authorization": f"Bearer {self._api_key}"},
                # With True, passwords of ~/.netrc would be sent along with taking the environment's proxies.
                trust_env=False,
            )
        return self._session

    def _refusal(self, response: aiohttp.ClientResponse, content: bytes) -> EndpointError:
        status, words = response.status, self._words(content)
        if status >= 500:
            return ServerFailed(f"{self._shown} failed on the request (HTTP {status}): {words}", broke=True)
        if status < 400:
            place = without_query(response.headers.get("Location", "no place"))
            words = f"it redirects to {one_line(place, secret=self._api_key)}"
        kind = ContextLengthExceeded if is_context_length(status, words) else RequestRefused
        return kind(f"{self._shown} refuses the request (HTTP {status}): {words}", status)

    def _unavailable(self, reason: str, retry_after: float = 0.0) -> EndpointUnavailable:
        limit = f"the outage limit of {self._outage_limit:g} s"
        explanation = f"{self._shown} gave no answer within {limit}: {reason}"
        return EndpointUnavailable(explanation, f"{self._shown}: {reason}", retry_after)

    def _words(self, content: bytes) -> str:
        return own_words(content, secret=self._api_key)


def _broken(error: aiohttp.ClientError) -> str:
    if isinstance(error, aiohttp.ServerTimeoutError):
        return f"no connection within {_CONNECT_TIMEOUT:g} s"
    if isinstance(error, aiohttp.ClientConnectorError):
        reason = "refused" if isinstance(error.os_error, ConnectionRefusedError) else error.strerror or error.os_error
        return f"no connection to {error.host}:{error.port}: {reason}"
    return f"the connection broke: {error}"


def sendable_key(api_key: str | None, what: str) -> str | None:
    """The key without white space around it, which files and variables tend to have; None when nothing is left.

    Raises:
        UserError: ``what``, which is how to call it, cannot be sent.
    """
    key = (api_key or "").strip()
    if not (key.isascii() and key.isprintable()):
        # said here, because the HTTP library's own error would quote it
        raise UserError(f"{what} holds characters that cannot be sent, such as a line break")
    return key or None
