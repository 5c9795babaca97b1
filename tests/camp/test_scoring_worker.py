"""What becomes of a finished episode at the teacher, in verl's worker."""

import asyncio
import time
from types import SimpleNamespace

from camp.opd.field import TEACHER_FIELD, of_response
from camp.opd.pool import TeacherDied
from camp.opd.worker import SCORING, Scoring, ScoringWorker
from onepo.endpoints.errors import RequestRefused

PROMPT, RESPONSE = [1, 2, 3], [4, 5]


class Ledger:
    """In the place of the Ray actor: keeps what was told."""

    def __init__(self):
        self.told = []

    def __getattr__(self, method):
        async def remote(*arguments):
            self.told.append((method, *arguments))

        return SimpleNamespace(remote=remote)


class Teacher:
    def __init__(self, answer):
        self.answer = answer

    async def score(self, ids, *, start):
        assert (ids, start) == ([1, 2, 3, 4, 5], 3)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def scored(answer):
    ledger = Ledger()
    output = SimpleNamespace(response_mask=[1, 0], extra_fields={"kept": 1})
    worker = SimpleNamespace(_teacher=Teacher(answer), _settings=SimpleNamespace(max_retries=2), _ledger=ledger)
    columns = {"episode": {"position": 7, "domain": "games"}}
    done = ScoringWorker._compute_teacher_logprobs(worker, output, PROMPT, RESPONSE, False, columns)
    try:
        asyncio.run(done)
    except TeacherDied:
        return None, ledger.told
    return output, ledger.told


def test_the_scores_are_beside_the_row():
    before = time.time()
    output, told = scored([-1.0, -2.0])
    scoring = Scoring(**output.extra_fields[SCORING])
    assert before <= scoring.began <= scoring.ended <= time.time() and scoring.missing is None
    assert of_response(output.extra_fields[TEACHER_FIELD], prompt=3, response=2).tolist() == [-1.0, -2.0]
    assert output.response_mask == [1, 0] and output.extra_fields["kept"] == 1 and told == []


def test_a_row_without_scores_teaches_nothing():
    output, told = scored(RequestRefused("too long", 400))
    assert output.response_mask == [0, 0] and output.extra_fields[SCORING]["missing"] == "too long"
    assert output.extra_fields[TEACHER_FIELD].shape == (5, 1)
    assert told == [("note", "a row cannot be scored: too long")]


def test_a_teacher_that_died_ends_the_run():
    output, told = scored(TeacherDied("it is gone"))
    assert output is None and told == [("give_up", 7, "games", "it is gone")]
