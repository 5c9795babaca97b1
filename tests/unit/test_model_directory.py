"""What a model directory must hold, found without reading the weights, told in the words of any option."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from onepo.preflight.model_directory import model_directory_problems
from onepo.preflight.model_files import model_files
from tests.students import make_qwen3_5_student, make_qwen3_student

INDEX = "model.safetensors.index.json"
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 178848\n"
COMMIT, OTHER_COMMIT = "1" * 40, "2" * 40


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A Qwen3 whose weights are in several shards."""
    folder = tmp_path_factory.mktemp("models") / "qwen3"
    make_qwen3_student(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="40KB")
    return folder


@pytest.fixture
def model(whole, tmp_path) -> Path:
    return shutil.copytree(whole, tmp_path / "model")


def problems(path: Path) -> list[str]:
    return list(model_directory_problems(path, "--student", trust_remote_code=False))


def shards(path: Path) -> list[Path]:
    return sorted(path.glob("model-*.safetensors"))


def change(file: Path, **values) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def record_download(file: Path, commit: str) -> None:
    """As the Hub's client does: commit, etag and time, one a line."""
    record = file.parent / ".cache" / "huggingface" / "download" / f"{file.name}.metadata"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(f"{commit}\n{'a' * 40}\n1712656091.123\n")


def test_whole_directories_pass(model, student, tmp_path):
    assert len(shards(model)) >= 3
    assert problems(model) == []
    assert problems(student) == []
    make_qwen3_5_student(tmp_path / "qwen3_5")
    assert problems(tmp_path / "qwen3_5") == []


def test_a_path_without_a_model_is_told_once(tmp_path):
    assert problems(tmp_path / "none") == [f"--student={tmp_path}/none is not a directory"]
    (found,) = problems(tmp_path)
    assert found.startswith(f"--student={tmp_path} has no config.json")


def test_a_shard_that_is_cut_off_is_told_with_both_sizes(model):
    shard = shards(model)[1]
    content = shard.read_bytes()
    shard.write_bytes(content[:-100])
    (found,) = problems(model)
    assert f"{shard.name} is not a whole safetensors file" in found
    assert f"it has {len(content) - 100} bytes, by its header {len(content)}" in found


def test_a_shard_with_something_behind_its_end_is_told(model):
    shard = shards(model)[0]
    with shard.open("ab") as stream:
        stream.write(b"\0" * 64)
    (found,) = problems(model)
    assert f"by its header {shard.stat().st_size - 64}" in found


@pytest.mark.parametrize("content", [b"", b"1234", b"\x10" + b"\0" * 7 + b"[1, 2, 3, 4, 5 ]", b"\xff" * 100])
def test_a_shard_without_a_header_is_told(model, content):
    shards(model)[0].write_bytes(content)
    (found,) = problems(model)
    assert f"{shards(model)[0].name} is not a whole safetensors file" in found


def test_all_problems_of_the_shards_are_told_together(model):
    first, second, *_ = shards(model)
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    (model / "chat_template.jinja").unlink()
    missing, broken, template = problems(model)
    assert f"1 are missing ({first.name})" in missing
    assert second.name in broken
    assert "no chat template" in template


def test_shards_of_another_size_than_the_index_declares_are_told(model):
    index = json.loads((model / INDEX).read_text())
    declared = index["metadata"]["total_size"]
    change(model / INDEX, metadata={"total_size": declared + 4})
    (found,) = problems(model)
    assert f"declares {declared + 4} bytes of weights (total_size), its shards hold {declared}" in found
    change(model / INDEX, metadata={})
    assert problems(model) == []


def test_a_tensor_must_be_in_the_shard_that_the_index_names(model):
    weight_map = json.loads((model / INDEX).read_text())["weight_map"]
    tensor, home = next(iter(weight_map.items()))
    other = next(shard.name for shard in shards(model) if shard.name != home)
    change(model / INDEX, weight_map={**weight_map, tensor: other})
    (found,) = problems(model)
    assert f"{other} lacks 1 of the tensors that {INDEX} says are in it ({tensor})" in found


@pytest.mark.parametrize("weight_map", [None, {}, [], {"a": 1}, {"a": ["model.safetensors"]}])
def test_an_index_without_names_is_told(model, weight_map):
    change(model / INDEX, weight_map=weight_map)
    (found,) = problems(model)
    assert "has no weight_map that names the weight files" in found


