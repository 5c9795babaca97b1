"""Behaviour cloning: a model learns to say what a player says.

Shapes: B rows of a batch, S padded length, V vocabulary.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from recipes.camp_quickstart.vocabulary import encode, read_names

Row = tuple[list[int], list[bool]]  # tokens, and which of them are the player's


class Player(Protocol):
    """Plays one episode."""

    def act(self, observation: str) -> str:
        """An action, after what was said last."""


@dataclass(frozen=True)
class Stage:
    """A part of the learning: so many steps of so many rows, with a rate that rises to ``highest_rate`` and falls."""

    steps: int
    rows: int
    highest_rate: float


ACTIONS = 6  # of a single view, in the first stage
VIEWS, EPISODES = Stage(700, 24, 5e-3), Stage(200, 16, 3e-3)


def clone(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    episodes: Sequence[Sequence[str]],
    chance: random.Random,
    *,
    player: Callable[[str, random.Random], Player],
    say: Callable[[str], None],
) -> None:
    """Learn from single views, which are short and much is said of, and then from whole episodes.

    The player is asked anew for each row, so it hardly ever says the same again.

    Args:
        episodes: what the service said in them, turn by turn.
        player: makes one for an episode, from its first text.
    """
    names = torch.tensor(sorted({tokenizer(name)["input_ids"][0] for name in read_names(episodes)}))

    def view() -> Row:
        told = chance.choice(episodes)
        rules, _, _ = told[0].partition("\n\n")
        text = chance.choice([told[0], *(f"{rules}\n\n{later}" for later in told[1:])])
        one = player(text, chance)
        return encode(tokenizer, [text, *[""] * (ACTIONS - 1)], [one.act(text) for _ in range(ACTIONS)])

    def episode() -> Row:
        told = chance.choice(episodes)
        one = player(told[0], chance)
        return encode(tokenizer, told, [one.act(text) for text in told])

    for name, row, stage in (("views", view, VIEWS), ("episodes", episode, EPISODES)):
        optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.0)
        rate = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, stage.highest_rate, total_steps=stage.steps, pct_start=0.1
        )
        for _ in range(stage.steps):
            loss = cloning_loss(model, [row() for _ in range(stage.rows)], names)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rate.step()
        say(f"cloned from {stage.steps * stage.rows} {name}: cross-entropy {loss.item():.2f}")


def cloning_loss(model: LlamaForCausalLM, rows: Sequence[Row], names: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the player's tokens.

    Args:
        names: tokens of names. In each row they are exchanged for each other, so that the student learns to read them:
            it would otherwise learn by heart which names there are.
    """
    tokens = pad_sequence([torch.tensor(ids) for ids, _ in rows], batch_first=True)  # [B, S]
    own = pad_sequence([torch.tensor(is_own) for _, is_own in rows], batch_first=True)  # [B, S]
    others = torch.arange(model.config.vocab_size).repeat(len(rows), 1)  # [B, V]
    others[:, names] = torch.stack([names[torch.randperm(len(names))] for _ in rows])
    tokens = others.gather(1, tokens)
    hidden = model.model(tokens).last_hidden_state[:, :-1][own[:, 1:]]
    return cross_entropy(model.lm_head(hidden), tokens[:, 1:][own[:, 1:]])
