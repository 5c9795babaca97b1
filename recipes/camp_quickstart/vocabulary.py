"""The tokenizer of the quickstart's student: whole words, and one token for what belongs together."""

import re
from collections import Counter
from collections.abc import Sequence

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from recipes.camp_quickstart.random_player import names_in, tasks_in

PAD, UNKNOWN, START, END = SPECIAL = ["<pad>", "<unk>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|> {{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|> assistant\n{% endif %}"
)
_OWN_WORDS = "user assistant take open eat"
_SHARED, _SHORTEST_RULE = 0.1, 4  # a rule begins more than this share of the episodes, and has so many words


def read_names(episodes: Sequence[Sequence[str]]) -> list[str]:
    """The names of all things in the quests."""
    found = set()
    for told in episodes:
        tasks = tasks_in(told[0])
        found.update(name for text in told for name in names_in(tasks, text))
    return sorted(found)


def make_tokenizer(episodes: Sequence[Sequence[str]]) -> PreTrainedTokenizerFast:
    """A vocabulary of what was said in some episodes.

    The name of a thing is one token, so it is copied in one step; a sentence that many episodes begin with is one, too,
    which makes the rules short.
    """
    beginnings = (told[0].partition("\n\n")[0] for told in episodes)
    sentences = Counter(sentence for text in beginnings for sentence in re.split(r"\n|(?<=\.) ", text))
    often = _SHARED * len(episodes)
    rules = [text for text, times in sentences.items() if times > often and len(text.split()) >= _SHORTEST_RULE]
    names = [name for name in read_names(episodes) if " " in name]
    splitter = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(r"[\[\],.]"), "isolated")]
    )
    texts = [_OWN_WORDS, *(text for told in episodes for text in told)]
    words = sorted({word for text in texts for word, _ in splitter.pre_tokenize_str(text)})
    numbers = {word: number for number, word in enumerate([*SPECIAL, *words])}
    backend = Tokenizer(models.WordLevel(numbers, unk_token=UNKNOWN))
    backend.pre_tokenizer = splitter
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=False)  # joins words with blanks
    backend.add_tokens([AddedToken(text, single_word=True, normalized=False) for text in sorted([*rules, *names])])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=END,
        additional_special_tokens=[START],
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def encode(
    tokenizer: PreTrainedTokenizerFast, told: Sequence[str], said: Sequence[str]
) -> tuple[list[int], list[bool]]:
    """The tokens of an episode as the training makes them, and which of them are the student's.

    Args:
        told: by the service, in each turn.
        said: by the student, after each of these.
    """
    tokens: list[int] = []
    own: list[bool] = []
    for text, action in zip(told, said, strict=True):
        message = [{"role": "user", "content": text}]
        prompt = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
        for part, is_own in ((prompt, False), (action + END, True)):
            ids = tokenizer(part)["input_ids"]
            tokens += ids
            own += [is_own] * len(ids)
    return tokens, own
