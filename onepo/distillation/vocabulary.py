"""Whether student and teacher read the same tokens as the same text, and make the same of a conversation."""

from collections.abc import Iterator
from os.path import commonprefix

from transformers import PreTrainedTokenizerBase

_SHOWN = 3
_AROUND = 30  # characters before the first difference of two texts
_ROLES = ("bos_token", "eos_token", "pad_token", "unk_token")
_PROBES = (
    [{"role": "user", "content": "What is 2 + 2?"}],
    [
        {"role": "system", "content": "Answer in one word."},
        {"role": "user", "content": "The capital of France?"},
        {"role": "assistant", "content": "Paris"},
        {"role": "user", "content": "And of Italy?"},
    ],
    [
        {"role": "user", "content": "Is 7 a prime?"},
        {"role": "assistant", "content": "<think>\nOnly 1 and 7 divide it.\n</think>\n\nYes."},
        {"role": "user", "content": "And 8?"},
    ],
)


def vocabulary_problems(student: PreTrainedTokenizerBase, teacher: PreTrainedTokenizerBase) -> Iterator[str]:
    """Tokens that are not the same for both: the teacher would score other text than the student wrote."""
    first, second = ({number: token for token, number in each.get_vocab().items()} for each in (student, teacher))
    differing = [number for number in sorted(first.keys() | second.keys()) if first.get(number) != second.get(number)]
    if differing:
        shown = "; ".join(
            f"{number} is {_told(first.get(number))} for the student and {_told(second.get(number))} for the teacher"
            for number in differing[:_SHOWN]
        )
        yield (
            f"its vocabulary is not the student's, and it can only score the student's tokens: "
            f"{len(differing)} tokens differ: {shown}"
        )


def template_notes(student: PreTrainedTokenizerBase, teacher: PreTrainedTokenizerBase) -> Iterator[str]:
    """What makes the same conversation look different to both; a teacher still scores what the student saw."""
    roles = [
        f"{role} {getattr(student, role)!r} and {getattr(teacher, role)!r}"
        for role in _ROLES
        if getattr(student, role) != getattr(teacher, role)
    ]
    if roles:
        yield f"note: student and teacher use different special tokens: {', '.join(roles)}"
    for probe in _PROBES:
        first, second = (_rendered(each, probe) for each in (student, teacher))
        if first != second:
            place = len(commonprefix((first, second)))  # noqa: RUF071 (of characters, as is wanted here)
            ours, theirs = (text[max(0, place - _AROUND) : place + _AROUND] for text in (first, second))
            yield (
                "note: the chat templates of student and teacher differ; the teacher reads what the student's makes, "
                f"which it may not be used to: {ours!r} and {theirs!r}"
            )
            return


def _rendered(tokenizer: PreTrainedTokenizerBase, conversation: list[dict[str, str]]) -> str:
    try:
        return tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # templates raise what they want
        return f"(refused: {error})"


def _told(token: str | None) -> str:
    return "no token" if token is None else repr(token)
