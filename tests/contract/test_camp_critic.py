"""A critic of Qwen3.5 as verl loads and calls it: from a causal model's files, several episodes packed into one row."""

import json
import os
import subprocess
import sys

import pytest
import torch
import transformers
import verl.utils.model as verl_model
from packaging.version import Version
from transformers import AutoConfig

from camp.rl.critic import provide_qwen3_5
from onepo.backends.cpu.overrides import use_plain_attention_in_critic
from tests.conftest import ROOT
from tests.students import make_qwen3_5_student, make_talking_student


def load(folder, monkeypatch):
    provide_qwen3_5()
    monkeypatch.setattr(verl_model, "load_valuehead_model", verl_model.load_valuehead_model)  # to be put back
    use_plain_attention_in_critic()
    config = AutoConfig.from_pretrained(folder)
    config.num_labels, config.classifier_dropout, config.hidden_dropout = 1, 0.0, "0"  # as verl sets them
    return verl_model.load_valuehead_model(str(folder), torch.float32, config, False)


@pytest.mark.parametrize("make", [make_talking_student, make_qwen3_5_student])
def test_a_value_for_each_token(make, tmp_path, monkeypatch):
    make(tmp_path / "student")
    critic = load(tmp_path / "student", monkeypatch)
    values = critic(input_ids=torch.randint(0, 200, (2, 7))).logits
    assert values.shape == (2, 7, 1)
    values.sum().backward()
    assert critic.score.weight.grad.abs().sum() > 0


def test_packed_episodes_of_qwen3_5_do_not_see_each_other(tmp_path):
    make_qwen3_5_student(tmp_path / "student")
    command = [sys.executable, "-W", "ignore", "-m", "tests.contract.packed_critic", str(tmp_path / "student")]
    path = os.pathsep.join([str(ROOT), str(ROOT / "recipes"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["named"]  # verl looks for the argument
    assert found["arrive"]
    if Version(transformers.__version__) < Version("5.9"):  # newer ones keep episodes apart with a GPU's kernels only
        assert found["packed"] < 1e-4 < found["leaking"]
