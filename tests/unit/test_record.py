"""What stays of a run: directory, run.json, and the lines about its checkpoints."""

import json
import shlex
from pathlib import Path

import pytest

from onepo.report.record import RunRecord, checkpoint_lines, point_latest, reserve_directory
from tests.configs import compose


def test_runs_of_the_same_second_get_directories_of_their_own(tmp_path):
    names = [reserve_directory(tmp_path / "runs" / "a").name for _ in range(3)]
    assert names == ["a", "a-2", "a-3"]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == names


def test_a_record_tells_beginning_and_end_and_is_always_whole(tmp_path):
    directory = reserve_directory(tmp_path / "run")
    record = RunRecord(directory, seed=7)
    record.open(compose(), directory / "config")
    facts = json.loads((directory / "run.json").read_text())
    assert facts["seed"] == 7 and facts["packages"]["verl"] and "exit_code" not in facts
    assert "probability_floor: 0.1" in (directory / "config" / "config.yaml").read_text()
    record.close(3, "a limit", [{"step": 1}])
    facts = json.loads((directory / "run.json").read_text())
    assert facts["started"] <= facts["ended"]
    assert (facts["exit_code"], facts["reason"], facts["checkpoints"]) == (3, "a limit", [{"step": 1}])
    assert not list(directory.glob("*.tmp"))


def test_latest_points_at_the_last_run(tmp_path):
    for name in ("one", "two"):
        directory = reserve_directory(tmp_path / name)
        point_latest(directory)
        assert (tmp_path / "latest").resolve() == directory
    assert not (tmp_path / "latest").readlink().is_absolute()  # the folder of the runs may be moved


def test_the_serving_command_can_be_pasted():
    folder = "/runs/a, b's/global_step_2"
    checkpoints = [
        {"step": 1, "model_dir": "/runs/1"},
        {"step": 2, "model_dir": folder, "validation_accuracy": 0.5},
    ]
    *lines, command = checkpoint_lines(checkpoints, engine="sglang", dtype="bfloat16")
    assert lines == [
        "checkpoint of step 1",
        "  /runs/1",
        "checkpoint of step 2, validation accuracy 0.500",
        f"  {folder}",
    ]
    words = shlex.split(command.removeprefix("serve the last one: "))
    assert words[:3] == ["python", "-m", "sglang.launch_server"] and Path(words[4]) == Path(folder)
    assert words[5:7] == ["--dtype", "bfloat16"]
    *_, command = checkpoint_lines(checkpoints[:1], engine="vllm", dtype="float16")
    assert "vllm serve /runs/1 --dtype float16" in command


def test_on_the_cpu_no_engine_is_named_as_if_it_were_there():
    checkpoints = [{"step": 1, "model_dir": "/runs/1"}]
    *lines, last = checkpoint_lines(checkpoints, engine="transformers", dtype="float32")
    assert lines == ["checkpoint of step 1", "  /runs/1"]
    assert "Hugging Face model directory" in last and "python" not in last


@pytest.mark.parametrize("engine", ["sglang", "transformers"])
def test_without_a_checkpoint_nothing_is_said(engine):
    assert list(checkpoint_lines([], engine=engine, dtype="bfloat16")) == []
