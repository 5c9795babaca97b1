"""What a reader of logs and configurations must not see."""

import pytest

from onepo.report.secrets import is_secret, masked, masked_override, masked_text


@pytest.mark.parametrize(
    "key",
    [
        "api_key",
        "apikey",
        "X-API-Key",
        "wandb_api_key",
        "private_key",
        "Authorization",
        "HF_TOKEN",
        "password",
        "secret",
    ],
)
def test_names_of_secrets(key):
    assert is_secret(key)
    assert masked({key: "s3cret"}) == {key: "***"} and masked({key: None}) == {key: None}


@pytest.mark.parametrize(
    "key", ["max_tokens", "tokenizer", "ppo_max_token_len_per_gpu", "key", "turn_tokens", "passwords"]
)
def test_names_that_only_look_like_it(key):
    assert masked({key: "plain"}) == {key: "plain"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://me:s3cret@host:1/x", "http://***@host:1/x"),
        ("http://host/x?api_key=s3cret&page=2", "http://host/x?api_key=***&page=2"),
        ("{api_key: s3cret, page: 2}", "{api_key: ***, page: 2}"),
        ("{'X-API-Key': 's3 cret'}", "{'X-API-Key': ***}"),
        ("{Authorization: Bearer s3cret}", "{Authorization: ***}"),
        ("the token limit: 5 of max_tokens=7, tokenizer=x", "the token limit: 5 of max_tokens=7, tokenizer=x"),
    ],
)
def test_secrets_within_a_text(text, shown):
    assert masked_text(text) == shown
    assert masked({"a": [{"b": text}]}) == {"a": [{"b": shown}]}


@pytest.mark.parametrize(
    ("override", "shown"),
    [
        ("+trainer.wandb_api_key=s3cret", "+trainer.wandb_api_key=***"),
        ("~x.password=s3cret", "~x.password=***"),
        ("+x={api_key: s3cret, n: 1}", "+x={api_key: ***, n: 1}"),
        ("+x.headers={Authorization: Bearer s3cret}", "+x.headers={Authorization: ***}"),
        ("data.max_prompt_length=5", "data.max_prompt_length=5"),
    ],
)
def test_overrides(override, shown):
    assert masked_override(override) == shown
