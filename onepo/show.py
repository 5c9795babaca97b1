"""Look at what a run has written: ``python -m onepo.show RUN [--step N] [--teacher] [--worst]``.

Prints the rollouts that ROLLOUT_DUMP_FREQ has kept: prompts, responses, rewards, rubrics met, teacher rows marked.
"""

import re
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.console import Console

from onepo.terminal import as_text
from onepo.trainers.samples import SAMPLES_DIR, Sample, samples_file


def show(
    run: Annotated[Path, typer.Argument(help="The run's directory, such as runs/latest.")],
    step: Annotated[int | None, typer.Option(help="The step; the last one that was kept unless it is set.")] = None,
    teacher: Annotated[
        bool, typer.Option("--teacher", help="Only prompts for which a teacher's response was used.")
    ] = False,
    worst: Annotated[bool, typer.Option("--worst", help="The lowest scores first.")] = False,
) -> None:
    """Print the kept rollouts of one step."""
    if not run.is_dir():
        _refuse(f"{run} is no directory")
    files = {file.stem: file for file in (run / SAMPLES_DIR).glob("*.jsonl")}
    steps = sorted(int(stem) for stem in files if re.fullmatch("0|[1-9][0-9]*", stem, re.ASCII))
    if not steps:
        _refuse(
            f"{run} has no {SAMPLES_DIR}/ with rollouts: give a run's directory; a run that is started with "
            "ROLLOUT_DUMP_FREQ=1 keeps some"
        )
    step = steps[-1] if step is None else step
    if step not in steps:
        _refuse(f"{run} has no rollouts of step {step}, but of {', '.join(map(str, steps))}")
    groups = _groups(samples_file(run, step))
    chosen = [rows for rows in groups.values() if not teacher or any(row.teacher for row in rows)]
    if worst:
        chosen = sorted((sorted(rows, key=_score) for rows in chosen), key=lambda rows: _score(rows[0]))
    out = Console(highlight=False)
    out.print(f"step {step}: {len(chosen)} of {len(groups)} prompts", style="bold")
    for rows in chosen:
        _print_group(out, rows)


def _groups(file: Path) -> dict[str, list[Sample]]:
    """The rows of a file by group."""
    groups: dict[str, list[Sample]] = {}
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = Sample.model_validate_json(line)
                row.met_criteria()
            except ValidationError as error:
                _refuse(f"{file}, line {number}: is no rollout ({error.errors()[0]['msg']})")
            groups.setdefault(row.group, []).append(row)
    return groups


def _score(row: Sample) -> float:
    return row.score


def _print_group(out: Console, rows: list[Sample]) -> None:
    out.rule(as_text(f"record {rows[0].record}, {rows[0].data_source}"), align="left")
    for message in rows[0].prompt:
        out.print(as_text(f"{message.role}: {message.content}", style="dim"))
    for row in rows:
        who = "teacher" if row.teacher else "student"
        out.print(as_text(f"\n{who}  score {row.score:.3f}  acc {row.acc:.3f}", style="bold" if row.teacher else ""))
        out.print(as_text(row.response))
        for rubric, decision in zip(row.rubrics, row.met_criteria(), strict=False):
            out.print(as_text(f"  [{'x' if decision else ' '}] {rubric.points:+g}  {rubric.criterion}"))


def _refuse(problem: str) -> None:
    Console(stderr=True, highlight=False).print(as_text(f"error: {problem}"), soft_wrap=True)
    raise typer.Exit(2)


if __name__ == "__main__":
    typer.run(show)
