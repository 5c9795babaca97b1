"""What the probe settles on with different endpoints, and how it explains those that cannot grade."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from onepo.endpoints.chat import RequestForm
from onepo.errors import UserError
from onepo.rewards.probe import Settled, settle
from onepo.rewards.template import load_template
from tests.scripted_grader import ScriptedGrader

THINKING_OFF = {"chat_template_kwargs": {"enable_thinking": False}}
FULL = RequestForm(extra_body=THINKING_OFF, json_schema=True, token_limit="max_tokens", temperature=True)
ALL = ["model", "messages", "temperature", "max_tokens", "response_format", "chat_template_kwargs"]


@pytest.fixture
def server():
    with ScriptedGrader() as server:
        yield server


def probe(url: str, **options) -> Settled:
    settings = {
        "model": "grader",
        "api_key": None,
        "extra_body": THINKING_OFF,
        "timeout": 10.0,
        "outage_limit": 0.2,
        "template": load_template(None),
        "max_tokens": 64,
        "max_retries": 2,
    }
    return asyncio.run(settle(url=url, **{**settings, **options}))


def trouble(url: str, **options) -> str:
    with pytest.raises(UserError) as raised:
        probe(url, **options)
    text = str(raised.value)
    assert "\n" not in text
    return text


@contextlib.contextmanager
def chat_server(answer: Callable[[dict], tuple[int, dict]]):
    """A server with a rule of its own: request body -> status and response body. Yields its URL and the bodies."""
    bodies = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._send(*answer(bodies[-1]))

        def do_GET(self):
            self._send(404, {"detail": "Not Found"})

        def _send(self, status, body):
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1", bodies
        finally:
            server.shutdown()
            thread.join()


def says(text: str, finish_reason: str = "stop") -> tuple[int, dict]:
    message = {"role": "assistant", "content": text}
    return 200, {"choices": [{"index": 0, "message": message, "finish_reason": finish_reason}]}


REFUSED = (400, {"error": {"message": "Bad request"}})


# ---- what it settles on ----


def test_an_endpoint_that_takes_everything(server):
    settled = probe(server.url)
    assert settled.form == FULL
    assert settled.lines[0] == "the grader takes a JSON schema"
    assert len(settled.lines) == 2 and len(server.requests) == 1


def test_the_url_is_completed(server):
    assert probe(f"{server.base_url}/v1").form == FULL


def test_a_strict_endpoint_gets_what_it_takes(server):
    for words in ("openai", "pydantic", "fastapi"):
        server.requests.clear()
        server.behave(accepts=["model", "messages"], refusal=words)
        settled = probe(server.url)
        assert settled.form == RequestForm(extra_body={}, json_schema=False, token_limit=None, temperature=False)
        assert settled.lines[:4] == [
            "the grader refuses a JSON schema (response_format), so none is sent",
            "the grader refuses chat_template_kwargs, so it is not sent",
            "the grader refuses max_tokens and max_completion_tokens: its output is not limited",
            "the grader refuses temperature, so it is not sent: further attempts are no more random",
        ]
        assert len(server.requests) == 6, "each field is named by the endpoint, so none is tried twice"
        assert server.requests[-1].status == 200


def test_only_the_field_that_is_refused_is_dropped(server):
    extra = {**THINKING_OFF, "reasoning_effort": "none"}
    server.behave(accepts=[*ALL, "max_completion_tokens"])
    settled = probe(server.url, extra_body=extra)
    assert settled.form == FULL
    assert "the grader refuses reasoning_effort, so it is not sent" in settled.lines
    server.behave(accepts=[name for name in ALL if name != "max_tokens"] + ["max_completion_tokens"])
    form = probe(server.url).form
    assert form == RequestForm(
        extra_body=THINKING_OFF, json_schema=True, token_limit="max_completion_tokens", temperature=True
    )


@pytest.mark.parametrize("refused", ["response_format", "chat_template_kwargs", "max_tokens", "temperature"])
def test_a_refusal_that_names_no_field_costs_only_that_field(refused):
    def answer(body):
        return REFUSED if refused in body else says("[true, false, true]")

    with chat_server(answer) as (url, _):
        settled = probe(url)
    assert settled.form == RequestForm(
        extra_body={} if refused == "chat_template_kwargs" else THINKING_OFF,
        json_schema=refused != "response_format",
        token_limit="max_completion_tokens" if refused == "max_tokens" else "max_tokens",
        temperature=refused != "temperature",
    )
    assert settled.lines[-1] == "the grader graded the sample correctly"


def test_a_schema_that_makes_a_weak_model_usable_is_kept(server):
    server.behave(mode="schema_only")
    assert probe(server.url).form.json_schema


def test_a_schema_under_which_nothing_usable_comes_is_given_up():
    def answer(body):
        return says("[true" if "response_format" in body else "[true, false, true]")

    with chat_server(answer) as (url, bodies):
        settled = probe(url)
    assert settled.form == RequestForm(
        extra_body=THINKING_OFF, json_schema=False, token_limit="max_tokens", temperature=True
    )
    assert "its output under one is no grading" in settled.lines[0]
    assert [body["temperature"] for body in bodies] == [0, 0.2, 0.4, 0]


def test_an_endpoint_that_breaks_on_a_schema_is_asked_without():
    def answer(body):
        return (500, {"error": "grammar backend"}) if "response_format" in body else says("[true, false, true]")

    with chat_server(answer) as (url, _):
        assert not probe(url).form.json_schema


def test_one_server_error_costs_nothing(server):
    server.behave(mode=["500", "normal"])
    assert probe(server.url).form == FULL


def test_one_malformed_output_is_no_reason_to_refuse_a_grader(server):
    server.behave(mode=["garbage", "normal"])
    assert probe(server.url).form == FULL
    assert [received.body["temperature"] for received in server.requests] == [0, 0.2]


def test_a_wrong_grading_of_the_sample_is_told():
    with chat_server(lambda _: says("[True, True, True]")) as (url, _):
        line = probe(url).lines[-1]
    assert line.startswith("warning: the grader graded the sample as [true, true, true] where [true, false, true] is")


def test_the_key_is_sent(server):
    server.behave(api_key="k-1")
    assert probe(server.url, api_key="k-1").form == FULL


# ---- what it explains ----


def test_nothing_listens(server):
    server.stop()
    text = trouble(server.url)
    assert text.startswith(f"REWARD_MODEL_URL: {server.url} ") and "Nothing listens there" in text
    server.start()


def test_a_host_that_does_not_exist():
    text = trouble("http://no-such-host.invalid/v1", timeout=60.0)  # a name server may take its time
    assert text.startswith("REWARD_MODEL_URL: http://no-such-host.invalid/v1/chat/completions ")
    assert "The host name is not known" in text


def test_an_encrypted_connection_to_a_plain_server(server):
    text = trouble(server.url.replace("http://", "https://"))
    assert "The encrypted connection failed" in text and "begin the address with http://" in text


def test_addresses_that_are_none():
    for url in ("localhost:30001/v1", "ftp://host/v1", "http://", "http://host:port/v1"):
        text = trouble(url)
        assert text.startswith("REWARD_MODEL_URL: ") and url in text and "http://HOST:PORT/v1" in text


def test_a_grader_that_stays_overloaded(server):
    server.behave(mode="429")
    assert "429" in trouble(server.url)


def test_a_grader_that_does_not_answer(server):
    server.behave(mode="silent")
    assert "REWARD_MODEL_TIMEOUT" in trouble(server.url, timeout=0.2)


def test_a_wrong_path(server):
    text = trouble(f"{server.base_url}/api")
    assert text.startswith(f"REWARD_MODEL_URL: {server.base_url}/api/chat/completions ")
    assert "404" in text and "http://HOST:PORT/v1/chat/completions" in text


def test_a_model_that_is_not_served(server):
    text = trouble(server.url, model="other")
    assert text.startswith("REWARD_MODEL_NAME=other: ") and text.endswith("but grader.")


def test_a_model_that_is_refused_where_nothing_is_listed():
    with chat_server(lambda _: (404, {"error": {"message": "no model grader"}})) as (url, _):
        assert "no model grader" in trouble(url)


def test_a_missing_and_a_wrong_key(server):
    server.behave(api_key="k-1")
    assert "Set REWARD_MODEL_API_KEY" in trouble(server.url)
    text = trouble(server.url, api_key="k-secret")
    assert "Correct REWARD_MODEL_API_KEY" in text and "k-secret" not in text


def test_secrets_in_the_address_are_not_shown(server):
    server.behave(mode="not_json")
    assert "t0ken" not in trouble(f"{server.url}?key=t0ken")
    assert "pa55" not in trouble(server.url.replace("http://", "http://user:pa55@"))


@pytest.mark.parametrize("mode", ["not_json", "no_choices"])
def test_an_endpoint_that_is_no_chat_endpoint(server, mode):
    server.behave(mode=mode)
    text = trouble(server.url)
    assert text.startswith(f"REWARD_MODEL_URL: {server.url} ") and "no chat completion" in text
    assert "http://HOST:PORT/v1/chat/completions" in text


def test_an_endpoint_that_refuses_everything():
    with chat_server(lambda _: (400, {"error": {"message": "I only\nspeak French"}})) as (url, _):
        text = trouble(url)
    assert "REWARD_MODEL_EXTRA_BODY" in text and "I only speak French" in text


def test_a_context_that_is_too_short(server):
    server.behave(max_characters=100)
    text = trouble(server.url)
    assert "context does not hold a small grading and the output" in text and "REWARD_MODEL_MAX_TOKENS (now 64)" in text


def test_output_that_is_no_grading_is_shown():
    with chat_server(lambda _: says("I think\nthat " + "all of it is met. " * 100)) as (url, bodies):
        text = trouble(url)
    assert text.startswith("REWARD_MODEL_NAME=grader: asked for a JSON list")
    assert '"I think that all of it is met. all' in text and '..."' in text and len(text) < 500
    assert "REWARD_PROMPT_FILE" in text and "Thinking" not in text
    assert len(bodies) == 6, "three attempts with a schema and three without"


@pytest.mark.parametrize("content", ["<think>\nLet me see", "<think>The list is [true, false, true]"])
def test_thinking_that_the_token_limit_cuts_off(content):
    with chat_server(lambda _: says(content, "length")) as (url, _):
        text = trouble(url, max_tokens=77)
    assert "Thinking seems to be on, and the token limit cuts it off" in text
    assert "REWARD_MODEL_EXTRA_BODY" in text and "REWARD_MODEL_MAX_TOKENS (now 77)" in text


def test_thinking_in_a_field_of_its_own(server):
    server.behave(mode="only_reasoning")
    text = trouble(server.url)
    assert "Thinking seems to be on, and the token limit cuts it off" in text


def test_output_that_the_token_limit_cuts_off():
    with chat_server(lambda _: says("[true, fal", "length")) as (url, _):
        text = trouble(url)
    assert "The token limit cuts it off" in text and "REWARD_MODEL_MAX_TOKENS (now 64)" in text
