"""Batched sampling against plain full forward passes of the same models."""

import asyncio
import threading
from itertools import count

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen3Config

from onepo.backends.cpu.generation import SamplingRequest, cache_error, sample_batch
from onepo.backends.cpu.rollout import TransformersServer
from tests.students import tiny_qwen3_5

SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
PROMPTS = [[5, 6, 7], [9], [11, 12, 13, 14, 15, 16, 17, 18], [20, 21]]


@pytest.fixture(autouse=True)
def one_thread():
    """Threads only get in the way of so small models, badly so on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_model(kind):
    torch.manual_seed(0)
    if kind == "qwen3_5":
        return tiny_qwen3_5(**SIZES).eval()
    config = LlamaConfig(**SIZES) if kind == "llama" else Qwen3Config(**SIZES, head_dim=8)
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()


@pytest.fixture(params=["llama", "qwen3", "qwen3_5"])
def model(request):
    return make_model(request.param)


def request(prompt, *, seed=0, max_tokens=12, temperature=1.0, top_k=-1, top_p=1.0, stop_ids=()):
    return SamplingRequest(prompt, max_tokens, temperature, top_k, top_p, seed, frozenset(stop_ids))


def sample(model, requests, *, use_cache=True, aborted=lambda: False):
    return sample_batch(model, requests, pad_id=0, use_cache=use_cache, aborted=aborted)


def after(tokens):
    """An abort that comes when so many tokens of each response are there."""
    asked = count()
    return lambda: next(asked) >= tokens


def full_log_probs(model, prompt, response, temperature):
    """What the learner computes: one forward pass over prompt and response, without cache or padding."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1].float()
    return torch.log_softmax(logits / temperature, -1).gather(1, torch.tensor(response)[:, None])[:, 0]


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_are_those_of_the_learner(model, temperature, use_cache):
    requests = [request(prompt, seed=i, temperature=temperature) for i, prompt in enumerate(PROMPTS)]
    for prompt, response in zip(PROMPTS, sample(model, requests, use_cache=use_cache), strict=True):
        expected = full_log_probs(model, prompt, response.token_ids, temperature)
        torch.testing.assert_close(torch.tensor(response.log_probs), expected, atol=1e-4, rtol=0)


def test_a_seed_fixes_a_response_whatever_the_batch_is(model):
    alone = [sample(model, [request(prompt, seed=i)])[0] for i, prompt in enumerate(PROMPTS)]
    together = sample(model, [request(prompt, seed=i) for i, prompt in enumerate(PROMPTS)][::-1])[::-1]
    assert [r.token_ids for r in alone] == [r.token_ids for r in together]
    other = sample(model, [request(prompt, seed=100 + i) for i, prompt in enumerate(PROMPTS)])
    assert [r.token_ids for r in alone] != [r.token_ids for r in other]


def test_temperature_zero_takes_the_most_likely_token(model):
    response = sample(model, [request(PROMPTS[0], temperature=0.0, max_tokens=5)])[0]
    ids = list(PROMPTS[0])
    for token in response.token_ids:
        with torch.no_grad():
            assert token == int(model(torch.tensor([ids])).logits[0, -1].argmax())
        ids.append(token)


def test_a_stop_token_ends_its_response_and_no_other(model):
    free = sample(model, [request(prompt, seed=i) for i, prompt in enumerate(PROMPTS)])
    stop = free[0].token_ids[3]
    requests = [request(prompt, seed=i, stop_ids=[stop] if i == 0 else ()) for i, prompt in enumerate(PROMPTS)]
    stopped = sample(model, requests)
    cut = free[0].token_ids.index(stop) + 1
    assert stopped[0].token_ids == free[0].token_ids[:cut]
    assert stopped[0].stop_reason == "completed"
    assert [r.token_ids for r in stopped[1:]] == [r.token_ids for r in free[1:]]
    assert {r.stop_reason for r in stopped[1:]} == {"length"}


def test_every_response_keeps_its_own_limit(model):
    lengths = [1, 4, 9, 2]
    requests = [
        request(prompt, max_tokens=n, seed=i) for i, (prompt, n) in enumerate(zip(PROMPTS, lengths, strict=True))
    ]
    assert [len(r.token_ids) for r in sample(model, requests)] == lengths


