"""Have a teacher answer a whole data file: ``python -m onepo.teachers.generate --in FILE --out FILE --url URL ...``.

Every answer is kept beside the output the moment it comes, so nothing is asked twice: the same command goes on where
it was interrupted. The key of an endpoint that wants one is read from the environment variable ONEPO_TEACHER_API_KEY,
so that it stands in no command line.
"""

import asyncio
import dataclasses
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import typer
from omegaconf import OmegaConf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from onepo.data.lengths import prompts
from onepo.data.readers import READERS
from onepo.data.table import load_tasks
from onepo.endpoints.chat import ChatEndpoint, chat_url
from onepo.errors import UserError
from onepo.rewards.rubric import Messages
from onepo.teachers.answers import AnswerStore, question_key
from onepo.teachers.online import OnlineTeacher, TeacherAnswer
from onepo.teachers.probe import TEACHER, settle_teacher
from onepo.teachers.response_file import check_writable, write_responses

# the tool asks as a run asks
RUN = OmegaConf.load(files("onepo.config").joinpath("onepo.yaml")).onepo.teacher
OPTIONS = dataclasses.replace(
    TEACHER, url="--url", model="--model", timeout="--timeout", max_tokens="--max-tokens"
)
CHARACTERS_PER_TOKEN = 3.5  # a rule of thumb, for texts of which no tokenizer is at hand
INCOMPLETE = 3


@dataclass
class Totals:
    """What came of the questions so far."""

    answered: int = 0
    requests: int = 0
    characters: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    stopped_by: signal.Signals | None = None

    def add(self, answer: TeacherAnswer) -> None:
        self.requests += answer.requests
        if answer.text is None:
            self.failures[answer.failure] += 1
            self.examples[answer.failure] = answer.explanation
        else:
            self.answered += 1
            self.characters += len(answer.text)


def generate(
    source: Annotated[Path, typer.Option("--in", help="Data file: .json, .jsonl or .parquet.")],
    out: Annotated[Path, typer.Option(help="The same with teacher_response filled in; .jsonl suits best.")],
    url: Annotated[str, typer.Option(help="Of the teacher's chat completions.")],
    model: Annotated[str, typer.Option(help="Name of the served teacher.")],
    max_tokens: Annotated[int, typer.Option(min=1, help="Of an answer, reasoning included.")] = RUN.max_tokens,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests at one time.")] = RUN.max_concurrency,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for one answer.")] = RUN.timeout,
    retries: Annotated[int, typer.Option(min=0, help="After a time-out or server error.")] = RUN.max_retries,
    overwrite_existing: Annotated[
        bool, typer.Option("--overwrite-existing", help="Replace the responses that records have.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Ask so many questions at most, for a try.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Begin without asking back.")] = False,
) -> None:
    """Fill in teacher_response for a data file. Exit code 2 for bad input, 3 when answers are missing."""
    console, errors = Console(), Console(stderr=True)
    say = _printer(console)
    try:
        _check_places(source, out)
        wanted = _wanted(source, overwrite_existing, say)
        with_store = out.with_suffix(".answers.sqlite")
        answers = AnswerStore(with_store)
        check_writable(source, out, ("" if prompt else None for prompt in wanted))
        questions = _unanswered(answers, model, wanted)
        say(f"{with_store} answers all but {len(questions)} of the prompts that need one")
        asked = questions[:limit]
        totals = Totals()
        if asked:
            say(_estimate(asked, max_tokens))
            _confirm(yes)
            endpoint = {
                "url": chat_url(url),
                "model": model,
                "api_key": os.environ.get("ONEPO_TEACHER_API_KEY") or None,
                "timeout": timeout,
            }
            totals = asyncio.run(
                _ask(asked, endpoint, answers, console, concurrency=concurrency, max_tokens=max_tokens, retries=retries)
            )
        if totals.stopped_by is None:
            write_responses(source, out, (prompt and answers.get(model, prompt) for prompt in wanted))
    except UserError as error:
        _printer(errors)(f"error: {error}")
        raise typer.Exit(2) from None
    raise typer.Exit(0)
