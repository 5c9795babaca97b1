"""Which form of a request is settled on, with endpoints that refuse some of its fields."""

import asyncio

import pytest

from onepo.endpoints.chat import Completion, ContextLengthExceeded, RequestForm, RequestRefused, ServerFailed
from onepo.endpoints.explain import served_names
from onepo.endpoints.negotiate import negotiate, refused_fields
from tests.scripted_teacher import ScriptedTeacher

FULL = RequestForm(extra_body={"a": 1, "b": {"c": 2}}, json_schema=True, token_limit="max_tokens", temperature=True)
BARE = RequestForm(extra_body={}, json_schema=False, token_limit=None, temperature=False)
MESSAGES = [{"role": "user", "content": "Hello"}]
SCHEMA = {"type": "array"}


def negotiated(server, full=FULL, schema=SCHEMA) -> tuple[RequestForm, Completion]:
    endpoint = {"url": server.url, "model": server.name, "api_key": None, "timeout": 10.0, "outage_limit": 0.2}
    return asyncio.run(negotiate(endpoint, full, MESSAGES, max_tokens=9, schema=schema))


def refuses(*fields, words="Bad request"):
    def says(body):
        found = [field for field in fields if field in body]
        return (400, {"error": {"message": words.format(*found)}}) if found else "Hi"

    return says


def test_everything_is_taken():
    with ScriptedTeacher() as server:
        form, completion = negotiated(server)
        (received,) = server.requests
    assert (form, completion.text) == (FULL, "The answer to: Hello")
    assert received.body == {
        "model": "teacher",
        "messages": MESSAGES,
        "temperature": 0,
        "max_tokens": 9,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
        },
        "a": 1,
        "b": {"c": 2},
    }


def test_a_form_without_schema_and_temperature_gets_neither():
    full = RequestForm(extra_body={}, json_schema=False, token_limit="max_tokens", temperature=False)
    with ScriptedTeacher() as server:
        assert negotiated(server, full, schema=None)[0] == full
        assert server.requests[0].body == {"model": "teacher", "messages": MESSAGES, "max_tokens": 9}


@pytest.mark.parametrize("words", ["openai", "pydantic", "fastapi"])
def test_fields_that_are_named_are_dropped_at_once(words):
    with ScriptedTeacher(accepts=["model", "messages", "b"], refusal=words) as server:
        form, _ = negotiated(server)
        assert form == RequestForm(extra_body={"b": {"c": 2}}, json_schema=False, token_limit=None, temperature=False)
        assert len(server.requests) == 6


@pytest.mark.parametrize("field", ["response_format", "a", "b", "max_tokens", "temperature"])
def test_only_the_guilty_field_is_missing_though_none_is_named(field):
    with ScriptedTeacher(refuses(field)) as server:
        form, completion = negotiated(server)
    assert completion.text == "Hi"
    assert (
        refused_fields("it", FULL, form)
        == {
            "response_format": [],
            "temperature": [],
            "a": ["it refuses a, so it is not sent"],
            "b": ["it refuses b, so it is not sent"],
            "max_tokens": ["it refuses max_tokens: the limit is sent as max_completion_tokens"],
        }[field]
    )
    assert form.json_schema == (field != "response_format") and form.temperature == (field != "temperature")


def test_without_any_limit():
    with ScriptedTeacher(refuses("max_tokens", "max_completion_tokens", words="what is {}?")) as server:
        form, _ = negotiated(server)
        assert form == RequestForm(FULL.extra_body, json_schema=True, token_limit=None, temperature=True)
        assert len(server.requests) == 3
    (line,) = refused_fields("it", FULL, form)
    assert line == "it refuses max_tokens and max_completion_tokens: its output is not limited"


def test_a_server_that_breaks_on_a_schema_is_asked_without():
    def says(body):
        return (500, {}) if "response_format" in body else "Hi"

    with ScriptedTeacher(says) as server:
        form, _ = negotiated(server)
        assert form == RequestForm(FULL.extra_body, json_schema=False, token_limit="max_tokens", temperature=True)
        with pytest.raises(ServerFailed):
            server.says = lambda _: (500, {})
            negotiated(server)


def test_what_no_form_would_change_is_raised():
    with ScriptedTeacher(refuses("messages", words="no")) as server:
        with pytest.raises(RequestRefused, match="no"):
            negotiated(server)
        bodies = [received.body for received in server.requests]
        assert bodies[-1] == {"model": "teacher", "messages": MESSAGES}, "every field was left out in between"

        server.requests.clear()
        server.behave(max_characters=1)
        with pytest.raises(ContextLengthExceeded):
            negotiated(server)
        assert len(server.requests) == 1

        server.requests.clear()
        server.behave(max_characters=None, api_key="k-1")
        with pytest.raises(RequestRefused):
            negotiated(server)
        assert len(server.requests) == 1


def test_the_models_that_are_served():
    with ScriptedTeacher(api_key="k-1") as server:
        assert asyncio.run(served_names(server.url, "k-1")) == ["teacher"]
        assert asyncio.run(served_names(server.url, None)) == []
        assert asyncio.run(served_names(f"{server.base_url}/nowhere/chat/completions", "k-1")) == []
