"""Files of each format become the same table; a bad file becomes one error."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onepo.data.table import TASK_SCHEMA, load_tasks
from onepo.errors import UserError

CHOICE = {"type": "mc", "question": "Which?", "options": {"A": "one", "B": "two"}, "answer_idx": "b"}
OPEN = {
    "type": "openend",
    "prompt": "Why?",
    "rubrics": [{"criterion": "says so", "points": 5}, {"criterion": "invents", "points": -2.5}],
    "teacher_response": ["Because.", ""],
    "extra_info": {"id": 7},
}


def write(path, records):
    if path.suffix == ".json":
        path.write_text("[\n" + ",\n".join(map(json.dumps, records)) + "\n]")
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, records)))
    else:
        names = dict.fromkeys(name for record in records for name in record)
        pq.write_table(pa.table({name: [record.get(name) for record in records] for name in names}), path)
    return str(path)


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".parquet", ".JSON"])
def test_each_format_gives_the_same_table(tmp_path, suffix):
    path = tmp_path / f"data{suffix}"
    if suffix == ".JSON":
        path.write_text(json.dumps([CHOICE, OPEN]))
    else:
        write(path, [CHOICE, OPEN])
    table = load_tasks(str(path))
    assert table.schema == TASK_SCHEMA
    choice, open_ended = table.to_pylist()
    assert choice["prompt"][0]["content"].startswith("Which?\n\nA. one\nB. two\n\n")
    assert {name: choice[name] for name in ("index", "type", "data_source", "answer_idx", "rubrics")} == {
        "index": 0,
        "type": "multiple_choice",
        "data_source": "multiple_choice",
        "answer_idx": "B",
        "rubrics": [],
    }
    assert open_ended == {
        "index": 1,
        "type": "open_ended",
        "data_source": "open_ended",
        "prompt": [{"role": "user", "content": "Why?"}],
        "answer_idx": None,
        "rubrics": OPEN["rubrics"],
        "teacher_responses": ["Because."],
        "extra_info": '{"id": 7}',
        "record": None,
    }


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".parquet"])
def test_the_fields_of_a_custom_record_survive_each_format(tmp_path, suffix):
    first = {"type": "custom", "prompt": "Add.", "sum": 5, "parts": [{"value": 2.5, "名": "二"}], "empty": ""}
    second = {"type": "custom", "prompt": "Add.", "sum": 7, "parts": [], "empty": "x"}
    table = load_tasks(write(tmp_path / f"data{suffix}", [{**first, "teacher_response": "5"}, second]))
    assert table.schema == TASK_SCHEMA
    assert [json.loads(text) for text in table["record"].to_pylist()] == [first, second]
    assert table["teacher_responses"].to_pylist() == [["5"], []]


def test_a_file_may_mix_all_types(tmp_path):
    custom = {"type": "custom", "prompt": "Add.", "sum": 5}
    table = load_tasks(write(tmp_path / "data.parquet", [CHOICE, custom, OPEN]))
    assert table["type"].to_pylist() == ["multiple_choice", "custom", "open_ended"]
    choice, record, open_ended = table["record"].to_pylist()
    assert choice is open_ended is None
    # Parquet gives a record the columns of the others, too
    assert {name: value for name, value in json.loads(record).items() if value is not None} == custom


def test_the_index_runs_over_files_and_batches(tmp_path):
    one = write(tmp_path / "one.json", [CHOICE] * 700)
    two = write(tmp_path / "two.jsonl", [OPEN] * 3)
    table = load_tasks([one, two, one])
    assert table["index"].to_pylist() == list(range(1403))
    assert table["type"].to_pylist()[699:704] == ["multiple_choice"] + ["open_ended"] * 3 + ["multiple_choice"]


def test_no_files_are_an_empty_table():
    assert load_tasks([]).num_rows == 0


def test_all_problems_of_a_file_are_counted_and_the_first_ones_told(tmp_path):
    bad = [CHOICE, {**CHOICE, "answer_idx": "F"}, {**CHOICE, "question": 1, "options": None}, *[{"type": "mc"}] * 2]
    path = write(tmp_path / "data.jsonl", bad)
    with pytest.raises(UserError) as error:
        load_tasks(path)
    head, *shown, end = str(error.value).splitlines()
    assert head == f"{path}: 9 problems in 5 records; the first 5:"
    assert shown[0] == '  line 2: answer_idx: found "F", expected the label of one of its options (A, B)'
    assert [line.split(":")[0] for line in shown] == ["  line 2", "  line 3", "  line 3", "  line 4", "  line 4"]
    assert "docs/data.md" in end


@pytest.mark.parametrize(
    ("suffix", "place"), [(".json", "line 4, record 3"), (".jsonl", "line 3"), (".parquet", "row 3")]
)
def test_a_problem_has_the_place_that_its_format_has(tmp_path, suffix, place):
    path = write(tmp_path / f"data{suffix}", [CHOICE, CHOICE, {**CHOICE, "answer_idx": "F"}])
    with pytest.raises(UserError) as error:
        load_tasks(path)
    assert str(error.value).splitlines()[:2] == [
        f"{path}: 1 problem in 3 records:",
        f'  {place}: answer_idx: found "F", expected the label of one of its options (A, B)',
    ]


def test_a_column_of_the_wrong_type_is_a_problem_in_every_row(tmp_path):
    path = write(tmp_path / "data.parquet", [{**CHOICE, "question": number} for number in range(300)])
    with pytest.raises(UserError, match="300 problems in 300 records; the first 5:\n  row 1: question: found 0,"):
        load_tasks(path)


def test_a_broken_line_counts_with_the_others(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps(CHOICE) + '\n{"type": "mc", \n' + json.dumps({**CHOICE, "answer_idx": "F"}))
    with pytest.raises(UserError, match=r"2 problems in 3 records:\n  line 2: found broken JSON .*\n  line 3: "):
        load_tasks(str(path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.csv", "a,b", "found the suffix '.csv', expected one of .json, .jsonl, .parquet"),
        ("data", "", "found the suffix '', expected one of .json"),
        ("data.json", "", "found no record, the file is empty"),
        ("data.json", "[]", "found no record, the file is empty"),
        ("data.jsonl", "\n", "found no record, the file is empty"),
        ("data.parquet", "", "expected a Parquet file"),
    ],
)
def test_files_that_are_no_data(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UserError) as error:
        load_tasks(str(path))
    assert str(error.value).startswith(f"{path}: ") and message in str(error.value)


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".parquet"])
def test_a_missing_file_and_a_directory(tmp_path, suffix):
    with pytest.raises(UserError, match="No such file"):
        load_tasks(str(tmp_path / f"none{suffix}"))
    folder = tmp_path / f"folder{suffix}"
    folder.mkdir()
    with pytest.raises(UserError, match="directory"):
        load_tasks(str(folder))
