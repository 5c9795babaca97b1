"""A model's directory: everything in it that a run will need, and nothing that it must not run.

Each check takes the option by which the user gave the directory, and tells its problems in the words of it.
"""

from collections.abc import Iterator
from pathlib import Path

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
)

from onepo.data.chat import end_of_turn_token_id
from onepo.errors import UserError
from onepo.preflight.model_files import read_json, revision_problems, stand_in_problems
from onepo.preflight.weights import stored_shapes, weight_problems

# verl's order: what reads images too is loaded as such
_MODELS = (
    (MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, AutoModelForImageTextToText),
    (MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM),
)
_VOCABULARIES = ("tokenizer.json", "*.model", "vocab.json", "vocab.txt", "*.tiktoken", "tekken.json")


def model_directory_problems(path: Path, option: str, *, trust_remote_code: bool) -> Iterator[str]:
    """What is wrong with the directory of a model that is to be trained, one line per problem.

    Args:
        path: the directory.
        option: by which it was given, such as ``MODEL_PATH`` or ``--student``.
        trust_remote_code: whether Python code of the model may be run.
    """
    where = f"{option}={path}"
    if not path.is_dir():
        yield f"{where} is not a directory"
        return
    if not (path / "config.json").is_file():
        yield f"{where} has no config.json: it is not a Hugging Face model directory"
        return
    if stand_ins := list(_until_error(stand_in_problems(path, option), where)):
        yield from stand_ins  # whatever else there is to say of such files follows from it
        return
    weights = list(_until_error(weight_problems(path, option), where))
    descriptions = list(_until_error(_description_problems(path, where, trust_remote_code=trust_remote_code), where))
    yield from weights
    yield from descriptions
    if not descriptions:
        yield from _until_error(revision_problems(path, option), where)
        yield from _until_error(_tokenizer_problems(path, where, trust_remote_code=trust_remote_code), where)
        if not weights:
            yield from _until_error(_shape_problems(path, where, trust_remote_code=trust_remote_code), where)


def _until_error(problems: Iterator[str], where: str) -> Iterator[str]:
    """The problems, with what ended the search for them as the last one."""
    try:
        yield from problems
    except UserError as error:
        yield f"{where}: {error}"
    except Exception as error:  # damaged files make transformers and templates raise anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        yield f"{where} cannot be loaded: {reason}"


def _description_problems(path: Path, where: str, *, trust_remote_code: bool) -> Iterator[str]:
    """Of the files that say what model and tokenizer are; both are loaded only when there are none."""
    if not any(file for pattern in _VOCABULARIES for file in path.glob(pattern)):
        yield (
            f"{where} has no tokenizer (tokenizer.json, tokenizer.model or a vocabulary): download it, from the "
            "revision that the weights are of"
        )
    for name in ("config.json", "tokenizer_config.json"):
        file = path / name
        if file.exists() and "auto_map" in read_json(file) and not trust_remote_code:
            # verl's reward worker would load a tokenizer's code whatever its own option says
            yield (
                f"{where}: {name} names Python code of its own; to run it, add the override "
                "actor_rollout_ref.model.trust_remote_code=True"
            )
            return


def _tokenizer_problems(path: Path, where: str, *, trust_remote_code: bool) -> Iterator[str]:
    """Of the tokenizer, its template, and whether the model knows all of its ids."""
    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code)
    rows = _model_config(path, trust_remote_code).get_text_config().vocab_size
    largest, token = max((number, token) for token, number in tokenizer.get_vocab().items())  # ids may have gaps
    if largest >= rows:
        yield (
            f"{where}: the tokenizer has {largest + 1} tokens, the model only {rows}: {token!r} has no row in the "
            "embedding. Take both from one revision of one model"
        )
    if tokenizer.chat_template:
        end_of_turn_token_id(tokenizer)  # raises when the template takes no conversation, or replies have no end
    else:
        yield (
            f"{where}: the tokenizer has no chat template (usually in chat_template.jinja): download it, or use the "
            "model's variant for conversations"
        )


def _shape_problems(path: Path, where: str, *, trust_remote_code: bool) -> Iterator[str]:
    """Whether the weights, which are whole, are those of the configured model."""
    model_config = _model_config(path, trust_remote_code)
    auto_model = next((auto_model for models, auto_model in _MODELS if type(model_config) in models), None)
    if auto_model is None:
        return  # a class of the model's own
    with torch.device("meta"):  # shapes without memory
        model = auto_model.from_config(model_config)
    stored = dict(stored_shapes(path))
    for name, tensor in model.state_dict().items():
        if name in stored and stored[name] != list(tensor.shape):
            yield f"{where}: {name} has the shape {stored[name]}, and config.json says {list(tensor.shape)}"
            return


def _model_config(path: Path, trust_remote_code: bool):
    return AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code)
