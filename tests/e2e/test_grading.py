"""``bash OnePO.sh`` with open-ended data: a local grader that is killed within a step, and an external one that fails.

The grader is the scripted one over a real socket, started by the code that starts an engine.
"""

import json
import time
from pathlib import Path

import pytest

from tests.e2e.grading import (
    RUBRICS,
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
    return {option: str(write_mixed_data(file, each=8)) for option, file in files.items()}


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
    for line in launch.process.stdout:
        if line.startswith("the grader is ready"):
            launch.ready_again = time.monotonic()
            break
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
    """Never grades the first reply that it sees to a question: each group of open-ended rollouts misses one."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self._first: dict[str, str] = {}

    def _next_mode(self, text: str) -> str:
        question, *_, reply = [json.loads(line)["content"] for line in text.splitlines() if line.startswith('{"role"')]
        is_probe = len(self.requests) == 1
        refused = not is_probe and self._first.setdefault(question, reply) == reply
        return "garbage" if refused else super()._next_mode(text)


@pytest.fixture(scope="module")
def external(student, mixed, tmp_path_factory):
    """A run with a grader that misses one rollout of every group, and after the first step all of them."""
    with PickyGrader(api_key=KEY) as grader:
        launch = start(
            tmp_path_factory.mktemp("external grader"),
            MODEL_PATH=str(student),
            **{**mixed, "VAL_FILE": "", "TEST_FREQ": "0", "TOTAL_TRAINING_STEPS": "400", "TOTAL_EPOCHS": "100"},
            START_REWARD_SERVER="0",
            REWARD_MODEL_URL=grader.base_url + "/v1",
            REWARD_MODEL_NAME="grader",
            REWARD_MODEL_API_KEY=KEY,
            REWARD_MAX_FAILURE_RATE="0.5",
        )
        for line in launch.process.stdout:
            if line.startswith("step   1/"):
                launch.first_step = line
                break
        launch.command_lines = [" ".join(process.cmdline()) for process in launch.members()]
        grader.behave("garbage")
        launch.finish()
    return launch


def test_a_group_trains_on_when_one_grading_failed(external):
    first = external.metrics()[0]
    assert first["reward/failed"] > 0 and first["onepo/groups_ungraded"] == 0
    assert first["reward/failed"] / first["reward/gradings"] < 0.5
    assert f"ungraded {first['reward/failed']}" in external.first_step
    assert first["reward/parse_failures"] == first["reward/parse_failures/3_rubrics"] == 3 * first["reward/failed"]
    assert 0 <= first["reward/score"] <= 1


def test_too_many_failures_stop_the_run_with_a_checkpoint(external):
    assert external.code == 3, external.tell()
    facts = external.facts()
    assert facts["exit_code"] == 3 and "gradings failed" in facts["reason"] and "malformed" in facts["reason"]
    assert "REWARD_MAX_FAILURE_RATE=0.5" in external.stdout
    (checkpoint,) = facts["checkpoints"]
    assert Path(checkpoint["model_dir"], "model.safetensors").is_file()
    assert checkpoint["step"] == external.metrics()[-1]["step"]  # the last step that was complete
    assert external.processes() == []


def test_the_key_is_nowhere(external):
    assert len(external.command_lines) > 5
    assert not [line for line in external.command_lines if KEY in line]
    assert KEY not in external.stdout + external.stderr
    for file in external.output_dir.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes(), file
