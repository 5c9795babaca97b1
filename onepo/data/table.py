"""Data files become one Arrow table of tasks; everything wrong with a file is told in one error."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from onepo.data.readers import READERS
from onepo.data.schema import InvalidTask, parse_task
from onepo.errors import UserError

TASK_SCHEMA = pa.schema(
    [
        pa.field("index", pa.int64(), nullable=False),  # running number of the record over all files, from 0
        pa.field("type", pa.string(), nullable=False),  # multiple_choice, open_ended or custom
        pa.field("data_source", pa.string(), nullable=False),
        pa.field("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())])), nullable=False),
        pa.field("answer_idx", pa.string()),  # null unless multiple_choice
        pa.field("rubrics", pa.list_(pa.struct([("criterion", pa.string()), ("points", pa.float64())]))),
        pa.field("teacher_responses", pa.list_(pa.string()), nullable=False),
        pa.field("extra_info", pa.string(), nullable=False),  # a JSON object
        # of custom tasks the whole record, without teacher responses, as a JSON object; null for the others
        pa.field("record", pa.string()),
    ]
)
BATCH_ROWS = 512
PROBLEMS_SHOWN = 5


def load_tasks(paths: str | list[str]) -> pa.Table:
    """Read, check and normalise data files into one table with the columns of ``TASK_SCHEMA``.

    Args:
        paths: one file or several: ``.json`` (an array), ``.jsonl`` or ``.parquet``.

    Raises:
        UserError: for the first file that is not usable: its first problems with their places, and the number of all.
    """
    files = [Path(path) for path in ([paths] if isinstance(paths, str) else paths)]
    batches: list[pa.RecordBatch] = []
    for file in files:
        first_index = sum(batch.num_rows for batch in batches)
        rows = _numbered(_tasks(file), first_index)
        while batch_rows := list(islice(rows, BATCH_ROWS)):
            batches.append(pa.RecordBatch.from_pylist(batch_rows, schema=TASK_SCHEMA))
    return pa.Table.from_batches(batches, schema=TASK_SCHEMA)


def _numbered(tasks: Iterator[dict[str, Any]], first: int) -> Iterator[dict[str, Any]]:
    for index, task in enumerate(tasks, start=first):
        task["index"] = index
        yield task


def _tasks(file: Path) -> Iterator[dict[str, Any]]:
    """The tasks of one file; at its end, one error for all of its problems."""
    read = READERS.get(file.suffix.lower())
    if read is None:
        raise UserError(f"{file}: found the suffix '{file.suffix}', expected one of {', '.join(READERS)}")
    shown: list[str] = []
    problems = records = 0
    try:
        for record in read(file):
            records += 1
            found = [record.broken] if record.broken else []
            if not found:
                try:
                    yield parse_task(record.value)
                except InvalidTask as invalid:
                    found = invalid.problems
            problems += len(found)
            shown += [f"  {record.place}: {text}" for text in found[: PROBLEMS_SHOWN - len(shown)]]
    except OSError as error:
        reason = error.strerror or str(error).splitlines()[0]
        raise UserError(f"{file}: the file cannot be read ({reason}); give the path of a data file") from None
    if problems:
        raise UserError(_summary(file, shown, problems, records))
    if not records:
        raise UserError(f"{file}: found no record, the file is empty; expected at least one task")


def _summary(file: Path, shown: list[str], problems: int, records: int) -> str:
    count = "1 problem" if problems == 1 else f"{problems} problems"
    first = f"; the first {len(shown)}" if problems > len(shown) else ""
    end = "The format of a record is described in docs/data.md."
    return "\n".join([f"{file}: {count} in {records} record{'s' * (records != 1)}{first}:", *shown, end])
