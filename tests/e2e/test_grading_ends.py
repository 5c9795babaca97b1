"""Runs with a local grader that end in other ways than by themselves: nothing of them outlives 15 seconds."""

import signal
import time

import psutil
import pytest

from tests.e2e.grading import free_port, grader_process, local_grader, wait_for_gradings, write_mixed_data
from tests.e2e.launch import Launch, start

pytestmark = pytest.mark.slow
SECONDS = 15
SLOW = ("--latency", "0.5", "--slots", "2")  # a step lasts long enough to be interrupted


def begin(folder, student, *arguments, **options) -> tuple[Launch, int]:
    """A run of which everything is open-ended or multiple choice in turn; returns it and its grader's port."""
    port = free_port()
    options = {
        "MODEL_PATH": str(student),
        "TRAIN_FILE": str(write_mixed_data(folder / "train.jsonl", each=8)),
        "VAL_FILE": "",
        "TEST_FREQ": "0",
        "TOTAL_TRAINING_STEPS": "400",
        "TOTAL_EPOCHS": "100",
        "ENABLE_FILTER_GROUPS": "False",
        **local_grader(folder, port, *arguments),
        **options,
    }
    return start(folder / "runs", **options), port


def finish_in_time(launch: Launch) -> Launch:
    """The end of a run that was told or forced to end, with everything of it."""
    began = time.monotonic()
    launch.finish()
    left = SECONDS - (time.monotonic() - began)
    assert left > 0, launch.tell()
    assert launch.processes(seconds=left) == []
    return launch


@pytest.fixture
def in_a_step(student, tmp_path):
    launch, port = begin(tmp_path, student, *SLOW)
    wait_for_gradings(launch, port)
    return launch


def test_the_launcher_is_killed(in_a_step):
    in_a_step.process.kill()
    assert finish_in_time(in_a_step).facts()["exit_code"] == 143


def trainer(launch: Launch) -> psutil.Process:
    (found,) = [process for process in launch.members() if "onepo.train" in process.cmdline()]
    return found


def test_the_trainer_is_killed(in_a_step):
    trainer(in_a_step).kill()
    assert finish_in_time(in_a_step).code == 137


def test_launcher_and_trainer_are_killed_together(in_a_step):
    server, process = grader_process(in_a_step), trainer(in_a_step)
    in_a_step.process.kill()
    process.kill()
    assert psutil.wait_procs([server], timeout=SECONDS)[1] == []
    for leftover in in_a_step.members():  # Ray's own processes notice later, each by itself
        leftover.kill()


def test_the_process_that_drives_the_training_is_killed(in_a_step):
    (driver,) = [process for process in in_a_step.members() if "TaskRunner" in " ".join(process.cmdline())]
    driver.kill()
    assert finish_in_time(in_a_step).code == 1
    assert "failed: " in in_a_step.stdout


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_grader_too(in_a_step, sent, code):
    in_a_step.process.send_signal(sent)
    assert finish_in_time(in_a_step).code == code


def test_a_grader_that_is_lost_ends_the_run_with_a_checkpoint(student, tmp_path):
    launch, _ = begin(tmp_path, student, *SLOW, REWARD_SERVER_MAX_RESTARTS="0")
    for line in launch.process.stdout:
        if line.startswith("step   1/"):  # from then on there is something to save
            break
    grader_process(launch).kill()
    killed = time.monotonic()
    launch.finish()
    assert launch.code == 3, launch.tell()
    assert time.monotonic() - killed < 2 * SECONDS  # the stop within 15 s, the shutdown after it
    assert "the grader is lost: the server was ended by SIGKILL" in launch.facts()["reason"]
    assert launch.facts()["checkpoints"]
    assert launch.processes() == []


def test_a_grader_that_does_not_start_ends_the_run_with_its_last_words(student, tmp_path):
    launch, _ = begin(tmp_path, student, "--mode", "no such mode")
    launch.finish()
    assert launch.code == 1, launch.tell()
    assert "the server ended with exit code 2 before it was ready" in launch.stdout
    assert "invalid choice: 'no such mode'" in launch.stdout
    assert "Traceback" not in launch.stdout
    assert launch.processes() == []


def test_a_grader_that_is_no_grader_is_refused(student, tmp_path):
    launch, _ = begin(tmp_path, student, "--mode", "garbage")
    launch.finish()
    assert launch.code == 2, launch.tell()
    assert "the grader wrote none in 3 attempts" in launch.stdout
    assert launch.processes() == []


def test_a_grader_may_be_left_running(student, tmp_path):
    launch, _ = begin(tmp_path, student, AUTO_KILL_REWARD_SERVER="0", TOTAL_TRAINING_STEPS="1")
    launch.finish()
    assert launch.code == 0, launch.tell()
    (server,) = launch.members()
    assert "the grader is left running at http://127.0.0.1:" in launch.stdout
    assert f"kill -- -{server.pid}" in launch.stdout
    server.terminate()
    assert launch.processes(seconds=SECONDS) == []
