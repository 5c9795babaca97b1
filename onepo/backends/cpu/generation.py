"""Batched sampling from a Hugging Face causal model, with a KV cache and a seed per request. No Ray, no verl.

Shapes: B requests of a batch, S padded prompt length, V vocabulary.
"""

from collections.abc import Callable, Sequence
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


@dataclass(frozen=True)
class ScoringRequest:
    """A text whose tokens are to be scored: ids, at least one."""

    token_ids: Sequence[int]


@dataclass
class SampledResponse:
    """Token ids, their log-probabilities at the sampling temperature, and "completed", "length" or "aborted"."""

    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    stop_reason: str | None = None


@torch.inference_mode()
def sample_batch(
    model: torch.nn.Module,
    requests: Sequence[SamplingRequest],
    pad_id: int,
    *,
    use_cache: bool,
    aborted: Callable[[], bool],
) -> list[SampledResponse]:
    """Sample one response per request, all in one batch that shrinks as responses end.

    ``aborted`` is asked before every token: once it is true, the responses are returned as far as they have come.

    A log-probability is that of the full distribution at the request's temperature (1 when it is 0), as the learner
    recomputes it: top-k and top-p narrow the choice, not the figure. Without the cache every token costs a forward pass
    over everything before it, and is right for any causal model.
    """
    responses = [SampledResponse() for _ in requests]
    draws = [_uniform_draws(request) for request in requests]
    prompts = [request.prompt_ids for request in requests]
    decoder = (_CachedDecoder if use_cache else _FullForward)(model, prompts, pad_id)
    temperature = torch.tensor([request.temperature for request in requests])  # [B]
    alive = list(range(len(requests)))
    while alive:
        if aborted():
            for row in alive:
                responses[row].stop_reason = "aborted"
            break
        scale = torch.where(temperature > 0, temperature, torch.ones_like(temperature))[:, None]
        log_probs = torch.log_softmax(decoder.logits().float() / scale, dim=-1)  # [B, V]
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
        decoder.append(tokens)
        keep = [i for i, row in enumerate(alive) if responses[row].stop_reason is None]
        if len(keep) < len(alive):
            index = torch.tensor(keep, dtype=torch.long)
            temperature = temperature[index]
            decoder.select(index)
            alive = [alive[i] for i in keep]
    return responses


def cache_error(model: torch.nn.Module, pad_id: int) -> float:
    """How far cached decoding is from plain forward passes: the largest difference of two log-probabilities.

    Two short random prompts of different lengths, so that padding and a batch that shrinks take part.
    """
    vocabulary = model.config.get_text_config().vocab_size
    generator = torch.Generator().manual_seed(0)
    requests = [
        SamplingRequest(
            prompt_ids=torch.randint(vocabulary, (length,), generator=generator).tolist(),
            max_tokens=max_tokens,
            temperature=1.0,
            top_k=-1,
            top_p=1.0,
            seed=length,
            stop_ids=frozenset(),
        )
        for length, max_tokens in ((3, 8), (20, 4))
    ]
    errors = []
    responses = sample_batch(model, requests, pad_id, use_cache=True, aborted=lambda: False)
    for request, response in zip(requests, responses, strict=True):
        plain = _log_probs(model, request.prompt_ids, response.token_ids)
        errors.append((torch.tensor(response.log_probs) - plain).abs().max())
    return float(torch.stack(errors).max())


@torch.inference_mode()
def _log_probs(model: torch.nn.Module, prompt: Sequence[int], response: Sequence[int]) -> torch.Tensor:
    """Log-probabilities of a response's tokens by one forward pass without cache and padding. [T]"""
    logits = model(input_ids=torch.tensor([[*prompt, *response]]), use_cache=False).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits.float(), dim=-1).gather(1, torch.tensor(response)[:, None])[:, 0]


_TOKENS_AT_ONCE = 8192  # of a scoring pass, padding included: its logits are [tokens, V]


@torch.inference_mode()
def score_batch(model: torch.nn.Module, rows: Sequence[Sequence[int]], pad_id: int) -> list[list[float]]:
    """The log-probability of every token behind the first, at temperature 1, for rows of token ids."""
    scores: list[list[float]] = [[] for _ in rows]
    by_length = sorted(range(len(rows)), key=lambda row: len(rows[row]), reverse=True)  # little padding
    while by_length:
        fitting = max(1, _TOKENS_AT_ONCE // len(rows[by_length[0]]))
        group, by_length = by_length[:fitting], by_length[fitting:]
        tokens = [torch.tensor(list(rows[row]), dtype=torch.long) for row in group]
        ids = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True, padding_value=pad_id)
        positions = torch.arange(ids.shape[1]).expand_as(ids)  # padding on the right: no causal model looks at it
        logits = model(input_ids=ids, position_ids=positions, use_cache=False).logits[:, :-1].float()
        found = torch.log_softmax(logits, dim=-1).gather(2, ids[:, 1:, None])[..., 0]
        for place, row in enumerate(group):
            scores[row] = found[place, : len(rows[row]) - 1].tolist()
    return scores


class _CachedDecoder:
    """One forward pass over left-padded prompts, then one token at a time.

    The positions are those of text, [B, T]: a model with several position axes uses them for each of its axes.
    """

    def __init__(self, model: torch.nn.Module, prompts: Sequence[Sequence[int]], pad_id: int):
        self._model = model
        self._ids, self._mask = _left_pad(prompts, pad_id)
        self._positions = (self._mask.cumsum(1) - 1).clamp(min=0)
        self._cache = None

    def logits(self) -> torch.Tensor:
        """Of the next token. [B, V]"""
        output = self._model(
            input_ids=self._ids,
            attention_mask=self._mask,
            position_ids=self._positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._cache = output.past_key_values
        return output.logits[:, -1]

    def append(self, tokens: torch.Tensor) -> None:
        self._ids = tokens[:, None]
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(tokens), 1)], dim=1)
        self._positions = self._positions[:, -1:] + 1

    def select(self, index: torch.Tensor) -> None:
        """Go on with these rows only."""
        self._ids, self._mask, self._positions = self._ids[index], self._mask[index], self._positions[index]
        self._cache.reorder_cache(index)  # the one selection of rows that recurrent states offer too


class _FullForward:
    """A forward pass over the whole rows for every token. Padding on the right, which no causal model looks at."""

    def __init__(self, model: torch.nn.Module, prompts: Sequence[Sequence[int]], pad_id: int):
        self._model = model
        self._rows = [list(prompt) for prompt in prompts]
        self._pad_id = pad_id

    def logits(self) -> torch.Tensor:
        """Of the next token. [B, V]"""
        rows = [torch.tensor(row, dtype=torch.long) for row in self._rows]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self._pad_id)
        positions = torch.arange(ids.shape[1]).expand_as(ids)
        last, place = torch.tensor([len(row) - 1 for row in rows]).unique(return_inverse=True)
        output = self._model(input_ids=ids, position_ids=positions, use_cache=False, logits_to_keep=last)
        return output.logits[torch.arange(len(rows)), place]

    def append(self, tokens: torch.Tensor) -> None:
        for row, token in zip(self._rows, tokens.tolist(), strict=True):
            row.append(token)

    def select(self, index: torch.Tensor) -> None:
        """Go on with these rows only."""
        self._rows = [self._rows[i] for i in index.tolist()]


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
