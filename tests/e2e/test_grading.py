"""``bash OnePO.sh`` with open-ended data: a local grader that is killed within a step, and an external one that fails.

The grader is the scripted one over a real socket, started by the code that starts an engine.
"""

import json
import time
from pathlib import Path

import pytest

from onepo.rewards.visible_answer import visible_answer
from tests.e2e.grading import (
    RUBRICS,
    TEACHER,
    free_port,
    grader_process,
    local_grader,
    wait_for_gradings,
    write_mixed_data,
)
from tests.e2e.launch import start
from tests.scripted_grader import ScriptedGrader

DATA = {"TOTAL_TRAINING_STEPS": "2", "TEST_FREQ": "2", "ENABLE_FILTER_GROUPS": "False"}
KEY = "key-that-nobody-may-see"


@pytest.fixture(scope="module")
def mixed(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("data")
    files = {"TRAIN_FILE": folder / "train.jsonl", "VAL_FILE": folder / "val.jsonl"}
    return {option: str(write_mixed_data(file, each=8, skip=8 * n)) for n, (option, file) in enumerate(files.items())}


@pytest.fixture(scope="module")
def local(student, mixed, tmp_path_factory):
    """A run whose grader is killed while the first step's responses are being graded."""
    folder = tmp_path_factory.mktemp("local grader")
    port = free_port()
    launch = start(
        folder / "runs",
        MODEL_PATH=str(student),
        **{**DATA, **mixed},
        **local_grader(folder, port, "--latency", "0.3", "--slots", "4"),  # slow enough to be interrupted
    )
    wait_for_gradings(launch, port)
    grader_process(launch).kill()
    launch.killed = time.monotonic()
    told = iter(launch.process.stdout.readline, "")
    next(line for line in told if "starting it again" in line)
    next(line for line in told if line.startswith("the grader is ready"))
    launch.ready_again = time.monotonic()
    launch.finish()
    assert launch.code == 0, launch.tell()
    launch.left_behind = launch.processes()
    return launch


def test_a_killed_grader_is_started_again_and_nothing_is_lost(local):
    text = (local.run_dir / "logs" / "console.log").read_text()
    assert text.count("the grader is ready after") == 2
    assert "the grader was ended by SIGKILL: starting it again (restart 1 of 3)" in text
    assert local.ready_again - local.killed < 15
    for record in local.metrics():
        assert record["reward/failed"] == 0
    assert sum(record["reward/retries"] for record in local.metrics()) > 0  # those that waited


def test_nothing_is_left_behind(local):
    assert local.left_behind == []


def test_both_types_train_together(local):
    for record in local.metrics():
        assert 0 < record["reward/gradings"] < 4 * 5  # of 4 prompts, some are open-ended; with the teacher's, 5 each
        assert record["onepo/groups_ungraded"] == 0
        assert record["reward/latency_p50"] >= 0.3
    assert local.metrics()[-1]["validation/failed_gradings"] == 0
    assert local.metrics()[-1]["validation/gradings"] > 0


def test_the_run_tells_about_its_grader(local):
    grader = local.facts()["grader"]
    assert grader["name"] == "grader" and grader["form"]["json_schema"] is True
    assert len(grader["prompt_sha256"]) == 64
    assert "listening on" in (local.run_dir / "logs" / "grader.log").read_text()


def test_validation_shows_what_was_met(local):
    rows = [json.loads(line) for line in (local.run_dir / "validation" / "2.jsonl").read_text().splitlines()]
    graded = [json.loads(row["met"]) for row in rows if row["met"]]
    assert graded and all(len(met) == len(RUBRICS) for met in graded)
    assert any(row["gts"] for row in rows)  # multiple-choice rows beside them


class PickyGrader(ScriptedGrader):
    """Grades neither the first reply that it sees to a question, nor the teacher's, nor any to the spurned ones.

    Each group of open-ended rollouts misses one, some prompts get no grading at all.
    """

    def __init__(self, *, spurned: set[str], whole: set[str], **settings):
        super().__init__(**settings)
        self._spurned = spurned
        self._whole = whole  # questions of which the first reply is graded, too
        self._first: dict[str, str] = {}

    def _next_mode(self, text: str) -> str:
        question, *_, reply = [json.loads(line)["content"] for line in text.splitlines() if line.startswith('{"role"')]
        first = self._first.setdefault(question, reply) == reply and question not in self._whole
        teacher = reply == visible_answer(TEACHER, marker="")
        is_probe = len(self.requests) == 1
        refused = question in self._spurned or first or teacher
        return "garbage" if refused and not is_probe else super()._next_mode(text)


def questions(file: str) -> list[str]:
    records = [json.loads(line) for line in Path(file).read_text().splitlines()]
    return [record["prompt"][0]["content"] for record in records if record["type"] == "open_ended"]


@pytest.fixture(scope="module")
def external(student, mixed, tmp_path_factory):
    """A run with a picky grader, and after the first epoch with one that grades nothing."""
    train, val = questions(mixed["TRAIN_FILE"]), questions(mixed["VAL_FILE"])
    with PickyGrader(api_key=KEY, spurned={train[0], val[0]}, whole=set(val)) as grader:
        launch = start(
            tmp_path_factory.mktemp("external grader"),
            MODEL_PATH=str(student),
            **{**mixed, "TEST_FREQ": "0", "TOTAL_TRAINING_STEPS": "400", "TOTAL_EPOCHS": "100"},
            VAL_BEFORE_TRAIN="True",
            START_REWARD_SERVER="0",
            REWARD_MODEL_URL=grader.base_url + "/v1",
            REWARD_MODEL_NAME="grader",
            REWARD_MODEL_API_KEY=KEY,
            REWARD_MAX_FAILURE_RATE="0.9",
        )
        told = iter(launch.process.stdout.readline, "")
        launch.lines = []
        for line in told:
            launch.lines.append(line)
            if line.startswith("step   4/"):
                break
        launch.members_seen = [(process.cmdline(), process.environ()) for process in launch.members()]
        grader.behave("garbage")
        launch.finish()
    launch.epoch = launch.metrics()[1:5]
    return launch


def test_a_group_trains_on_when_one_grading_failed(external):
    for record in external.epoch:
        assert record["reward/failed"] > 0
        assert record["reward/failed"] / record["reward/gradings"] < 0.9
        assert record["reward/parse_failures"] == record["reward/parse_failures/3_rubrics"]
        assert record["reward/parse_failures"] == 3 * record["reward/failed"]
        assert 0 <= record["reward/score"] <= 1
    assert f"ungraded {external.epoch[0]['reward/failed']}" in "".join(external.lines)
    assert "a grading failed (malformed): " in "".join(external.lines)


def test_a_prompt_without_gradings_is_replaced(external):
    # the spurned question, and a question whose group lost one more to chance
    assert sum(record["onepo/groups_ungraded"] for record in external.epoch) >= 1


def test_a_teacher_response_whose_grading_failed_is_no_candidate(external):
    failures = sum(record["onepo/teacher_failures"] for record in external.epoch)
    assert failures > 0
    for record in external.epoch:  # the multiple-choice groups' candidates only
        groups = sum(record[f"onepo/groups_{name}"] for name in ("mixed", "equal", "all_wrong", "all_right"))
        assert record["onepo/teacher_candidates"] + record["onepo/teacher_failures"] == groups


def test_a_validation_answer_whose_grading_failed_is_left_out_and_shown(external):
    record = external.metrics()[0]
    assert record["step"] == 0 and record["validation/failed_gradings"] == 1
    assert f"(1 of {record['validation/gradings']} gradings failed and are left out)" in "".join(external.lines)
    rows = [json.loads(line) for line in (external.run_dir / "validation" / "0.jsonl").read_text().splitlines()]
    (failed,) = [row for row in rows if row["acc"] is None]
    assert failed["score"] is None and failed["met"] == ""
    others = [row["acc"] for row in rows if row["acc"] is not None]
    assert record["validation/acc"] == pytest.approx(sum(others) / len(others))


def test_too_many_failures_stop_the_run_with_a_checkpoint(external):
    assert external.code == 3, external.tell()
    facts = external.facts()
    assert facts["exit_code"] == 3 and "gradings failed" in facts["reason"] and "malformed" in facts["reason"]
    assert "REWARD_MAX_FAILURE_RATE=0.9" in external.stdout
    (checkpoint,) = facts["checkpoints"]
    assert Path(checkpoint["model_dir"], "model.safetensors").is_file()
    assert checkpoint["step"] == external.metrics()[-1]["step"]  # the last step that was complete
    assert external.processes() == []


def test_the_key_is_nowhere(external):
    workers = [variables for command, variables in external.members_seen if command[0].startswith("ray::")]
    assert len(workers) > 3
    for variables in workers:
        assert KEY not in variables.values()
    for command, _ in external.members_seen:
        assert KEY not in " ".join(command)
    assert KEY not in "".join(external.lines) + external.stdout + external.stderr
    for file in external.output_dir.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes(), file
