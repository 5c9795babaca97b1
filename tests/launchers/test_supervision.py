"""The run's exit code is passed on, and no process and no directory of it stays behind.

A stand-in takes the trainer's place: a real process that starts children, one in a process group of its own and one
that ignores TERM, and then exits or waits for a signal.
"""

import os
import re
import signal
import stat
from pathlib import Path

import pytest


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except FileNotFoundError:
        return False
    return state not in "XZ"


def arguments_and_processes(process):
    """What the stand-in printed: its arguments, then its process, session and children; all of them are alive."""
    arguments = process.stdout.readline().rstrip("\n").split("\x1f")
    leader, session, *children = map(int, process.stdout.readline().split())
    assert leader == session != os.getsid(process.pid)
    return arguments, [leader, *children]


@pytest.mark.parametrize("code", [0, 1, 3, 77])
def test_exit_code_is_passed_on_and_nothing_stays(code, start, inputs):
    process = start(**inputs, STAND_IN_EXIT=str(code))
    arguments, processes = arguments_and_processes(process)
    assert process.wait(timeout=30) == code
    assert not any(map(alive, processes))
    ray_dir = next(word for word in arguments if word.startswith("onepo.ray_dir=")).split("'")[1]
    assert not Path(ray_dir).exists()


@pytest.mark.parametrize(("name", "code"), [("TERM", 143), ("INT", 130), ("HUP", 129)])
def test_signals_are_forwarded_and_nothing_stays(name, code, start, inputs):
    process = start(**inputs)
    _, processes = arguments_and_processes(process)
    assert all(map(alive, processes))
    process.send_signal(signal.Signals[f"SIG{name}"])
    assert process.stdout.readline() == f"SIG{name}\n"
    assert process.wait(timeout=30) == code
    assert not any(map(alive, processes))


def test_a_second_signal_ends_a_trainer_that_does_not_stop(start, inputs):
    process = start(**inputs, STAND_IN_STAYS="1")
    _, processes = arguments_and_processes(process)
    process.terminate()
    assert process.stdout.readline() == "SIGTERM\n"
    process.terminate()
    assert process.wait(timeout=30) == 143
    assert not any(map(alive, processes))


def test_a_trainer_that_is_killed(start, inputs):
    process = start(**inputs)
    _, processes = arguments_and_processes(process)
    os.kill(processes[0], signal.SIGKILL)
    assert process.wait(timeout=30) == 137
    assert not any(map(alive, processes))


def test_other_processes_are_left_alone(start, inputs):
    first, second = start(**inputs), start(**inputs)
    _, gone = arguments_and_processes(first)
    _, kept = arguments_and_processes(second)
    first.terminate()
    assert first.wait(timeout=30) == 143
    assert not any(map(alive, gone))
    assert all(map(alive, kept))


def test_the_ray_directory_is_short_and_private(start, inputs):
    process = start(**inputs, OUTPUT_DIR="long/" * 30)
    arguments, _ = arguments_and_processes(process)
    ray_dir = Path(next(word for word in arguments if word.startswith("onepo.ray_dir=")).split("'")[1])
    assert stat.S_IMODE(ray_dir.stat().st_mode) == 0o700
    assert re.fullmatch(r"/tmp/onepo-\w{4}", str(ray_dir))
    process.terminate()
    assert process.wait(timeout=30) == 143
    assert not ray_dir.exists()


def ray_dir_of(arguments):
    return Path(next(word for word in arguments if word.startswith("onepo.ray_dir=")).split("'")[1])


def test_what_a_killed_launcher_left_goes_with_the_next_start(start, inputs):
    """It may hold a key, if the trainer was killed too and could not clean up."""
    killed, living = start(**inputs), start(**inputs)
    arguments, processes = arguments_and_processes(killed)
    left, kept = ray_dir_of(arguments), ray_dir_of(arguments_and_processes(living)[0])
    killed.kill()
    for pid in processes:
        os.kill(pid, signal.SIGKILL)
    killed.wait(timeout=30)
    (left / ".teacher-key").write_text("s3cret")
    third = start(**inputs, STAND_IN_EXIT="0")
    assert third.wait(timeout=30) == 0
    assert not left.exists() and kept.exists()
    living.terminate()
    assert living.wait(timeout=30) == 143


def test_the_command_is_that_of_the_dry_run(start, inputs, dry_run):
    process = start("trainer.nnodes=1", **inputs, STAND_IN_EXIT="0")
    arguments, _ = arguments_and_processes(process)
    assert process.wait(timeout=30) == 0
    unique = re.compile(r"-\d{8}-\d{6}|(?<=/onepo-)\w{4}")
    expected = dry_run("trainer.nnodes=1", **inputs)
    assert [unique.sub("", word) for word in arguments] == [
        "-m",
        "onepo.train",
        *(unique.sub("", word) for word in expected),
    ]


def test_the_launcher_makes_no_run_directory(start, inputs, tmp_path):
    process = start(**inputs, STAND_IN_EXIT="0")
    arguments_and_processes(process)
    assert process.wait(timeout=30) == 0
    assert not (tmp_path / "runs").exists()
