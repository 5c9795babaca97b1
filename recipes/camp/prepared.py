"""The folder of routes and schedule: only files of this kind are replaced in it, and only when all of them are made."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from camp.routes import ROUTES_FILE, SCHEDULE_FILE, Routes
from camp.schedule import ScheduledEpisode
from onepo.errors import UserError

_LONGEST_ROW = 2**16  # bytes


def check_place(out: Path, *names: str, say: Callable[[str], None]) -> None:
    """Whether files of these names can be written to a folder; says which ones are replaced.

    Raises:
        UserError: it is no folder, cannot be written, or one of the files in the way is something else.
    """
    try:
        nearest = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
        if not nearest.is_dir():
            raise UserError(f"--out {out}: {nearest} is a file, expected a folder")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise UserError(f"--out {out}: {nearest} cannot be written to by this user")
        for name in names:
            file = out / name
            if not file.exists():
                continue
            if not _KINDS[name](file):
                raise UserError(f"--out {out}: {name} is there and was not made by this command: name another folder")
            say(f"{file} is there from before: it will be replaced")
    except OSError as error:
        raise UserError(f"--out {out}: {error.filename or out} cannot be read ({error.strerror})") from None


@contextmanager
def fresh_files(out: Path) -> Iterator[Path]:
    """A folder to write to; what is in it at a good end goes to ``out``, and otherwise nothing does.

    Raises:
        UserError: the disk does not take it.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".prepare-", dir=out) as folder:
            yield Path(folder)
            for file in sorted(Path(folder).iterdir()):
                file.replace(out / file.name)
    except OSError as error:
        raise UserError(f"--out {out}: cannot be written ({error.strerror})") from None


def _is_routes(file: Path) -> bool:
    try:
        Routes.model_validate(json.loads(file.read_bytes()))
        return True
    except (ValueError, RecursionError):
        return False


def _is_schedule(file: Path) -> bool:
    with file.open("rb") as rows:
        first = rows.readline(_LONGEST_ROW)
    try:
        ScheduledEpisode.model_validate_json(first)
        return True
    except (ValueError, RecursionError):
        return False


_KINDS = {ROUTES_FILE: _is_routes, SCHEDULE_FILE: _is_schedule}
