"""A teacher's probabilities: out of verl's pool, through retries, into a row and out of it; and the first question."""

import asyncio
import math

import pytest
import ray
import torch
from transformers import AutoTokenizer

from onepo.distillation.field import of_response, row_of
from onepo.distillation.pool import PoolTeacher
from onepo.distillation.probe import probe_teacher
from onepo.distillation.scoring import TeacherGone, Unscored, score_tokens
from onepo.endpoints.attempts import worth_another_attempt
from onepo.endpoints.errors import EndpointError, EndpointUnavailable, RequestRefused, RequestTimedOut, ServerFailed
from onepo.errors import UserError
from tests.students import make_talking_student

IDS = [5, 6, 7, 8]


class Pool:
    """In the place of verl's client: each answer is an error to raise, or the pairs of a whole row."""

    def __init__(self, *answers, pause=0.0):
        self._answers, self._pause = list(answers), pause
        self.asked, self.at_once, self.most = [], 0, 0

    async def compute_teacher_logprobs_single(self, sequence_ids):
        self.asked.append(sequence_ids)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(self._pause)
        self.at_once -= 1
        answer = self._answers.pop(0) if self._answers else ROW
        if isinstance(answer, Exception):
            raise answer
        tokens, log_probs = zip(*answer, strict=True)
        return torch.tensor(tokens, dtype=torch.int32)[:, None], torch.tensor(log_probs)[:, None]


ROW = [(6, -1.0), (7, -2.0), (8, -3.0), (0, 0.0)]  # verl's form: about the token behind


def scored(pool, *, start=2, timeout=5.0):
    return asyncio.run(PoolTeacher(pool, timeout=timeout, max_concurrency=2).score(IDS, start=start))


@pytest.mark.parametrize(("start", "expected"), [(1, [-1.0, -2.0, -3.0]), (2, [-2.0, -3.0]), (3, [-3.0])])
def test_the_pool_is_read_at_the_right_places(start, expected):
    pool = Pool()
    assert scored(pool, start=start) == expected and pool.asked == [IDS]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ([(5, -1.0), (6, -2.0), (7, -3.0), (8, 0.0)], "token 2 is 7, and the score there is of token 6"),  # not shifted
        ([(6, -1.0), (7, math.nan), (8, -3.0), (0, 0.0)], "token 2: the score is nan"),
        ([(6, -1.0), (7, -2.0), (0, 0.0)], "1 scores for 4 tokens, of which 2"),
    ],
)
def test_scores_of_the_pool_that_are_none(answer, told):
    with pytest.raises(ServerFailed, match=told):
        scored(Pool(answer))


def test_what_the_pool_raises():
    with pytest.raises(ServerFailed, match="the teacher: ValueError: too long"):
        scored(Pool(ValueError("too long")))
    with pytest.raises(EndpointError, match="no scores within 0") as late:
        scored(Pool(pause=60.0), timeout=0.01)
    assert not worth_another_attempt(late.value)
    with pytest.raises(TeacherGone, match="a process of the teacher has died"):
        scored(Pool(ray.exceptions.RayActorError()))


def test_the_pool_is_asked_for_so_many_rows_at_one_time():
    pool = Pool(pause=0.01)

    async def main():
        teacher = PoolTeacher(pool, timeout=5, max_concurrency=2)
        return await asyncio.gather(*(teacher.score(IDS, start=2) for _ in range(6)))

    assert asyncio.run(main()) == [[-2.0, -3.0]] * 6
    assert pool.most == 2


class Moody:
    """A teacher with the next of some answers."""

    def __init__(self, *answers, given_up=False):
        self.answers, self.given_up = list(answers), given_up
        self.asked = []

    async def score(self, ids, *, start):
        self.asked.append((len(ids), start))
        answer = self.answers.pop(0)
        if isinstance(answer, EndpointError):
            raise answer
        return answer[: len(ids) - start] if isinstance(answer, list) else [answer(ids)] * (len(ids) - start)


def asked(teacher, retries):
    return asyncio.run(score_tokens(teacher, IDS, start=2, retries=retries))


def test_a_failure_is_tried_again():
    assert asked(Moody(RequestTimedOut("slow"), [-1.0, -2.0]), retries=1) == [-1.0, -2.0]


@pytest.mark.parametrize(
    ("error", "attempts"), [(RequestTimedOut("slow"), 3), (RequestRefused("no", 400), 1)], ids=["slow", "refused"]
)
def test_a_row_that_cannot_be_scored(error, attempts):
    teacher = Moody(*[error] * 5)
    with pytest.raises(Unscored, match=str(error)):
        asked(teacher, retries=2)
    assert len(teacher.answers) == 5 - attempts


def test_a_teacher_that_is_away_for_too_long_is_gone():
    away = EndpointUnavailable("nobody there", "refused")
    with pytest.raises(TeacherGone, match="nobody there"):
        asked(Moody(away, given_up=True), retries=2)
    with pytest.raises(Unscored, match="nobody there"):  # of this row only: others were answered
        asked(Moody(away), retries=2)


@pytest.mark.parametrize(("prompt", "response"), [(1, 3), (2, 2), (3, 1)])
def test_a_row_gives_back_what_was_put_in(prompt, response):
    scores = [-1.0, -2.0, -3.0][:response]
    row = row_of(scores, prompt=prompt)
    assert row.shape == (prompt + response, 1)
    assert of_response(row, prompt=prompt, response=response).tolist() == scores
    assert of_response(row, prompt=prompt, response=0).tolist() == []


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("students") / "student"
    make_talking_student(folder)
    return AutoTokenizer.from_pretrained(folder)


def probed(tokenizer, *answers):
    teacher = Moody(*answers)
    return asyncio.run(probe_teacher(teacher, tokenizer, prompt=60, longest=200)), teacher.asked


def test_a_teacher_that_can_score_is_told(tokenizer):
    line, asked = probed(tokenizer, lambda ids: -0.5, lambda ids: -0.7)
    assert (
        line.startswith("the teacher scores a conversation of ") and ": mean log-probability -0.50; one of 200" in line
    )
    assert [start for _, start in asked] == [1, 60] and asked[1][0] == 200


def test_a_teacher_that_cannot_score_is_refused(tokenizer):
    with pytest.raises(UserError, match=r"^--teacher: cannot score a short conversation: out of order$"):
        probed(tokenizer, ServerFailed("out of order"), ServerFailed("out of order"))
    with pytest.raises(UserError, match=r"cannot score an episode of 200 tokens, the longest .*: too long$"):
        probed(tokenizer, lambda ids: -0.5, RequestRefused("too long", 400))


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (RequestRefused("no", 401), "TEACHER_API_KEY must be its key"),
        (RequestRefused("no", 404), "TEACHER_BACKEND says, and is TEACHER_NAME"),
        (EndpointUnavailable("no", "refused"), "does it run, and is this its address"),
    ],
)
def test_what_to_do_is_told(error, advice, tokenizer):
    with pytest.raises(UserError, match=advice):
        probed(tokenizer, error)


def test_a_teacher_that_knows_nothing_is_refused(tokenizer):
    uniform = -math.log(len(tokenizer))
    with pytest.raises(UserError, match=rf"mean log-probability {uniform:.2f}\): its weights are broken"):
        probed(tokenizer, lambda ids: uniform)