def test_two_sets_of_weights_leave_it_open_which_one_is_meant(model):
    save_file({"lm_head.weight": torch.zeros(2, 2)}, model / "model.safetensors")
    (found, *_) = problems(model)
    assert f"has both model.safetensors and {INDEX}" in found


def test_pointers_of_git_lfs_are_told_and_nothing_that_follows_from_them(model):
    for file in (*shards(model), model / "tokenizer.json"):
        file.write_text(POINTER)
    (found,) = problems(model)
    assert f"{len(shards(model)) + 1} files are pointers of Git LFS" in found and "git lfs pull" in found


def test_a_tiny_file_in_the_place_of_pickled_weights_is_told(model):
    for file in (*shards(model), model / INDEX):
        file.unlink()
    (model / "pytorch_model.bin").write_text("not found")
    (found,) = problems(model)
    assert "too small to hold weights: pytorch_model.bin" in found


def test_a_tokenizer_larger_than_the_embedding_is_told(model):
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    free = 1 + max(token["id"] for token in tokenizer["added_tokens"])
    added = {**tokenizer["added_tokens"][-1], "id": free, "content": "<|of another model|>"}
    tokenizer["added_tokens"].append(added)
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    (found,) = problems(model)
    assert f"the tokenizer has {free + 1} tokens, the model only {free}: '<|of another model|>'" in found


def test_weights_of_another_vocabulary_than_the_configuration_are_told(tmp_path):
    """Of a model that reads images as well: verl loads it as such."""
    model = tmp_path / "qwen3_5"
    make_qwen3_5_student(model)
    tensors = load_file(model / "model.safetensors")
    embedding = "model.language_model.embed_tokens.weight"
    tensors[embedding] = tensors[embedding][:-8].clone()
    save_file(tensors, model / "model.safetensors", metadata={"format": "pt"})
    (found,) = problems(model)
    assert f"{embedding} has the shape" in found


def test_a_missing_template_and_a_missing_tokenizer_are_told(model):
    (model / "chat_template.jinja").unlink()
    (found,) = problems(model)
    assert "the tokenizer has no chat template" in found
    (model / "tokenizer.json").unlink()
    (found,) = problems(model)
    assert "has no tokenizer" in found


def test_code_of_the_model_is_not_run_unasked(model):
    change(model / "config.json", auto_map={"AutoConfig": "configuration_own.OwnConfig"})
    (found,) = problems(model)
    assert "trust_remote_code=True" in found


def test_files_of_two_revisions_are_named(model):
    for file in model_files(model):
        record_download(file, COMMIT)
    assert problems(model) == []
    record_download(model / "tokenizer.json", OTHER_COMMIT)
    (found,) = problems(model)
    assert "its files are of 2 revisions" in found and f"{OTHER_COMMIT[:12]}: tokenizer.json)" in found
    assert f"{COMMIT[:12]}: chat_template.jinja, config.json, generation_config.json and " in found


def test_the_revision_in_the_configuration_counts_too(model):
    record_download(model / "tokenizer.json", COMMIT)
    change(model / "config.json", _commit_hash=COMMIT)
    assert problems(model) == []
    change(model / "config.json", _commit_hash=OTHER_COMMIT)
    (found,) = problems(model)
    assert f"{OTHER_COMMIT[:12]}: _commit_hash in config.json" in found


@pytest.mark.parametrize("record", [b"", b"main\n", b"\xff\xfe", OTHER_COMMIT[:12].encode()])
def test_a_damaged_record_of_a_download_says_nothing(model, record):
    record_download(model / "config.json", COMMIT)
    record_download(model / "tokenizer.json", COMMIT)
    (model / ".cache" / "huggingface" / "download" / "tokenizer.json.metadata").write_bytes(record)
    assert problems(model) == []


def test_records_of_files_that_are_not_the_models_say_nothing(model):
    record_download(model / "config.json", COMMIT)
    record_download(model / "README.md", OTHER_COMMIT)
    (model / "README.md").touch()
    record_download(model / "gone.safetensors", OTHER_COMMIT)
    assert problems(model) == []


def test_the_files_of_a_model_are_listed(model):
    (model / "README.md").touch()
    (model / "original.json").mkdir()
    names = [file.name for file in model_files(model)]
    assert names == sorted(names)
    assert {"config.json", "tokenizer.json", "chat_template.jinja", INDEX, shards(model)[0].name} <= set(names)
    assert not {"README.md", "original.json"} & set(names)
