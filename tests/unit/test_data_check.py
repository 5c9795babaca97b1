"""The check command, run as users run it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOKENIZER = Path(__file__).parent / "data" / "byte_tokenizer"
CHOICE = {"question": "Which?", "options": {"A": "one", "B": "two"}, "answer_idx": "B", "teacher_response": "B"}
OPEN = {"prompt": "Why?", "rubrics": [{"criterion": "says so", "points": 2}] * 3}


@pytest.fixture
def check():
    def run(*arguments):
        command = [sys.executable, "-m", "onepo.data.check", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    return run


def write(path, records):
    path.write_text(json.dumps(records))
    return path


def line(output, title):
    return next(text for text in output.splitlines() if title in text)


def test_a_good_file_gives_a_table(check, tmp_path):
    result = check(write(tmp_path / "d.json", [CHOICE, {**CHOICE, "teacher_response": None}, OPEN]))
    assert (result.returncode, result.stderr) == (0, "")
    assert "no problems" in result.stdout
    columns = line(result.stdout, "records").replace("│", " ").split()
    assert columns == ["records", "2", "1"]
    assert "1 (50%)" in line(result.stdout, "with a teacher response")
    assert "3 / 3 / 3 / 3" in line(result.stdout, "rubrics per record")
    assert "4 / 4 / 4 / 4" in line(result.stdout, "prompt characters")
    assert "tokens" not in result.stdout and "Warning" not in result.stdout


def test_each_type_has_a_column_and_only_the_open_ended_one_has_rubrics(check, tmp_path):
    result = check(write(tmp_path / "d.json", [CHOICE, OPEN, {"type": "custom", "prompt": "Add.", "rubrics": 3}]))
    assert (result.returncode, result.stderr) == (0, "")
    types = line(result.stdout, "open_ended").replace("┃", " ").split()
    assert types == ["custom", "multiple_choice", "open_ended"]
    rubrics = line(result.stdout, "rubrics per record").replace("│", " ").split()
    assert rubrics[3:] == ["-", "-", *"3 / 3 / 3 / 3".split()]


def test_with_a_model_the_prompts_are_counted_in_tokens(check, tmp_path):
    result = check(write(tmp_path / "d.json", [OPEN]), "--model", TOKENIZER)
    assert result.returncode == 0, result.stderr
    # one token per byte of the text, one for each of the three markers
    tokens = 3 + len("user\nWhy?\nassistant\n")
    assert f"{tokens} / {tokens} / {tokens} / {tokens}" in line(result.stdout, "prompt tokens")


def test_own_prompts_that_never_ask_for_the_answer_tag_are_warned_about(check, tmp_path):
    records = [{**CHOICE, "prompt": "Pick."}, {**CHOICE, "prompt": "Pick, in <answer></answer>."}, CHOICE]
    result = check(write(tmp_path / "d.json", records))
    assert result.returncode == 0
    assert "Warning: 1 multiple-choice records have a prompt of their own that never mentions <answer>" in result.stdout


def test_a_bad_file_ends_with_code_2_and_its_problems_and_the_others_are_still_shown(check, tmp_path):
    bad = write(tmp_path / "bad.json", [{**CHOICE, "answer_idx": "F"}])
    result = check(bad, write(tmp_path / "good.json", [OPEN]), tmp_path / "none.json")
    assert result.returncode == 2
    assert f"{bad}: 1 problem in 1 record:" in result.stderr
    assert 'line 1, record 1: answer_idx: found "F", expected the label of one of its options (A, B)' in result.stderr
    assert "none.json: the file cannot be read (No such file or directory)" in result.stderr
    assert "Traceback" not in result.stderr
    assert "no problems" in result.stdout


def test_a_directory_without_a_tokenizer_is_refused(check, tmp_path):
    result = check(write(tmp_path / "d.json", [OPEN]), "--model", tmp_path)
    assert result.returncode == 2
    assert "no tokenizer can be loaded" in result.stderr
    assert "Traceback" not in result.stderr
