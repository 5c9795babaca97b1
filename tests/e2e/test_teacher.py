"""``bash OnePO.sh`` with a teacher that answers during the run, own rewards, a plateau and ``TEST_STEPS``."""

import json
import re
import threading
from pathlib import Path

import httpx
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.conftest import ROOT
from tests.e2e.launch import QUICK, Launch, start
from tests.scripted_teacher import ScriptedTeacher

KEY = "teacher-key-that-nobody-may-see"
TRACKER_KEYS = {"SWANLAB_API_KEY": "swanlab-key-nobody-may-see", "WANDB_API_KEY": "wandb-key-nobody-may-see"}
DASHBOARD = (
    "nodes?view=summary",
    "logical/actors",
    "api/jobs/",
    "api/v0/actors?detail=true",
    "api/v0/tasks?detail=true",
    "api/v0/workers?detail=true",
    "api/v0/runtime_envs?detail=true",
)
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


def write_reward_file(file: Path) -> Path:
    """The example, and a look at what the user's code is given: the start imports it too, in a process of its own."""
    example = (ROOT / "recipes/own_reward/reward.py").read_text()
    file.write_text(f'{example}\nimport os\n\nassert "{KEY}" not in os.environ.values()\n')
    return file


def knows(body: dict) -> str | dict:
    """The remedy, thought about apart; nothing for one of the questions."""
    question = body["messages"][-1]["content"]
    remedies = [remedy for complaint, remedy in REMEDIES.items() if complaint in question.split()]
    if not remedies:
        return "Paris"  # the question of the probe
    return {"content": remedies[0], "reasoning_content": "points to"}


def look_around(launch: Launch) -> dict[str, str]:
    """What other people on the machine, and those who look at Ray, can see of a running run: by place, its text."""
    members = launch.members()
    seen = {f"command line of {process.pid}": " ".join(process.cmdline()) for process in members}
    token = (Path.home() / ".ray" / "auth_token").read_text().strip()  # Ray's own; its dashboard wants it
    log = (launch.run_dir / "logs" / "train.log").read_text()
    address = re.search(r"http://(127\.0\.0\.1:\d+)", log)[0]
    headers = {"Authorization": f"Bearer {token}"}
    for page in DASHBOARD:
        seen[page] = httpx.get(f"{address}/{page}", headers=headers, timeout=30).raise_for_status().text
    ray_dir = next(re.search(r"/\S*/onepo-[^/]+", text)[0] for text in seen.values() if "/raylet" in text)
    for file in Path(ray_dir).rglob("*"):
        if file.is_file() and file.name != ".teacher-key":
            seen[str(file)] = file.read_bytes().decode(errors="replace")
    return seen


@pytest.fixture(scope="module")
def run(student, tmp_path_factory):
    folder = tmp_path_factory.mktemp("online teacher")
    options = {
        "MODEL_PATH": str(student),
        "TRAIN_FILE": str(write_custom_records(folder / "train.jsonl", QUICK["TRAIN_FILE"], 8)),
        "VAL_FILE": str(write_custom_records(folder / "val.jsonl", QUICK["VAL_FILE"], 8)),
        "REWARD_FUNCTION": f"{write_reward_file(folder / 'reward.py')}:score",
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
        "LOGGER": "[console,tensorboard]",
    }
    looked = threading.Event()

    def says(body: dict) -> str | dict:
        if len(teacher.requests) > 1 + 4:  # the run waits in step 2 until everybody has looked at it
            looked.wait()
        return knows(body)

    with ScriptedTeacher(says=says, api_key=KEY) as teacher:
        options["ONEPO_TEACHER_API_URL"] = f"{teacher.base_url}/v1"
        launch = start(folder / "runs", "ray_kwargs.ray_init.include_dashboard=true", **options, **TRACKER_KEYS)
        try:
            launch.lines = []
            for line in launch.process.stdout:
                launch.lines.append(line)
                if line.startswith("step 1/"):
                    break
            launch.seen = look_around(launch)
        finally:
            looked.set()
            launch.finish()
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
    assert "the teacher takes no part after step 2: plateau\n" in run.stdout
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
    assert "TEST_STEPS: no validation after 9: the final step is 4" in "".join(run.lines)


@pytest.mark.parametrize("key", [KEY, *TRACKER_KEYS.values()])
def test_no_key_can_be_seen(key, run):
    assert any(place.startswith("command line") and "ray::" in text for place, text in run.seen.items())
    assert "TeacherActor" in run.seen["logical/actors"]
    for place, text in run.seen.items():
        assert key not in text, place
    assert key not in "".join(run.lines) + run.stdout + run.stderr
    for file in run.output_dir.rglob("*"):
        assert not file.is_file() or key.encode() not in file.read_bytes(), file
    assert run.processes() == []


def test_generations_of_a_validation_are_logged(run):
    events = EventAccumulator(str(run.run_dir / "tensorboard")).Reload()
    assert "val/generations" in str(events.Tags()["tensors"])
