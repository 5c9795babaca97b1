"""Records of a data file one after the other, each with its place, without holding the file in memory.

A broken record is handed on as such, so that the caller can count all problems of a file. NaN and infinite numbers
are read as null: they are how Python tools write a missing value.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

BLANK = re.compile(r"[ \t\r\n]*")
CHUNK_CHARACTERS = 1 << 20
LONGEST_TAIL = len("e+1")  # what may still belong to a number that decodes without it
PARQUET_BATCH_ROWS = 256


def _finite(number: str) -> float | None:
    value = float(number)  # 1e999 is valid JSON and infinite
    return value if math.isfinite(value) else None


DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=lambda name: None)


@dataclass(frozen=True, slots=True)
class Record:
    """What stands at one place of a file.

    Args:
        place: ``line 12`` (where the record begins; in an array with the record's number) or ``row 12``, from 1.
        value: the record; None when it is broken.
        broken: why it cannot be read, with what is expected; None when it can.
    """

    place: str
    value: Any
    broken: str | None = None


def read_jsonl(path: Path) -> Iterator[Record]:
    """One JSON value per line; blank lines are skipped."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            place = f"line {number}"
            try:
                if text := line.decode("utf-8-sig" if number == 1 else "utf-8").strip():
                    yield Record(place, DECODER.decode(text))
            except (ValueError, RecursionError) as error:
                yield Record(place, None, f"found {_reason(error)}, expected one JSON object on this line")


def read_json(path: Path) -> Iterator[Record]:
    """The elements of one JSON array, decoded one by one. Reading ends at the first element that is broken."""
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        window = _Window(file)
        try:
            yield from _array_elements(window)
        except (ValueError, RecursionError) as error:
            line = window.line + window.text.count("\n", window.start, getattr(error, "pos", window.start))
            yield Record(f"line {line}", None, f"found {_reason(error)}, expected a JSON array of records")


def read_parquet(path: Path) -> Iterator[Record]:
    """The rows of a Parquet file; missing struct fields come as null, maps as dicts."""
    try:
        with pq.ParquetFile(path) as file:
            row = 0
            for batch in file.iter_batches(batch_size=PARQUET_BATCH_ROWS):
                for value in batch.to_pylist(maps_as_pydicts="lossy"):
                    row += 1
                    yield Record(f"row {row}", _without_nan(value))
    except (pa.ArrowException, ValueError) as error:
        reason = str(error).splitlines()[0]
        yield Record("the file", None, f"found something that cannot be read ({reason}), expected a Parquet file")


READERS = {".json": read_json, ".jsonl": read_jsonl, ".parquet": read_parquet}


class _Window:
    """The part of a text that is being decoded. ``start`` is the next character, on ``line`` of the file."""

    def __init__(self, file: TextIO):
        self._file = file
        self.text, self.start, self.line = "", 0, 1

    def advance(self, end: int) -> None:
        self.line += self.text.count("\n", self.start, end)
        self.start = end

    def grow(self, characters: int) -> bool:
        """Drop what is decoded and read on; False, with nothing changed, at the end of the file."""
        more = self._file.read(characters)
        if more:
            self.text, self.start = self.text[self.start :] + more, 0
        return bool(more)

    def next_character(self) -> str:
        """The next character that is not blank, which is not consumed; empty at the end of the file."""
        while True:
            self.advance(BLANK.match(self.text, self.start).end())
            if self.start < len(self.text):
                return self.text[self.start]
            if not self.grow(CHUNK_CHARACTERS):
                return ""

    def value(self) -> Any:
        """Decode one value. One that fails, or ends with the window, may go on behind it: look again with more."""
        characters = CHUNK_CHARACTERS
        while True:
            try:
                value, end = DECODER.raw_decode(self.text, self.start)
                failure = None
            except (ValueError, RecursionError) as error:
                failure = error
            if failure is None and end + LONGEST_TAIL <= len(self.text):
                break
            if not self.grow(characters):
                if failure is not None:
                    raise failure
                break
            characters *= 2
        self.advance(end)
        return value


def _array_elements(window: _Window) -> Iterator[Record]:
    if window.next_character() == "":
        return
    _take(window, "[", "the file does not begin with '['; one record per line belongs into a .jsonl file")
    if window.next_character() != "]":
        for number in count(1):
            window.next_character()
            place = f"line {window.line}, record {number}"
            yield Record(place, window.value())
            if window.next_character() != ",":
                break
            window.advance(window.start + 1)
    _take(window, "]", "a record is not followed by ',' or ']'")
    if window.next_character() != "":
        raise ValueError("there is more text behind the closing ']'")


def _take(window: _Window, character: str, otherwise: str) -> None:
    if window.next_character() != character:
        raise ValueError(otherwise if window.next_character() else "the file ends too early")
    window.advance(window.start + 1)


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        before = error.doc[max(error.pos - 15, 0) : error.pos].rpartition("\n")[2]
        after = error.doc[error.pos : error.pos + 15].partition("\n")[0]
        return f"broken JSON ({error.msg}, at {before + after!r})"
    if isinstance(error, UnicodeDecodeError):
        return "bytes that are not UTF-8"
    if isinstance(error, RecursionError):
        return "JSON that is nested too deeply"
    return f"broken JSON ({error})"


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
