"""A run that is killed and goes on from its checkpoint learns what an uninterrupted one learns."""

import json
import shutil
import signal
from pathlib import Path

import pytest

from tests.e2e.launch import QUICK, Launch, start

pytestmark = pytest.mark.slow

SAME = (
    "actor/pg_loss",
    "actor/grad_norm",
    "actor/lr",
    "reward/score",
    "response_length/mean",
    "onepo/student_acc",
    "onepo/teacher_enabled",
    "onepo/teacher_candidates",
    "onepo/teacher_disabled_reason",
)


@pytest.fixture(scope="module")
def options(student, tmp_path_factory) -> dict[str, str]:
    """Two steps are an epoch, so the checkpoint of step 2 is exactly at the end of one; step 3 ends a plateau."""
    file = tmp_path_factory.mktemp("data") / "train.jsonl"
    file.write_text("\n".join(Path(QUICK["TRAIN_FILE"]).read_text().splitlines()[:8]) + "\n")
    return {
        "MODEL_PATH": str(student),
        "TRAIN_FILE": str(file),
        "VAL_FILE": "",
        "TEST_FREQ": "0",
        "SAVE_FREQ": "1",
        "ENABLE_FILTER_GROUPS": "False",
        "SAVE_TRAINING_STATE": "True",
        "TOTAL_TRAINING_STEPS": "5",
        "RETIREMENT_PLATEAU_WINDOW": "3",
        "RETIREMENT_PLATEAU_TOLERANCE": "1.0",
        "RETIREMENT_PLATEAU_MIN_RATE": "0.0",
        "ROLLOUT_DUMP_FREQ": "2",
        "ROLLOUT_DUMP_SAMPLES": "2",
    }


@pytest.fixture(scope="module")
def whole(options, tmp_path_factory) -> Launch:
    run = start(tmp_path_factory.mktemp("whole"), **options).finish()
    assert run.code == 0, run.tell()
    return run


def killed_after(step: int, folder: Path, options: dict[str, str]) -> Path:
    """The run directory of a run that was killed in the step behind ``step``, whose checkpoint is complete."""
    run = start(folder, **{**options, "TOTAL_TRAINING_STEPS": "400", "TOTAL_EPOCHS": "200"})
    for line in run.process.stdout:
        if line.startswith(f"step   {step}/"):
            break
    else:
        pytest.fail(run.finish().tell())
    for process in run.members():
        process.send_signal(signal.SIGKILL)
    run.finish()
    return run.run_dir.resolve()  # "latest" goes with the next run


def test_checkpoints_that_are_not_what_they_seem_are_refused(options, whole, tmp_path):
    saved = whole.run_dir / "checkpoints" / "global_step_5"
    renamed = tmp_path / "global_step_4"
    shutil.copytree(saved, renamed)
    run = start(tmp_path / "renamed", **options, RESUME=str(renamed)).finish()
    assert run.code == 2 and "was renamed: it is the checkpoint of step 5" in run.stderr, run.tell()
    damaged = tmp_path / "damaged" / "global_step_5"
    shutil.copytree(saved, damaged)
    file = damaged / "actor" / "optim_world_size_1_rank_0.pt"
    shutil.copyfile(damaged / "actor" / "model_world_size_1_rank_0.pt", file)
    more = {**options, "TOTAL_TRAINING_STEPS": "6"}
    run = start(tmp_path / "load", **more, RESUME=str(damaged)).finish()
    assert run.code == 2 and f"RESUME={damaged}: cannot be loaded: " in run.stdout, run.tell()
    assert run.processes() == []


@pytest.mark.parametrize("step", [2, 3])  # at an epoch's end, and within an epoch
def test_a_killed_run_goes_on_as_if_nothing_had_happened(step, options, whole, tmp_path):
    run_dir = killed_after(step, tmp_path / "killed", options)
    checkpoint = run_dir / "checkpoints" / f"global_step_{step}"
    # the newest one of the run that was the last here, or one by its name and from elsewhere
    place = {2: ("killed", tmp_path / "killed" / "latest"), 3: ("resumed", checkpoint)}[step]
    run = start(tmp_path / place[0], **options, RESUME=str(place[1])).finish()
    assert run.code == 0, run.tell()
    assert f"goes on behind step {step}" in run.stdout
    records, expected = ({record["step"]: record for record in found.metrics()} for found in (run, whole))
    assert sorted(records) == sorted(expected) == [1, 2, 3, 4, 5]  # the metrics of the killed run come first
    for number in range(step + 1, 6):
        for name in SAME:
            assert records[number][name] == pytest.approx(expected[number][name], rel=1e-4, abs=1e-6), (number, name)
    # the window spans the kill (step 2), or the plateau is in the checkpoint (step 3)
    assert [expected[number]["onepo/teacher_enabled"] for number in (3, 4, 5)] == [1, 0, 0]
    kept = json.loads((checkpoint / "retirement.json").read_text())
    assert (len(kept["rates"]), kept["disabled_reason"]) == (step, "plateau" if step == 3 else None)


def test_a_run_at_its_final_step_has_nothing_left(options, whole, tmp_path):
    run = start(tmp_path, **options, RESUME=str(whole.run_dir)).finish()
    assert run.code == 0 and "nothing is left to train" in run.stdout
    assert not tmp_path.joinpath("latest").exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"SEED": "7"}, "another SEED (42 then, 7 now)"),
        ({"ACTOR_LR": "1e-4"}, "another ACTOR_LR (0.001 then, 0.0001 now)"),
        ({"NGPUS_PER_NODE": "2"}, "another NGPUS_PER_NODE x NNODES (1 then, 2 now)"),
        ({"TRAIN_FILE": QUICK["TRAIN_FILE"]}, "another TRAIN_FILE"),
        ({"RESUME": "/nonexistent"}, "there is no checkpoint"),
    ],
)
def test_what_does_not_match_is_named(change, told, options, whole, tmp_path):
    run = start(tmp_path, **{**options, "RESUME": str(whole.run_dir), **change}).finish()
    assert run.code == 2 and told in run.stderr, run.tell()


def test_the_rollouts_of_a_step_are_kept(whole):
    assert sorted(file.name for file in (whole.run_dir / "samples").iterdir()) == ["2.jsonl", "4.jsonl"]
    rows = [json.loads(line) for line in (whole.run_dir / "samples" / "2.jsonl").read_text().splitlines()]
    assert len(rows) == 2 * 4 and len({row["group"] for row in rows}) == 2
    assert any(row["teacher"] for row in rows) and not all(row["teacher"] for row in rows)
