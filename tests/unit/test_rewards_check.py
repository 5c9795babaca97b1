"""The tool that looks at a grader's quality, run as users run it, against a scripted grader."""

import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from onepo.data.schema import ANSWER_INSTRUCTION
from onepo.rewards import check as command
from tests.scripted_grader import ScriptedGrader

RUBRICS = [
    {"criterion": "says yes", "points": 2},
    {"criterion": "says no", "points": -1},
    {"criterion": "says x", "points": 1},
]


@pytest.fixture
def server():
    with ScriptedGrader() as server:
        yield server


@pytest.fixture
def check(server, capsys, monkeypatch):
    """The command without the second that a process takes to start."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("REWARD_MODEL_API_KEY", raising=False)

    def run(file, **options) -> subprocess.CompletedProcess:
        code = 0
        try:
            command.check(**{"file": file, "url": server.url, "name": "grader", **options})
        except typer.Exit as ended:
            code = ended.exit_code
        return subprocess.CompletedProcess("check", code, *capsys.readouterr())

    return run


def check_as_users_do(server, file, *options, key="") -> subprocess.CompletedProcess:
    line = [
        sys.executable,
        "-m",
        "onepo.rewards.check",
        "--file",
        file,
        "--url",
        server.url,
        "--name",
        "grader",
        *options,
    ]
    environment = {**os.environ, "COLUMNS": "200", "REWARD_MODEL_API_KEY": key}
    return subprocess.run(list(map(str, line)), capture_output=True, text=True, timeout=60, env=environment)


def task(number, **fields):
    return {"prompt": f"Question {number}?", "rubrics": RUBRICS, **fields}


def write(path, records):
    text = json.dumps(records) if path.suffix == ".json" else "".join(json.dumps(record) + "\n" for record in records)
    path.write_text(text)
    return path


def cell(result, title):
    """The value of a line of the table."""
    assert result.returncode == 0, result.stderr
    return next(line.split("│")[2].strip() for line in result.stdout.splitlines() if f"│ {title} " in line)


@pytest.fixture
def data(tmp_path):
    choice = {"question": "Which?", "options": ["a", "b"], "answer_idx": "A", "response": "A"}
    records = [
        task(1, response="<think>no no</think>yes"),  # 2 of 3 points
        task(2, teacher_response=["no", "x"]),  # 0
        task(3, response="Hm, no\n## Final Response\nyes and x", teacher_response="no"),  # 1
        task(4, response="<think>yes"),
        task(5),
        choice,
    ]
    return write(tmp_path / "data.json", records)


def test_a_reliable_grader(server, data):
    result = check_as_users_do(server, data)
    assert cell(result, "gradings") == "3"
    assert cell(result, "output usable at the first attempt") == "100.0% (3 of 3)"
    assert cell(result, "output usable after retries") == "100.0% (3 of 3)"
    assert cell(result, "failed") == "none"
    assert cell(result, "requests") == "3"
    assert cell(result, "mean score") == "0.556"
    assert cell(result, "agreement per criterion") == "100.0% (9 of 9)"
    assert cell(result, "identical score") == "100.0% (3 of 3)"
    low, high = map(float, cell(result, "seconds per grading, p50 / p95").split(" / "))
    assert 0 <= low <= high < 30
    for reason in ("1 not open-ended", "1 without a response", "1 without a visible answer"):
        assert reason in result.stdout
    assert "the grader takes a JSON schema" in result.stdout
    assert "no grading:" not in result.stdout
    assert len(server.requests) == 1 + 3 + 3, "a probe and two passes"


def test_malformed_outputs_are_counted_and_shown(check, server, data):
    # the probe, three gradings at a time, and what they need again
    server.behave(mode=["normal", "garbage", "normal", "garbage", "wrong_length", "normal"])
    result = check(data, concurrency=1)
    assert cell(result, "output usable at the first attempt") == "33.3% (1 of 3)"
    assert cell(result, "output usable after retries") == "100.0% (3 of 3)"
    assert cell(result, "requests") == "6"
    assert '2 x "The answer is thorough and mostly right."' in result.stdout
    assert result.stdout.index("2 x ") < result.stdout.index("1 x ")


def test_failures_are_told_by_kind_and_are_no_scores(check, server, data):
    server.behave(poison={"Question 2": "500", "Question 3": "garbage"})
    result = check(data, retries=0)
    assert cell(result, "failed") in ("1 server error, 1 malformed", "1 malformed, 1 server error")
    assert cell(result, "output usable after retries") == "50.0% (1 of 2)"
    assert cell(result, "mean score") == "0.667"
    assert cell(result, "agreement per criterion") == "100.0% (3 of 3)"


def test_two_prompts_are_compared(check, server, data, tmp_path):
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    first.write_text("FIRST\n{conversation}\n{rubrics}")
    second.write_text('SECOND\n{conversation}\n{"role": "assistant", "content": "no"}\n{rubrics}')
    result = check(data, prompt_file=first, second_prompt_file=second)
    # the grader is told another answer, which changes all of answer 1 and 3 but the decisions on "no"
    assert cell(result, "agreement per criterion") == "44.4% (4 of 9)"
    assert cell(result, "identical score") == "33.3% (1 of 3)"
    words = [received.body["messages"][0]["content"].split("\n")[0] for received in server.requests]
    assert words == ["FIRST"] * 4 + ["SECOND"] * 3


def test_the_answers_are_drawn_with_the_seed(check, server, tmp_path):
    file = write(tmp_path / "many.jsonl", [task(number, response=f"yes {number}") for number in range(20)])

    def drawn(**options):
        server.requests.clear()
        assert cell(check(file, n=3, concurrency=1, **options), "gradings") == "3"
        return [received.body["messages"][0]["content"] for received in server.requests[1:4]]

    assert drawn() == drawn(seed=42) != drawn(seed=7)


CHOICE_PROMPT = f"Is Question 1?\n\nA. a\nB. b\n\n{ANSWER_INSTRUCTION}"


def test_a_validation_file_of_a_run_with_its_data(check, server, tmp_path):
    data = write(
        tmp_path / "val.json",
        [
            task(1),
            task(10),
            {"question": "Is Question 1?", "options": ["a", "b"], "answer_idx": "A"},
            {
                **task(2),
                "prompt": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Question 1?"}],
            },
        ],
    )
    dump = write(
        tmp_path / "30.jsonl",
        [
            {"input": "user\nQuestion 1?\nassistant\n", "output": "yes", "gts": "", "score": 0.0, "step": 30},
            {
                "input": "system\nBe kind.\nuser\nQuestion 1?\nassistant\n<think>\n",
                "output": "no</think>x",
                "score": 1.0,
            },
            {"input": "user\nQuestion 1?\nassistant\n<think>\n", "output": "yes", "score": 0.0},
            {"input": "user\nWhich?\nassistant\n", "output": "A", "score": 0.0},
            {"input": f"user\n{CHOICE_PROMPT}\nassistant\n", "output": "A", "score": 0.0},
        ],
    )
    result = check(dump, data_file=data)
    assert cell(result, "gradings") == "2"
    assert cell(result, "mean score") == "0.500"
    assert "1 without a visible answer" in result.stdout
    assert "1 not open-ended" in result.stdout, "Question 1? stands in that prompt, too"
    assert "1 whose prompt is in no record of the data file" in result.stdout
    prompts = [received.body["messages"][0]["content"] for received in server.requests[1:3]]
    assert sum('"Be kind."' in prompt for prompt in prompts) == 1

    result = check(dump)
    assert result.returncode == 2 and "--data-file" in result.stderr


def test_another_response_field(check, tmp_path):
    file = write(tmp_path / "d.jsonl", [task(1, response="no", other="yes x")])
    assert cell(check(file), "mean score") == "0.000"
    assert cell(check(file, response_field="other"), "mean score") == "1.000"


def test_parquet(check, tmp_path):
    pq.write_table(pa.Table.from_pylist([task(1, response="yes x"), task(2, response=None)]), tmp_path / "d.parquet")
    assert cell(check(tmp_path / "d.parquet"), "mean score") == "1.000"


def test_the_key_comes_from_the_environment(server, data):
    server.behave(api_key="k-secret")
    result = check_as_users_do(server, data, "--n", 1, key="k-secret")
    assert cell(result, "gradings") == "1"
    assert "k-secret" not in result.stdout + result.stderr


def refused(result) -> str:
    assert result.returncode == 2, result.stdout
    assert result.stderr.startswith("error: ") and "Traceback" not in result.stderr
    return result.stderr


def test_what_cannot_be_used_is_refused(check, server, data, tmp_path):
    empty = write(tmp_path / "empty.jsonl", [task(1)])
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Grade {conversation}")
    assert "nothing to grade (1 without a response)" in refused(check(empty))
    assert "none.json: the file cannot be read" in refused(check(tmp_path / "none.json"))
    assert f"--prompt-file={prompt}: found {{rubrics}} 0 times" in refused(check(data, prompt_file=prompt))
    assert "--extra-body [1]" in refused(check(data, extra_body="[1]"))
    assert not server.requests
    assert "grader serves no model of this name" in refused(check_as_users_do(server, data, "--name", "other"))
