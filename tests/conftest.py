"""What several tests need: tiny students with tokenizers of their own, made on the spot."""

import os
from pathlib import Path

import pytest

# verl resolves its platform while it is imported: the whole test session runs on the CPU backend
os.environ.setdefault("VERL_PLATFORM", "cpu")
os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")
os.environ.setdefault("VERL_USE_EXTERNAL_MODULES", "onepo.plugin")

ROOT = Path(__file__).parents[1]
VECTORS = Path(__file__).parent / "vectors"


@pytest.fixture(scope="session")
def student(tmp_path_factory) -> Path:
    """The quickstart's student: a random two-layer Llama with 256 words."""
    from recipes.quickstart.make_student import make_student

    folder = tmp_path_factory.mktemp("student")
    make_student(folder, seed=0)
    return folder


@pytest.fixture(scope="session")
def tokenizer(student):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(student)
