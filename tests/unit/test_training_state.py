"""What a checkpoint needs for the training to go on from it."""

import json
from pathlib import Path

import pytest
import torch

from onepo.trainers.checkpoints import write_retirement
from onepo.trainers.journal import Journal
from onepo.trainers.training_state import (
    broken_parts,
    differences,
    find_checkpoint,
    has_state,
    metrics_file,
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
            torch.save({}, folder / "actor" / f"{part}_world_size_{learners}_rank_{rank}.pt")
    torch.save({}, folder / "data.pt")
    write_retirement(folder, {"rates": [0.5], "disabled_reason": None})
    write_state(folder, step=4, facts=run_facts(config), metrics_file=folder / "metrics.jsonl")
    return folder


def test_a_whole_checkpoint_fits_to_its_own_run(config, tmp_path):
    checkpoint = make_checkpoint(tmp_path / "global_step_4", config)
    assert has_state(checkpoint) and not has_state(tmp_path)
    assert broken_parts(checkpoint, 2) == [] and differences(checkpoint, run_facts(config)) == []


def test_a_missing_part_is_named(config, tmp_path):
    checkpoint = make_checkpoint(tmp_path / "global_step_4", config)
    (checkpoint / "actor" / "optim_world_size_2_rank_1.pt").unlink()
    (checkpoint / "data.pt").unlink()
    assert broken_parts(checkpoint, 2) == ["data.pt", "actor/optim_world_size_2_rank_1.pt"]


@pytest.mark.parametrize(
    "name", ["data.pt", "actor/model_world_size_2_rank_0.pt", "retirement.json", "training_state.json"]
)
def test_a_part_that_was_cut_is_named(name, config, tmp_path):
    checkpoint = make_checkpoint(tmp_path / "global_step_4", config)
    content = (checkpoint / name).read_bytes()
    (checkpoint / name).write_bytes(content[: len(content) // 2])
    assert broken_parts(checkpoint, 2) == [name]


def test_metrics_are_found_when_the_run_has_moved(config, tmp_path):
    checkpoint = make_checkpoint(tmp_path / "run" / "checkpoints" / "global_step_4", config)
    write_state(checkpoint, step=4, facts=run_facts(config), metrics_file=tmp_path / "run" / "metrics.jsonl")
    (tmp_path / "run" / "metrics.jsonl").touch()
    assert metrics_file(checkpoint) == tmp_path / "run" / "metrics.jsonl"
    (tmp_path / "run").rename(tmp_path / "moved")
    moved = tmp_path / "moved"
    assert metrics_file(moved / "checkpoints" / "global_step_4") == moved / "metrics.jsonl"


def test_a_fact_that_an_older_version_did_not_keep_is_a_difference(config, tmp_path):
    checkpoint = make_checkpoint(tmp_path / "global_step_4", config)
    facts = run_facts(config)
    write_state(checkpoint, step=4, facts={**facts, "seed": None}, metrics_file=tmp_path / "metrics.jsonl")
    assert differences(checkpoint, facts) == ["SEED (None then, 42 now)"]
    del (older := dict(facts))["strategy"]
    write_state(checkpoint, step=4, facts=older, metrics_file=tmp_path / "metrics.jsonl")
    assert differences(checkpoint, facts) == ["actor_rollout_ref.actor.strategy (None then, fsdp2 now)"]


def test_data_and_student_are_known_by_their_content(config, tmp_path):
    checkpoint = make_checkpoint(tmp_path / "global_step_4", config)
    (tmp_path / "train.jsonl").rename(tmp_path / "moved.jsonl")
    config.data.train_files = str(tmp_path / "moved.jsonl")
    assert differences(checkpoint, run_facts(config)) == []
    (tmp_path / "moved.jsonl").write_text("{ }\n")
    (tmp_path / "model" / "config.json").write_text("{ }")
    config.data.train_batch_size = 7
    config.trainer.n_gpus_per_node = 4
    config.data.max_prompt_length = 9
    config.data.dataloader_num_workers = 2
    assert differences(checkpoint, run_facts(config)) == [
        "NGPUS_PER_NODE x NNODES (2 then, 4 now)",
        "TRAIN_FILE",
        "MAX_PROMPT_LENGTH (4000 then, 9 now)",
        "MODEL_PATH",
        "TRAIN_BATCH_SIZE (128 then, 7 now)",
        "DATALOADER_NUM_WORKERS (0 then, 2 now)",
    ]


def test_a_run_means_its_newest_checkpoint(tmp_path):
    for step in (2, 10):
        (tmp_path / "run" / "checkpoints" / f"global_step_{step}").mkdir(parents=True)
    (tmp_path / "latest").symlink_to("run")
    newest = (tmp_path / "run" / "checkpoints" / "global_step_10").resolve()
    assert find_checkpoint(tmp_path / "latest") == find_checkpoint(tmp_path / "run" / "checkpoints") == newest
    assert find_checkpoint(newest) == newest
    assert find_checkpoint(tmp_path) is None
    for other in ("global_step_best", "global_step_12.bak", "my_global_step_12"):
        (tmp_path / "run" / "checkpoints" / other).mkdir()
        assert find_checkpoint(tmp_path / "run" / "checkpoints" / other) is None
    assert find_checkpoint(tmp_path / "run") == newest


def test_metrics_begin_with_those_of_the_earlier_run(tmp_path):
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old, new = Journal(str(tmp_path / "old")), Journal(str(tmp_path / "new"))
    for step in (1, 2, 3):
        old.metrics(step, {"loss": step})
    with old.metrics_file.open("a") as file:
        file.write('damaged\n{"loss": 1}\n{"step": 2, "lo')  # killed in the middle of a line
    assert new.adopt(old.metrics_file, last_step=2) == [1, 2]
    new.metrics(3, {"loss": 30})
    records = [json.loads(line) for line in new.metrics_file.read_text().splitlines()]
    assert [(record["step"], record["loss"]) for record in records] == [(1, 1), (2, 2), (3, 30)]


def test_an_earlier_run_without_metrics_is_no_error(tmp_path):
    assert Journal(str(tmp_path)).adopt(tmp_path / "gone.jsonl", last_step=2) == []
    assert not (tmp_path / "metrics.jsonl").exists()
