"""The run's ledger, as a plain object (the actor runs in the end-to-end tests)."""

import pytest

from onepo.rewards.course import GradingCourse
from onepo.rollout.ledger import GroupReport, GroupSignal, RunLedger
from onepo.settings import parse_settings
from tests.configs import onepo_section


def ledger(**changes):
    return RunLedger(parse_settings(onepo_section(**changes)))


def report(step, *, signal=GroupSignal.MIXED, candidate=True, used=False, acc=0.5, failed=False):
    return GroupReport(step, signal, acc, candidate, used, failed, teacher_acc=1.0 if candidate else None)


def test_a_step_counts_every_group_and_is_then_forgotten():
    book = ledger()
    for used in (True, True, False):
        book.report_group(report(1, used=used))
    book.report_group(report(1, signal=GroupSignal.ALL_WRONG, candidate=False, acc=0.0, failed=True))
    metrics = book.close_step(1)
    assert metrics["onepo/teacher_candidates"] == 3
    assert metrics["onepo/teacher_replaced"] == 2
    assert metrics["onepo/teacher_failures"] == 1
    assert metrics["onepo/teacher_acc"] == 1.0
    assert metrics["onepo/retirement_rate"] == pytest.approx(1 / 3)
    assert metrics["onepo/student_acc"] == pytest.approx(1.5 / 4)
    assert metrics["onepo/groups_mixed"] == 3
    assert metrics["onepo/groups_all_wrong"] == 1
    assert book.close_step(2)["onepo/teacher_candidates"] == 0


def test_a_step_without_candidates_has_no_retirement_rate():
    book = ledger()
    book.report_group(report(1, candidate=False))
    assert "onepo/retirement_rate" not in book.close_step(1)


def test_a_plateau_stops_the_teacher_for_good():
    book = ledger(retirement_plateau_window=2)
    for step in (1, 2):
        book.report_group(report(step, used=False))
        assert book.teacher_enabled(step)
        metrics = book.close_step(step)
    assert not book.teacher_enabled(3)
    assert book.disabled_reason() == "plateau"
    assert metrics["onepo/teacher_disabled_reason"] == 2
    book.report_group(report(3, used=True))
    book.close_step(3)
    assert not book.teacher_enabled(4)


def test_a_step_limit_lets_the_first_steps_have_a_teacher():
    book = ledger(teacher_max_steps=2)
    assert [book.teacher_enabled(step) for step in (1, 2, 3)] == [True, True, False]


def test_a_run_without_teacher_never_has_one():
    book = ledger(teacher_enabled=False)
    assert not book.teacher_enabled(1)
    assert book.close_step(1)["onepo/teacher_disabled_reason"] == 3


def test_the_live_view_adds_up_the_workers():
    book = ledger()
    book.report_rollouts("a", {"generating": 5, "grading": 1, "asking": 1})
    book.report_rollouts("b", {"generating": 2, "grading": 0, "asking": 0})
    book.report_rollouts("a", {"generating": 3, "grading": 2, "asking": 4})
    book.report_group(report(4, used=True))
    assert book.live(4) == {"signals": {"mixed": 1}, "generating": 5, "grading": 2, "asking": 4}


def course(**changes):
    values = {"asked": True, "failure": None, "explanation": None, "requests": 1, "malformed": 0}
    return GradingCourse(rubrics=2, cut=False, seconds=1.0, **{**values, **changes})


FAILED = course(failure="malformed", explanation="found no list", requests=3, malformed=3)


def test_gradings_are_counted_by_step_and_apart_from_validation():
    book = ledger()
    book.report_grading(1, course(), validate=False)
    book.report_grading(2, FAILED, validate=False)
    book.report_grading(1, FAILED, validate=True)
    metrics = book.close_step(1)
    assert (metrics["reward/gradings"], metrics["reward/failed"]) == (1, 0)
    assert book.close_step(2)["reward/failed"] == 1
    assert book.close_validation() == {"validation/gradings": 1, "validation/failed_gradings": 1}
    assert book.close_validation() == {}
    assert "reward/gradings" not in book.close_step(3)


def test_too_many_failures_are_a_reason_to_stop():
    book = ledger()
    for item in (course(), course(), course(), FAILED):
        book.report_grading(1, item, validate=False)
    assert book.stop_reason(1, validate=False, planned=16) is None  # most are still to come
    reason = book.stop_reason(1, validate=False, planned=0)
    assert reason == ("1 of 4 gradings failed (1 malformed); for example: found no list (REWARD_MAX_FAILURE_RATE=0.2)")
    assert book.stop_reason(1, validate=True, planned=0) is None
    assert book.stop_reason(2, validate=False, planned=0) is None


def test_a_lost_grader_is_a_reason_to_stop():
    book = ledger()
    book.report_lost_grader("the server was ended by SIGKILL")
    for validate in (False, True):
        assert book.stop_reason(1, validate=validate, planned=64) == (
            "the grader is lost: the server was ended by SIGKILL"
        )


def test_each_kind_of_failure_is_told_once():
    book = ledger()
    for item in (FAILED, FAILED, course(failure="timed_out", explanation="no answer in 5 s")):
        book.report_grading(1, item, validate=False)
    assert book.new_failures() == [
        "a grading failed (malformed): found no list",
        "a grading failed (timed out): no answer in 5 s",
    ]
    book.report_grading(2, FAILED, validate=True)
    assert book.new_failures() == []
