"""Asking a served teacher: answers are kept on disk, and a failure only leaves its prompt without a teacher."""

import asyncio
import dataclasses
import time
from dataclasses import dataclass

from onepo.endpoints.attempts import pause_after, worth_another_attempt
from onepo.endpoints.chat import ChatEndpoint, Completion, EndpointError
from onepo.endpoints.explain import FAILURES
from onepo.errors import UserError
from onepo.rewards.rubric import Messages
from onepo.rewards.visible_answer import after_thinking
from onepo.teachers.answers import AnswerStore, question_key

_OPEN, _CLOSE = "<think>", "</think>"
_WHOLE = {None, "", "stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete", "completed", "done"}
_CUT_OFF = {"length": "at the token limit", "content_filter": "by the endpoint's content filter"}


@dataclass(frozen=True)
class TeacherAnswer:
    """What became of one question.

    Attributes:
        text: the answer, its reasoning in front as a think block; None when there is none.
        failure: ``no_answer``, ``cut_off``, ``timed_out``, ``server_error``, ``unavailable``, ``refused`` or
            ``context_length``; None with an answer.
        explanation: one line for people, of the failure or of why an answer could not be kept; else None.
        requests: all that were sent for this call; 0 for one that waited for another's answer to the same question.
        seconds: from the call to the end, waiting for a free slot and through outages included.
        from_disk: it had been asked before.
    """

    text: str | None
    failure: str | None
    explanation: str | None
    requests: int
    seconds: float
    from_disk: bool


class UnusableAnswer(ValueError):
    """A completion from which nothing can be learned.

    Args:
        kind: ``cut_off`` or ``no_answer``.
        message: one line that says what was found.
    """

    def __init__(self, kind: str, message: str):
        super().__init__(kind, message)
        self.kind = kind

    def __str__(self) -> str:
        return self.args[1]


class OnlineTeacher:
    """Asks an endpoint, each question once. It belongs to one event loop.

    No temperature is sent: a teacher answers with the one that its endpoint was set up for.

    Args:
        endpoint: whose form has no temperature.
        model: the name under which answers are kept.
        max_tokens: of an answer, its reasoning included.
        max_retries: further attempts after a time-out or a server error.
    """

    def __init__(self, endpoint: ChatEndpoint, *, model: str, answers: AnswerStore, max_tokens: int, max_retries: int):
        self._endpoint = endpoint
        self._model = model
        self._answers = answers
        self._max_tokens = max_tokens
        self._max_retries = max_retries
        self._asked: dict[bytes, asyncio.Task[TeacherAnswer]] = {}

    async def answer(self, messages: Messages) -> TeacherAnswer:
        """The answer to a conversation. Every trouble with the endpoint or the disk is told in the result."""
        started = time.monotonic()
        key = question_key(self._model, messages)
        task = self._asked.get(key)
        joined = task is not None
        if task is None:
            task = self._asked[key] = asyncio.create_task(self._answer(messages))
            task.add_done_callback(lambda _: self._asked.pop(key))
        answer = await asyncio.shield(task)  # one that no longer waits does not take it from the others
        requests = 0 if joined else answer.requests
        return dataclasses.replace(answer, requests=requests, seconds=time.monotonic() - started)

    async def _answer(self, messages: Messages) -> TeacherAnswer:
        try:
            text = await asyncio.to_thread(self._answers.get, self._model, messages)
        except UserError:  # asked again, and told when the new answer cannot be kept either
            text = None
        if text is not None:
            return TeacherAnswer(text, None, None, requests=0, seconds=0.0, from_disk=True)
        answer = await self._ask(messages)
        if answer.text is not None:
            try:
                await asyncio.to_thread(self._answers.put, self._model, messages, answer.text)
            except UserError as error:
                answer = dataclasses.replace(answer, explanation=str(error))
        return answer

    async def _ask(self, messages: Messages) -> TeacherAnswer:
        text, failure, explanation = None, None, None
        requests = 0
        for attempt in range(1 + self._max_retries):
            try:
                completion = await self._endpoint.complete(messages, temperature=1.0, max_tokens=self._max_tokens)
                requests += completion.requests
                text, failure, explanation = answer_text(completion), None, None
                break
            except UnusableAnswer as error:
                failure, explanation = error.kind, str(error)
                break
            except EndpointError as error:
                requests += error.requests
                failure, explanation = FAILURES[type(error)], str(error)
                if not worth_another_attempt(error):
                    break
                if attempt < self._max_retries:
                    await pause_after(error, attempt)
        return TeacherAnswer(text, failure, explanation, requests, seconds=0.0, from_disk=False)


def answer_text(completion: Completion) -> str:
    """A completion as a response to learn from, in the form in which students write: a think block, then the answer.

    Raises:
        UnusableAnswer: it was cut off, or has nothing behind its reasoning. What was cut off would teach to stop in
            the middle, because an end is set behind each response.
    """
    reason = completion.finish_reason and completion.finish_reason.lower()
    if reason not in _WHOLE:
        how = _CUT_OFF.get(reason, f"(its finish_reason is {completion.finish_reason[:40]!r})")
        raise UnusableAnswer("cut_off", f"the answer was cut off {how}")
    text = completion.text.strip()
    if not after_thinking(text):
        reasoned = completion.reasoning or _OPEN in text
        raise UnusableAnswer("no_answer", "the answer is " + ("reasoning and nothing else" if reasoned else "empty"))
    if completion.reasoning is not None:
        text = f"{_OPEN}\n{completion.reasoning.strip()}\n{_CLOSE}\n\n{text}"
    elif _CLOSE in text and _OPEN not in text.partition(_CLOSE)[0]:
        text = f"{_OPEN}\n{text}"  # the teacher's chat template had opened the block in the prompt
    return text.encode(errors="replace").decode()  # a lone surrogate, which JSON can carry, is no text
