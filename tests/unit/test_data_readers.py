"""Records with their places, from good and from broken files of each format."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onepo.data import readers
from onepo.data.readers import Record, read_json, read_jsonl, read_parquet


@pytest.fixture
def written(tmp_path):
    def write(content: str | bytes):
        path = tmp_path / "data"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_array_elements_carry_the_line_where_they_begin(written):
    path = written('\n[ {"a": 1},\n\n  {"a":\n 2}, 3\r\n]\n\n')
    assert list(read_json(path)) == [
        Record("line 2, record 1", {"a": 1}),
        Record("line 4, record 2", {"a": 2}),
        Record("line 5, record 3", 3),
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_an_array_is_the_same_however_the_window_cuts_it(written, monkeypatch, size):
    monkeypatch.setattr(readers, "CHUNK_CHARACTERS", size)
    values = [12, -3.5, 1e-7, 1.25e20, True, None, '三\n\\"]', {"x": [1, {"y": "}"}]}, [], 1234567]
    for indent in (None, 1):
        path = written(json.dumps(values, indent=indent, ensure_ascii=False))
        assert [record.value for record in read_json(path)] == values


def test_an_element_larger_than_the_window(written, monkeypatch):
    monkeypatch.setattr(readers, "CHUNK_CHARACTERS", 10)
    assert [record.value for record in read_json(written(json.dumps(["x" * 5000, 1])))] == ["x" * 5000, 1]


@pytest.mark.parametrize(
    ("text", "good", "place", "reason"),
    [
        ('[{"a": 1},\n{"a": }]', 1, "line 2", "broken JSON (Expecting value, at '{\"a\": }]')"),
        ('[{"a": 1}\n{"a": 2}]', 1, "line 2", "not followed by ','"),
        ('[{"a": 1},\n{"a": 2}', 2, "line 2", "ends too early"),
        ("[1, 2] 3", 2, "line 1", "more text behind"),
        ('{"a": 1}\n{"a": 2}', 0, "line 1", "does not begin with '['; one record per line belongs into a .jsonl file"),
        ("[1,\n" + "[" * 100_000, 1, "line 2", "nested too deeply"),
        (b'["a",\n"\xff"]', 0, "line 1", "not UTF-8"),
    ],
)
def test_a_broken_array(written, text, good, place, reason):
    *records, last = read_json(written(text))
    assert [record.broken for record in records] == [None] * good
    assert last.place == place
    assert reason in last.broken and "expected a JSON array of records" in last.broken


def test_lines_of_jsonl_are_read_on_behind_a_broken_one(written):
    path = written(b'\xef\xbb\xbf{"a": 1}\r\n\n{"a": \n"\xff"\n' + b"[" * 100_000 + b'\n{"a": 2}')
    first, cut, bytes_, deep, last = read_jsonl(path)
    assert (first, last) == (Record("line 1", {"a": 1}), Record("line 6", {"a": 2}))
    assert cut.place == "line 3" and "broken JSON (Expecting value, at '{\"a\":')" in cut.broken
    assert bytes_.place == "line 4" and "not UTF-8" in bytes_.broken
    assert deep.place == "line 5" and "nested too deeply" in deep.broken


@pytest.mark.parametrize("read", [read_json, read_jsonl])
def test_numbers_that_are_not_finite_are_null(written, read):
    [record] = read(written("[[NaN, Infinity, -Infinity, 1e999, 1.5]]" if read is read_json else "[NaN, 1e999, 1.5]"))
    assert record.value in ([None, None, None, None, 1.5], [None, None, 1.5])


@pytest.mark.parametrize("read", [read_json, read_jsonl])
@pytest.mark.parametrize("text", ["", " \n\n", "\ufeff"])
def test_files_without_records(written, read, text):
    assert list(read(written(text))) == []


def test_parquet_rows_come_with_null_for_missing_fields_and_maps_as_dicts(tmp_path):
    table = pa.table(
        {
            "points": pa.array([[1.5, float("nan")], None]),
            "options": pa.array([{"A": "x"}, {"A": "y", "B": "z"}]),
            "map": pa.array([[("k", "v")], []], pa.map_(pa.string(), pa.string())),
        }
    )
    pq.write_table(table, tmp_path / "data.parquet")
    assert list(read_parquet(tmp_path / "data.parquet")) == [
        Record("row 1", {"points": [1.5, None], "options": {"A": "x", "B": None}, "map": {"k": "v"}}),
        Record("row 2", {"points": None, "options": {"A": "y", "B": "z"}, "map": {}}),
    ]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet at all, just text"])
def test_a_broken_parquet_file(written, content):
    [record] = read_parquet(written(content))
    assert "cannot be read" in record.broken and "expected a Parquet file" in record.broken
