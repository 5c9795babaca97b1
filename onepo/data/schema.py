"""One record of a data file becomes one task: its fields are checked and its chat prompt is built."""

import json
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
)

TYPES = MULTIPLE_CHOICE, OPEN_ENDED, CUSTOM = "multiple_choice", "open_ended", "custom"
SHORT_NAMES = {"mc": MULTIPLE_CHOICE, "openend": OPEN_ENDED}
TEACHER_FIELDS = ("teacher_response", "model_response")
ANSWER_INSTRUCTION = (
    "Choose one option. End your reply with its letter between answer tags, for example <answer>A</answer>."
)
LABELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

# What each field must hold, in the words of the error messages.
EXPECTED = {
    "type": "one of multiple_choice, mc, open_ended, openend, custom",
    "question": "text",
    "options": 'the text of each option under its label, one letter, as in {"A": "...", "B": "..."}, '
    "or a list of texts",
    "answer_idx": "the label of one option, as text",
    "prompt": 'text or a list of messages {"role": ..., "content": ...}',
    "role": "the role of the message, as text",
    "content": "the message as text",
    "rubrics": 'a list of at least one {"criterion": ..., "points": ...}',
    "criterion": "text",
    "points": "a finite number",
    "teacher_response": "text, a list of texts, or null",
    "model_response": "text, a list of texts, or null",
    "data_source": "text",
    "source": "text",
    "extra_info": "a JSON object",
}


class InvalidTask(Exception):
    """A record that is no task. ``problems`` holds one text per problem: the field, what was found, what is expected.

    It stays inside the package's data part: the loader gathers the problems of a whole file into one ``UserError``.
    """

    def __init__(self, problems: list[str]):
        super().__init__(problems)
        self.problems = problems


def _is_empty(value: Any) -> bool:
    return value is None or value in ([], {}) or (isinstance(value, str) and not value.strip())


def _one_message(value: Any) -> Any:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


def _texts(value: Any) -> Any:
    if isinstance(value, list):
        return [text for text in value if not _is_empty(text)]
    return [value] if isinstance(value, str) else value


def _labelled_options(value: Any) -> Any:
    """Give every option its label (upper case); Arrow fills the labels that a record lacks with null: drop them."""
    if isinstance(value, list):
        if len(value) > len(LABELS):
            raise ValueError(f"at most {len(LABELS)} options")
        value = dict(zip(LABELS, value, strict=False))
    if not isinstance(value, dict):
        return value
    options = {}
    for key, text in value.items():
        label = key.strip().upper() if isinstance(key, str) else key
        if _is_empty(text):
            continue
        if label in options:
            raise ValueError(f"every label once (capitals and blanks do not count), but {label} comes twice")
        options[label] = text
    return options


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("text without a lone surrogate, the half of a character that was cut apart") from None
    return text


AnyText = Annotated[str, AfterValidator(_encodable)]
Text = Annotated[AnyText, StringConstraints(min_length=1)]
Label = Annotated[str, StringConstraints(pattern=r"^[A-Z]$")]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True)


class Message(_Strict):
    role: Text
    content: AnyText


class Rubric(_Strict):
    criterion: Text
    points: Annotated[float, Field(allow_inf_nan=False)]


Prompt = Annotated[list[Message], BeforeValidator(_one_message), Field(min_length=1)]


class Task(_Strict):
    """The fields that all types share. Fields that the type does not use are not looked at."""

    data_source: Text | None = Field(None, validation_alias=AliasChoices("data_source", "source"))
    teacher_responses: Annotated[list[AnyText], BeforeValidator(_texts)] = Field(
        [], validation_alias=AliasChoices(*TEACHER_FIELDS)
    )
    extra_info: dict[str, Any] = {}


class ChoiceTask(Task):
    """What every multiple-choice record has."""

    options: Annotated[dict[Label, AnyText], BeforeValidator(_labelled_options)]
    answer_idx: str  # after the options, because it is checked against them

    @field_validator("answer_idx")
    @classmethod
    def _names_an_option(cls, answer: str, info: ValidationInfo) -> str:
        label = answer.strip().upper()
        options = info.data.get("options")
        if options is not None and label not in options:
            raise ValueError(f"the label of one of its options ({', '.join(sorted(options)) or 'it has none'})")
        return label


