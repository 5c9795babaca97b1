"""Make the student or the teacher of CAMP's quickstarts: small Llamas that learned from a player how to act.

``python -m recipes.camp_quickstart.make_model student FOLDER ROUTES SEED`` plays episodes at random in the services of
the routes and clones a player in them. The student is a copy of the random player: it knows the form of an action and
reads the names of things, and has no plan. The teacher is larger, and a copy of the keen player. With the same routes
and the same seed both have the same vocabulary.
"""

import random
from enum import Enum
from functools import partial
from pathlib import Path

import torch
import typer
from rich.console import Console
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from camp.command_line import orderly_end
from camp.routes import read_routes
from onepo.terminal import say
from recipes.camp_quickstart.cloning import clone
from recipes.camp_quickstart.keen_player import KeenPlayer
from recipes.camp_quickstart.playing import watch
from recipes.camp_quickstart.random_player import RandomPlayer
from recipes.camp_quickstart.vocabulary import make_tokenizer

EPISODES = 600  # of each task: nearly all names of things are in there


class Kind(str, Enum):
    """Which of the two."""

    STUDENT = "student"
    TEACHER = "teacher"


LAYERS = {Kind.STUDENT: 2, Kind.TEACHER: 4}
PLAYERS = {Kind.STUDENT: RandomPlayer, Kind.TEACHER: KeenPlayer}


def make_model(tokenizer: PreTrainedTokenizerFast, *, layers: int) -> LlamaForCausalLM:
    """A model whose attention passes on what it reads: with random weights it takes very long to learn to copy."""
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=2,
        head_dim=64,  # as wide as the model: one head can pass on all of a token
        max_position_embeddings=1024,
        tie_word_embeddings=True,  # what was passed on is said
        initializer_range=0.08,  # as wide as such a small model wants it
        bos_token_id=None,
        **ids,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for layer in model.model.layers:
            attention = layer.self_attn
            for head in attention.v_proj.weight.split(config.head_dim):
                torch.nn.init.orthogonal_(head)
            attention.o_proj.weight.copy_(attention.v_proj.weight.T)
    model.generation_config = GenerationConfig(**ids)
    return model


def make(kind: Kind, folder: Path, routes: Path, seed: int) -> None:
    """Write model, tokenizer and chat template as a Hugging Face directory."""
    tell = partial(say, Console())
    with orderly_end():
        episodes = watch(read_routes(routes).domains, episodes=EPISODES, seed=seed, say=tell)
        tell(f"{len(episodes)} episodes played at random; a {kind.value} learns in them how to act, in 1 to 3 minutes")
        torch.manual_seed(seed)
        torch.set_num_threads(1)  # more are slower with matrices of this size, and would change the weights
        tokenizer = make_tokenizer(episodes)
        model = make_model(tokenizer, layers=LAYERS[kind])
        clone(model, tokenizer, episodes, random.Random(seed), player=PLAYERS[kind], say=tell)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    typer.run(make)
