"""Batched sampling from a Hugging Face causal model, with a KV cache and a seed per request. No Ray, no verl.

Shapes: B requests of a batch, S padded prompt length, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class SamplingRequest:
    """One response to be sampled.

    Attributes:
        prompt_ids: token ids, at least one.
        max_tokens: most tokens to sample, at least 1.
        temperature: 0 takes the most likely token.
        top_k: keep the k most likely tokens; 0 or negative keeps all.
        top_p: keep the smallest set of tokens with this probability mass; 1 keeps all.
        seed: fixes the response for given weights, whatever else is in the batch.
        stop_ids: the response ends with (and contains) the first of these.
    """

    prompt_ids: Sequence[int]
    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    seed: int
    stop_ids: frozenset[int]


@dataclass
class SampledResponse:
    """Token ids, their log-probabilities at the sampling temperature, and "completed" or "length"."""

    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    stop_reason: str | None = None


@torch.inference_mode()
def sample_batch(model: torch.nn.Module, requests: Sequence[SamplingRequest], pad_id: int) -> list[SampledResponse]:
    """Sample one response per request, all in one left-padded batch that shrinks as responses end.

    A log-probability is that of the full distribution at the request's temperature (1 when it is 0), as the learner
    recomputes it: top-k and top-p narrow the choice, not the figure.
    """
    responses = [SampledResponse() for _ in requests]
    draws = [_uniform_draws(request) for request in requests]
    ids, mask = _left_pad([request.prompt_ids for request in requests], pad_id)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    temperature = torch.tensor([request.temperature for request in requests])  # [B]
    alive = list(range(len(requests)))
    cache = None
    while alive:
        output = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache = output.past_key_values
        scale = torch.where(temperature > 0, temperature, torch.ones_like(temperature))[:, None]
        log_probs = torch.log_softmax(output.logits[:, -1].float() / scale, dim=-1)  # [B, V]
        step = torch.stack([draws[row][len(responses[row].token_ids)] for row in alive])
        tokens = _choose(log_probs, temperature, step, [requests[row] for row in alive])  # [B]
        chosen = log_probs.gather(1, tokens[:, None])[:, 0].tolist()
        for row, token, log_prob in zip(alive, tokens.tolist(), chosen, strict=True):
            response, request = responses[row], requests[row]
            response.token_ids.append(token)
            response.log_probs.append(log_prob)
            if token in request.stop_ids:
                response.stop_reason = "completed"
            elif len(response.token_ids) == request.max_tokens:
                response.stop_reason = "length"
        keep = [i for i, row in enumerate(alive) if responses[row].stop_reason is None]
        if len(keep) < len(alive):
            index = torch.tensor(keep, dtype=torch.long)
            tokens, mask, positions, temperature = tokens[index], mask[index], positions[index], temperature[index]
            cache.batch_select_indices(index)
            alive = [alive[i] for i in keep]
        ids = tokens[:, None]
        mask = torch.cat([mask, mask.new_ones(len(alive), 1)], dim=1)
        positions = positions[:, -1:] + 1
    return responses


def _uniform_draws(request: SamplingRequest) -> torch.Tensor:
    """One number in [0, 1) per token to come: drawing them ahead makes a response independent of its batch."""
    generator = torch.Generator().manual_seed(request.seed)
    return torch.rand(request.max_tokens, generator=generator, dtype=torch.float64)


def _left_pad(prompts: Sequence[Sequence[int]], pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(len(prompt) for prompt in prompts)
    ids = torch.full((len(prompts), width), pad_id, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(list(prompt), dtype=torch.long)
        mask[row, width - len(prompt) :] = 1
    return ids, mask  # [B, S]


def _choose(
    log_probs: torch.Tensor, temperature: torch.Tensor, draws: torch.Tensor, requests: Sequence[SamplingRequest]
) -> torch.Tensor:
    """Inverse transform sampling: the first token whose cumulative probability exceeds the draw. [B]"""
    probs = log_probs.double().exp()  # [B, V]
    for row, request in enumerate(requests):
        if 0 < request.top_k < probs.shape[1] or request.top_p < 1:
            probs[row] = _narrow(probs[row], request.top_k, request.top_p)
    cumulative = probs.cumsum(1)
    target = draws[:, None] * cumulative[:, -1:]
    sampled = torch.searchsorted(cumulative, target, right=True)[:, 0].clamp(max=probs.shape[1] - 1)
    return torch.where(temperature > 0, sampled, log_probs.argmax(1))


def _narrow(probs: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    """Zero the probabilities outside the top-k and top-p sets of one row [V]."""
    ordered, index = probs.sort(descending=True)
    keep = ordered.cumsum(0) - ordered < top_p * ordered.sum()  # the token that crosses the mass still counts
    if top_k > 0:
        keep[top_k:] = False
    return torch.zeros_like(probs).scatter(0, index, ordered * keep)
