"""Questions to a teacher over a real socket: what is learned from, what is kept, what a failure says."""

import asyncio
import dataclasses
import json
import sqlite3
from collections.abc import Awaitable, Callable

import pytest

from onepo.endpoints.answers import read_completion
from onepo.endpoints.chat import ChatEndpoint, Completion, RequestForm
from onepo.teachers import answers as answers_module
from onepo.teachers.answers import AnswerStore
from onepo.teachers.online import OnlineTeacher, TeacherAnswer, UnusableAnswer, answer_text
from tests.scripted_teacher import ScriptedTeacher

FORM = RequestForm(extra_body={}, json_schema=False, token_limit="max_tokens", temperature=False)


@pytest.fixture
def server():
    with ScriptedTeacher() as server:
        yield server


@pytest.fixture
def store(tmp_path):
    return AnswerStore(tmp_path / "answers.sqlite")


def question(text="Why?"):
    return [{"role": "user", "content": text}]


def with_teacher(server, store, work: Callable[[OnlineTeacher], Awaitable], **options):
    """What comes of the work with a teacher in an event loop of its own."""
    settings = {"timeout": 10.0, "outage_limit": 0.3, "max_retries": 3, "max_concurrency": 4, **options}

    async def run():
        retries = settings.pop("max_retries")
        endpoint = ChatEndpoint(url=server.url, model=server.name, form=FORM, api_key=None, **settings)
        teacher = OnlineTeacher(endpoint, model=server.name, answers=store, max_tokens=99, max_retries=retries)
        try:
            return await asyncio.wait_for(work(teacher), 60)
        finally:
            await endpoint.aclose()

    return asyncio.run(run())


def ask(server, store, text="Why?", **options) -> TeacherAnswer:
    return with_teacher(server, store, lambda teacher: teacher.answer(question(text)), **options)


def failed(answer: TeacherAnswer) -> tuple[str, int]:
    assert answer.text is None and answer.explanation and "\n" not in answer.explanation and not answer.from_disk
    return answer.failure, answer.requests


# ---- what is asked and learned from ----


def test_an_answer(server, store):
    answer = ask(server, store)
    assert dataclasses.replace(answer, seconds=0) == TeacherAnswer("The answer to: Why?", None, None, 1, 0, False)
    assert 0 < answer.seconds < 10
    (received,) = server.requests
    assert received.body == {"model": "teacher", "messages": question(), "max_tokens": 99}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_separate_reasoning_becomes_a_think_block(server, store, name):
    server.says = lambda _: {"content": "\n\nBecause.", name: "\nLet me see.\nYes.\n"}
    assert ask(server, store).text == "<think>\nLet me see.\nYes.\n</think>\n\nBecause."
    assert store.get("teacher", question()) == "<think>\nLet me see.\nYes.\n</think>\n\nBecause."


@pytest.mark.parametrize(
    ("said", "learned"),
    [
        ("<think>Hm.</think>Because.", "<think>Hm.</think>Because."),
        ("Hm.\n</think>\n\nBecause.", "<think>\nHm.\n</think>\n\nBecause."),
        ("  Because.\n", "Because."),
        ("Use the tag <think> here.", "Use the tag <think> here."),
        ("half \ud83d of it", "half ? of it"),
    ],
)
def test_what_a_text_is_made_of(said, learned):
    assert answer_text(Completion(said, None, "stop", 1)) == learned
    assert answer_text(Completion(said, None, None, 1)) == learned


@pytest.mark.parametrize("odd", [["stop"], {"reason": "stop"}, 7])
def test_fields_that_are_no_text_are_left_out(odd):
    message = {"content": "Because.", "reasoning_content": odd}
    content = json.dumps({"choices": [{"message": message, "finish_reason": odd}]}).encode()
    assert answer_text(read_completion(content)) == "Because."


@pytest.mark.parametrize(
    ("completion", "kind", "words"),
    [
        (Completion("", "Hm.", "stop", 1), "no_answer", "reasoning and nothing else"),
        (Completion("<think>Hm.</think>\n", None, "stop", 1), "no_answer", "reasoning and nothing else"),
        (Completion("<think>Hm.", None, "stop", 1), "no_answer", "reasoning and nothing else"),
        (Completion(" \n", None, "stop", 1), "no_answer", "empty"),
        (Completion("Because of", None, "length", 1), "cut_off", "token limit"),
        (Completion("Because of", None, "content_filter", 1), "cut_off", "content filter"),
        (Completion("Because of", None, "abort", 1), "cut_off", "its finish_reason is 'abort'"),
        (Completion("Because of", None, "MAX_TOKENS", 1), "cut_off", "its finish_reason is 'MAX_TOKENS'"),
    ],
)
def test_nothing_to_learn_from(completion, kind, words):
    with pytest.raises(UnusableAnswer, match=words) as raised:
        answer_text(completion)
    assert raised.value.kind == kind


