"""Students made for tests."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config, Qwen3ForCausalLM


def make_constant_student(source: Path, folder: Path, answer: str) -> None:
    """A student that writes ``<answer> X </answer> <eos>`` after every prompt.

    Without attention and MLP the last layer sees the embedding of the current token; with one-hot embeddings the output
    matrix is then a table of successors.
    """
    shutil.copytree(source, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    chain = tokenizer.convert_tokens_to_ids(["assistant", "<answer>", answer, "</answer>", "<eos>"])
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.zero_()
        model.lm_head.weight.zero_()
        for place, (token, successor) in enumerate(pairwise(chain)):
            model.model.embed_tokens.weight[token, place] = 1.0
            model.lm_head.weight[successor, place] = 10.0
    model.save_pretrained(folder)


def make_base_student(source: Path, folder: Path) -> None:
    """A student whose files name another end than the one its chat template writes behind a turn."""
    shutil.copytree(source, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    other = "unused150"
    tokenizer_config = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer_config["eos_token"] = other
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    for name in ("config.json", "generation_config.json"):
        config = json.loads((folder / name).read_text())
        config["eos_token_id"] = tokenizer.convert_tokens_to_ids(other)
        (folder / name).write_text(json.dumps(config))


def make_qwen3_student(folder: Path) -> None:
    """A random Qwen3 of two layers with the byte-level ChatML tokenizer of the data tests."""
    shutil.copytree(Path(__file__).parent / "unit" / "data" / "byte_tokenizer", folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
