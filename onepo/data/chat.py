"""What a tokenizer's chat template does to a conversation: prompt tokens, and the tokens that end a turn.

The prompt filter, the rollout, the teacher rows and the exported model all ask here, so that they cannot disagree.
``tokenizer`` is a Hugging Face tokenizer with a chat template everywhere.
"""

from collections.abc import Sequence
from typing import Any

from jinja2 import TemplateError

from onepo.errors import UserError

REPLY = "probe"
_TAIL_TOKENS = 16  # holds "<think>" and the blanks after it, in any tokenisation


def prompt_text(tokenizer: Any, messages: list[dict[str, str]], **template_options: Any) -> str:
    """The prompt as text, up to where the model's reply begins. Raises as ``prompt_token_ids``."""
    return _apply(tokenizer, messages, {**template_options, "add_generation_prompt": True, "tokenize": False})


def prompt_token_ids(tokenizer: Any, messages: list[dict[str, str]], **template_options: Any) -> list[int]:
    """The prompt as token ids, up to where the model's reply begins.

    Args:
        messages: dicts with ``role`` and ``content``.
        template_options: further variables of the template (verl's ``data.apply_chat_template_kwargs``).

    Raises:
        UserError: the tokenizer has no chat template, or the template refuses the messages.
    """
    options = {**template_options, "add_generation_prompt": True, "tokenize": True, "return_dict": True}
    return list(_apply(tokenizer, messages, options)["input_ids"])


def end_of_turn_token_id(tokenizer: Any) -> int:
    """The token that the chat template writes behind a reply, ``<|im_end|>`` for ChatML.

    It is the tokenizer's eos token when the template writes nothing there, or something that is not one token.

    Raises:
        UserError: there is neither, or the tokenizer has no usable chat template.
    """
    conversation = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": REPLY}]
    text = _apply(tokenizer, conversation, {"add_generation_prompt": False, "tokenize": False})
    ending = text.rpartition(REPLY)[2].strip()
    tokens = tokenizer(ending, add_special_tokens=False)["input_ids"] if ending else []
    if tokens and (tokens[0] in tokenizer.added_tokens_decoder or tokenizer.decode(tokens[:1]).strip() == ending):
        return tokens[0]
    # Anything else is a piece of a longer text ("<" of an unknown "<|end|>") and would stop replies anywhere.
    if tokenizer.eos_token_id is None:
        raise UserError(
            "The student's replies have no end: its chat template writes no token behind a reply and its tokenizer has "
            "no eos_token. Set eos_token in tokenizer_config.json."
        )
    return tokenizer.eos_token_id


def ends_with_open_think(tokenizer: Any, prompt_ids: Sequence[int]) -> bool:
    """Whether the prompt's last words open a think block that the response continues."""
    tail = tokenizer.decode(list(prompt_ids[-_TAIL_TOKENS:]))
    return tail.rstrip().endswith("<think>")


def rollout_stop_ids(tokenizer: Any, generation_config: Any) -> tuple[list[int], int | None]:
    """The tokens that must end a rollout, sorted, and the end-of-turn token if the engine would not stop on it.

    Rollout engines run without a tokenizer: by themselves they stop on what the generation config names and nothing
    else. For base models that is often the end of a document only; a reply that follows the chat template ends with
    another token, and the rollout would run on behind it.

    Args:
        generation_config: a transformers ``GenerationConfig``, or None for a model without one.

    Raises:
        UserError: as ``end_of_turn_token_id``.
    """
    configured = getattr(generation_config, "eos_token_id", None)
    configured = set(configured if isinstance(configured, list | tuple) else [configured])
    end = end_of_turn_token_id(tokenizer)
    stops = (configured | {tokenizer.eos_token_id, end}) - {None}
    return sorted(stops), None if end in configured else end


def _apply(tokenizer: Any, messages: list[dict[str, str]], options: dict[str, Any]) -> Any:
    if not tokenizer.chat_template:
        raise UserError(
            "The student's tokenizer has no chat template, so prompts cannot be built: add chat_template.jinja to the "
            "model directory, or use an instruction-tuned model."
        )
    try:
        return tokenizer.apply_chat_template(messages, **options)
    except TemplateError as error:
        roles = ", ".join(message["role"] for message in messages)
        raise UserError(
            f"The student's chat template refuses a prompt with the roles ({roles}): {error}. "
            "Change the roles in the data or the chat template."
        ) from error