@pytest.mark.parametrize("model", ["llama"], indirect=True)
def test_draws_follow_the_model_distribution(model):
    draws = 4000
    responses = sample(model, [request(PROMPTS[0], seed=i, max_tokens=1) for i in range(draws)])
    counts = torch.bincount(torch.tensor([r.token_ids[0] for r in responses]), minlength=SIZES["vocab_size"])
    with torch.no_grad():
        expected = torch.softmax(model(torch.tensor([PROMPTS[0]])).logits[0, -1].double(), -1)
    error = (counts / draws - expected).abs()
    assert (error < 5 * (expected * (1 - expected) / draws).sqrt() + 1e-9).all()  # five standard deviations


@pytest.mark.parametrize("model", ["llama"], indirect=True)
def test_top_k_and_top_p_narrow_the_choice_but_not_the_log_prob(model):
    with torch.no_grad():
        probs = torch.softmax(model(torch.tensor([PROMPTS[0]])).logits[0, -1], -1)
    order = probs.argsort(descending=True).tolist()
    by_k = sample(model, [request(PROMPTS[0], seed=i, max_tokens=1, top_k=3) for i in range(300)])
    assert {r.token_ids[0] for r in by_k} == set(order[:3])
    mass = float(probs[order[:2]].sum()) - 1e-4  # the second token crosses it
    by_p = sample(model, [request(PROMPTS[0], seed=i, max_tokens=1, top_p=mass) for i in range(300)])
    assert {r.token_ids[0] for r in by_p} == set(order[:2])
    for response in by_k + by_p:
        assert response.log_probs[0] == pytest.approx(float(probs[response.token_ids[0]].log()), abs=1e-5)


def test_the_cache_changes_nothing(model):
    """Rows of different lengths that end at different times; the long prompt has several chunks of linear attention."""
    prompts = [*PROMPTS, [token % 60 for token in range(70)]]
    requests = [request(prompt, seed=i, max_tokens=12 - 2 * i) for i, prompt in enumerate(prompts)]
    cached, plain = (sample(model, requests, use_cache=use_cache) for use_cache in (True, False))
    assert [r.token_ids for r in cached] == [r.token_ids for r in plain]
    for one, other in zip(cached, plain, strict=True):
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-4)


@pytest.mark.parametrize("model", ["qwen3_5"], indirect=True)
def test_several_position_axes_of_text_are_one(model):
    """The positions [axes, B, T] that verl gives to a model with a processor mean what [B, T] means."""
    ids = torch.tensor([PROMPTS[2]])
    positions = torch.arange(ids.shape[1])[None]  # [B, T]
    with torch.no_grad():
        one, four = (model(input_ids=ids, position_ids=p).logits for p in (positions, positions.expand(4, 1, -1)))
    torch.testing.assert_close(one, four)


@pytest.mark.parametrize("use_cache", [True, False])
def test_an_abort_ends_responses_where_they_are(model, use_cache):
    requests = [request(prompt, seed=i, max_tokens=3 if i == 1 else 12) for i, prompt in enumerate(PROMPTS)]
    whole = sample(model, requests, use_cache=use_cache)
    found = sample(model, requests, use_cache=use_cache, aborted=after(5))
    assert [response.token_ids for response in found] == [response.token_ids[:5] for response in whole]
    assert [len(response.log_probs) for response in found] == [5, 3, 5, 5]
    assert [response.stop_reason for response in found] == ["aborted", "length", "aborted", "aborted"]


@pytest.mark.parametrize("model", ["llama"], indirect=True)
def test_an_abort_before_the_first_token_leaves_nothing(model):
    (response,) = sample(model, [request(PROMPTS[0])], aborted=after(0))
    assert (response.token_ids, response.log_probs, response.stop_reason) == ([], [], "aborted")


def test_a_right_cache_is_found_right(model):
    assert cache_error(model, pad_id=0) < 1e-4


def forget_state(cache):
    for layer in cache.layers:
        if hasattr(layer, "recurrent_states"):
            layer.recurrent_states.zero_()


def forget_keys(cache):
    cache.layers[-1].keys.zero_()


