"""What the probe of a teacher settles on, and how it explains those that cannot be used."""

import asyncio
import dataclasses

import pytest

from onepo.endpoints.chat import RequestForm
from onepo.endpoints.negotiate import Settled
from onepo.errors import UserError
from onepo.teachers import probe as module
from onepo.teachers.probe import FULL, QUESTION, TEACHER, settle_teacher
from tests.scripted_teacher import ScriptedTeacher


@pytest.fixture
def server():
    with ScriptedTeacher() as server:
        yield server


def probe(url, **options) -> Settled:
    settings = {"model": "teacher", "api_key": None, "timeout": 10.0, "max_tokens": 64}
    return asyncio.run(settle_teacher(url=url, **{**settings, **options}))


def trouble(url, **options) -> str:
    with pytest.raises(UserError) as raised:
        probe(url, **options)
    text = str(raised.value)
    assert "\n" not in text and "REWARD" not in text and "grad" not in text
    return text


# ---- what it settles on ----


def test_one_short_question(server):
    settled = probe(f"{server.base_url}/v1")
    assert settled == Settled(
        RequestForm(extra_body={}, json_schema=False, token_limit="max_tokens", temperature=False),
        ["the teacher answers"],
    )
    (received,) = server.requests
    assert received.body == {"model": "teacher", "messages": QUESTION, "max_tokens": 64}
    assert "Authorization" not in received.headers


def test_the_key_is_sent(server):
    server.behave(api_key="k-1")
    assert probe(server.url, api_key="k-1").form == FULL


def test_separate_reasoning_is_told(server):
    server.says = lambda _: {"content": "Paris", "reasoning_content": "Hm."}
    assert probe(server.url).lines == ["the teacher answers, its reasoning apart: it becomes a think block"]


def test_a_strict_endpoint_gets_what_it_takes(server):
    server.behave(accepts=["model", "messages", "max_completion_tokens"])
    settled = probe(server.url)
    assert settled.form == dataclasses.replace(FULL, token_limit="max_completion_tokens")
    assert settled.lines[1:] == ["the teacher refuses max_tokens: the limit is sent as max_completion_tokens"]
    server.behave(accepts=["model", "messages"])
    settled = probe(server.url)
    assert settled.form == dataclasses.replace(FULL, token_limit=None)
    assert settled.lines[1:] == ["the teacher refuses max_tokens and max_completion_tokens: its output is not limited"]


def test_a_server_error_is_tried_again(server):
    server.behave(mode=["500", "not_json", "normal"])
    assert probe(server.url).form == FULL


# ---- what it explains ----


def test_a_limit_that_is_too_large_is_no_refused_field(server):
    def says(body):
        limit = body.get("max_tokens", body.get("max_completion_tokens", 0))
        return "Paris" if limit <= 4096 else (400, {"error": f"max_tokens must be at most 4096, not {limit}"})

    server.says = says
    assert probe(server.url, max_tokens=4096).form == FULL
    text = trouble(server.url, max_tokens=8192)
    assert text.startswith("TEACHER_MAX_TOKENS=8192: ") and "Lower it" in text


def test_a_context_that_is_too_short(server):
    server.behave(max_characters=10)
    assert "lower TEACHER_MAX_TOKENS (now 64)" in trouble(server.url)


def test_nothing_listens(server, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 0.2)
    server.stop()
    text = trouble(server.url)
    assert text.startswith(f"TEACHER_API_URL: {server.url} ") and "start the teacher" in text
    server.start()


def test_addresses_that_are_none():
    for url in ("localhost:8000/v1", "ftp://host/v1", "http://user:pa55@host/v1"):
        text = trouble(url)
        assert text.startswith("TEACHER_API_URL: ") and "pa55" not in text


def test_a_wrong_path(server):
    text = trouble(f"{server.base_url}/api")
    assert text.startswith("TEACHER_API_URL: ") and "404" in text and "TEACHER_MODEL" in text


def test_a_model_that_is_not_served(server):
    text = trouble(server.url, model="other")
    assert text.startswith("TEACHER_MODEL=other: ") and text.endswith("but teacher.")


def test_a_missing_and_a_wrong_key(server):
    server.behave(api_key="k-1")
    assert "Set ONEPO_TEACHER_API_KEY" in trouble(server.url)
    text = trouble(server.url, api_key="k-secret")
    assert "Correct ONEPO_TEACHER_API_KEY" in text and "k-secret" not in text


def test_a_teacher_that_takes_no_question(server):
    server.says = lambda _: (400, {"error": {"message": "I am retired"}})
    text = trouble(server.url)
    assert "I am retired" in text and "TEACHER_MODEL" in text


def test_a_teacher_that_does_not_answer_in_time(server):
    server.behave(mode="silent")
    assert "raise TEACHER_TIMEOUT" in trouble(server.url, timeout=0.2)


@pytest.mark.parametrize("mode", ["not_json", "no_choices"])
def test_an_endpoint_that_is_no_chat_endpoint(server, mode):
    server.behave(mode=mode)
    text = trouble(server.url)
    assert text.startswith("TEACHER_API_URL: ") and "no chat completion" in text


def test_a_teacher_that_only_thinks(server):
    server.behave(mode="only_reasoning")
    text = trouble(server.url)
    assert text.startswith("TEACHER_MODEL=teacher: ") and "raise TEACHER_MAX_TOKENS (now 64)" in text


def test_the_options_are_called_as_they_were_given(server):
    options = dataclasses.replace(TEACHER, url="--url", model="--model")
    assert trouble("nowhere", options=options).startswith("--url: ")
    assert trouble(server.url, model="other", options=options).startswith("--model=other: ")