@pytest.mark.parametrize("said", [{"content": None, "reasoning_content": "Hm."}, "", {"content": "<think>"}])
def test_an_answer_without_text_is_a_failure_and_is_not_kept(server, store, said):
    server.says = lambda _: said
    assert failed(ask(server, store)) == ("no_answer", 1)
    server.says = lambda _: "Because."
    assert ask(server, store).text == "Because."


def test_an_answer_that_is_cut_off_is_not_kept(server, store):
    server.says = lambda _: {"content": "Because of", "finish_reason": "length"}
    assert failed(ask(server, store)) == ("cut_off", 1)
    assert store.get("teacher", question()) is None


# ---- answers on disk ----


def test_a_later_run_finds_the_answer_on_disk(server, store):
    ask(server, store)
    server.stop()
    answer = ask(server, store)
    assert dataclasses.replace(answer, seconds=0) == TeacherAnswer("The answer to: Why?", None, None, 0, 0, True)
    assert failed(ask(server, store, "Why not?"))[0] == "unavailable"
    server.start()


def test_the_same_question_at_one_time_is_sent_once(server, store):
    async def work(teacher):
        return await asyncio.gather(*(teacher.answer(question(text)) for text in ("a", "b", "a", "a")))

    answers = with_teacher(server, store, work)
    assert [answer.text for answer in answers] == [f"The answer to: {text}" for text in "abaa"]
    assert [answer.requests for answer in answers] == [1, 1, 0, 0]
    assert len(server.requests) == 2


def test_the_same_question_later_is_not_sent_again(server, store):
    async def work(teacher):
        return [await teacher.answer(question()) for _ in range(2)]

    assert [answer.from_disk for answer in with_teacher(server, store, work)] == [False, True]
    assert len(server.requests) == 1


def test_the_same_question_after_a_failure_is_sent_again(server, store):
    replies = iter([(400, {}), "Because."])
    server.says = lambda _: next(replies)

    async def work(teacher):
        return [await teacher.answer(question()) for _ in range(2)]

    assert [answer.failure for answer in with_teacher(server, store, work)] == ["refused", None]


def test_one_that_no_longer_waits_does_not_take_the_answer_from_the_others(server, store):
    server.behave(latency=0.3)

    async def work(teacher):
        impatient = asyncio.create_task(teacher.answer(question()))
        await asyncio.to_thread(server.wait_for_requests, 1)
        patient = asyncio.create_task(teacher.answer(question()))
        await asyncio.sleep(0)
        impatient.cancel()
        return await patient

    assert with_teacher(server, store, work).text == "The answer to: Why?"
    assert len(server.requests) == 1


def test_an_answer_that_cannot_be_kept_is_still_an_answer(server, tmp_path, monkeypatch):
    monkeypatch.setattr(answers_module, "_PATIENCE", 0.05)
    store = AnswerStore(tmp_path / "answers.sqlite")
    other = sqlite3.connect(tmp_path / "answers.sqlite", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    answer = ask(server, store)
    assert (answer.text, answer.failure) == ("The answer to: Why?", None)
    assert "teacher answers cannot be kept there (database is locked)" in answer.explanation


# ---- failures ----


@pytest.mark.parametrize("mode", ["500", "not_json", "no_choices"])
def test_a_server_error_is_tried_again(server, store, mode):
    server.behave(mode=[mode, mode, "normal"])
    answer = ask(server, store, max_retries=2)
    assert (answer.text, answer.failure, answer.explanation, answer.requests) == ("The answer to: Why?", None, None, 3)
    server.behave(mode=mode)
    assert failed(ask(server, store, "again", max_retries=1)) == ("server_error", 2)
    assert failed(ask(server, store, "again", max_retries=0)) == ("server_error", 1)


def test_a_time_out_is_tried_again(server, store):
    server.behave(mode=["silent", "normal"])
    answer = ask(server, store, timeout=0.5)
    assert (answer.text, answer.requests) == ("The answer to: Why?", 2)
    server.behave(mode="silent")
    assert failed(ask(server, store, "again", timeout=0.2, max_retries=1)) == ("timed_out", 2)


def test_refusals_fail_at_once(server, store):
    server.says = lambda _: (400, {"error": {"message": "not this one"}})
    answer = ask(server, store)
    assert failed(answer) == ("refused", 1) and "not this one" in answer.explanation
    server.behave(api_key="k-1")
    assert failed(ask(server, store)) == ("refused", 1)
    server.behave(api_key=None, max_characters=2)
    assert failed(ask(server, store)) == ("context_length", 1)
    assert len(server.requests) == 3


def test_an_outage_is_waited_for_until_its_limit(server, store):
    server.behave(mode=["503", "429", "normal"])
    answer = ask(server, store, outage_limit=30.0)
    assert (answer.text, answer.requests) == ("The answer to: Why?", 3)
    server.behave(mode="503")
    failure, requests = failed(ask(server, store, "again", outage_limit=0.2))
    assert failure == "unavailable" and requests >= 2
