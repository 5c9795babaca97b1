"""Look at data files before a run: ``python -m onepo.data.check FILE [FILE ...] [--model DIR]``."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer
from rich.console import Console
from rich.table import Table

from onepo.data.chat import prompt_token_ids
from onepo.data.lengths import prompts
from onepo.data.schema import MULTIPLE_CHOICE, OPEN_ENDED
from onepo.data.table import load_tasks
from onepo.errors import UserError
from onepo.terminal import say


def summarise(tasks: pa.Table, tokenizer: Any = None) -> dict[str, dict[str, str]]:
    """What a table of tasks holds: for each type that occurs, the lines of the summary (name: value).

    Prompt lengths are the characters of all messages and, with a tokenizer, the tokens of the rendered prompt.
    """
    lengths = {"prompt characters": [sum(len(message["content"]) for message in prompt) for prompt in prompts(tasks)]}
    if tokenizer is not None:
        lengths["prompt tokens"] = [len(prompt_token_ids(tokenizer, prompt)) for prompt in prompts(tasks)]
    types = np.array(tasks["type"].to_pylist())
    teachers = np.array(pc.list_value_length(tasks["teacher_responses"]).to_pylist())
    rubrics = np.array(pc.list_value_length(tasks["rubrics"]).to_pylist())
    summary = {}
    for name in sorted(set(types)):
        chosen = types == name
        count = int(chosen.sum())
        taught = int((teachers[chosen] > 0).sum())
        summary[str(name)] = {
            "records": str(count),
            **{title: _percentiles(np.array(values)[chosen]) for title, values in lengths.items()},
            "with a teacher response": f"{taught} ({taught / count:.0%})",
            "rubrics per record": _percentiles(rubrics[chosen]) if name == OPEN_ENDED else "-",
        }
    return summary


def unprompted_answers(tasks: pa.Table) -> int:
    """How many multiple-choice prompts never mention ``<answer>``: a student cannot know that form and scores 0."""
    types = tasks["type"].to_pylist()
    return sum(
        kind == MULTIPLE_CHOICE and not any("<answer>" in message["content"] for message in prompt)
        for kind, prompt in zip(types, prompts(tasks), strict=True)
    )


def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Data files: .json, .jsonl or .parquet.")],
    model: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Model directory: count the prompts' tokens as well."),
    ] = None,
) -> None:
    """Check data files and show what they hold. Exit code 2 when one of them is not usable."""
    out, errors = Console(), Console(stderr=True)
    good = True
    try:
        tokenizer = None if model is None else _tokenizer(model)
    except UserError as error:
        say(errors, str(error))
        raise typer.Exit(2) from None
    for file in files:
        try:
            tasks = load_tasks(str(file))
            out.print(_drawn(file, summarise(tasks, tokenizer)))
        except UserError as error:
            say(errors, str(error))
            good = False
            continue
        if silent := unprompted_answers(tasks):
            say(
                out,
                f"Warning: {silent} multiple-choice records have a prompt of their own that never mentions <answer>: "
                "ask for the answer in that form, or leave the prompt away and the instruction is added.",
            )
    if not good:
        raise typer.Exit(2)


def _tokenizer(model: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(model)
    except Exception as error:  # a damaged tokenizer file makes transformers raise anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"--model {model}: no tokenizer can be loaded from this directory ({reason})") from None


def _percentiles(values: np.ndarray) -> str:
    return " / ".join(f"{value:.0f}" for value in np.percentile(values, [50, 90, 99, 100]))


def _drawn(file: Path, summary: dict[str, dict[str, str]]) -> Table:
    table = Table(title=f"{file}: no problems", caption="lengths and counts: median / 90 % / 99 % / largest")
    table.add_column("")
    for name in summary:
        table.add_column(name, justify="right")
    for title in next(iter(summary.values())):
        table.add_row(title, *(lines[title] for lines in summary.values()))
    return table


if __name__ == "__main__":
    typer.run(check)
