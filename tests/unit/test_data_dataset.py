"""The dataset as verl builds and reads it. The tokenizer is byte-level without merges: one token per byte."""

import json
import logging
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from torchdata.stateful_dataloader import StatefulDataLoader
from transformers import AutoTokenizer

from onepo.data import lengths
from onepo.data.chat import prompt_token_ids
from onepo.data.dataset import OnePODataset
from onepo.data.lengths import count_usable, usable_rows
from onepo.data.table import load_tasks
from onepo.errors import UserError

TOKENIZER = Path(__file__).parent / "data" / "byte_tokenizer"
CHOICE = {
    "question": "Which?",
    "options": {"A": "one", "B": "two"},
    "answer_idx": "B",
    "teacher_response": "<answer>B</answer>",
    "source": "exam",
    "extra_info": {"id": [7]},
}
OPEN = {"prompt": "Why?", "rubrics": [{"criterion": "says so", "points": -2}]}


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(TOKENIZER)


@pytest.fixture
def write(tmp_path):
    def write(records, name="data.json"):
        (tmp_path / name).write_text(json.dumps(records))
        return str(tmp_path / name)

    return write


def config(**options):
    section = {"max_prompt_length": 4000, "filter_overlong_prompts": True, "apply_chat_template_kwargs": {}}
    return OmegaConf.create({**section, **options})


def prompts_of(*lengths_in_bytes):
    return [{**OPEN, "prompt": "x" * length} for length in lengths_in_bytes]


def test_rows_have_what_the_trainer_needs(write, tokenizer):
    dataset = OnePODataset(data_files=write([CHOICE, OPEN]), tokenizer=tokenizer, config=config(), processor=None)
    choice, open_ended = dataset[0], dataset[1]
    assert torch.equal(choice.pop("dummy_tensor"), torch.tensor([0], dtype=torch.uint8))
    assert choice.pop("raw_prompt")[0]["content"].startswith("Which?")
    assert choice == {
        "index": 0,
        "data_source": "exam",
        "reward_model": {"style": "multiple_choice", "ground_truth": "B", "rubrics": [], "record": None},
        "extra_info": {"id": [7]},
        "teacher": {"responses": ["<answer>B</answer>"]},
    }
    del open_ended["dummy_tensor"]
    assert open_ended == {
        "raw_prompt": [{"role": "user", "content": "Why?"}],
        "index": 1,
        "data_source": "open_ended",
        "reward_model": {"style": "open_ended", "ground_truth": "", "rubrics": OPEN["rubrics"], "record": None},
        "extra_info": {},
        "teacher": {"responses": []},
    }


def test_a_custom_row_carries_its_record(write, tokenizer):
    record = {"type": "custom", "prompt": "Add.", "sum": 5, "parts": [{"value": 2.5, "名": "二"}], "gone": None}
    row = OnePODataset(write([{**record, "teacher_response": "5"}]), tokenizer, config())[0]
    task = row["reward_model"]
    assert json.loads(task.pop("record")) == record
    assert task == {"style": "custom", "ground_truth": "", "rubrics": []}
    assert row["teacher"] == {"responses": ["5"]} and row["data_source"] == "custom"


def test_no_file_is_an_empty_dataset(tokenizer):
    assert len(OnePODataset(None, tokenizer, config())) == 0


def test_overlong_prompts_are_left_out_and_counted(write, tokenizer, caplog):
    frame = len(prompt_token_ids(tokenizer, [{"role": "user", "content": ""}]))
    path = write(prompts_of(1000 - frame, 1001 - frame, 5, 2000))
    with caplog.at_level(logging.WARNING):
        dataset = OnePODataset(path, tokenizer, config(max_prompt_length=1000))
    assert [row["index"] for row in dataset] == [0, 2]
    assert caplog.messages == ["2 of 4 prompts have more than 1000 tokens and are left out"]
    assert len(OnePODataset(path, tokenizer, config(max_prompt_length=1000, filter_overlong_prompts=False))) == 4
    assert count_usable(load_tasks(path), tokenizer, 1000) == (2, 2)