@pytest.mark.parametrize(
    ("kind", "damage"), [("llama", forget_keys), ("qwen3_5", forget_keys), ("qwen3_5", forget_state)]
)
def test_a_wrong_cache_is_found_wrong(kind, damage):
    model = make_model(kind)
    if kind == "llama":
        for parameter in model.parameters():
            parameter.data.mul_(5)  # the weights of a new model are so small that it hardly minds its past
    model.register_forward_hook(
        lambda module, args, output: damage(output.past_key_values) if output.past_key_values else None
    )
    assert cache_error(model, pad_id=0) > 1e-4


def test_the_server_says_that_a_wrong_cache_is_not_used(tmp_path, monkeypatch, capsys):
    model = make_model("llama")
    for parameter in model.parameters():
        parameter.data.mul_(5)
    model.save_pretrained(tmp_path)
    forward = LlamaForCausalLM.forward

    def forgetful_forward(*args, **kwargs):
        output = forward(*args, **kwargs)
        if output.past_key_values:
            forget_keys(output.past_key_values)
        return output

    async def respond():
        server = TransformersServer(str(tmp_path), response_length=12, max_batch=4, seed=0, trust_remote_code=False)
        sampling = {"temperature": 1.0, "top_k": -1, "top_p": 1.0, "logprobs": True}
        return await server.generate("request", prompt_ids=PROMPTS[0], sampling_params=sampling)

    monkeypatch.setattr(LlamaForCausalLM, "forward", forgetful_forward)
    response = asyncio.run(respond())
    assert "responses are generated without it" in capsys.readouterr().out
    expected = full_log_probs(model, PROMPTS[0], response.token_ids, 1.0)
    torch.testing.assert_close(torch.tensor(response.log_probs), expected, atol=1e-4, rtol=0)


# ---- the server, as verl's trainer for asynchronous learning uses it

LONG = 5000  # tokens: no response is that fast


class Ground:
    """A server on a folder with a model that never ends a response by itself, and other weights for the same model."""

    def __init__(self, folder, *, max_batch=4):
        self.first, self.second = make_model("llama"), make_model("llama")
        for parameter in self.second.parameters():
            parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
        self.first.config.eos_token_id = self.first.generation_config.eos_token_id = None
        self.first.save_pretrained(folder)
        options = {"response_length": 12, "max_batch": max_batch, "seed": 0, "trust_remote_code": False}
        self.server = TransformersServer(str(folder), **options)

    def ask(self, prompt=PROMPTS[0], *, max_tokens=12, seed=3):
        """A request under way."""
        params = {"temperature": 1.0, "top_k": -1, "top_p": 1.0, "logprobs": True}
        params |= {"max_tokens": max_tokens, "seed": seed}
        return asyncio.create_task(self.server.generate("id", prompt_ids=prompt, sampling_params=params))

    async def load_second(self, version):
        await self.server.load_weights(self.second.state_dict(), version)


@pytest.fixture
def ground(tmp_path, request):
    return Ground(tmp_path, **getattr(request, "param", {}))


@pytest.fixture
def third_pass(ground, monkeypatch):
    """Set by a model's third forward pass behind the server's start: the response that it works on has two tokens."""
    reached, forward, passes = threading.Event(), LlamaForCausalLM.forward, count(1)

    def counted_forward(*args, **kwargs):
        if next(passes) == 3:
            reached.set()
        return forward(*args, **kwargs)

    monkeypatch.setattr(LlamaForCausalLM, "forward", counted_forward)
    return reached


def run(scenario):
    """A server that answers nobody is a failure, not a test without end."""
    return asyncio.run(asyncio.wait_for(scenario, 60))


async def stays_open(task):
    """Whether nobody answers; an answer of 12 tokens takes a small part of this time."""
    done, _ = await asyncio.wait({task}, timeout=0.5)
    return not done


def version(response):
    return response.extra_fields.get("global_steps")


def assert_written_by(model, response, prompt=PROMPTS[0]):
    expected = full_log_probs(model, prompt, response.token_ids, 1.0)
    torch.testing.assert_close(torch.tensor(response.log_probs), expected, atol=1e-4, rtol=0)


