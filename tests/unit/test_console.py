"""What a user sees in the terminal while a run trains."""

import fcntl
import io
import json
import os
import pty
import struct
import termios

import pytest

from onepo.report.console import RunConsole
from onepo.report.lines import OnePOLines
from onepo.report.words import duration

STEP = {
    "event": "step",
    "step": 7,
    "final_step": 130,
    "reward/score": 0.25,
    "onepo/student_acc": 0.125,
    "onepo/retirement_rate": 0.5,
    "onepo/floored_tokens": 96.0,
    "response_length/mean": 11.6,
    "timing_s/step": 2.0,
}
PLAN = {
    "event": "plan",
    "train_prompts": 100,
    "val_prompts": 10,
    "final_step": 130,
    "ends_by": "TOTAL_EPOCHS",
    "steps_per_epoch": 13,
    "train_batch_size": 16,
    "left_out": 3,
    "with_teacher": 60,
}


def write(path, *events):
    with path.open("a") as file:
        for event in events:
            file.write(json.dumps(event) + "\n")


@pytest.fixture
def console(tmp_path):
    return RunConsole(
        io.StringIO(), tmp_path / "console.log", tmp_path / "events.jsonl", lambda step: None, OnePOLines()
    )


def shown(console):
    console._show_events()
    return console._stream.getvalue()


def test_a_step_is_one_readable_line():
    line = OnePOLines().step(STEP, [1.0, 2.0])
    assert line == "step   7/130  reward 0.250  acc 0.125  retired 0.50  floored 96  length 12  2.0 s  left 3 min"
    assert len(line) <= 100


def test_a_step_without_candidates_shows_no_retirement():
    line = OnePOLines().step(
        {**{k: v for k, v in STEP.items() if "retirement" not in k}, "onepo/student_acc": None}, [2.0]
    )
    assert "acc -  retired -  floored 96" in line


def test_events_are_shown_once_and_remembered(console, tmp_path):
    events = tmp_path / "events.jsonl"
    assert shown(console) == ""  # nothing there yet
    write(events, PLAN, {"event": "begin", "step": 7}, {**STEP, "validation/acc": 0.75, "timing_s/testing": 1.0})
    write(events, {"event": "checkpoint", "step": 7, "model_dir": "/run/7"})
    text = shown(console)
    assert "100 training prompts, 60 of them with a teacher response, and 10 validation prompts" in text
    assert " (3 over MAX_PROMPT_LENGTH left out); the final step is 130 " in text
    assert "(from TOTAL_EPOCHS; 13 steps an epoch)" in text
    assert "step   7/130" in text and "3.0 s" in text
    assert "validation after step 7: accuracy 0.750" in text
    assert shown(console) == text == (tmp_path / "console.log").read_text()
    assert console.validations == {7: 0.75}
    assert console.checkpoints == {7: "/run/7"}


def test_a_line_that_is_still_being_written_is_left_for_later(console, tmp_path):
    events = tmp_path / "events.jsonl"
    line = json.dumps({"event": "stop", "step": 3, "reason": "nothing left to learn", "exit_code": 0})
    events.write_text(line[:20])
    assert shown(console) == ""
    events.write_text(line + "\n")
    assert "stopped: nothing left to learn" in shown(console)


def test_progress_tells_what_the_step_waits_for():
    live = {"signals": {"mixed": 3, "all_wrong": 5}, "generating": 40, "grading": 8}
    assert OnePOLines().progress(4, PLAN, live, 12.3) == (
        "step 4: 8 groups scored for a batch of 16 (5 of equal rewards), "
        "40 responses generating, 8 waiting for grading, 12 s"
    )
    assert OnePOLines().progress(4, PLAN, None, 12.3) == "step 4: 12 s"


def test_the_live_line_fits_a_terminal_and_is_taken_back(tmp_path):
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))  # 40 columns
    with open(follower, "w") as terminal:
        live = {"signals": {"mixed": 3}, "generating": 40, "grading": 8}
        console = RunConsole(
            terminal, tmp_path / "console.log", tmp_path / "events.jsonl", lambda step: live, OnePOLines()
        )
        write(tmp_path / "events.jsonl", PLAN, {"event": "begin", "step": 7})
        console._show_events()
        os.read(leader, 10_000)
        console._show_progress()
        drawn = os.read(leader, 10_000).decode()
        assert drawn.startswith("step 7: 3 groups scored") and len(drawn) == 39
        console.say("next")
        assert os.read(leader, 10_000).decode().startswith("\r\x1b[2Knext")
        write(tmp_path / "events.jsonl", {"event": "end"})
        console._show_events()
        console._show_progress()  # the run is over: nothing is drawn any more
        console.say("bye")
        assert os.read(leader, 10_000).decode().startswith("bye")
    os.close(leader)


def test_checkpoints_that_were_removed_are_not_named(console, tmp_path):
    for step in (1, 2):
        write(tmp_path / "events.jsonl", {"event": "checkpoint", "step": step, "model_dir": str(tmp_path / str(step))})
    (tmp_path / "2").mkdir()
    shown(console)
    kept = {"step": 2, "model_dir": str(tmp_path / "2")}
    assert console.kept_checkpoints() == [kept]


@pytest.mark.parametrize(("seconds", "text"), [(5, "5 s"), (300, "5 min"), (7200, "2.0 h")])
def test_durations_are_for_people(seconds, text):
    assert duration(seconds) == text


def test_failed_gradings_are_shown_with_the_step_and_the_validation():
    assert "  ungraded 3  2.0 s" in OnePOLines().step({**STEP, "reward/failed": 3}, [2.0])
    assert "ungraded" not in OnePOLines().step({**STEP, "reward/failed": 0}, [2.0])
    failed = {"step": 7, "validation/acc": 0.5, "validation/gradings": 64, "validation/failed_gradings": 2}
    assert OnePOLines().validation(failed) == (
        "  validation after step 7: accuracy 0.500 (2 of 64 gradings failed and are left out)"
    )
    assert OnePOLines().validation({"step": 7, "validation/acc": 0.5}) == "  validation after step 7: accuracy 0.500"


def test_a_validation_without_any_graded_answer_has_no_accuracy(console, tmp_path):
    event = {"event": "step", "step": 7, "final_step": 9, "validation/gradings": 4, "validation/failed_gradings": 4}
    write(tmp_path / "events.jsonl", event)
    assert "accuracy - (4 of 4 gradings failed" in shown(console)


def test_what_is_waited_for_before_the_first_step_has_a_name(console):
    console.begin("waiting for the grader")
    console._last_progress = -1000.0  # long ago
    console._show_progress()
    assert console._stream.getvalue() == "waiting for the grader: 0 s\n"
