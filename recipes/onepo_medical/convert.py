"""Convert and check a local copy of OnePO-Medical-20K.

``python -m recipes.onepo_medical.convert SOURCE [SOURCE ...] --out DIR [--val N]`` reads JSON, JSONL or Parquet files
in any form that docs/data.md tolerates, shows what they hold beside what was published, and writes train.jsonl, and
val.jsonl if asked for, under that page's field names. Everything is checked before the first line is written.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from onepo.data.check import summarise, unprompted_answers
from onepo.data.lengths import prompts
from onepo.data.readers import READERS
from onepo.data.schema import MULTIPLE_CHOICE, OPEN_ENDED
from onepo.data.table import load_tasks
from onepo.errors import UserError
from onepo.rewards.multiple_choice import multiple_choice_score
from onepo.terminal import say

PUBLISHED = {MULTIPLE_CHOICE: 10_191, OPEN_ENDED: 10_147}  # records of the data set
SOURCES_SHOWN = 20
TRAIN, VAL = "train.jsonl", "val.jsonl"


def read(sources: list[Path]) -> pa.Table:
    """The tasks of all sources. Raises UserError when a source is not usable or has tasks of another type."""
    tasks = load_tasks([str(source) for source in sources])
    if foreign := sorted(set(tasks["type"].to_pylist()) - set(PUBLISHED)):
        raise UserError(
            f"found records of type {', '.join(foreign)}; the data set has only {' and '.join(PUBLISHED)} ones"
        )
    return tasks


def differences(tasks: pa.Table) -> list[str]:
    """What is not as published, one text for each type of task."""
    counts = Counter(tasks["type"].to_pylist())
    return [
        f"found {counts[kind]} {kind} records, the published data set has {expected}"
        for kind, expected in PUBLISHED.items()
        if counts[kind] != expected
    ]


def prompt_digests(tasks: pa.Table) -> list[bytes]:
    """One digest per record, equal where the messages of the prompts are."""
    return [sha256(json.dumps(messages).encode()).digest() for messages in prompts(tasks)]


def held_out_rows(tasks: pa.Table, digests: list[bytes], *, count: int, seed: int) -> set[int]:
    """Rows for validation: of each type and source the same share.

    Who is drawn depends on the seed and the prompts alone, neither on the order of the records nor on the file format.
    A prompt that occurs more than once stays in training, so that no validation prompt is trained on.

    Raises:
        UserError: there are not that many, or nothing would be left to train on.
    """
    occurrences = Counter(digests)
    strata = list(zip(tasks["type"].to_pylist(), tasks["data_source"].to_pylist(), strict=True))
    once = [row for row, digest in enumerate(digests) if occurrences[digest] == 1]
    largest = min(len(once), len(digests) - 1)
    if count > largest:
        raise UserError(
            f"--val {count}: at most {largest} of these {len(digests)} records can be held out; ask for fewer"
        )
    once.sort(key=lambda row: (strata[row], sha256(f"{seed}:".encode() + digests[row]).digest()))
    return {once[position * len(once) // count] for position in range(count)}


def converted(record: dict[str, Any], task: dict[str, Any]) -> dict[str, Any]:
    """A record with the fields that its type uses, under the names of docs/data.md.

    Args:
        record: as a reader gave it.
        task: its row of the task table; options and question are not in there.
    """
    used = {"type": task["type"], "data_source": task["data_source"]}
    if task["type"] == MULTIPLE_CHOICE:
        used |= {name: _without_nulls(record[name]) for name in ("question", "options", "prompt") if record.get(name)}
        used["answer_idx"] = task["answer_idx"]
    else:
        used |= {"prompt": task["prompt"], "rubrics": task["rubrics"]}
    texts = task["teacher_responses"]
    teacher = texts if len(texts) > 1 else next(iter(texts), None)
    return used | {"teacher_response": teacher, "extra_info": json.loads(task["extra_info"])}


def write(sources: list[Path], tasks: pa.Table, held_out: set[int], out: Path) -> list[Path]:
    """Write the records into ``out``; the files appear when they are complete. Returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    names = [TRAIN, VAL] if held_out else [TRAIN]
    with TemporaryDirectory(prefix=".convert-", dir=out) as folder:
        with ExitStack() as stack:
            # half a character, which JSON can hold and UTF-8 cannot, becomes the JSON escape it was
            files = [
                stack.enter_context(open(Path(folder, name), "w", encoding="utf-8", errors="backslashreplace"))
                for name in names
            ]
            for row, (record, task) in enumerate(zip(_records(sources), _rows(tasks), strict=True)):
                files[row in held_out].write(json.dumps(converted(record, task), ensure_ascii=False) + "\n")
        return [Path(folder, name).rename(out / name) for name in names]


