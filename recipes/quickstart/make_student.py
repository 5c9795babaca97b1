"""Make the quickstart's student: a two-layer Llama with random weights and a vocabulary of 256 words of its own."""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from recipes.quickstart.task import SPECIAL, WORDS

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ' ' + message['content'] + ' <eos> ' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant{% endif %}"
)
VOCABULARY_SIZE = 256


def make_student(folder: Path, *, seed: int) -> None:
    """Write model, tokenizer and chat template as a Hugging Face directory."""
    words = [*SPECIAL, *WORDS]
    words += [f"unused{number}" for number in range(VOCABULARY_SIZE - len(words))]
    vocabulary = {word: number for number, word in enumerate(words)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=False)  # joins words with blanks
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    ids = {"eos_token_id": vocabulary["<eos>"], "pad_token_id": vocabulary["<pad>"]}
    config = LlamaConfig(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        bos_token_id=None,
        **ids,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(**ids)
    model.save_pretrained(folder)


if __name__ == "__main__":
    make_student(Path(sys.argv[1]), seed=int(sys.argv[2]))
