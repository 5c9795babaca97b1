"""Where an endpoint is, and the way there."""

import ipaddress
import urllib.request
from urllib.parse import SplitResult, urlsplit, urlunsplit

from onepo.errors import UserError

CHAT_PATH = "/chat/completions"


def chat_url(url: str) -> str:
    """The URL with the path of the chat completions, which is appended where it is absent; the query stays.

    Raises:
        UserError: it is no HTTP URL, or holds a password, which would be shown with it.
    """
    parts = _parts(url, "a chat endpoint")
    path = parts.path.rstrip("/")
    return urlunsplit(parts._replace(path=path if path.endswith(CHAT_PATH) else path + CHAT_PATH, fragment=""))


def server_url(url: str) -> str:
    """The address of an inference server without the ``/v1`` that people are used to give with it.

    Raises:
        UserError: it is no HTTP URL, has a query, or holds a password.
    """
    parts = _parts(url, "an inference server")
    if parts.query:
        raise UserError(f"the address of {parts.hostname} has a query, and an inference server takes none")
    return urlunsplit(parts._replace(path=parts.path.rstrip("/").removesuffix("/v1"), fragment=""))


def _parts(url: str, what: str) -> SplitResult:
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        usable = usable and not any(character.isspace() for character in parts.netloc)
    except ValueError:  # brackets or a port that are none
        usable = False
    if not usable:
        raise UserError(f"{shown(url)!r} is no address of {what}: give it as http://HOST:PORT/v1")
    if parts.username is not None or parts.password is not None:
        raise UserError(f"the address of {parts.hostname} holds a user name or password: give an API key instead")
    return parts


def plain_address_problem(url: str) -> str | None:
    """Why an address may not be written down, which configurations and logs do; None when it may.

    A query may hold a key. The one exception names the version of the protocol.
    """
    try:
        query = urlsplit(chat_url(url)).query
    except UserError as error:
        return str(error)
    harmless = not query or (query.startswith("api-version=") and "&" not in query)
    return None if harmless else "the address has a query, which would be written down"


def shown(text: str) -> str:
    """What may be an address, without what may be a password in it."""
    _, at, behind = text.rpartition("@")
    return f"...@{behind}" if at else text


def without_query(url: str) -> str:
    """The URL as it may be shown: some endpoints take their key in the query."""
    try:
        parts = urlsplit(url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))
    except ValueError:  # a redirection to something that is no address
        return "an address that is none"


def uses_proxies(url: str) -> bool:
    """Whether the proxies of the environment are for this address: never for this machine's own.

    Many set a proxy without the exception for loopback addresses, and no proxy has a way back to them.
    """
    host = urlsplit(url).hostname or ""
    try:
        address = ipaddress.ip_address(host)
        return not (address.is_loopback or address.is_unspecified)
    except ValueError:
        return host != "localhost" and not host.endswith(".localhost")


def proxy_for(url: str) -> str | None:
    """The proxy that the environment names for this address, None without one."""
    parts = urlsplit(url)
    if not uses_proxies(url) or urllib.request.proxy_bypass(parts.netloc):
        return None
    proxy = urllib.request.getproxies().get(parts.scheme)
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy
