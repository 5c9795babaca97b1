"""The client of a chat endpoint against a real socket: what it sends, what it waits for, how it fails."""

import asyncio
import pickle
import time
import traceback
from collections.abc import Awaitable, Callable
from email.utils import formatdate

import pytest

from onepo.endpoints import outage
from onepo.endpoints.answers import is_context_length, own_words, read_completion, seconds_to_wait
from onepo.endpoints.chat import (
    ChatEndpoint,
    Completion,
    ContextLengthExceeded,
    EndpointUnavailable,
    RequestForm,
    RequestRefused,
    RequestTimedOut,
    ServerFailed,
    chat_url,
)
from onepo.errors import UserError
from tests.scripted_grader import ScriptedGrader

FORM = RequestForm(extra_body={}, json_schema=False, token_limit="max_tokens", temperature=True)
SCHEMA = {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 1}
KEY = "sk-0123456789abcdef"
PROMPT = '{"role": "assistant", "content": "blue"}\n1. says blue'
GRACE = 1.0  # seconds a busy machine may add to what is promised


@pytest.fixture
def grader():
    with ScriptedGrader() as grader:
        yield grader


def make_endpoint(grader: ScriptedGrader, **changes) -> ChatEndpoint:
    settings = {
        "url": grader.url,
        "model": grader.name,
        "form": FORM,
        "timeout": 30.0,
        "max_concurrency": 8,
        "outage_limit": 20.0,
        "api_key": None,
    }
    return ChatEndpoint(**(settings | changes))


def run(endpoint: ChatEndpoint, work: Callable[[], Awaitable]):
    async def main():
        try:
            return await asyncio.wait_for(work(), timeout=60)
        finally:
            await endpoint.aclose()

    return asyncio.run(main())


def ask(endpoint: ChatEndpoint, text: str = PROMPT, schema: dict | None = None) -> Awaitable[Completion]:
    return endpoint.complete([{"role": "user", "content": text}], temperature=0.2, max_tokens=9, schema=schema)


def ask_once(grader: ScriptedGrader, *, text: str = PROMPT, schema: dict | None = None, **changes) -> Completion:
    endpoint = make_endpoint(grader, **changes)
    return run(endpoint, lambda: ask(endpoint, text, schema))


async def timed(request: Awaitable) -> tuple[object, float]:
    """What came of a request, an answer or an exception, and when."""
    (result,) = await asyncio.gather(request, return_exceptions=True)
    return result, time.monotonic()


async def arrived(grader: ScriptedGrader, count: int) -> None:
    await asyncio.to_thread(grader.wait_for_requests, count)


# What is sent and read


@pytest.mark.parametrize(
    ("given", "complete"),
    [
        ("http://host:8000/v1", "http://host:8000/v1/chat/completions"),
        ("http://host:8000/v1/", "http://host:8000/v1/chat/completions"),
        (" https://host/v1/chat/completions\n", "https://host/v1/chat/completions"),
        ("https://host/v1/chat/completions/", "https://host/v1/chat/completions"),
        ("http://host", "http://host/chat/completions"),
        ("http://[::1]:80/v1", "http://[::1]:80/v1/chat/completions"),
        ("https://host/deployments/m?api-version=1", "https://host/deployments/m/chat/completions?api-version=1"),
        ("https://host/chat/completions?api-version=1#top", "https://host/chat/completions?api-version=1"),
    ],
)
def test_the_path_of_the_chat_completions_is_appended_once(given, complete):
    assert chat_url(given) == chat_url(complete) == complete


@pytest.mark.parametrize(
    "given", ["", "host:8000/v1", "ftp://host/v1", "http://", "http://host:port/v1", "http://[::1/v1"]
)
def test_what_is_no_address_is_explained(given):
    with pytest.raises(UserError, match="http://HOST:PORT/v1"):
        chat_url(given)


def test_an_address_with_a_password_is_refused_without_showing_it():
    with pytest.raises(UserError, match="API key") as caught:
        chat_url("http://someone:hunter2@host/v1")
    assert "hunter2" not in str(caught.value)


