"""Taking out of a configuration what must not be read: it goes to screens, logs and files that others see."""

import re
from typing import Any

_SECRET = re.compile(r"(^|_)(api_?key|access_?key|secret(_key)?|password|passwd|token|credentials?)$", re.IGNORECASE)
_USER_IN_URL = re.compile(r"(?<=://)[^/\s]+(?=@)")
_MASK = "***"


def masked(content: Any, key: str = "") -> Any:
    """The same, JSON-like, with values of secret keys and users of addresses replaced."""
    if isinstance(content, dict):
        return {name: masked(value, str(name)) for name, value in content.items()}
    if isinstance(content, list):
        return [masked(value, key) for value in content]
    if content is not None and is_secret(key):
        return _MASK
    return without_user(content) if isinstance(content, str) else content


def is_secret(key: str) -> bool:
    """Whether a setting of this name is one."""
    return bool(_SECRET.search(key))


def without_user(text: str) -> str:
    """A text with the users and passwords of the addresses in it replaced."""
    return _USER_IN_URL.sub(_MASK, text)