def test_prompts_that_are_short_in_bytes_are_not_tokenised(write, tokenizer, monkeypatch):
    tokenised = []

    def counted(*arguments):
        tokenised.append(arguments)
        return prompt_token_ids(*arguments)

    monkeypatch.setattr(lengths, "prompt_token_ids", counted)
    table = load_tasks(write(prompts_of(*[600] * 50, 900, 1200)))
    assert len(usable_rows(table, tokenizer, 1000)) == 51
    assert len(tokenised) == 2


def test_the_template_options_count(write, tokenizer):
    long_frame = AutoTokenizer.from_pretrained(TOKENIZER)
    long_frame.chat_template = "{{ 'y' * (filler or 0) }}" + tokenizer.chat_template
    path = write(prompts_of(100))
    for filler, kept in [(0, 1), (800, 1), (900, 0)]:
        section = config(max_prompt_length=950, apply_chat_template_kwargs={"filler": filler})
        assert len(OnePODataset(path, long_frame, section)) == kept


def test_a_template_that_refuses_the_roles_is_found_although_the_prompt_is_short(write, tokenizer):
    strict = AutoTokenizer.from_pretrained(TOKENIZER)
    strict.chat_template = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    path = write([OPEN, {**OPEN, "prompt": [{"role": "system", "content": "x"}, {"role": "user", "content": "y"}]}])
    with pytest.raises(UserError, match="no system role"):
        OnePODataset(path, strict, config())


def test_a_limit_on_the_samples(write, tokenizer):
    path = write(prompts_of(*range(1, 41)))

    def indices(**options):
        return [row["index"] for row in OnePODataset(path, tokenizer, config(**options), max_samples=10)]

    assert indices() == list(range(10))
    drawn = indices(shuffle=True, seed=1)
    assert len(set(drawn)) == 10 and drawn != list(range(10))
    assert drawn == indices(shuffle=True, seed=1) != indices(shuffle=True, seed=2)
    assert len(OnePODataset(path, tokenizer, config(), max_samples=100)) == 40


def test_a_stateful_dataloader_with_the_trainer_s_collation_resumes(write, tokenizer):
    from verl.utils.dataset.rl_dataset import collate_fn

    dataset = OnePODataset([write([CHOICE, OPEN] * 6)], tokenizer, config())
    loader = StatefulDataLoader(dataset, batch_size=5, num_workers=0, drop_last=True, collate_fn=collate_fn)
    batches = iter(loader)
    first = next(batches)
    assert first["dummy_tensor"].shape == (5, 1)
    assert {name: len(values) for name, values in first.items()} == dict.fromkeys(dataset[0], 5)
    state = loader.state_dict()
    expected = list(next(batches)["index"])
    again = StatefulDataLoader(
        pickle.loads(pickle.dumps(dataset)), batch_size=5, num_workers=0, drop_last=True, collate_fn=collate_fn
    )
    again.load_state_dict(state)
    assert list(next(iter(again))["index"]) == expected == list(range(5, 10))


def test_verl_finds_the_class_by_its_configuration_and_builds_it(write, tokenizer):
    from verl.trainer.ppo.utils import create_rl_dataset

    custom = {"path": "pkg://onepo.data.dataset", "name": "OnePODataset"}
    dataset = create_rl_dataset(write([CHOICE, OPEN]), config(custom_cls=custom), tokenizer, None, max_samples=1)
    assert type(dataset).__name__ == "OnePODataset" and len(dataset) == 1


def test_importing_the_dataset_needs_neither_verl_nor_transformers_nor_ray():
    code = "import sys, onepo.data.dataset; print([m for m in ('verl', 'transformers', 'ray') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_rows_with_a_teacher_are_counted_after_the_filter(tmp_path, tokenizer):
    record = {"type": "multiple_choice", "options": {"A": "x", "B": "y"}, "answer_idx": "A"}
    short, long = ({"prompt": [{"role": "user", "content": "x" * length}]} for length in (5, 5000))
    rows = [{**record, **short, "teacher_response": text} for text in ("a", None, ["b", "c"], "")]
    rows.append({**record, **long, "teacher_response": "a"})
    file = tmp_path / "data.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = OmegaConf.create({"max_prompt_length": 1000, "filter_overlong_prompts": True})
    dataset = OnePODataset(str(file), tokenizer, config)
    assert (len(dataset), dataset.left_out, dataset.with_teacher()) == (4, 1, 2)
