"""The grading prompt's template: the package's own, or a file of the user's."""

import hashlib
from importlib.resources import files
from pathlib import Path

from onepo.errors import UserError
from onepo.rewards.rubric import check_template


def load_template(path: str | None, *, option: str = "REWARD_PROMPT_FILE") -> str:
    """The template in a file; without a path the package's own.

    Args:
        option: where the user named the file, for the messages.

    Raises:
        UserError: the file cannot be read, is not UTF-8, or does not have each placeholder exactly once.
    """
    if path is None:
        return files("onepo.rewards").joinpath("grading_prompt.txt").read_text(encoding="utf-8")
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        check_template(text)
    except OSError as error:
        reason = f"the file cannot be read ({error.strerror})"
    except UnicodeDecodeError:
        reason = "found bytes that are not UTF-8, expected text in UTF-8"
    except ValueError as error:
        reason = f"{error}; the conversation and the criteria are put there"
    else:
        return text
    raise UserError(f"{option}={path}: {reason}") from None


def template_hash(text: str) -> str:
    """SHA-256 of a template, as hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()
