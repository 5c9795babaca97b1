"""Log-probabilities of given tokens by HTTP. Real engines answer in ``tests/e2e/test_engines.py``."""

import asyncio
import math

import pytest
from aiohttp import web

from onepo.endpoints.errors import ContextLengthExceeded, ServerFailed
from onepo.endpoints.scoring import ScoringEndpoint, TokenScore, aligned
from onepo.errors import UserError

IDS = [5, 6, 7, 8]


def scores(*pairs):
    return [TokenScore(*pair) for pair in pairs]


@pytest.mark.parametrize(
    ("found", "start", "expected"),
    [
        (scores((None, None), (6, -1.0), (7, -2.0), (8, -3.0)), 1, [-1.0, -2.0, -3.0]),  # the whole prompt
        (scores((None, None), (6, -1.0), (7, -2.0), (8, -3.0)), 3, [-3.0]),
        (scores((6, None), (7, -2.0), (8, -3.0)), 2, [-2.0, -3.0]),  # from one token before
        (scores((7, -2.0), (8, -3.0)), 2, [-2.0, -3.0]),  # just what was asked for
        (scores((5, None), (6, -1), (7, 0), (8, -3.0)), 1, [-1.0, 0.0, -3.0]),
    ],
)
def test_scores_are_those_of_the_last_tokens(found, start, expected):
    assert aligned(found, IDS, start) == expected


@pytest.mark.parametrize(
    ("found", "start", "told"),
    [
        ([], 3, "0 scores for 4 tokens, of which 1 were asked for"),
        (scores((8, -3.0)), 2, "1 scores for 4 tokens, of which 2"),
        (scores(*[(8, -1.0)] * 5), 3, "5 scores for 4 tokens"),
        (scores((7, -2.0), (9, -3.0)), 2, "token 3 is 8, and the score there is of token 9"),
        (scores((6, -2.0), (7, -3.0)), 2, "token 2 is 7, and the score there is of token 6"),  # one too early
        (scores((None, -2.0), (8, -3.0)), 2, "token 2 is 7, and the score there is of token None"),
        (scores((7, None), (8, -3.0)), 2, "token 2: the score is None"),
        (scores((7, -2.0), (8, math.nan)), 2, "token 3: the score is nan"),
        (scores((7, -math.inf), (8, -3.0)), 2, "token 2: the score is -inf"),
        (scores((7, "-2"), (8, -3.0)), 2, "token 2: the score is -2"),
        (scores((7, True), (8, -3.0)), 2, "token 2: the score is True"),
        (scores((7, 0.5), (8, -3.0)), 2, "token 2: the score is 0.5, which is no log-probability"),  # a probability
        (scores((7, -1e300), (8, -3.0)), 2, "token 2: the score is -1e"),
        (scores((7, -(10**400)), (8, -3.0)), 2, "token 2: the score is -1000"),
    ],
)
def test_scores_that_are_none_of_these_tokens(found, start, told):
    with pytest.raises(ValueError, match=told):
        aligned(found, IDS, start)


class Server:
    """Answers every request with the next of some (status, JSON); ``asked`` has (path, body)."""

    def __init__(self, *answers):
        self._answers = iter(answers)
        self.asked = []

    async def _answer(self, request):
        self.asked.append((request.path, await request.json()))
        status, content = next(self._answers)
        return web.json_response(content, status=status)

    async def __aenter__(self):
        app = web.Application()
        app.router.add_post("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()


def ask(engine, *answers, start=2, suffix="/v1"):
    server = Server(*answers)

    async def main():
        async with server:
            options = {"timeout": 5, "max_concurrency": 2, "outage_limit": 1, "api_key": None}
            endpoint = ScoringEndpoint(engine=engine, url=server.url + suffix, model="teacher", **options)
            try:
                return await endpoint.score(IDS, start=start)
            finally:
                await endpoint.aclose()

    return asyncio.run(main()), server.asked


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_sglang(suffix):
    told = {"text": "", "meta_info": {"input_token_logprobs": [[None, 6, None], [-2.0, 7, None], [-3.0, 8, None]]}}
    found, ((path, body),) = ask("sglang", (200, told), suffix=suffix)
    assert found == [-2.0, -3.0] and path == "/generate"
    assert body["input_ids"] == IDS and body["return_logprob"] is True and body["logprob_start_len"] == 1
    assert body["sampling_params"] == {"max_new_tokens": 0, "temperature": 1.0}


def test_vllm():
    entries = [{str(token): {"logprob": -float(token), "rank": 1, "decoded_token": "x"}} for token in IDS[1:]]
    told = {"choices": [{"text": "x", "prompt_logprobs": [None, *entries]}]}
    found, ((path, body),) = ask("vllm", (200, told))
    assert found == [-7.0, -8.0] and path == "/v1/completions"
    assert body == {"model": "teacher", "prompt": IDS, "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}


def test_a_server_that_is_away_for_a_moment_is_asked_again():
    told = {"meta_info": {"input_token_logprobs": [[None, 6, None], [-2.0, 7, None], [-3.0, 8, None]]}}
    found, asked = ask("sglang", (503, {}), (200, told))
    assert found == [-2.0, -3.0] and len(asked) == 2


@pytest.mark.parametrize(
    "answer", [{}, [], {"meta_info": {}}, {"meta_info": {"input_token_logprobs": [[-2.0, 9, None], [-3.0, 8, None]]}}]
)
def test_an_answer_without_these_scores_is_a_failure(answer):
    with pytest.raises(ServerFailed, match="answered no log-probabilities of the tokens"):
        ask("sglang", (200, answer))


def test_why_scores_are_none_is_told():
    with pytest.raises(ServerFailed, match="tokens: token 2 is 7, and the score there is of token 9"):
        ask("sglang", (200, {"meta_info": {"input_token_logprobs": [[-2.0, 9, None], [-3.0, 8, None]]}}))


def test_a_prompt_that_is_too_long():
    with pytest.raises(ContextLengthExceeded):
        ask("vllm", (400, {"error": {"message": "This model's maximum context length is 3 tokens"}}))


@pytest.mark.parametrize("url", ["teacher:8000", "http://", "http://me:secret@host", "http://host/v1?key=secret"])
def test_an_address_that_is_none(url):
    with pytest.raises(UserError) as told:
        ScoringEndpoint(engine="vllm", url=url, model="m", timeout=1, max_concurrency=1, outage_limit=1, api_key=None)
    assert "secret" not in str(told.value)
