"""Drawing stored responses with their rubrics out of a data file, or out of what a run wrote at a validation."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from onepo.data.readers import READERS
from onepo.data.schema import OPEN_ENDED
from onepo.data.table import load_tasks
from onepo.errors import UserError
from onepo.rewards.rubric import Messages
from onepo.rewards.visible_answer import thinking_is_open, visible_answer, whole_turn

RESPONSE_FIELDS = ("response", "teacher_response", "model_response")  # the first that a record has
_DUMP_PROMPT, _DUMP_RESPONSE = "input", "output"  # what verl writes of each response at a validation


@dataclass(frozen=True)
class StoredAnswer:
    """``conversation``: the prompt and, last, the visible answer; ``rubrics``: those of its task."""

    conversation: Messages
    rubrics: list[dict[str, Any]]


@dataclass(frozen=True)
class Drawn:
    """``answers`` in the order in which they were drawn; ``left_out``: how many were passed over, by reason."""

    answers: list[StoredAnswer]
    left_out: Counter[str]


def draw_answers(
    file: Path, *, data_file: Path | None, response_field: str | None, marker: str, count: int, seed: int
) -> Drawn:
    """Up to ``count`` open-ended answers of a file, drawn with the seed.

    Args:
        file: a data file whose records hold a response, or a validation file of a run (``validation/STEP.jsonl``).
        data_file: where the tasks of a validation file are; such a file has no rubrics. None for a data file.
        response_field: the field of the response; None: the first of ``RESPONSE_FIELDS``, or that of a validation file.
        marker: as in ``visible_answer``.

    Raises:
        UserError: a file is not usable, or it holds nothing that can be graded.
    """
    if _is_validation_file(file):
        if data_file is None:
            raise UserError(
                f"{file}: responses of a run come without rubrics; name the data file of their tasks with --data-file"
            )
        candidates = _of_a_validation(file, load_tasks(str(data_file)), response_field or _DUMP_RESPONSE, seed)
    else:
        candidates = _of_a_data_file(file, response_field, seed)
    left_out: Counter[str] = Counter()
    answers = list(islice(_answers(candidates, marker, left_out), count))
    if not answers:
        raise UserError(f"{file}: found nothing to grade ({told(left_out)})")
    return Drawn(answers, left_out)


def told(left_out: Counter[str]) -> str:
    return ", ".join(f"{number} {reason}" for reason, number in left_out.most_common())


@dataclass(frozen=True)
class _Candidate:
    task: dict[str, Any] | None  # None: there is none with this prompt
    response: str | None
    opened_in_prompt: bool


def _answers(candidates: Iterator[_Candidate], marker: str, left_out: Counter[str]) -> Iterator[StoredAnswer]:
    for candidate in candidates:
        task, response = candidate.task, candidate.response
        if task is None:
            left_out["whose prompt is in no record of the data file"] += 1
        elif task["type"] != OPEN_ENDED:
            left_out["not open-ended"] += 1
        elif response is None:
            left_out["without a response"] += 1
        else:
            turn = whole_turn(response, opened_in_prompt=candidate.opened_in_prompt)
            answer = visible_answer(turn, marker=marker)
            if not answer or thinking_is_open(turn, marker=marker):
                left_out["without a visible answer"] += 1
                continue
            yield StoredAnswer([*task["prompt"], {"role": "assistant", "content": answer}], task["rubrics"])


def _of_a_data_file(file: Path, field: str | None, seed: int) -> Iterator[_Candidate]:
    tasks = load_tasks(str(file))
    responses = [_response(record, [field] if field else RESPONSE_FIELDS) for record in _records(file)]
    for row in _shuffled(range(len(responses)), seed):
        yield _Candidate(tasks.slice(row, 1).to_pylist()[0], responses[row], opened_in_prompt=False)


def _of_a_validation(file: Path, tasks: pa.Table, field: str, seed: int) -> Iterator[_Candidate]:
    known = tasks.to_pylist()
    for record in _shuffled(list(_records(file)), seed):
        prompt = record.get(_DUMP_PROMPT, "")
        yield _Candidate(_task_of(prompt, known), _response(record, [field]), prompt.rstrip().endswith("<think>"))


def _task_of(prompt: str, tasks: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The task behind a rendered prompt: all of its messages stand in it. Of several, the one that explains most."""
    fitting = [task for task in tasks if all(message["content"].strip() in prompt for message in task["prompt"])]
    return max(fitting, key=lambda task: sum(len(message["content"]) for message in task["prompt"]), default=None)


def _response(record: dict[str, Any], fields: Any) -> str | None:
    for field in fields:
        value = record.get(field)
        texts = value if isinstance(value, list) else [value]
        if found := [text for text in texts if isinstance(text, str) and text.strip()]:
            return found[0]
    return None


def _is_validation_file(file: Path) -> bool:
    first = next(_records(file), {})
    return {_DUMP_PROMPT, _DUMP_RESPONSE} <= first.keys() and "prompt" not in first


def _records(file: Path) -> Iterator[dict[str, Any]]:
    read = READERS.get(file.suffix.lower())
    if read is None:
        raise UserError(f"{file}: found the suffix '{file.suffix}', expected one of {', '.join(READERS)}")
    try:
        for record in read(file):
            if not isinstance(record.value, dict):
                found = record.broken or "something that is no JSON object, expected one per record"
                raise UserError(f"{file}: {record.place}: {found}")
            yield record.value
    except OSError as error:
        raise UserError(f"{file}: the file cannot be read ({error.strerror}); give the path of a data file") from None


def _shuffled(items: Any, seed: int) -> list[Any]:
    return random.Random(seed).sample(items, len(items))
