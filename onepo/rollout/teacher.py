"""The online teacher as one Ray actor of the run: it holds the limit on requests and the answers on disk."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray

from onepo.endpoints.address import chat_url
from onepo.endpoints.configured import configured_endpoint
from onepo.settings import TeacherSettings
from onepo.teachers.answers import AnswerStore
from onepo.teachers.online import OnlineTeacher, TeacherAnswer
from onepo.teachers.probe import settle_teacher

ANSWERS_FILE = "answers.sqlite"
_QUESTIONS_AT_A_TIME = 10_000  # that may wait in the actor; the endpoint's own limit is far below


class TeacherActor:
    """The actor's class. Its only method is answered by many workers at one time."""

    def __init__(self, settings: TeacherSettings):
        self._teacher = OnlineTeacher(
            configured_endpoint(settings, model=settings.model),
            model=settings.model,
            answers=AnswerStore(Path(settings.answers_dir) / ANSWERS_FILE),
            max_tokens=settings.max_tokens,
            max_retries=settings.max_retries,
        )

    async def answer(self, messages: list[dict[str, str]]) -> TeacherAnswer:
        return await self._teacher.answer(messages)


def create_teacher(name: str, settings: TeacherSettings) -> ray.actor.ActorHandle:
    """Start the run's teacher; it ends with the process that called this."""
    options = {"name": name, "num_cpus": 0, "max_concurrency": _QUESTIONS_AT_A_TIME}
    return ray.remote(TeacherActor).options(**options).remote(settings)


def teacher_name(run_dir: str) -> str:
    """The actor's name: it carries the run, as the ledger's does."""
    return f"onepo_teacher:{run_dir}"


def probe_teacher(settings: TeacherSettings, api_key: str | None, *, say: Callable[[str], None]) -> dict[str, Any]:
    """Ask one short question, and open the file of the answers.

    Returns the keys of ``onepo.teacher`` that change by it: ``url`` in full, and ``form``.

    Raises:
        UserError: the teacher does not answer, or the file cannot be used.
    """
    say("asking the teacher a short question")
    settled = asyncio.run(
        settle_teacher(
            url=settings.url,
            model=settings.model,
            api_key=api_key,
            timeout=settings.timeout,
            max_tokens=settings.max_tokens,
        )
    )
    for line in settled.lines:
        say(line)
    with AnswerStore(Path(settings.answers_dir) / ANSWERS_FILE):
        pass
    return {"url": chat_url(settings.url), "form": settled.form.as_dict()}