class PromptedChoiceTask(ChoiceTask):
    """A multiple-choice record with a prompt of its own, which is kept as it is."""

    prompt: Prompt


class QuestionTask(ChoiceTask):
    """A multiple-choice record whose prompt is built from its question and its options."""

    question: Text

    @property
    def prompt(self) -> list[Message]:
        listed = "\n".join(f"{label}. {self.options[label]}" for label in sorted(self.options))
        return [Message(role="user", content=f"{self.question}\n\n{listed}\n\n{ANSWER_INSTRUCTION}")]


class CustomTask(Task):
    """What the user's reward function scores. It gets the whole record, in which further fields may hold anything."""

    prompt: Prompt


class OpenEndedTask(Task):
    prompt: Prompt
    rubrics: Annotated[list[Rubric], Field(min_length=1)]


def parse_task(record: Any) -> dict[str, Any]:
    """Check one record and bring it into the form of a table row (``table.TASK_SCHEMA`` without ``index``).

    Args:
        record: what a reader gave: normally a dict, with None for null and for numbers that are not finite.

    Raises:
        InvalidTask: with every problem of the record.
    """
    if not isinstance(record, dict):
        raise InvalidTask([_problem("record", _shown(record), "a JSON object with the fields of a task")])
    fields = {name: value for name, value in record.items() if not _is_empty(value)}
    task_type = _task_type(fields)
    choice = PromptedChoiceTask if "prompt" in fields else QuestionTask
    try:
        task = {OPEN_ENDED: OpenEndedTask, CUSTOM: CustomTask}.get(task_type, choice).model_validate(fields)
    except ValidationError as error:
        raise InvalidTask([_described(item) for item in error.errors(include_url=False)]) from None
    return {
        "type": task_type,
        "data_source": task.data_source or task_type,
        "prompt": _dumped(task.prompt),
        "answer_idx": getattr(task, "answer_idx", None),
        "rubrics": _dumped(getattr(task, "rubrics", [])),
        "teacher_responses": task.teacher_responses,
        "extra_info": json.dumps(task.extra_info, default=str),
        "record": _without_teacher(record) if task_type == CUSTOM else None,
    }


def _without_teacher(record: dict[str, Any]) -> str:
    """The record as it was read, as JSON text. What JSON has no form for (dates in Parquet) becomes text."""
    try:
        return json.dumps({name: value for name, value in record.items() if name not in TEACHER_FIELDS}, default=str)
    except (TypeError, RecursionError) as error:
        raise InvalidTask([_problem("record", str(error), "fields that can be written as JSON")]) from None


def _dumped(items: list[BaseModel]) -> list[dict[str, Any]]:
    return [item.model_dump() for item in items]


def _task_type(fields: dict[str, Any]) -> str:
    if "type" in fields:
        found = fields["type"]
        name = found.strip() if isinstance(found, str) else None
        if (task_type := SHORT_NAMES.get(name, name)) not in TYPES:
            raise InvalidTask([_problem("type", _shown(found), EXPECTED["type"])])
        return task_type
    has_answer, has_rubrics = "answer_idx" in fields, "rubrics" in fields
    if has_answer == has_rubrics:
        found = f"nothing, and {'both' if has_answer else 'neither'} of answer_idx and rubrics"
        raise InvalidTask([_problem("type", found, f"{EXPECTED['type']}, or just one of these two fields")])
    return MULTIPLE_CHOICE if has_answer else OPEN_ENDED


def _described(item: Any) -> str:
    """One problem in our words, from one entry of pydantic's error list."""
    path = [part for part in item["loc"] if part != "[key]"]
    field = str(path[0]) + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path[1:])
    found = "nothing" if item["type"] == "missing" else _shown(item["input"])
    if item["type"] == "value_error":
        return _problem(field, found, str(item["ctx"]["error"]))
    return _problem(field, found, next(EXPECTED[part] for part in reversed(path) if part in EXPECTED))


def _problem(field: str, found: str, expected: str) -> str:
    return f"{field}: found {found}, expected {expected}"


def _shown(value: Any) -> str:
    """The value as JSON would write it, cut to a readable length; lone surrogates, which no terminal takes, escaped."""
    text = json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= 60 else text[:57] + "..."
