"""``bash OnePO.sh`` with a teacher that answers during the run, own rewards, a plateau and ``TEST_STEPS``."""

import json
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.e2e.launch import QUICK, start
from tests.scripted_teacher import ScriptedTeacher

KEY = "teacher-key-that-nobody-may-see"
REMEDIES = {"fever": "rest", "thirst": "water", "cough": "tea", "hunger": "soup"}


def write_custom_records(file: Path, source: str, count: int) -> Path:
    """The quickstart's questions as records of the type custom, without a teacher response."""
    lines = []
    for text in Path(source).read_text().splitlines()[:count]:
        record = json.loads(text)
        question = record["prompt"][0]["content"]
        remedy = next(remedy for complaint, remedy in REMEDIES.items() if complaint in question.split())
        lines.append(json.dumps({"type": "custom", "prompt": record["prompt"], "remedy": remedy}))
    file.write_text("\n".join(lines) + "\n")
    return file


def knows(body: dict) -> str | dict:
    """The remedy, thought about apart; nothing for one of the questions."""
    question = body["messages"][-1]["content"]
    remedies = [remedy for complaint, remedy in REMEDIES.items() if complaint in question.split()]
    if not remedies:
        return "Paris"  # the question of the probe
    return {"content": remedies[0], "reasoning_content": "points to"}


@pytest.fixture(scope="module")
def run(student, tmp_path_factory):
    folder = tmp_path_factory.mktemp("online teacher")
    options = {
        "MODEL_PATH": str(student),
        "TRAIN_FILE": str(write_custom_records(folder / "train.jsonl", QUICK["TRAIN_FILE"], 8)),
        "VAL_FILE": str(write_custom_records(folder / "val.jsonl", QUICK["VAL_FILE"], 8)),
        "REWARD_FUNCTION": f"{ROOT}/recipes/own_reward/reward.py:score",
        "ONLINE_TEACHER_ENABLED": "True",
        "ONEPO_TEACHER_MODEL": "teacher",
        "ONEPO_TEACHER_API_KEY": KEY,
        "TOTAL_TRAINING_STEPS": "4",
        "TEST_FREQ": "0",
        "TEST_STEPS": "[1,9]",
        "ENABLE_FILTER_GROUPS": "False",
        "RETIREMENT_PLATEAU_WINDOW": "2",
        "RETIREMENT_PLATEAU_TOLERANCE": "1.0",
        "RETIREMENT_PLATEAU_MIN_RATE": "0.0",
    }
    with ScriptedTeacher(says=knows, api_key=KEY) as teacher:
        launch = start(folder / "runs", **options, ONEPO_TEACHER_API_URL=f"{teacher.base_url}/v1").finish()
        launch.asked = len(teacher.requests)
        launch.models = {request.body["model"] for request in teacher.requests}
    assert launch.code == 0, launch.tell()
    return launch


def test_the_teacher_is_asked_once_for_each_prompt(run):
    steps = {record["step"]: record for record in run.metrics()}
    assert run.asked == 1 + 8 and run.models == {"teacher"}  # the probe, and every prompt of the first epoch
    assert steps[1]["onepo/teacher_requests"] == steps[2]["onepo/teacher_requests"] == 4
    assert steps[1]["onepo/teacher_candidates"] == steps[2]["onepo/teacher_candidates"] == 4
    assert steps[1]["onepo/teacher_latency_s"] > 0
    assert steps[1]["onepo/teacher_acc"] == 1.0  # the remedy alone, by the user's own function
    assert steps[1]["onepo/teacher_replaced"] > 0
    assert (run.output_dir / "teacher_answers" / "answers.sqlite").is_file()


def test_a_plateau_of_two_steps_stops_the_teacher(run):
    steps = {record["step"]: record for record in run.metrics()}
    assert [steps[step]["onepo/teacher_enabled"] for step in (1, 2, 3, 4)] == [1, 1, 0, 0]
    assert steps[2]["onepo/teacher_disabled_reason"] == 2
    assert steps[3]["onepo/teacher_candidates"] == 0 and "onepo/teacher_requests" not in steps[3]


def test_own_rewards_train(run):
    for record in run.metrics():
        if "reward/score" in record:
            assert record["reward/gradings"] > 0 and record["reward/failed"] == 0
            assert 0 <= record["reward/score"] <= 1


def test_validation_runs_at_the_listed_steps_and_at_the_end(run):
    records = [record for record in run.metrics() if "validation/acc" in record]
    assert [record["step"] for record in records] == [1, 4]
    assert all(record["validation/acc/custom"] == record["validation/acc"] for record in records)
    assert "TEST_STEPS: 9 are beyond the final step, 4" in run.stdout


def test_the_key_is_nowhere(run):
    assert KEY not in run.stdout + run.stderr
    for file in run.output_dir.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes(), file
    assert run.processes() == []