def test_an_abort_gives_back_what_a_running_response_has(ground, third_pass):
    async def main():
        running = ground.ask(max_tokens=LONG)
        assert await asyncio.to_thread(third_pass.wait, 60)
        await ground.server.abort_all_requests()
        return await running

    response = run(main())
    so_far = len(response.token_ids)
    assert 2 <= so_far < LONG
    assert (response.stop_reason, version(response)) == ("aborted", 0)
    (expected,) = sample(ground.first, [request(PROMPTS[0], seed=3, max_tokens=LONG)], aborted=after(so_far))
    assert response.token_ids == expected.token_ids
    assert response.log_probs == pytest.approx(expected.log_probs, abs=1e-4)


@pytest.mark.parametrize("ground", [{"max_batch": 1}], indirect=True)
def test_a_request_that_had_to_wait_for_its_turn_has_no_weights_when_it_is_aborted(ground, third_pass):
    """verl's client takes the version of the first answer for that of the first token."""

    async def main():
        running, queued = ground.ask(max_tokens=LONG), ground.ask(PROMPTS[1], max_tokens=LONG)
        assert await asyncio.to_thread(third_pass.wait, 60)
        await ground.server.abort_all_requests()
        return await running, await queued

    running, queued = run(main())
    assert running.token_ids and version(running) == 0
    assert (queued.token_ids, queued.log_probs, queued.stop_reason) == ([], [], "aborted")
    assert version(queued) is None


def test_requests_behind_an_abort_wait_for_the_new_weights(ground):
    async def main():
        await ground.server.abort_all_requests()
        waiting = ground.ask()
        assert await stays_open(waiting)
        await ground.load_second(7)
        assert await stays_open(waiting)
        await ground.server.resume_generation()
        return await waiting

    response = run(main())
    assert (response.stop_reason, version(response), len(response.token_ids)) == ("length", 7, 12)
    assert_written_by(ground.second, response)


async def leave_at_release(server):
    await server.abort_all_requests(reject_request=True)


async def leave_at_pinned_commit(server):
    await server.abort_all_requests()
    await server.sleep()


@pytest.mark.parametrize("leave", [leave_at_release, leave_at_pinned_commit])
def test_a_server_that_leaves_sends_requests_away_until_it_is_back(ground, third_pass, leave):
    async def main():
        running = ground.ask(max_tokens=LONG)
        assert await asyncio.to_thread(third_pass.wait, 60)
        await leave(ground.server)
        away = await ground.ask()
        await ground.server.resume_generation()
        return await running, away, await ground.ask()

    running, away, back = run(main())
    assert running.token_ids and running.stop_reason == "aborted"
    assert (away.token_ids, away.log_probs, away.stop_reason, version(away)) == ([], [], "aborted", None)
    assert (back.stop_reason, len(back.token_ids)) == ("length", 12)


def test_requests_that_wait_already_are_sent_away_as_well(ground):
    async def main():
        await ground.server.abort_all_requests()
        waiting = ground.ask()
        assert await stays_open(waiting)
        await ground.server.sleep()
        return await waiting

    response = run(main())
    assert (response.token_ids, response.stop_reason) == ([], "aborted")


def test_sleep_alone_sends_nobody_away(ground):
    """verl puts its servers to sleep while it loads a checkpoint, and nothing resumes them behind it."""

    async def main():
        await ground.server.sleep()
        return await ground.ask()

    assert len(run(main()).token_ids) == 12


def test_weights_bring_their_version(ground):
    async def main():
        before = await ground.ask()
        await ground.load_second(3)
        return before, await ground.ask()

    before, behind = run(main())
    assert (version(before), version(behind)) == (0, 3)
    assert_written_by(ground.first, before)
    assert_written_by(ground.second, behind)
    assert before.log_probs != pytest.approx(behind.log_probs, abs=1e-2)


def test_weights_wait_for_a_response_that_is_being_written(ground, third_pass):
    async def main():
        running = ground.ask(max_tokens=100)
        assert await asyncio.to_thread(third_pass.wait, 60)
        loading = asyncio.create_task(ground.load_second(3))
        return await running, await loading

    response, _ = run(main())
    assert (version(response), len(response.token_ids)) == (0, 100)
    assert_written_by(ground.first, response)


def test_weights_that_do_not_fit_are_refused(ground):
    async def main():
        state = ground.second.state_dict()
        state["lm_head.scale"] = state.pop("lm_head.weight")
        await ground.server.load_weights(state, 3)

    with pytest.raises(RuntimeError, match=r"missing \['lm_head.weight'\], unexpected \['lm_head.scale'\]"):
        run(main())
