"""Teacher responses as tokens of the student."""

import pytest

from onepo.data.chat import ends_with_open_think
from onepo.teachers.cached import cached_response, response_token_ids

PROMPT = "user fever tree <eos> assistant"
TEXT = "<think> fever points to rest </think> <answer> A </answer>"


@pytest.fixture
def encode(tokenizer):
    return lambda text: tokenizer.encode(text, add_special_tokens=False)


def ids_of(tokenizer, text, *, prompt=PROMPT, max_tokens=50, more_stops=()):
    return response_token_ids(
        text,
        tokenizer=tokenizer,
        prompt_ids=tokenizer.encode(prompt, add_special_tokens=False),
        end_of_turn_id=tokenizer.eos_token_id,
        stop_ids=[tokenizer.eos_token_id, *more_stops],
        max_tokens=max_tokens,
    )


def test_a_response_ends_with_the_end_of_turn(tokenizer, encode):
    assert ids_of(tokenizer, TEXT) == [*encode(TEXT), tokenizer.eos_token_id]


@pytest.mark.parametrize("missing", [0, 1, 6])
def test_a_response_is_cut_to_the_limit_and_then_has_no_end(tokenizer, encode, missing):
    whole = [*encode(TEXT), tokenizer.eos_token_id]
    ids = ids_of(tokenizer, TEXT, max_tokens=len(whole) - missing)
    assert ids == whole[: len(whole) - missing]
    assert (ids[-1] == tokenizer.eos_token_id) is (missing == 0)


@pytest.mark.parametrize("prompt", [f"{PROMPT} <think>", f"{PROMPT} <think>\n"])
def test_a_think_block_that_the_prompt_opened_is_not_opened_again(tokenizer, encode, prompt):
    assert ids_of(tokenizer, TEXT, prompt=prompt) == [*encode(TEXT)[1:], tokenizer.eos_token_id]
    assert ids_of(tokenizer, "A", prompt=prompt) == [*encode("A"), tokenizer.eos_token_id]


@pytest.mark.parametrize("rest", [" <eos>", " <eos> <answer> B </answer>", " <eos> <eos>"])
def test_a_response_ends_at_its_first_end_of_turn(tokenizer, encode, rest):
    assert ids_of(tokenizer, TEXT + rest) == [*encode(TEXT), tokenizer.eos_token_id]


def test_a_response_ends_at_every_token_that_stops_a_rollout(tokenizer, encode):
    (other,) = encode("window")
    assert ids_of(tokenizer, f"{TEXT} window fever", more_stops=[other]) == [*encode(TEXT), tokenizer.eos_token_id]


def test_an_earlier_think_block_of_the_prompt_is_no_matter(tokenizer, encode):
    prompt = encode(f"user <think> tree </think> <eos> {PROMPT}")
    assert not ends_with_open_think(tokenizer, prompt)
    assert ends_with_open_think(tokenizer, [*prompt, *encode("<think>")])


def test_the_response_of_a_list_is_drawn_by_seed_step_and_record():
    responses = [f"r{i}" for i in range(20)]
    draws = {
        (s, t, i): cached_response(responses, seed=s, step=t, index=i) for s in (1, 2) for t in (1, 2) for i in (1, 2)
    }
    assert len(set(draws.values())) > 3
    for (seed, step, index), drawn in draws.items():
        assert cached_response(responses, seed=seed, step=step, index=index) == drawn


def test_no_response_and_one_response():
    assert cached_response([], seed=1, step=1, index=1) is None
    assert cached_response(["only"], seed=1, step=5, index=9) == "only"
