"""A critic of Qwen3.5 as verl loads and calls it: from a causal model's files, several episodes packed into one row."""

from inspect import signature

import pytest
import torch
import transformers
import verl.utils.model as verl_model
from packaging.version import Version
from transformers import AutoConfig
from verl.models.transformers.monkey_patch import apply_monkey_patch

from camp.rl.critic import provide_qwen3_5
from onepo.backends.cpu.overrides import use_plain_attention_in_critic
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


def test_packed_episodes_of_qwen3_5_do_not_see_each_other(tmp_path, monkeypatch):
    make_qwen3_5_student(tmp_path / "student")
    critic = load(tmp_path / "student", monkeypatch).eval()
    apply_monkey_patch(critic, use_remove_padding=True)
    assert "cu_seqlens" in signature(critic.forward).parameters  # verl asks for the name
    ids = torch.randint(0, 200, (1, 12))
    positions = torch.cat([torch.arange(5), torch.arange(7)])[None, None].expand(4, 1, -1)
    ends = torch.tensor([0, 5, 12])

    def values(begin, end, **packed):
        return critic(
            input_ids=ids[:, begin:end],
            attention_mask=None,
            position_ids=positions[..., begin:end],
            use_cache=False,
            **packed,
        ).logits

    with torch.no_grad():
        packed = values(0, 12, cu_seqlens=ends, cu_seqlens_cpu=ends)
        alone = torch.cat([values(0, 5), values(5, 12)], dim=1)
        leaking = values(0, 12)
    assert not torch.equal(packed, leaking)  # the boundaries arrive
    if Version(transformers.__version__) < Version("5.9"):  # newer ones keep episodes apart with a GPU's kernels only
        assert (packed - alone).abs().max() < 1e-4 < (leaking - alone).abs().max()
