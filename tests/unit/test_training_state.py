"""What a checkpoint needs for the training to go on from it."""

import json
from pathlib import Path

import pytest

from onepo.trainers.journal import Journal
from onepo.trainers.training_state import (
    differences,
    find_checkpoint,
    metrics_file,
    missing_parts,
    run_facts,
    write_state,
)
from tests.configs import compose


@pytest.fixture
def config(tmp_path):
    (tmp_path / "train.jsonl").write_text("{}\n")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    return compose(f"data.train_files={tmp_path}/train.jsonl", "trainer.n_gpus_per_node=2", model=f"{tmp_path}/model")


def make_checkpoint(folder: Path, config, learners=2) -> Path:
    (folder / "actor").mkdir(parents=True)
    for rank in range(learners):
        for part in ("model", "optim", "extra_state"):
            (folder / "actor" / f"{part}_world_size_{learners}_rank_{rank}.pt").touch()
    (folder / "data.pt").touch()
    (folder / "retirement.json").write_text("{}")
    write_state(folder, facts=run_facts(config), metrics_file=folder / "metrics.jsonl")
    return folder


def test_a_whole_checkpoint_fits_to_its_own_run(config, tmp_path):
    checkpoint = make_checkpoint(tmp_path / "global_step_4", config)
    assert missing_parts(checkpoint, 2) == [] and differences(checkpoint, run_facts(config)) == []
    assert metrics_file(checkpoint) == checkpoint / "metrics.jsonl"


def test_a_missing_part_is_named(config, tmp_path):
    checkpoint = make_checkpoint(tmp_path / "global_step_4", config)
    (checkpoint / "actor" / "optim_world_size_2_rank_1.pt").unlink()
    (checkpoint / "data.pt").unlink()
    assert missing_parts(checkpoint, 2) == ["data.pt", "actor/optim_world_size_2_rank_1.pt"]


def test_data_and_student_are_known_by_their_content(config, tmp_path):
    checkpoint = make_checkpoint(tmp_path / "global_step_4", config)
    (tmp_path / "train.jsonl").rename(tmp_path / "moved.jsonl")
    config.data.train_files = str(tmp_path / "moved.jsonl")
    assert differences(checkpoint, run_facts(config)) == []
    (tmp_path / "moved.jsonl").write_text("{ }\n")
    (tmp_path / "model" / "config.json").write_text("{ }")
    config.data.train_batch_size = 7
    config.trainer.n_gpus_per_node = 4
    assert differences(checkpoint, run_facts(config)) == [
        "NGPUS_PER_NODE x NNODES (2 then, 4 now)",
        "TRAIN_FILE",
        "MODEL_PATH",
        "TRAIN_BATCH_SIZE (128 then, 7 now)",
    ]


def test_a_run_means_its_newest_checkpoint(tmp_path):
    for step in (2, 10):
        (tmp_path / "run" / "checkpoints" / f"global_step_{step}").mkdir(parents=True)
    (tmp_path / "latest").symlink_to("run")
    newest = (tmp_path / "run" / "checkpoints" / "global_step_10").resolve()
    assert find_checkpoint(tmp_path / "latest") == find_checkpoint(tmp_path / "run" / "checkpoints") == newest
    assert find_checkpoint(newest) == newest
    assert find_checkpoint(tmp_path) is None


def test_metrics_begin_with_those_of_the_earlier_run(tmp_path):
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old, new = Journal(str(tmp_path / "old")), Journal(str(tmp_path / "new"))
    for step in (1, 2, 3):
        old.metrics(step, {"loss": step})
    with old.metrics_file.open("a") as file:
        file.write('{"step": 2, "lo')  # killed in the middle of a line
    new.adopt(old.metrics_file, last_step=2)
    new.metrics(3, {"loss": 30})
    records = [json.loads(line) for line in new.metrics_file.read_text().splitlines()]
    assert [(record["step"], record["loss"]) for record in records] == [(1, 1), (2, 2), (3, 30)]


def test_an_earlier_run_without_metrics_is_no_error(tmp_path):
    Journal(str(tmp_path)).adopt(tmp_path / "gone.jsonl", last_step=2)
    assert not (tmp_path / "metrics.jsonl").exists()