def test_the_body_has_what_the_form_allows(grader):
    completion = ask_once(grader, schema=SCHEMA)
    assert completion == Completion(text="[true]", reasoning=None, finish_reason="stop", requests=1)
    form = RequestForm(
        extra_body={"top_k": 1}, json_schema=True, token_limit="max_completion_tokens", temperature=False
    )
    ask_once(grader, schema=SCHEMA, form=form)
    ask_once(grader, form=RequestForm(**(form.as_dict() | {"token_limit": None})))
    messages = [{"role": "user", "content": PROMPT}]
    full, other, least = (received.body for received in grader.requests)
    assert full == {"model": "grader", "messages": messages, "temperature": 0.2, "max_tokens": 9}
    wrapped = {"name": "answer", "schema": SCHEMA, "strict": True}
    assert other == {
        "model": "grader",
        "messages": messages,
        "max_completion_tokens": 9,
        "response_format": {"type": "json_schema", "json_schema": wrapped},
        "top_k": 1,
    }
    assert least == {"model": "grader", "messages": messages, "top_k": 1}


def test_any_text_arrives_as_it_is(grader):
    text = PROMPT + '\n{braces} "quotes" \\ \x00 \u2028 心肌梗死 \ud800 ' + "long " * 20_000
    assert ask_once(grader, text=text).text == "[true]"
    assert grader.requests[0].body["messages"][0]["content"] == text


def test_reasoning_is_told_from_the_text(grader):
    grader.behave("reasoning")
    assert ask_once(grader) == Completion("[true]", "Let me see.", "stop", 1)
    grader.behave("only_reasoning")
    assert ask_once(grader) == Completion("", "Let me see.", "length", 1)


def test_the_key_is_sent_only_when_there_is_one(grader, tmp_path, monkeypatch):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password hunter2\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for key in (None, "", "\n", f"{KEY}\n"):
        ask_once(grader, api_key=key)
    sent = [received.headers.get("Authorization") for received in grader.requests]
    assert sent == [None, None, None, f"Bearer {KEY}"]


def test_proxies_of_the_environment_are_not_for_this_machine(grader, monkeypatch):
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", grader.base_url)
    assert ask_once(grader, url="http://elsewhere.invalid/v1/chat/completions").text == "[true]"
    assert grader.requests[0].headers["Host"] == "elsewhere.invalid"
    with ScriptedGrader() as other:
        ask_once(other)
        assert len(other.requests) == len(grader.requests) == 1


# Connections and slots


def test_connections_are_bounded_and_kept(grader):
    grader.behave(latency=0.01)
    endpoint = make_endpoint(grader, max_concurrency=5)

    async def work():
        await asyncio.gather(*(ask(endpoint) for _ in range(60)))
        await ask(endpoint)

    run(endpoint, work)
    assert len(grader.requests) == 61
    assert grader.max_in_flight == 5
    assert len({received.peer_port for received in grader.requests}) == 5


def test_a_slow_request_does_not_hold_the_others(grader):
    grader.behave(poison={"tarry": "silent"})
    endpoint = make_endpoint(grader, max_concurrency=2)

    async def work():
        slow = asyncio.create_task(ask(endpoint, "tarry"))
        await arrived(grader, 1)
        await asyncio.gather(*(ask(endpoint) for _ in range(20)))
        assert not slow.done()
        slow.cancel()

    run(endpoint, work)


def test_a_cancelled_request_frees_its_slot(grader):
    endpoint = make_endpoint(grader, max_concurrency=1)

    async def work():
        for mode in ("silent", "503"):  # waiting for the answer, waiting for the endpoint
            before = len(grader.requests)
            grader.behave(mode, retry_after="600")
            request = asyncio.create_task(ask(endpoint))
            await arrived(grader, before + 1)
            waiting = asyncio.create_task(ask(endpoint))
            grader.behave("normal")
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
            assert (await waiting).text == "[true]"

    run(endpoint, work)


# An endpoint that is away


def test_a_short_absence_is_waited_out(grader):
    absences = ["429", "502", "503", "504", "reset", "reset_midway"]
    grader.behave([*absences, "normal"])
    endpoint = make_endpoint(grader)

    async def work():
        return await asyncio.gather(*(ask(endpoint) for _ in absences))

    assert run(endpoint, work) == [Completion("[true]", None, "stop", requests=2)] * 6
    assert [received.mode for received in grader.requests] == [*absences, *["normal"] * 6]
    first, again = grader.requests[:6], grader.requests[6:]
    assert 0.5 <= again[0].arrived - first[0].arrived and again[-1].arrived - first[0].arrived <= 1 + GRACE


def test_the_endpoint_says_how_long_to_wait(grader):
    grader.behave(["429", "normal"], retry_after="2")
    assert ask_once(grader).requests == 2
    first, second = (received.arrived for received in grader.requests)
    assert 2 <= second - first <= 2 + GRACE


