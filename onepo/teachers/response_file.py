"""A data file with teacher responses filled in: all records in their order, all other fields as they were."""

import contextlib
import json
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from onepo.data.readers import READERS
from onepo.errors import UserError

FIELD = "teacher_response"
Responses = Iterable[str | None]


def write_responses(source: Path, out: Path, responses: Responses) -> None:
    """Write ``source`` to ``out`` in the format of its suffix; the file appears whole or not at all.

    Args:
        source: a data file that ``load_tasks`` takes.
        responses: the new response of each record; None leaves it as it is.

    Raises:
        UserError: the records do not fit into that format, or the file cannot be written.
    """
    with _partial(source, out, responses) as partial:
        partial.replace(out)


def check_writable(source: Path, out: Path, responses: Responses) -> None:
    """Do the same, but leave no file. Arguments and errors as ``write_responses``."""
    with _partial(source, out, responses):
        pass


@contextlib.contextmanager
def _partial(source: Path, out: Path, responses: Responses) -> Iterator[Path]:
    partial = out.with_name(f".partial-{out.name}")
    try:
        _WRITERS[out.suffix.lower()](source, partial, responses)
        yield partial
    except OSError as error:
        raise UserError(f"{out}: cannot be written ({error.strerror or error})") from None
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(
            f"{out}: the records of {source} cannot be written as {out.suffix} ({reason}); "
            f"give it the suffix {source.suffix}"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _filled(source: Path, responses: Responses) -> Iterator[dict[str, Any]]:
    for record, response in zip(READERS[source.suffix.lower()](source), responses, strict=True):
        yield record.value if response is None else {**record.value, FIELD: response}


def _write_jsonl(source: Path, target: Path, responses: Responses) -> None:
    with target.open("wb") as file:
        file.writelines(_json(record) + b"\n" for record in _filled(source, responses))


def _write_json(source: Path, target: Path, responses: Responses) -> None:
    records = _filled(source, responses)
    with target.open("wb") as file:
        file.write(b"[\n" + _json(next(records)))
        file.writelines(b",\n" + _json(record) for record in records)
        file.write(b"\n]\n")


def _write_parquet(source: Path, target: Path, responses: Responses) -> None:
    if source.suffix.lower() == target.suffix.lower():
        with pq.ParquetFile(source) as file:
            table = _with_responses(file.read(), responses)
    else:
        records = list(_filled(source, responses))
        names = dict.fromkeys(chain.from_iterable(records))
        table = pa.table({name: [record.get(name) for record in records] for name in names})
    pq.write_table(table, target)


def _with_responses(table: pa.Table, responses: Responses) -> pa.Table:
    """The table itself, so that its other columns keep their types."""
    place = table.schema.get_field_index(FIELD)
    present = table.column(place) if place >= 0 else pa.nulls(table.num_rows)
    kind = pa.string() if pa.types.is_null(present.type) else present.type
    one = (lambda text: [text]) if pa.types.is_list(kind) or pa.types.is_large_list(kind) else (lambda text: text)
    values = [old if new is None else one(new) for old, new in zip(present.to_pylist(), responses, strict=True)]
    column = pa.array(values, kind)
    return table.append_column(FIELD, column) if place < 0 else table.set_column(place, FIELD, column)


def _json(record: dict[str, Any]) -> bytes:
    try:
        return json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a character in a field that training does not read: only its escape has bytes
        return json.dumps(record).encode()


_WRITERS = {".json": _write_json, ".jsonl": _write_jsonl, ".parquet": _write_parquet}
