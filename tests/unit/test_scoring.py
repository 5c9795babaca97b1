"""Log-probabilities of given tokens, as a teacher gives them, against one plain forward pass for each row."""

import asyncio

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from onepo.backends.cpu import generation
from onepo.backends.cpu.generation import score_batch
from onepo.backends.cpu.rollout import TransformersServer

ROWS = [[5, 6, 7, 8], [9], [11, 12, 13, 14, 15, 16, 17, 18], [20, 21]]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, eos_token_id=1
    )
    return LlamaForCausalLM(config).eval()


def plain(model, row):
    with torch.no_grad():
        log_probs = torch.log_softmax(model(torch.tensor([row])).logits[0].float(), -1)
    return [float(log_probs[place, token]) for place, token in enumerate(row[1:])]


@pytest.mark.parametrize("at_once", [8192, 9, 1])
def test_every_token_behind_the_first_of_each_row(model, at_once, monkeypatch):
    monkeypatch.setattr(generation, "_TOKENS_AT_ONCE", at_once)
    for found, row in zip(score_batch(model, ROWS, pad_id=0), ROWS, strict=True):
        assert found == pytest.approx(plain(model, row), abs=1e-5)


def test_a_server_answers_in_verls_form_beside_requests_that_sample(model, tmp_path):
    model.save_pretrained(tmp_path)
    sampling = {"temperature": 1.0, "top_k": -1, "top_p": 1.0, "max_tokens": 3, "logprobs": True}

    async def ask():
        server = TransformersServer(str(tmp_path), response_length=12, max_batch=4, seed=0, trust_remote_code=False)
        await server.load_weights(model.state_dict(), 7)
        scored = server.generate("a", prompt_ids=ROWS[0], sampling_params={"prompt_logprobs": 0, "max_tokens": 1})
        sampled = server.generate("b", prompt_ids=ROWS[2], sampling_params=sampling)
        return await asyncio.gather(scored, sampled)

    scored, sampled = asyncio.run(ask())
    fields = scored.extra_fields
    assert fields["global_steps"] == 7
    assert [ids for (ids,) in fields["prompt_ids"]] == [*ROWS[0][1:], 0]
    assert [value for (value,) in fields["prompt_logprobs"]] == pytest.approx([*plain(model, ROWS[0]), 0.0], abs=1e-5)
    assert 1 <= len(sampled.token_ids) <= 3


def test_more_than_the_tokens_themselves_is_refused(model, tmp_path):
    model.save_pretrained(tmp_path)

    async def ask():
        server = TransformersServer(str(tmp_path), response_length=12, max_batch=4, seed=0, trust_remote_code=False)
        await server.generate("a", prompt_ids=[5, 6], sampling_params={"prompt_logprobs": 5, "max_tokens": 1})

    with pytest.raises(ValueError, match="prompt_logprobs=5"):
        asyncio.run(ask())
