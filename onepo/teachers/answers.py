"""The teacher's answers on disk, so that none is asked and paid for twice."""

import contextlib
import hashlib
import json
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

from onepo.errors import UserError

# in the header of the file: whose it is ("OnPO"), and the layout of its table
_APPLICATION, _LAYOUT = 0x4F6E504F, 1
_PATIENCE = 30.0  # seconds for another run that is writing


def question_key(model: str, messages: list[dict[str, str]]) -> bytes:
    """What a question is known by: the SHA-256 of its canonical JSON, 32 bytes."""
    question = {"model": model, "messages": messages}
    return hashlib.sha256(json.dumps(question, sort_keys=True, separators=(",", ":")).encode()).digest()


class AnswerStore:
    """Answers by model and messages, in one SQLite file that several runs and threads may use at the same time.

    Each answer is a transaction of its own: one that ``put`` has returned from stays, whatever becomes of the process.
    SQLite's rollback journal is used, not its write-ahead log: that one needs memory which all processes share, and
    the file may lie on a disk of several machines.

    Args:
        path: created, with its folders, when it does not exist.

    Raises:
        UserError: here and in ``get`` and ``put``: the file is another one, damaged, or cannot be written.
    """

    def __init__(self, path: Path | str):
        self._path = Path(path)
        self._lock = threading.Lock()
        self._patience = _PATIENCE
        with self._troubles_told():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(
                self._path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare()
            except BaseException:
                self._database.close()
                raise

    def get(self, model: str, messages: list[dict[str, str]]) -> str | None:
        """The answer to a question, None when there is none yet."""
        query = "SELECT answer FROM answers WHERE question = ?"
        with self._lock, self._troubles_told():
            row = self._database.execute(query, (question_key(model, messages),)).fetchone()
        return row and row[0]

    def put(self, model: str, messages: list[dict[str, str]], answer: str) -> None:
        """Keep an answer; of several to one question the first stays."""
        insert = "INSERT OR IGNORE INTO answers (question, answer) VALUES (?, ?)"
        with self._lock, self._troubles_told(), self._patience_kept():
            self._database.execute(insert, (question_key(model, messages), answer))

    def __enter__(self) -> "AnswerStore":
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def _prepare(self) -> None:
        """Make the table in a new file; look whether an old one is ours and whole."""
        # only one of two runs that begin together finds it new
        self._database.execute("BEGIN IMMEDIATE")
        found = self._value("PRAGMA application_id"), self._value("PRAGMA user_version")
        if found == (0, 0) and not self._value("SELECT count(*) FROM sqlite_master"):
            self._database.execute("CREATE TABLE answers (question BLOB PRIMARY KEY, answer TEXT NOT NULL)")
            self._database.execute(f"PRAGMA application_id = {_APPLICATION}")
            self._database.execute(f"PRAGMA user_version = {_LAYOUT}")
        elif found != (_APPLICATION, _LAYOUT):
            raise UserError(f"{self._path}: is a database, but none of teacher answers: move it away or name another")
        self._database.execute("COMMIT")
        problem = self._value("PRAGMA quick_check(1)")
        if problem != "ok":
            raise sqlite3.DatabaseError(" ".join(str(problem).split()))

    @contextlib.contextmanager
    def _patience_kept(self) -> Iterator[None]:
        """A file that was locked for that long is not waited for again: questions would queue up behind it."""
        try:
            yield
            self._be_patient(_PATIENCE)
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                self._be_patient(0.0)
            raise

    def _be_patient(self, seconds: float) -> None:
        if self._patience != seconds:
            self._patience = seconds
            self._database.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")

    def _value(self, query: str) -> int | str:
        return self._database.execute(query).fetchone()[0]

    @contextlib.contextmanager
    def _troubles_told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:  # the disk, the permissions, another run
            raise UserError(f"{self._path}: teacher answers cannot be kept there ({error})") from None
        except sqlite3.DatabaseError as error:
            raise UserError(
                f"{self._path}: is damaged, or no file of teacher answers ({error}): move it away, and the answers "
                "are asked for again"
            ) from None
        except OSError as error:
            raise UserError(f"{self._path}: teacher answers cannot be kept there ({error.strerror})") from None
