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

from tests.launchers.conftest import CAMP, ONEPO, every_launcher


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


def ray_dir_of(arguments, launcher=ONEPO):
    return Path(next(word for word in arguments if word.startswith(f"{launcher.section}.ray_dir=")).split("'")[1])


@pytest.mark.parametrize(
    ("launcher", "code"), [(ONEPO, 0), (ONEPO, 1), (ONEPO, 3), (ONEPO, 77), (CAMP, 3)], indirect=["launcher"]
)
def test_exit_code_is_passed_on_and_nothing_stays(launcher, code, start, inputs):
    process = start(**inputs, STAND_IN_EXIT=str(code))
    arguments, processes = arguments_and_processes(process)
    assert process.wait(timeout=30) == code
    assert not any(map(alive, processes))
    assert not ray_dir_of(arguments, launcher).exists()


@pytest.mark.parametrize(
    ("launcher", "name", "code"),
    [(ONEPO, "TERM", 143), (ONEPO, "INT", 130), (ONEPO, "HUP", 129), (CAMP, "TERM", 143)],
    indirect=["launcher"],
)
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
    ray_dir = ray_dir_of(arguments)
    assert stat.S_IMODE(ray_dir.stat().st_mode) == 0o700
    assert re.fullmatch(r"/tmp/onepo-\w{4}", str(ray_dir))
    process.terminate()
    assert process.wait(timeout=30) == 143
    assert not ray_dir.exists()


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


@every_launcher
def test_the_command_is_that_of_the_dry_run(launcher, start, inputs, dry_run):
    process = start("trainer.nnodes=1", **inputs, STAND_IN_EXIT="0")
    arguments, _ = arguments_and_processes(process)
    assert process.wait(timeout=30) == 0
    unique = re.compile(r"-\d{8}-\d{6}|(?<=/onepo-)\w{4}")
    expected = dry_run("trainer.nnodes=1", **inputs)
    assert [unique.sub("", word) for word in arguments] == [
        "-m",
        launcher.module,
        *(unique.sub("", word) for word in expected),
    ]


@every_launcher
def test_the_launcher_makes_no_run_directory(start, inputs, tmp_path):
    process = start(**inputs, STAND_IN_EXIT="0")
    arguments_and_processes(process)
    assert process.wait(timeout=30) == 0
    assert not (tmp_path / "runs").exists()
