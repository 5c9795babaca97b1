"""An asynchronous client of an inference server that tells how likely given tokens are to its model.

Two servers can do that over HTTP: SGLang by ``/generate`` with input log-probabilities, vLLM by ``/v1/completions``
with prompt log-probabilities. Neither is asked for text: the one token that vLLM must write is thrown away.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from onepo.endpoints.address import server_url
from onepo.endpoints.transport import JsonEndpoint, WrongAnswer

_LOWEST, _HIGHEST = -1e6, 1e-3  # of a log-probability, with room for rounding
_LONGEST_ANSWER = 2**27  # bytes; vLLM writes some 100 for each token


@dataclass(frozen=True)
class TokenScore:
    """What a server says of one token of the prompt.

    Attributes:
        token: None where it does not say.
        log_prob: natural logarithm, None for a token that nothing stands before.
    """

    token: int | None
    log_prob: float | None


@dataclass(frozen=True)
class ScoringForm:
    """How one kind of server is asked, and how its answer is read.

    Attributes:
        path: behind the server's address.
        body: of (model, token ids, index of the first token that is asked for).
        read: the scores in an answer's JSON, of the prompt's last tokens; anything may be missing in it.
    """

    path: str
    body: Callable[[str, Sequence[int], int], dict[str, Any]]
    read: Callable[[Any], list[TokenScore]]


def _sglang_body(model: str, ids: Sequence[int], start: int) -> dict[str, Any]:
    sampling = {"max_new_tokens": 0, "temperature": 1.0}
    # the first score that it gives is always empty, so it begins one token before
    return {"input_ids": list(ids), "sampling_params": sampling, "return_logprob": True, "logprob_start_len": start - 1}


def _sglang_scores(answer: Any) -> list[TokenScore]:
    return [TokenScore(token, log_prob) for log_prob, token, *_ in answer["meta_info"]["input_token_logprobs"]]


def _vllm_body(model: str, ids: Sequence[int], start: int) -> dict[str, Any]:
    return {"model": model, "prompt": list(ids), "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}


def _vllm_scores(answer: Any) -> list[TokenScore]:
    scores = []
    for entry in answer["choices"][0]["prompt_logprobs"]:
        (token, told), *_ = (entry or {None: {}}).items()  # the prompt's own token comes first
        scores.append(TokenScore(None if token is None else int(token), told.get("logprob")))
    return scores


FORMS = {
    "sglang": ScoringForm("/generate", _sglang_body, _sglang_scores),
    "vllm": ScoringForm("/v1/completions", _vllm_body, _vllm_scores),
}


def aligned(scores: Sequence[TokenScore], ids: Sequence[int], start: int) -> list[float]:
    """The log-probabilities of ``ids[start:]``, out of the scores of the last tokens of a prompt.

    Raises:
        ValueError: there are too few, they are of other tokens, or one is no finite number.
    """
    wanted = ids[start:]
    if len(scores) < len(wanted) or len(scores) > len(ids):
        raise ValueError(f"{len(scores)} scores for {len(ids)} tokens, of which {len(wanted)} were asked for")
    found = list(scores)[len(scores) - len(wanted) :]
    for place, (score, token) in enumerate(zip(found, wanted, strict=True), start):
        if score.token != token:
            raise ValueError(f"token {place} is {token}, and the score there is of token {score.token}")
        value = score.log_prob
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not _LOWEST < value < _HIGHEST:
            raise ValueError(f"token {place}: the score is {value!s:.40}, which is no log-probability")
    return [float(score.log_prob) for score in found]


class ScoringEndpoint(JsonEndpoint):
    """A ``JsonEndpoint`` that gives log-probabilities.

    Args:
        engine: ``sglang`` or ``vllm``.
        url: the server's address, with or without ``/v1``.
        model: the name it is served by; SGLang serves one and needs none.
        options: the others of ``JsonEndpoint``.

    Raises:
        UserError: the address is none, or the key cannot be sent.
    """

    def __init__(self, *, engine: str, url: str, model: str, **options: Any):
        self._form = FORMS[engine]
        self._model = model
        super().__init__(
            url=server_url(url) + self._form.path,
            answers="log-probabilities of the tokens",
            longest_answer=_LONGEST_ANSWER,
            **options,
        )

    async def score(self, ids: Sequence[int], *, start: int) -> list[float]:
        """The log-probability of each of ``ids[start:]`` behind all tokens before it, at temperature 1.

        Args:
            start: at least 1.

        Raises:
            EndpointError: there are none; the subclasses tell why.
        """

        def read(content: bytes) -> list[float]:
            try:
                scores = self._form.read(json.loads(content))
            except (LookupError, TypeError, AttributeError, RecursionError) as error:
                raise ValueError("no scores") from error
            try:
                return aligned(scores, ids, start)
            except ValueError as error:
                raise WrongAnswer(str(error)) from None

        scores, _ = await self.post(self._form.body(self._model, ids, start), read=read)
        return scores
