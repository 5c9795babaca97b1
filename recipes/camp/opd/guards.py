"""Whether a teacher can score what a student writes: both must read the same tokens as the same text."""

from collections.abc import Iterator
from os.path import commonprefix
from pathlib import Path

from omegaconf import DictConfig
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from camp.settings import TeacherSettings
from camp.sizes import setting

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


def teacher_problems(config: DictConfig, teacher: str | None) -> Iterator[str]:
    """Why a teacher cannot teach; both directories are sound.

    Args:
        teacher: its directory; None for an inference server that nothing is known of.
    """
    temperature = config.actor_rollout_ref.rollout.temperature
    if temperature != 1:
        yield (
            f"{setting('actor_rollout_ref.rollout.temperature', temperature)}: the teacher's probabilities are those "
            "at temperature 1, so the student must sample at 1"
        )
    if teacher is None:
        return
    yield from vocabulary_problems(*_tokenizers(config, teacher))
    longest = config.data.max_prompt_length + config.data.max_response_length + 1  # an engine writes one token more
    context = getattr(AutoConfig.from_pretrained(teacher).get_text_config(), "max_position_embeddings", None)
    if context is not None and longest > context:
        yield (
            f"--teacher: has {context} positions (max_position_embeddings in its config.json), and "
            f"{setting('data.max_prompt_length')} + {setting('data.max_response_length')} + 1 = {longest}"
        )


def teacher_notes(config: DictConfig, teacher: str | None, settings: TeacherSettings) -> Iterator[str]:
    """What a user should know of a teacher that can teach."""
    yield f"topk={config.distillation.distillation_loss.topk} is inactive: K1 asks for the sampled tokens alone"
    if teacher is None:
        yield (
            f"note: the tokenizer of the teacher at {settings.url} is not known: that it reads the student's tokens is "
            "not checked (camp.teacher.tokenizer=DIR compares it)"
        )
        return
    if Path(teacher).resolve() == Path(config.actor_rollout_ref.model.path).resolve():
        yield "warning: the teacher is the student itself: there is nothing to learn"
    yield from template_notes(*_tokenizers(config, teacher))


def _tokenizers(config: DictConfig, teacher: str) -> tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase]:
    model = config.actor_rollout_ref.model
    student = AutoTokenizer.from_pretrained(model.path, trust_remote_code=model.trust_remote_code)
    return student, AutoTokenizer.from_pretrained(teacher)


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
            f"--teacher: its vocabulary is not the student's, and it can only score the student's tokens: "
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
