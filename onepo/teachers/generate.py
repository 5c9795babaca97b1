"""Have a teacher answer a whole data file: ``python -m onepo.teachers.generate --in FILE --out FILE --url URL ...``.

Every answer is kept beside the output the moment it comes, so nothing is asked twice: the same command goes on where
it was interrupted. The key of an endpoint that wants one is read from the environment variable ONEPO_TEACHER_API_KEY,
so that it stands in no command line.
"""

import asyncio
import dataclasses
import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
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
from onepo.terminal import say

# the tool asks as a run asks
RUN = OmegaConf.load(files("onepo.config").joinpath("onepo.yaml")).onepo.teacher
OPTIONS = dataclasses.replace(TEACHER, url="--url", model="--model", timeout="--timeout", max_tokens="--max-tokens")
ANSWERS_SUFFIX = ".answers.sqlite"
CHARACTERS_PER_TOKEN = 3.5  # a rule of thumb: no tokenizer of the teacher is at hand
INCOMPLETE = 3  # exit code
_LONGEST_TIMEOUT = 86400.0


@dataclass
class Totals:
    """What has come of the questions."""

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
    max_tokens: Annotated[int, typer.Option(min=1, help="Of an answer, its reasoning included.")] = RUN.max_tokens,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests at one time.")] = RUN.max_concurrency,
    timeout: Annotated[float, typer.Option(min=1, max=_LONGEST_TIMEOUT, help="Seconds for one answer.")] = RUN.timeout,
    retries: Annotated[int, typer.Option(min=0, help="After a time-out or a server error.")] = RUN.max_retries,
    overwrite_existing: Annotated[
        bool, typer.Option("--overwrite-existing", help="Replace the responses that records have.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Ask so many questions at most, to try it.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Begin without asking back.")] = False,
) -> None:
    """Fill in teacher_response. Exit code 2 for bad input, 3 when questions were left without an answer."""
    console, errors = Console(), Console(stderr=True)
    try:
        store = _answers_beside(source, out)
        tasks = load_tasks(str(source))
        present = tasks["teacher_responses"].to_pylist()
        wanted = [
            prompt if overwrite_existing or not responses else None
            for prompt, responses in zip(prompts(tasks), present, strict=True)
        ]
        check_writable(source, out, [prompt and "" for prompt in wanted])  # before anything is paid for
        with AnswerStore(store) as answers:
            unanswered = _unanswered(answers, model, wanted)
            questions = unanswered[:limit]
            say(
                console,
                f"records: {len(wanted)}; to be given a teacher response: {sum(map(bool, wanted))}; different prompts "
                f"among them without an answer in {store}: {len(unanswered)}",
            )
            totals = Totals()
            if questions:
                say(console, _estimate(questions, max_tokens))
                _confirm(yes)
                key = os.environ.get("ONEPO_TEACHER_API_KEY") or None
                endpoint = {"url": url, "model": model, "api_key": key, "timeout": timeout}
                asking = {"concurrency": concurrency, "max_tokens": max_tokens, "max_retries": retries}
                totals = asyncio.run(_ask(console, questions, endpoint, answers, **asking))
                _report(console, totals, len(questions))
            if totals.stopped_by is None:
                responses = [prompt and answers.get(model, prompt) for prompt in wanted]
                write_responses(source, out, responses)
                missing = sum(not (old or new) for old, new in zip(present, responses, strict=True))
                say(console, f"written: {out}; with a teacher response: {len(wanted) - missing}; without: {missing}")
    except UserError as error:
        say(errors, f"error: {error}")
        raise typer.Exit(2) from None
    if totals.stopped_by is not None:
        say(errors, f"interrupted: {out} is not written, the answers so far are in {store}; the same command goes on")
        raise typer.Exit(128 + totals.stopped_by)
    raise typer.Exit(INCOMPLETE if totals.answered < len(questions) else 0)


def _answers_beside(source: Path, out: Path) -> Path:
    """Where the answers are kept, once it is clear that writing ``out`` destroys nothing."""
    store = out.with_name(out.name + ANSWERS_SUFFIX)  # one for each file, else it would vouch for others
    if out.suffix.lower() not in READERS:
        raise UserError(f"--out {out}: found the suffix '{out.suffix}', expected one of {', '.join(READERS)}")
    if out.resolve() == source.resolve():
        raise UserError(f"--out {out}: is the file of --in; name another one, which then replaces it in training")
    if out.exists() and not store.exists():
        raise UserError(f"--out {out}: exists, and was not written by this tool (no {store}): name another file")
    return store


