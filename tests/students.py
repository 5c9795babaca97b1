"""Students made for tests."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3Config,
    Qwen3ForCausalLM,
)


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
    tokenizer = _byte_tokenizer(folder)
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


def tiny_qwen3_5(**text: object) -> Qwen3_5ForConditionalGeneration:
    """A random Qwen3.5 with one linear-attention layer, one full-attention layer and the smallest vision tower.

    Weights are drawn wide and the linear attention forgets slowly: else such a small model hardly minds what it has
    read, and a lost state would not show.
    """
    config = Qwen3_5Config(
        text_config={
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "layer_types": ["linear_attention", "full_attention"],
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "max_position_embeddings": 256,
            "initializer_range": 0.2,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 1.0,
                "mrope_section": [2, 1, 1],
                "mrope_interleaved": True,
            },
            **text,
        },
        vision_config={
            "depth": 1,
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_heads": 2,
            "out_hidden_size": 32,
            "num_position_embeddings": 16,
            "patch_size": 2,
            "temporal_patch_size": 1,
        },
    )
    model = Qwen3_5ForConditionalGeneration(config)
    for layer in model.model.language_model.layers:
        if layer.layer_type == "linear_attention":
            layer.linear_attn.A_log.data.fill_(-2.0)
    return model


def make_qwen3_5_student(folder: Path) -> None:
    """A random Qwen3.5 with the same tokenizer, placeholders of images added, and no processor: it is for text only."""
    tokenizer = _byte_tokenizer(folder)
    placeholders = ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": placeholders})
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    model = tiny_qwen3_5(
        vocab_size=len(tokenizer),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    names = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    for name, token in zip(names, placeholders, strict=True):
        setattr(model.config, name, tokenizer.convert_tokens_to_ids(token))
    model.save_pretrained(folder)


def add_processor(folder: Path) -> None:
    """Give a Qwen3.5 the files that make verl compute positions of several axes. Needs torchvision."""
    from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    sizes = {"patch_size": 2, "temporal_patch_size": 1, "merge_size": 2}
    tokenizer = AutoTokenizer.from_pretrained(folder)
    Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(**sizes),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(**sizes),
        chat_template=tokenizer.chat_template,
    ).save_pretrained(folder)


def _byte_tokenizer(folder: Path):
    """The byte-level ChatML tokenizer of the data tests, copied to a new folder."""
    shutil.copytree(Path(__file__).parent / "unit" / "data" / "byte_tokenizer", folder)
    return AutoTokenizer.from_pretrained(folder)


def make_talking_student(folder: Path, *, seed: int = 0, sharpness: float = 1.0) -> None:
    """A random Llama of two layers that reads and writes bytes, with room for an episode of several turns.

    Every tenth of its tokens or so ends a turn: one dimension is the same for all tokens, and speaks for the end. With
    more ``sharpness`` some tokens are far likelier to it than others.
    """
    tokenizer = _byte_tokenizer(folder)
    torch.manual_seed(seed)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=4096,
        eos_token_id=end,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 0] = 1.0
        model.lm_head.weight.mul_(sharpness)
        model.lm_head.weight[:, 0] = 0.0
        model.lm_head.weight[end, 0] = 0.6
    model.save_pretrained(folder)


def make_small_copy(model: Path, folder: Path) -> None:
    """A random Llama of two small layers with the tokenizer of another model, which it may learn from."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=AutoConfig.from_pretrained(model).vocab_size,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
