"""Checkpoints appear whole or not at all."""

import json

from onepo.trainers import checkpoints


def stage(root, step, content="weights"):
    """A finished checkpoint in the staging folder, as verl leaves it."""
    staging = checkpoints.start_staging(root)
    model = checkpoints.model_folder(checkpoints.checkpoint_folder(staging, step))
    model.mkdir(parents=True)
    (model / "model.safetensors").write_text(content)
    return staging


def test_nothing_is_listed_before_it_is_published(tmp_path):
    stage(tmp_path, 5)
    assert checkpoints.list_checkpoints(tmp_path) == []
    published = checkpoints.publish(tmp_path, 5)
    assert checkpoints.list_checkpoints(tmp_path) == [published]
    assert (checkpoints.model_folder(published) / "model.safetensors").read_text() == "weights"
    assert not (tmp_path / checkpoints.STAGING).exists()


def test_a_broken_save_leaves_no_trace_in_the_next_one(tmp_path):
    stage(tmp_path, 5)  # the process died here
    stage(tmp_path, 6)
    checkpoints.publish(tmp_path, 6)
    assert [path.name for path in checkpoints.list_checkpoints(tmp_path)] == ["global_step_6"]


def test_a_step_saved_again_replaces_the_older_one(tmp_path):
    for content in ("old", "new"):
        stage(tmp_path, 5, content)
        published = checkpoints.publish(tmp_path, 5)
    assert (checkpoints.model_folder(published) / "model.safetensors").read_text() == "new"


def test_pruning_keeps_the_newest_by_number_and_foreign_files(tmp_path):
    for step in (2, 10, 9, 100):
        stage(tmp_path, step)
        checkpoints.publish(tmp_path, step)
    (tmp_path / "notes.txt").write_text("mine")
    removed = checkpoints.prune(tmp_path, keep=2)
    assert [path.name for path in removed] == ["global_step_2", "global_step_9"]
    assert [path.name for path in checkpoints.list_checkpoints(tmp_path)] == ["global_step_10", "global_step_100"]
    assert (tmp_path / "notes.txt").exists()
    assert checkpoints.prune(tmp_path, keep=5) == []


def test_stop_ids_are_written_beside_what_is_there(tmp_path):
    (tmp_path / "generation_config.json").write_text('{"pad_token_id": 0, "eos_token_id": 1}')
    checkpoints.write_stop_ids(tmp_path, [1, 7])
    assert json.loads((tmp_path / "generation_config.json").read_text()) == {"pad_token_id": 0, "eos_token_id": [1, 7]}


def test_a_model_without_generation_config_gets_one(tmp_path):
    checkpoints.write_stop_ids(tmp_path, [3])
    assert json.loads((tmp_path / "generation_config.json").read_text()) == {"eos_token_id": [3]}
