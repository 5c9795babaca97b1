"""The reward of one response, with a real grader client and a scripted grader over a real socket."""

import asyncio
import json
import math
from functools import cache

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.protocol import DataProto

from onepo.endpoints.chat import RequestForm
from onepo.rewards.manager import GRADING, MET, SCORES, TYPE, OnePORewardManager
from tests.configs import compose
from tests.scripted_grader import ScriptedGrader

RUBRICS = [{"criterion": "says soup", "points": 4.0}, {"criterion": "says tea", "points": 1.0}]
OPEN_ENDED = {"style": "open_ended", "ground_truth": None, "rubrics": RUBRICS}
CHOICE = {"style": "multiple_choice", "ground_truth": "A", "rubrics": []}
FORM = RequestForm(extra_body={}, json_schema=True, token_limit="max_tokens", temperature=True)


@cache
def shipped():
    return compose("device=cpu", "onepo.enable_overlong_buffer=False", "data.max_response_length=20")


@pytest.fixture
def grader():
    with ScriptedGrader() as running:
        yield running


def reward(tokenizer, grader, task, response, *overrides, prompt="fever tree", api_key_file=None):
    """What the manager tells about one response, as verl's worker asks for it: a batch with padding on both sides."""
    config = OmegaConf.merge(shipped(), OmegaConf.from_dotlist(list(overrides)))
    config.onepo.grader.update(url=grader.url, name="grader", form=FORM.as_dict(), api_key_file=api_key_file)
    manager = OnePORewardManager(config, tokenizer)
    prompt_ids, response_ids = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt, response))
    padding = 3
    batch = TensorDict(
        {
            "prompts": torch.tensor([[0] * padding + prompt_ids]),
            "responses": torch.tensor([response_ids + [0] * padding]),
            "attention_mask": torch.tensor(
                [[0] * padding + [1] * (len(prompt_ids) + len(response_ids)) + [0] * padding]
            ),
        },
        batch_size=1,
    )
    columns = {"reward_model": task, "raw_prompt": [{"role": "user", "content": prompt}]}
    item = DataProto(batch=batch, non_tensor_batch={name: np.array([value]) for name, value in columns.items()})
    result = asyncio.run(manager.run_single(item))
    assert result["reward_score"] == pytest.approx(result["reward_extra_info"]["score"], nan_ok=True)
    return result["reward_extra_info"]


def test_an_open_ended_answer_is_graded_by_its_rubrics(tokenizer, grader):
    info = reward(tokenizer, grader, OPEN_ENDED, "<think> tea </think> soup")
    assert info["acc"] == info["score"] == pytest.approx(0.8)
    assert json.loads(info[MET]) == [True, False]
    assert info[GRADING].requests == 1 and info[GRADING].rubrics == 2 and info[GRADING].failure is None
    (request,) = grader.requests
    prompt = request.body["messages"][-1]["content"]
    assert '{"role": "assistant", "content": "soup"}' in prompt.splitlines()
    assert '{"role": "user", "content": "fever tree"}' in prompt.splitlines()


@pytest.mark.parametrize(
    ("response", "prompt"),
    [
        ("<think> soup", "fever"),  # opened in the response
        ("soup", "fever <think>"),  # opened in the prompt
        ("<think> a </think> soup <think> b", "fever"),
        ("<think> soup </think>", "fever"),  # nothing behind the thought
        ("", "fever"),
    ],
)
def test_without_a_visible_answer_nobody_is_asked(tokenizer, grader, response, prompt):
    info = reward(tokenizer, grader, OPEN_ENDED, response, prompt=prompt)
    assert info["acc"] == info["score"] == 0.0 and info[MET] == ""
    assert info[GRADING].asked is False
    assert grader.requests == []


def test_a_failed_grading_is_not_a_number(tokenizer, grader):
    grader.behave("garbage")
    info = reward(tokenizer, grader, OPEN_ENDED, "soup", "onepo.enable_overlong_buffer=True")
    assert math.isnan(info["acc"]) and math.isnan(info["score"])
    assert info[GRADING].failure == "malformed" and info[GRADING].malformed == 3


def test_thinking_can_be_required(tokenizer, grader):
    for task in (OPEN_ENDED, CHOICE):
        info = reward(tokenizer, grader, task, "soup <answer> A </answer>", "onepo.require_thinking=True")
        assert info["acc"] == 0.0
    assert grader.requests == []  # the score is known without asking
    info = reward(tokenizer, grader, OPEN_ENDED, "<think> a </think> soup", "onepo.require_thinking=True")
    assert info["acc"] == pytest.approx(0.8)


def test_shaping_is_added_to_the_graded_score(tokenizer, grader):
    overrides = ("onepo.answer_penalty_factor=0.5", "onepo.answer_expected_tokens=1", "onepo.answer_buffer_tokens=4")
    info = reward(tokenizer, grader, OPEN_ENDED, "soup tea", *overrides)
    assert info["acc"] == 1.0 and info["score"] == pytest.approx(1.0 - 0.125)


def test_a_choice_needs_no_grader(tokenizer, grader):
    info = reward(tokenizer, grader, CHOICE, "<answer> A </answer>")
    assert info["acc"] == 1.0 and info[GRADING] is None and info[MET] == ""
    assert grader.requests == []


def test_the_keys_are_the_same_for_every_sample(tokenizer, grader):
    keys = {*SCORES, TYPE, MET, GRADING}
    for task, response in ((CHOICE, "A"), (OPEN_ENDED, "soup"), (OPEN_ENDED, "<think>")):
        assert set(reward(tokenizer, grader, task, response)) == keys
    grader.behave("garbage")
    assert set(reward(tokenizer, grader, OPEN_ENDED, "soup")) == keys


def test_the_key_comes_from_its_file(tokenizer, grader, tmp_path):
    grader.behave(api_key="secret")
    (tmp_path / "key").write_text("secret")
    info = reward(tokenizer, grader, OPEN_ENDED, "soup", api_key_file=str(tmp_path / "key"))
    assert info["acc"] == pytest.approx(0.8)