def test_the_endpoint_says_until_when_to_wait(grader):
    until = int(time.time()) + 3
    grader.behave(["503", "normal"], retry_after=formatdate(until, usegmt=True))
    ask_once(grader)
    assert until <= time.time() <= until + GRACE


def test_the_outage_limit_is_above_the_endpoints_wish(grader):
    grader.behave("429", retry_after="3600")
    with pytest.raises(EndpointUnavailable, match=r"outage limit of 0\.3 s: HTTP 429: scripted answer 429") as caught:
        ask_once(grader, outage_limit=0.3)
    first, second = (received.arrived for received in grader.requests)
    assert caught.value.requests == 2 and 0.3 <= second - first <= 0.3 + GRACE


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(None, 0), ("", 0), ("7", 7), ("0.5", 0.5), ("-3", 0), ("soon", 0), ("nan", 0), ("inf", 0)],
)
def test_forms_of_retry_after(header, seconds):
    assert seconds_to_wait(header) == seconds


def test_a_date_of_retry_after_may_be_past():
    assert seconds_to_wait("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert 58 < seconds_to_wait(formatdate(time.time() + 60, usegmt=True)) <= 60


def test_nothing_is_lost_when_the_endpoint_dies_and_returns(grader):
    grader.behave("silent")
    endpoint = make_endpoint(grader)

    async def work():
        requests = [asyncio.create_task(ask(endpoint)) for _ in range(20)]
        await arrived(grader, 8)
        await asyncio.to_thread(grader.stop)
        grader.behave("normal")
        ended, _ = await asyncio.wait(requests, timeout=0.8)
        assert not ended
        await asyncio.to_thread(grader.start)
        return await asyncio.gather(*requests)

    completions = run(endpoint, work)
    assert [completion.text for completion in completions] == ["[true]"] * 20
    assert all(completion.requests >= 2 for completion in completions[:8])


def test_all_give_up_together_and_later_ones_at_once(grader):
    grader.stop()
    endpoint = make_endpoint(grader, max_concurrency=4, outage_limit=1.2)

    async def work():
        start = time.monotonic()
        outcomes = await asyncio.gather(*(timed(ask(endpoint)) for _ in range(8)))
        assert all(isinstance(error, EndpointUnavailable) for error, _ in outcomes)
        ends = [end - start for _, end in outcomes]
        assert 1.2 <= min(ends) and max(ends) - min(ends) < GRACE
        errors = [error for error, _ in outcomes]
        assert all(error.requests >= 2 for error in errors[:4])
        assert all(error.requests == 1 for error in errors[4:])  # these had waited for a slot
        assert "refused" in str(errors[0]) and grader.url in str(errors[0])

        await asyncio.to_thread(grader.start)
        assert (await ask(endpoint)).requests == 1
        await asyncio.to_thread(grader.stop)
        start = time.monotonic()
        error, end = await timed(ask(endpoint))
        assert isinstance(error, EndpointUnavailable) and end - start >= 1.2  # an answer has set the clock back
        await asyncio.to_thread(grader.start)

    run(endpoint, work)


def test_a_request_that_comes_in_an_outage_has_what_is_left_of_the_limit(grader):
    grader.behave("503")
    endpoint = make_endpoint(grader, outage_limit=1.5)

    async def work():
        first = asyncio.create_task(timed(ask(endpoint)))
        await arrived(grader, 2)  # its second try, at least half a second into the outage
        second = asyncio.create_task(timed(ask(endpoint)))
        return await first, await second

    (first, first_end), (second, second_end) = run(endpoint, work)
    assert isinstance(first, EndpointUnavailable) and isinstance(second, EndpointUnavailable)
    assert 1.5 <= first_end - grader.requests[0].arrived
    assert abs(second_end - first_end) < 0.4


def test_after_an_outage_of_the_whole_limit_each_request_is_tried_once_until_one_is_answered(grader, monkeypatch):
    grader.behave("503")
    endpoint = make_endpoint(grader, outage_limit=0.3)

    async def work():
        lost = await timed(ask(endpoint))
        assert endpoint.given_up
        monkeypatch.setattr(outage, "_FORGOTTEN_SECONDS", 0.0)  # as if an update had taken longer than that
        tried = await timed(ask(endpoint))
        grader.behave("normal")
        answered = await ask(endpoint)
        assert not endpoint.given_up
        grader.behave("503")
        again = await timed(ask(endpoint))
        return [lost[0], tried[0], again[0]], answered

    failures, answered = run(endpoint, work)
    assert [type(failure) for failure in failures] == [EndpointUnavailable] * 3
    assert [failure.requests for failure in failures] == [2, 1, 2]
    assert answered.requests == 1


def test_a_request_that_is_never_answered_gives_up_while_others_succeed(grader):
    grader.behave(poison={"poison": "reset"}, latency=0.01)
    endpoint = make_endpoint(grader, outage_limit=1.0)

    async def work():
        poisoned = asyncio.create_task(timed(ask(endpoint, "poison")))
        answers = []
        while not poisoned.done():
            answers.append(await ask(endpoint))
        return await poisoned, answers

    (error, end), answers = run(endpoint, work)
    tries = [received.arrived for received in grader.requests if received.mode == "reset"]
    assert isinstance(error, EndpointUnavailable) and error.requests == len(tries) >= 2
    assert 1.0 <= end - tries[0] <= 1.0 + GRACE
    assert len(answers) > 10 and all(completion.requests == 1 for completion in answers)


# Failures that are not waited out


def test_an_answer_that_does_not_come_times_out(grader):
    grader.behave("silent")
    start = time.monotonic()
    with pytest.raises(RequestTimedOut, match=r"after 0\.4 s") as caught:
        ask_once(grader, timeout=0.4)
    assert 0.4 <= time.monotonic() - start <= 0.4 + GRACE
    assert caught.value.requests == len(grader.requests) == 1


@pytest.mark.parametrize(
    ("mode", "words"),
    [("500", "scripted answer 500"), ("not_json", "Welcome"), ("no_choices", "chat.completion")],
)
def test_a_broken_server_is_told_at_once(grader, mode, words):
    grader.behave(mode)
    with pytest.raises(ServerFailed, match=words) as caught:
        ask_once(grader)
    assert caught.value.requests == len(grader.requests) == 1


@pytest.mark.parametrize(
    ("settings", "changes", "status", "words"),
    [
        ({}, {"model": "other"}, 404, "The model `other` does not exist"),
        ({"api_key": KEY}, {}, 401, "Incorrect API key"),
        ({"accepts": ["model", "messages", "max_tokens"]}, {}, 400, "argument supplied: temperature"),
        ({"accepts": ["model", "messages"], "refusal": "pydantic"}, {}, 400, "temperature.*not permitted.*max_tokens"),
        (
            {"accepts": ["model", "messages"], "refusal": "fastapi"},
            {},
            422,
            "body.temperature: Extra .*body.max_tokens",
        ),
    ],
)
def test_a_refusal_is_explained_and_not_repeated(grader, settings, changes, status, words):
    grader.behave(**settings)
    with pytest.raises(RequestRefused, match=f"HTTP {status}.*{words}") as caught:
        ask_once(grader, **changes)
    assert type(caught.value) is RequestRefused
    assert (caught.value.status, caught.value.requests, len(grader.requests)) == (status, 1, 1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("words", ["vllm", "sglang", "openai"])
def test_too_long_a_conversation_is_told_apart(grader, words):
    grader.behave(max_characters=10, context_words=words)
    with pytest.raises(ContextLengthExceeded) as caught:
        ask_once(grader)
    assert (caught.value.status, len(grader.requests)) == (400, 1)


@pytest.mark.parametrize(
    ("status", "words", "expected"),
    [
        (400, "This model's maximum context length is 2048 tokens. However, you requested 2100 tokens", True),
        (400, "The input (5000 tokens) is longer than the model's context length (2048 tokens).", True),
        (400, "Requested token count exceeds the model's maximum context length of 2048 tokens.", True),
        (400, "the request exceeds the available context size. try increasing it", True),
        (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096", True),
        (400, "Your messages are many. (context_length_exceeded)", True),
        (400, "The input token count (9) exceeds the maximum number of tokens allowed (8).", True),
        (413, "Request Entity Too Large", True),
        (404, "the context length of this model is unknown", False),
        (400, "Unrecognized request argument supplied: max_tokens", False),
        (400, "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.", False),
        (422, "body.max_tokens: Extra inputs are not permitted", False),
    ],
)
def test_words_for_the_context_length(status, words, expected):
    assert is_context_length(status, words) is expected


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"error": {"message": "Bad\\n thing", "code": "bad_thing", "type": "x"}}', "Bad thing (bad_thing)"),
        (b'{"object": "error", "message": "No.", "code": 400}', "No."),
        (b'{"error": "Not Found"}', "Not Found"),
        (b'{"detail": [{"loc": ["body", "x"], "msg": "wrong"}, {"msg": "too"}]}', "body.x: wrong; : too"),
        (b'{"status": 1}', '{"status": 1}'),
        (b"<html><h1>502 Bad\r\nGateway</h1></html>", "502 Bad Gateway"),
        (b"\x1b[31mred\xff", "[31mred \ufffd".replace(" ", "")),
        (b" ", "no explanation"),
        (b"x" * 301, "x" * 297 + "..."),
        (b'"no key sk-1 here"', "no key [key] here"),
    ],
)
def test_an_endpoints_own_words(content, words):
    assert own_words(content, secret="sk-1") == words


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"7",
        b"{}",
        b'{"choices": null}',
        b'{"choices": [{"text": "a plain completion"}]}',
        b'{"choices": [{"message": "[true]"}]}',
        b'{"choices": [{"message": {"content": [{"type": "text"}]}}]}',
        b'\xff{"choices": [{"message": {"content": "[true]"}}]}',
    ],
)
def test_what_is_no_completion(content):
    with pytest.raises(ValueError):
        read_completion(content)


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (
            b"HTTP/1.1 308 Permanent\r\nLocation: https://h/v1?k=1\r\n\r\n",
            RequestRefused,
            "it redirects to https://h/v1$",
        ),
        (
            f"HTTP/1.1 302 Found\r\nLocation: https://h/login/{KEY}/{'x' * 5000}\r\n\r\n".encode(),
            RequestRefused,
            r"it redirects to https://h/login/\[key\]/x+\.\.\.$",
        ),
        (b"SSH-2.0-server\r\n\r\n", ServerFailed, "no HTTP answer"),
    ],
)
def test_other_servers_are_told(answer, kind, words):
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/chat/completions"
            endpoint = ChatEndpoint(
                url=url, model="m", form=FORM, timeout=10, max_concurrency=1, outage_limit=0, api_key=KEY
            )
            try:
                await ask(endpoint)
            finally:
                await endpoint.aclose()

    with pytest.raises(kind, match=words) as caught:
        asyncio.run(main())
    assert "\n" not in str(caught.value) and KEY not in shown(caught.value)


