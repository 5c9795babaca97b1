"""What becomes of a finished episode at the teacher, in verl's worker."""

import asyncio
import time
from types import SimpleNamespace

from camp.opd.ledger import OPDLedger
from camp.opd.worker import SCORING, ScoringWorker
from camp.sampling.episode import EpisodeFailed
from onepo.distillation.field import TEACHER_FIELD, of_response
from onepo.distillation.rows import RowScorer, Scoring
from onepo.distillation.scoring import TeacherGone
from onepo.endpoints.errors import RequestRefused

PROMPT, RESPONSE = [1, 2, 3], [4, 5]


class Ledger:
    """In the place of the Ray actor."""

    def __init__(self):
        self.book = OPDLedger(["games"])

    def __getattr__(self, method):
        async def remote(*arguments, **options):
            return getattr(self.book, method)(*arguments, **options)

        return SimpleNamespace(remote=remote)


class Teacher:
    def __init__(self, answer):
        self.answer = answer

    async def score(self, ids, *, start):
        assert (ids, start) == ([1, 2, 3, 4, 5], 3)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def scored(answer, *, largest_share=0.5):
    """The row, or None when the episode failed; and the ledger."""
    ledger = Ledger()
    output = SimpleNamespace(response_mask=[1, 0], extra_fields={"kept": 1})
    scorer = object.__new__(RowScorer)
    scorer._teacher, scorer._retries = Teacher(answer), 2
    bounds = {"window": 4, "largest_share": largest_share}
    worker = SimpleNamespace(_scorer=scorer, _ledger=ledger, _bounds=bounds)
    columns = {"episode": {"position": 7, "domain": "games"}}
    done = ScoringWorker._compute_teacher_logprobs(worker, output, PROMPT, RESPONSE, False, columns)
    try:
        asyncio.run(done)
    except EpisodeFailed:
        return None, ledger.book
    return output, ledger.book


def test_the_scores_are_beside_the_row():
    before = time.time()
    output, book = scored([-1.0, -2.0])
    scoring = Scoring(**output.extra_fields[SCORING])
    assert before <= scoring.began <= scoring.ended <= time.time() and scoring.missing is None
    assert of_response(output.extra_fields[TEACHER_FIELD], prompt=3, response=2).tolist() == [-1.0, -2.0]
    assert output.response_mask == [1, 0] and output.extra_fields["kept"] == 1
    assert book.new_notes() == [] and book.stop_reason() is None


def test_a_row_without_scores_teaches_nothing():
    output, book = scored(RequestRefused("too long", 400))
    assert output.response_mask == [0, 0] and output.extra_fields[SCORING]["missing"] == "too long"
    assert output.extra_fields[TEACHER_FIELD].shape == (5, 1)
    assert (
        book.new_notes() == ["an episode cannot be scored: too long (further ones are only counted)"]
        and book.stop_reason() is None
    )


def test_too_many_of_them_end_the_run():
    output, book = scored(RequestRefused("too long", 400), largest_share=0.1)
    assert output is None
    told = "1 of the last 1 episodes have no scores of the teacher, more than a share of 0.1: too long"
    assert book.stop_reason() == f"episode 7 of games: {told}"


def test_a_teacher_that_is_gone_ends_the_run():
    output, book = scored(TeacherGone("it is gone"))
    assert output is None and book.stop_reason() == "episode 7 of games: it is gone"


def test_only_the_last_episodes_count():
    book = OPDLedger(["games"])
    bounds = {"window": 4, "largest_share": 0.25}
    told = [book.scored(n, "games", "no" if n % 4 == 0 else None, **bounds) for n in range(12)]
    assert all(told) and book.stop_reason() is None
    assert book.scored(12, "games", "no", **bounds) and not book.scored(13, "games", "no", **bounds)
    assert "2 of the last 4" in book.stop_reason()


def test_how_many_are_at_the_teacher_is_told():
    book = OPDLedger(["games"])
    book.asked(), book.asked()
    assert book.live(1)["at_teacher"] == 2
    book.scored(0, "games", None, window=4, largest_share=0.1)
    assert book.live(1)["at_teacher"] == 1
