"""Checkpoints appear whole or not at all."""

import json

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

from onepo.trainers import checkpoints
from tests.students import make_qwen3_5_student, make_qwen3_student


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


def name_dtype(folder, dtype, *sections):
    """Give the configuration and some of its sections a type, as verl leaves another one than that of the weights."""
    config = json.loads((folder / "config.json").read_text())
    for section in (config, *(config[name] for name in sections)):
        section["dtype"] = dtype
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("shards", ["1GB", "20KB"])
@pytest.mark.parametrize(("dtype", "named"), [("float32", "bfloat16"), ("bfloat16", "float32")])
def test_an_exported_model_is_loaded_in_the_type_of_its_weights(dtype, named, shards, tmp_path):
    make_qwen3_student(tmp_path / "student")
    written = AutoModelForCausalLM.from_pretrained(tmp_path / "student", dtype=dtype)
    written.save_pretrained(tmp_path / "export", max_shard_size=shards)
    assert (len(list((tmp_path / "export").glob("*.safetensors"))) > 1) == (shards == "20KB")
    name_dtype(tmp_path / "export", named)
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "export").dtype != written.dtype
    checkpoints.write_dtype(tmp_path / "export")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "export")
    for mine, theirs in zip(loaded.parameters(), written.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)  # compares the types, too
    config = json.loads((tmp_path / "export" / "config.json").read_text())
    assert config["dtype"] == config["torch_dtype"] == dtype


@pytest.mark.parametrize("load", [AutoModelForCausalLM, AutoModelForImageTextToText])
def test_the_text_part_of_a_model_names_the_type_as_well(load, tmp_path):
    make_qwen3_5_student(tmp_path / "student")
    name_dtype(tmp_path / "student", "bfloat16", "text_config")
    assert load.from_pretrained(tmp_path / "student").dtype == torch.bfloat16
    checkpoints.write_dtype(tmp_path / "student")
    assert load.from_pretrained(tmp_path / "student").dtype == torch.float32
    text = json.loads((tmp_path / "student" / "config.json").read_text())["text_config"]
    assert text["dtype"] == text["torch_dtype"] == "float32"


def test_of_several_types_the_widest_is_named(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    for number, dtype in enumerate((torch.float16, torch.float32, torch.bfloat16, torch.int64)):
        save_file({f"weight{number}": torch.zeros(2, dtype=dtype)}, tmp_path / f"model-{number}.safetensors")
    checkpoints.write_dtype(tmp_path)
    expected = {"model_type": "qwen3", "dtype": "float32", "torch_dtype": "float32"}
    assert json.loads((tmp_path / "config.json").read_text()) == expected
