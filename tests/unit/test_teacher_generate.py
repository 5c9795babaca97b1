"""The tool that has a teacher answer a whole data file, against a scripted teacher."""

import json
import os
import pty
import signal
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from omegaconf import OmegaConf

from onepo.data.schema import ANSWER_INSTRUCTION
from onepo.data.table import load_tasks
from onepo.teachers import generate as command
from tests.launchers.conftest import mind_signals
from tests.scripted_teacher import ScriptedTeacher

RUBRICS = [{"criterion": "says so", "points": 2}]
CHOICE = {"question": "Which?", "options": {"B": "two", "A": "one"}, "answer_idx": "A", "note": 1.50}
KEY = "k-5ecret"


@pytest.fixture
def server():
    with ScriptedTeacher() as server:
        yield server


def task(text, **fields):
    return {"prompt": text, "rubrics": RUBRICS, **fields}


def write(path, records):
    text = json.dumps(records) if path.suffix == ".json" else "".join(json.dumps(record) + "\n" for record in records)
    path.write_text(text)
    return path


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def asked(server):
    """The prompts after the probe's question."""
    return [received.body["messages"][-1]["content"] for received in server.requests][1:]


@pytest.fixture
def generate(server, capsys, monkeypatch, tmp_path):
    """The command without the second that a process takes to start."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("ONEPO_TEACHER_API_KEY", raising=False)

    def run(source, out=tmp_path / "out.jsonl", **options) -> subprocess.CompletedProcess:
        settings = {"url": server.url, "model": "teacher", "max_tokens": 99, "concurrency": 4, "timeout": 10.0}
        settings |= {"retries": 1, "overwrite_existing": False, "limit": None, "yes": True}
        server.requests.clear()
        with pytest.raises(typer.Exit) as ended:
            command.generate(source=source, out=out, **{**settings, **options})
        return subprocess.CompletedProcess("generate", ended.value.exit_code, *capsys.readouterr())

    return run


def command_line(server, source, out, *options):
    line = [sys.executable, "-m", "onepo.teachers.generate", "--in", source, "--out", out, "--url", server.url]
    return [str(word) for word in [*line, "--model", "teacher", *options]]


def in_a_terminal(line, typed) -> subprocess.CompletedProcess:
    here, there = pty.openpty()
    try:
        os.write(here, f"{typed}\n".encode())
        environment = {**os.environ, "COLUMNS": "200"}
        return subprocess.run(line, stdin=there, capture_output=True, text=True, timeout=60, env=environment)
    finally:
        os.close(here)
        os.close(there)


@pytest.fixture
def data(tmp_path):
    return write(
        tmp_path / "data.jsonl",
        [
            CHOICE,
            task("one", teacher_response=["kept", "too"]),
            task("two", extra_info={"id": 7}),
            task("three", model_response="old", source="s"),
            task("two", teacher_response=None, half="\ud83d"),
        ],
    )


# ---- what is written ----


def test_the_missing_responses_are_filled_in(server, data, tmp_path):
    out = tmp_path / "out.jsonl"
    result = in_a_terminal(command_line(server, data, out), "y")
    assert (result.returncode, result.stderr) == (0, "")
    assert "Begin?" in result.stdout
    choice_prompt = f"Which?\n\nA. one\nB. two\n\n{ANSWER_INSTRUCTION}"
    before = lines(data)
    assert lines(out) == [
        {**before[0], "teacher_response": f"The answer to: {choice_prompt}"},
        before[1],
        {**before[2], "teacher_response": "The answer to: two"},
        before[3],
        {**before[4], "teacher_response": "The answer to: two"},
    ]
    assert sorted(asked(server)) == [choice_prompt, "two"], "the same prompt is asked once"
    assert all(set(received.body) == {"model", "messages", "max_tokens"} for received in server.requests)
    assert server.requests[1].body["max_tokens"] == 8192
    assert load_tasks(str(out))["teacher_responses"].to_pylist()[1] == ["kept", "too"]

    tokens = round((len(choice_prompt) + len("two")) / 3.5)
    assert "records: 5; to be given a teacher response: 3; " in result.stdout
    assert (
        f"to be asked: 2; tokens of prompts: about {tokens} (" in result.stdout
        and "at most 2 x 8192 = 16,384" in result.stdout
    )
    assert "2/2" in result.stdout
    assert "answers: 2, of about" in result.stdout and "requests: 2" in result.stdout
    assert "with a teacher response: 5; without: 0" in result.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.jsonl", "out.jsonl", "out.jsonl.answers.sqlite"]


def test_existing_responses_are_replaced_on_request(generate, server, data, tmp_path):
    assert generate(data, overwrite_existing=True).returncode == 0
    assert [record["teacher_response"] for record in lines(tmp_path / "out.jsonl")][1:4] == [
        f"The answer to: {text}" for text in ("one", "two", "three")
    ]
    assert lines(tmp_path / "out.jsonl")[3]["model_response"] == "old"
    assert load_tasks(str(tmp_path / "out.jsonl"))["teacher_responses"].to_pylist()[3] == ["The answer to: three"]


def test_a_second_call_asks_for_what_is_missing(generate, server, data, tmp_path):
    assert generate(data, limit=1).returncode == 0
    assert len(asked(server)) == 1
    assert [bool(record.get("teacher_response")) for record in lines(tmp_path / "out.jsonl")] == [1, 1, 0, 0, 0]
    result = generate(data)
    assert asked(server) == ["two"] and "out.jsonl.answers.sqlite: 1\n" in result.stdout
    server.stop()
    result = generate(data)
    assert result.returncode == 0 and not server.requests
    assert lines(tmp_path / "out.jsonl")[4]["teacher_response"] == "The answer to: two"
    server.start()
    assert generate(data, url=server.url, model="teacher", overwrite_existing=True).returncode == 0
    assert sorted(asked(server)) == ["one", "three"]


def test_a_file_in_which_nothing_is_missing_is_copied(generate, server, tmp_path):
    source = write(tmp_path / "d.json", [task("one", teacher_response="kept")])
    server.stop()
    assert generate(source).returncode == 0
    assert lines(tmp_path / "out.jsonl") == lines(write(tmp_path / "same.jsonl", json.loads(source.read_text())))
    server.start()


def test_json(generate, server, data, tmp_path):
    assert generate(data, tmp_path / "out.json").returncode == 0
    assert generate(data).returncode == 0
    assert json.loads((tmp_path / "out.json").read_text()) == lines(tmp_path / "out.jsonl")
    assert generate(tmp_path / "out.json", tmp_path / "again.jsonl").returncode == 0
    assert lines(tmp_path / "again.jsonl") == lines(tmp_path / "out.jsonl")


@pytest.mark.parametrize("kind", [None, pa.string(), pa.large_string(), pa.list_(pa.string()), pa.null()])
def test_the_columns_of_parquet_keep_their_types(generate, server, tmp_path, kind):
    table = pa.table(
        {
            "prompt": ["one", "two"],
            "rubrics": pa.array([RUBRICS, RUBRICS]),
            "count": pa.array([1, None], pa.int8()),
            "when": pa.array([0, 1], pa.timestamp("ms")),
        }
    ).replace_schema_metadata({"made by": "test"})
    if kind is not None:
        table = table.append_column("teacher_response", pa.nulls(2, kind))
    pq.write_table(table, tmp_path / "d.parquet")
    assert generate(tmp_path / "d.parquet", tmp_path / "out.parquet").returncode == 0
    read, written = pq.read_table(tmp_path / "d.parquet"), pq.read_table(tmp_path / "out.parquet")
    assert written.drop_columns("teacher_response").equals(read.select(table.column_names[:4]))
    kind = read.schema.field("teacher_response").type if kind else pa.null()
    assert written.schema.metadata[b"made by"] == b"test"
    assert written.schema.field("teacher_response").type == (pa.string() if kind == pa.null() else kind)
    texts = ["The answer to: one", "The answer to: two"]
    assert written["teacher_response"].to_pylist() == ([[text] for text in texts] if pa.types.is_list(kind) else texts)


def test_parquet_from_json(generate, server, tmp_path):
    source = write(tmp_path / "d.jsonl", [task("one"), task("two", data_source="later field")])
    assert generate(source, tmp_path / "out.parquet").returncode == 0
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["data_source"] for row in rows] == [None, "later field"]
    assert [row["teacher_response"] for row in rows] == ["The answer to: one", "The answer to: two"]


def test_reasoning_is_written_as_a_think_block(generate, server, tmp_path):
    server.says = lambda _: {"content": "So.", "reasoning_content": "Hm."}
    assert generate(write(tmp_path / "d.jsonl", [task("one")])).returncode == 0
    assert lines(tmp_path / "out.jsonl")[0]["teacher_response"] == "<think>\nHm.\n</think>\n\nSo."


# ---- failures ----


def test_failures_are_counted_and_leave_their_records_as_they_were(generate, server, tmp_path):
    source = write(
        tmp_path / "d.jsonl", [task(text) for text in ("bad", "good", "long", "awful", "empty")] + [task("bad", x=1)]
    )
    server.behave(poison={"bad": "500", "awful": "500"})
    answers = {"empty": "", "long": {"content": "So", "finish_reason": "length"}}
    server.says = lambda body: answers.get(body["messages"][0]["content"], "So.")
    result = generate(source)
    assert result.returncode == 3
    assert "answers: 1, of about 1 tokens; requests: 7" in result.stdout
    assert "failed (server error): 2, such as: " in result.stdout and "scripted answer 500" in result.stdout
    assert (
        "failed (cut off): 1, such as: " in result.stdout
        and "failed (no answer): 1, such as: the answer is empty" in result.stdout
    )
    assert "with a teacher response: 1; without: 5" in result.stdout
    before = lines(source)
    before[1]["teacher_response"] = "So."
    assert lines(tmp_path / "out.jsonl") == before

    server.behave(poison={})
    server.says = lambda _: "Yes."
    assert generate(source).returncode == 0
    assert sorted(asked(server)) == ["awful", "bad", "empty", "long"]


def test_a_failure_does_not_cost_the_response_that_was_there(generate, server, tmp_path):
    source = write(tmp_path / "d.jsonl", [task("bad", teacher_response="old"), task("good", teacher_response="old")])
    server.behave(poison={"bad": "500"})
    result = generate(source, overwrite_existing=True)
    assert result.returncode == 3 and "with a teacher response: 2; without: 0" in result.stdout
    assert [record["teacher_response"] for record in lines(tmp_path / "out.jsonl")] == ["old", "The answer to: good"]


def test_a_teacher_that_goes_away_is_not_asked_for_the_rest(generate, server, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "RUN", OmegaConf.merge(command.RUN, {"outage_limit": 0.2}))
    source = write(tmp_path / "d.jsonl", [task(f"q{number}") for number in range(50)])
    server.behave(poison={"q5": "503"})
    result = generate(source, concurrency=1)
    assert result.returncode == 3
    assert "answers: 5," in result.stdout and "failed (unavailable): 1, such as: " in result.stdout
    assert "not asked any more: 44" in result.stdout
    assert sum("teacher_response" in record for record in lines(tmp_path / "out.jsonl")) == 5


def test_under_nohup_it_goes_on(server, tmp_path):
    source, out = write(tmp_path / "d.jsonl", [task(text) for text in ("one", "two")]), tmp_path / "out.jsonl"
    server.behave(poison={"two": "slow"}, slow_seconds=2.0)
    line = ["nohup", *command_line(server, source, out, "--yes", "--concurrency", "1")]
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        server.wait_for_requests(3, timeout=60)  # the probe, one that is answered, one that is being answered
        process.send_signal(signal.SIGHUP)
        printed, errors = process.communicate(timeout=60)
    assert process.returncode == 0, printed + errors
    assert all("teacher_response" in record for record in lines(out))


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_answers_survive_an_interruption(generate, server, tmp_path, sent):
    source = write(tmp_path / "d.jsonl", [task(text) for text in ("one", "two", "three")])
    out = tmp_path / "out.jsonl"
    server.behave(poison={"two": "silent"})
    line = command_line(server, source, out, "--yes", "--concurrency", "1")
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=mind_signals
    ) as process:
        try:
            server.wait_for_requests(3, timeout=60)  # the probe, one that is answered, one that never is
            process.send_signal(sent)
            printed, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert not out.exists()
    if sent != signal.SIGKILL:
        assert process.returncode == 128 + sent
        assert f"interrupted: {out} is not written, the answers so far are in " in errors.replace("\n", " ")
        assert "answers: 1," in printed and "not asked any more: 2" in printed and "Traceback" not in errors
    server.behave(poison={})
    assert generate(source, out).returncode == 0
    assert asked(server) == ["two", "three"] or asked(server) == ["three", "two"]
    assert len(lines(out)) == 3


# ---- before anything is asked ----


def refused(result) -> str:
    assert result.returncode == 2, result.stdout
    assert result.stderr.startswith("error: ") and "Traceback" not in result.stderr
    return result.stderr


def test_what_cannot_be_used_is_refused(generate, server, data, tmp_path):
    assert "expected one of .json, .jsonl, .parquet" in refused(generate(data, tmp_path / "out.csv"))
    assert "is the file of --in" in refused(generate(data, tmp_path / "x" / ".." / "data.jsonl"))
    assert "none.jsonl: the file cannot be read" in refused(generate(tmp_path / "none.jsonl"))
    broken = write(tmp_path / "broken.jsonl", [task("one"), {"prompt": "two"}])
    assert "1 problem in 2 records" in refused(generate(broken))
    mixed = write(tmp_path / "mixed.jsonl", [task("one", x=1), task("two", x="a")])
    assert "give it the suffix .jsonl" in refused(generate(mixed, tmp_path / "out.parquet"))
    (tmp_path / "taken.jsonl").write_text("mine")
    assert "exists, and was not written by this tool" in refused(generate(data, tmp_path / "taken.jsonl"))
    (tmp_path / "out.jsonl.answers.sqlite").write_text("no database")
    assert "out.jsonl.answers.sqlite: is damaged" in refused(generate(data))
    assert not server.requests
    assert (tmp_path / "taken.jsonl").read_text() == "mine" and not (tmp_path / "out.jsonl").exists()


def test_times_have_no_json(generate, server, tmp_path):
    table = pa.table({"prompt": ["one"], "rubrics": pa.array([RUBRICS]), "when": pa.array([0], pa.timestamp("ms"))})
    pq.write_table(table, tmp_path / "d.parquet")
    assert "give it the suffix .parquet" in refused(generate(tmp_path / "d.parquet"))
    assert not server.requests


def test_an_endpoint_that_cannot_be_used_is_explained_with_the_options_of_the_tool(generate, server, data):
    assert refused(generate(data, url="localhost/v1")).startswith("error: --url: ")
    assert refused(generate(data, model="other")).startswith("error: --model=other: ")


def test_the_key_comes_from_the_environment_and_is_not_shown(generate, server, data, tmp_path, monkeypatch):
    server.behave(api_key=KEY)
    assert "Set ONEPO_TEACHER_API_KEY" in refused(generate(data))
    monkeypatch.setenv("ONEPO_TEACHER_API_KEY", "k-wr0ng")
    result = generate(data)
    assert "Correct ONEPO_TEACHER_API_KEY" in refused(result) and "k-wr0ng" not in result.stdout + result.stderr
    monkeypatch.setenv("ONEPO_TEACHER_API_KEY", KEY)
    result = generate(data)
    assert result.returncode == 0 and KEY not in result.stdout + result.stderr
    assert not [path for path in tmp_path.iterdir() if KEY.encode() in path.read_bytes()]


def test_nothing_is_asked_without_consent(generate, server, data, tmp_path):
    assert "add --yes" in refused(generate(data, yes=False))
    result = in_a_terminal(command_line(server, data, tmp_path / "out.jsonl"), "n")
    assert result.returncode == 2 and "nothing was asked" in result.stderr
    assert not server.requests
