"""Taking out of a configuration what must not be read: it goes to screens, logs and files that others see."""

import re
from typing import Any

_NAME = r"(?:(?:api|access|private)[_-]?key|secret(?:[_-]key)?|password|passwd|token|credentials?|authorization)"
_SECRET = re.compile(rf"(?:^|[_-]){_NAME}$", re.IGNORECASE)
# a name with its value within a text: a mapping, a header, the query of an address
_SECRET_IN_TEXT = re.compile(
    rf"""((?<![A-Za-z0-9]){_NAME}['"]?\s*[:=]\s*)((?:Bearer\s+)?(?:'[^']*'|"[^"]*"|[^\s,&}}\]]+))""", re.IGNORECASE
)
_USER_IN_URL = re.compile(r"(?<=://)[^/\s]+(?=@)")
_MASK = "***"


def masked(content: Any, key: str = "") -> Any:
    """The same, JSON-like, with values of secret keys and secrets within texts replaced."""
    if isinstance(content, dict):
        return {name: masked(value, str(name)) for name, value in content.items()}
    if isinstance(content, list):
        return [masked(value, key) for value in content]
    if content is not None and is_secret(key):
        return _MASK
    return masked_text(content) if isinstance(content, str) else content


def masked_override(override: str) -> str:
    """A Hydra override without its secrets."""
    key, _, _ = override.partition("=")
    return f"{key}={_MASK}" if is_secret(key.rpartition(".")[2].lstrip("+~")) else masked_text(override)


def is_secret(key: str) -> bool:
    """Whether a setting of this name is one."""
    return bool(_SECRET.search(key))


def masked_text(text: str) -> str:
    """A text with the users and passwords of addresses, and the values behind secret names, replaced."""
    return _SECRET_IN_TEXT.sub(rf"\1{_MASK}", _USER_IN_URL.sub(_MASK, text))