def convert(
    sources: Annotated[list[Path], typer.Argument(metavar="SOURCE", help="Files of the data set.")],
    out: Annotated[Path, typer.Option(help="Directory for train.jsonl and val.jsonl.")],
    val: Annotated[int, typer.Option(min=0, help="Records to hold out for validation.")] = 0,
    seed: Annotated[int, typer.Option(help="Of the choice of these.")] = 42,
    allow_difference: Annotated[bool, typer.Option(help="Convert it though its size is another one.")] = False,
) -> None:
    """Convert and check a local copy of OnePO-Medical-20K. Exit code 2 when that is not possible."""
    console, errors = Console(), Console(stderr=True)
    try:
        for name in (TRAIN, VAL):  # also a val.jsonl of an earlier split, which this one may train on
            if (out / name).exists():
                raise UserError(f"{out / name} exists: remove it, or name another directory with --out")
        tasks = read(sources)
        console.print(_contents(tasks), _sources(tasks))
        digests = prompt_digests(tasks)
        say(console, f"records whose prompt came before: {len(digests) - len(set(digests))}")
        if silent := unprompted_answers(tasks):
            say(console, f"Warning: {silent} multiple-choice records have a prompt that never mentions <answer>")
        different = "; ".join(differences(tasks))
        if different and not allow_difference:
            raise UserError(f"{different}. If this is another version or a part, --allow-difference converts it")
        if different:
            say(console, f"allowed: {different}")
        held_out = held_out_rows(tasks, digests, count=val, seed=seed)
        counts = {TRAIN: tasks.num_rows - len(held_out), VAL: len(held_out)}
        for file in _written(sources, tasks, held_out, out):
            say(console, f"wrote {file}: {counts[file.name]} records")
    except UserError as error:
        say(errors, f"error: {error}")
        raise typer.Exit(2) from None


def _written(sources: list[Path], tasks: pa.Table, held_out: set[int], out: Path) -> list[Path]:
    try:
        return write(sources, tasks, held_out, out)
    except OSError as error:
        raise UserError(f"--out {out}: cannot be written ({error.strerror}); name another directory") from None


def _without_nulls(value: Any) -> Any:
    """Options without the labels that a record lacks, which come as null from Parquet; anything else unchanged."""
    return {name: item for name, item in value.items() if item is not None} if isinstance(value, dict) else value


def _records(sources: list[Path]) -> Iterator[Any]:
    for source in sources:
        for record in READERS[source.suffix.lower()](source):
            yield record.value


def _rows(tasks: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in tasks.to_batches():
        yield from batch.to_pylist()


def _contents(tasks: pa.Table) -> Table:
    table = Table(title="the records", caption="lengths and counts: median / 90 % / 99 % / largest")
    summary = summarise(tasks)
    table.add_column("")
    for kind in summary:
        table.add_column(kind, justify="right")
    table.add_row("published", *(str(PUBLISHED[kind]) for kind in summary))
    for title in next(iter(summary.values())):
        table.add_row(title, *(lines[title] for lines in summary.values()))
    table.add_row("teacher is right", *(_right(tasks) if kind == MULTIPLE_CHOICE else "-" for kind in summary))
    return table


def _right(tasks: pa.Table) -> str:
    """How many teacher responses the reward counts as right: a wrong or unreadable answer teaches nothing."""
    scores = [
        multiple_choice_score(response, task["answer_idx"])
        for task in _rows(tasks)
        if task["type"] == MULTIPLE_CHOICE
        for response in task["teacher_responses"]
    ]
    return f"{sum(scores):.0f} of {len(scores)}"


def _sources(tasks: pa.Table) -> Table:
    pairs = zip(tasks["data_source"].to_pylist(), tasks["type"].to_pylist(), strict=True)
    counted = Counter(pairs).most_common()
    more = len(counted) - SOURCES_SHOWN
    table = Table("source", "type", title="where they come from", caption=f"and {more} more" if more > 0 else None)
    table.add_column("records", justify="right")
    for (source, kind), count in counted[:SOURCES_SHOWN]:
        table.add_row(Text(source), kind, str(count))
    return table


if __name__ == "__main__":
    typer.run(convert)