# Secrets, and errors on their way between processes


def shown(error: BaseException) -> str:
    return "".join([str(error), repr(error), *traceback.format_exception(type(error), error, error.__traceback__)])


@pytest.mark.parametrize(
    "settings",
    [{"api_key": "another"}, {"mode": "500"}, {"mode": "not_json"}, {"mode": "reset"}, {"mode": "silent"}],
)
def test_the_key_is_in_no_error(grader, settings):
    grader.behave(**settings)
    endpoint = make_endpoint(grader, api_key=KEY, outage_limit=0, timeout=0.5)
    with pytest.raises((RequestRefused, ServerFailed, EndpointUnavailable, RequestTimedOut)) as caught:
        run(endpoint, lambda: ask(endpoint))
    assert grader.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert KEY not in shown(caught.value) and KEY not in repr(endpoint)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))
    assert vars(again) == vars(caught.value) and again.requests == 1


LONG_KEY = "sk-proj-a1B2c3D4e5F6g7H8i9J0"


@pytest.mark.parametrize(
    "echo",
    [
        LONG_KEY,
        LONG_KEY[:-4],  # cut
        LONG_KEY[:14] + "\n" + LONG_KEY[14:],
        LONG_KEY[:14] + "<wbr>" + LONG_KEY[14:],
        LONG_KEY.replace("-", "\\u002d"),
        LONG_KEY.replace("-", "%2D"),
        " ".join(LONG_KEY),
    ],
)
def test_no_spelling_of_the_key_is_shown(echo):
    told = own_words(f"Unauthorized: {echo} is unknown".encode(), secret=LONG_KEY)
    letters = "".join(filter(str.isalnum, told))
    assert "a1B2c3D4e5" not in letters, told


def test_words_that_only_begin_like_a_key_are_shown():
    told = own_words(b"Incorrect API key provided: sk-proj-a1***J0. Find yours on the site.", secret=LONG_KEY)
    assert told == "Incorrect API key provided: sk-proj-a1***J0. Find yours on the site."


@pytest.mark.parametrize("key", [f"{KEY}\nsecond: line", f"{KEY}ß"])
def test_a_key_that_cannot_be_sent_is_refused_without_showing_it(grader, key):
    with pytest.raises(UserError, match="API key") as caught:
        make_endpoint(grader, api_key=key)
    assert KEY not in shown(caught.value)


def test_the_query_of_the_address_is_in_no_error(grader):
    grader.behave("500")
    with pytest.raises(ServerFailed) as caught:
        ask_once(grader, url=f"{grader.url}?key={KEY}")
    assert KEY not in shown(caught.value)