def _unanswered(answers: AnswerStore, model: str, wanted: Sequence[Messages | None]) -> list[Messages]:
    """The different prompts among those wanted that have no answer yet, in order."""
    different = {question_key(model, prompt): prompt for prompt in wanted if prompt}
    return [prompt for prompt in different.values() if answers.get(model, prompt) is None]


def _estimate(questions: Sequence[Messages], max_tokens: int) -> str:
    tokens = _tokens(sum(len(message["content"]) for prompt in questions for message in prompt))
    return (
        f"to be asked: {len(questions)}; tokens of prompts: about {tokens:,} (characters / {CHARACTERS_PER_TOKEN}, a "
        f"rule of thumb); tokens of answers: at most {len(questions)} x {max_tokens} = {len(questions) * max_tokens:,}"
    )


def _confirm(yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UserError("nobody is here to agree to that: add --yes")
    if not typer.confirm("Begin?"):
        raise UserError("nothing was asked")


async def _ask(
    console: Console,
    questions: Sequence[Messages],
    endpoint: dict[str, Any],
    answers: AnswerStore,
    *,
    concurrency: int,
    max_tokens: int,
    max_retries: int,
) -> Totals:
    settled = await settle_teacher(max_tokens=max_tokens, options=OPTIONS, **endpoint)
    for line in settled.lines:
        say(console, line)
    endpoint = {**endpoint, "url": chat_url(endpoint["url"])}
    client = ChatEndpoint(form=settled.form, max_concurrency=concurrency, outage_limit=RUN.outage_limit, **endpoint)
    teacher = OnlineTeacher(
        client, model=endpoint["model"], answers=answers, max_tokens=max_tokens, max_retries=max_retries
    )
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    try:
        with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
            bar = progress.add_task("", total=len(questions))

            def advance(totals: Totals) -> None:
                failed = totals.failures.total()
                progress.update(bar, advance=1, description=f"{failed} failed" if failed else "")

            return await _work(client, teacher, questions, concurrency, advance)
    finally:
        await client.aclose()


async def _work(
    client: ChatEndpoint,
    teacher: OnlineTeacher,
    questions: Sequence[Messages],
    concurrency: int,
    advance: Callable[[Totals], None],
) -> Totals:
    """Answer the questions until all are done, the endpoint has gone, or a signal comes."""
    totals = Totals()
    waiting = iter(questions)

    async def work() -> None:
        for messages in waiting:
            answer = await teacher.answer(messages)
            if answer.text is not None and answer.explanation:  # it could not be kept
                raise UserError(answer.explanation)
            totals.add(answer)
            advance(totals)
            if client.given_up:
                return

    def stop(received: signal.Signals) -> None:
        totals.stopped_by = received
        logging.getLogger("onepo.endpoints").setLevel(logging.ERROR)  # what is being ended is no outage
        for worker in workers:
            worker.cancel()

    workers = [asyncio.create_task(work()) for _ in range(min(concurrency, len(questions)))]
    loop = asyncio.get_running_loop()
    stops = [s for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) is not signal.SIG_IGN]
    for number in stops:
        loop.add_signal_handler(number, stop, number)
    try:
        await asyncio.gather(*workers)
    except asyncio.CancelledError:
        if totals.stopped_by is None:
            raise
    finally:
        for number in stops:
            loop.remove_signal_handler(number)
    return totals


def _report(console: Console, totals: Totals, asked: int) -> None:
    tokens = _tokens(totals.characters)
    say(console, f"answers: {totals.answered}, of about {tokens:,} tokens; requests: {totals.requests}")
    for kind, count in totals.failures.most_common():
        say(console, f"failed ({kind.replace('_', ' ')}): {count}, such as: {totals.examples[kind]}")
    if not_asked := asked - totals.answered - totals.failures.total():
        say(console, f"not asked any more: {not_asked}")


def _tokens(characters: int) -> int:
    return round(characters / CHARACTERS_PER_TOKEN)


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_show_locals=False)  # the key is one of them
    app.command()(generate)
    app()
