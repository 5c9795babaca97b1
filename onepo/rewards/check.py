"""Look at a grader's quality: ``python -m onepo.rewards.check --file FILE --url URL --name NAME [--n 50]``.

Stored answers are graded twice, as a run grades them. The key of an endpoint that wants one is read from the
environment variable REWARD_MODEL_API_KEY, so that it stands in no command line.
"""

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import typer
from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table
from rich.text import Text

from onepo.endpoints.chat import ChatEndpoint, chat_url
from onepo.errors import UserError
from onepo.rewards.grader import Grading, RubricGrader
from onepo.rewards.probe import settle
from onepo.rewards.probe_errors import GRADER
from onepo.rewards.quality import malformed_outputs, summarise
from onepo.rewards.stored_responses import StoredAnswer, draw_answers, told
from onepo.rewards.template import load_template
from onepo.terminal import say

# the tool grades with what a run grades with
RUN = OmegaConf.load(files("onepo.config").joinpath("onepo.yaml")).onepo
OPTIONS = replace(
    GRADER,
    url="--url",
    model="--name",
    timeout="--timeout",
    max_tokens="--max-tokens",
    refusal="It takes no request for a grading: look at what --extra-body adds, and at the grader's log",
)
_PROBE_PATIENCE = 10.0  # seconds for an endpoint that is not there: a wrong address is told soon


def check(
    file: Annotated[Path, typer.Option(help="Data file with responses, or a validation file of a run.")],
    url: Annotated[str, typer.Option(help="Of the grader's chat completions.")],
    name: Annotated[str, typer.Option(help="Of the grader's model.")],
    n: Annotated[int, typer.Option(min=1, help="How many answers to grade.")] = 50,
    data_file: Annotated[Path | None, typer.Option(help="The tasks of a validation file, with their rubrics.")] = None,
    response_field: Annotated[str | None, typer.Option(help="The field of the response.")] = None,
    prompt_file: Annotated[Path | None, typer.Option(help="Grading prompt; the package has one.")] = None,
    second_prompt_file: Annotated[
        Path | None, typer.Option(help="Grading prompt of the second pass, to compare two; else the same again.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Of an output.")] = RUN.grader.max_tokens,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for one output.")] = RUN.grader.timeout,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests at one time.")] = RUN.grader.max_concurrency,
    retries: Annotated[int, typer.Option(min=0, help="After a failed attempt.")] = RUN.grader.max_retries,
    extra_body: Annotated[str, typer.Option(help="JSON object to send along.")] = RUN.grader.extra_body,
    answer_marker: Annotated[str, typer.Option(help="Line before the visible answer.")] = RUN.answer_marker,
    seed: Annotated[int, typer.Option(help="Of the drawing.")] = RUN.seed,
) -> None:
    """Grade stored answers twice and show how far that can be relied on. Exit code 2 when it is not possible."""
    out, errors = Console(), Console(stderr=True)
    try:
        templates = [
            _template(prompt_file, "--prompt-file"),
            _template(second_prompt_file or prompt_file, "--second-prompt-file"),
        ]
        endpoint = {
            "url": chat_url(url),
            "model": name,
            "api_key": os.environ.get("REWARD_MODEL_API_KEY") or None,
            "timeout": timeout,
        }
        grading = {"max_tokens": max_tokens, "max_retries": retries}
        drawn = draw_answers(
            file, data_file=data_file, response_field=response_field, marker=answer_marker, count=n, seed=seed
        )
        if drawn.left_out:
            say(out, f"passed over: {told(drawn.left_out)}")
        passes = asyncio.run(
            _grade_twice(out, drawn.answers, templates, _json_object(extra_body), concurrency, endpoint, grading)
        )
    except UserError as error:
        say(errors, f"error: {error}")
        raise typer.Exit(2) from None
    title = f"{file}: {name}" + (", two prompts" if second_prompt_file else "")
    _show(out, title, summarise([answer.rubrics for answer in drawn.answers], *passes), malformed_outputs(*passes))


async def _grade_twice(
    out: Console,
    answers: Sequence[StoredAnswer],
    templates: Sequence[str],
    extra_body: dict[str, Any],
    concurrency: int,
    endpoint: dict[str, Any],
    grading: dict[str, int],
) -> list[list[Grading]]:
    """One list of gradings per template, each in the order of the answers; the second pass begins after the first."""
    settled = await settle(
        extra_body=extra_body,
        outage_limit=_PROBE_PATIENCE,
        template=templates[0],
        options=OPTIONS,
        **endpoint,
        **grading,
    )
    for line in settled.lines:
        say(out, line)
    client = ChatEndpoint(
        form=settled.form, max_concurrency=concurrency, outage_limit=RUN.grader.outage_limit, **endpoint
    )
    try:
        return [
            await asyncio.gather(*(grader.grade(answer.conversation, answer.rubrics) for answer in answers))
            for grader in (RubricGrader(client, template=template, **grading) for template in templates)
        ]
    finally:
        await client.aclose()


def _template(path: Path | None, option: str) -> str:
    return load_template(None if path is None else str(path), option=option)


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise UserError(f"--extra-body {text}: expected a JSON object, such as {RUN.grader.extra_body}")
    return value


def _show(out: Console, title: str, summary: dict[str, str], malformed: list[tuple[str, int]]) -> None:
    table = Table(title=Text(title))
    table.add_column("")
    table.add_column("", justify="right")
    for line in summary.items():
        table.add_row(*line)
    out.print(table)
    if malformed:
        say(out, "most common outputs that were no grading:")
    for text, count in malformed:
        say(out, f"{count} x {text}")


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_show_locals=False)  # the key is one of them
    app.command()(check)
    app()
