"""The counts of gradings, and when they stop a run."""

import pytest

from onepo.rewards.course import GradingCourse
from onepo.rollout.gradings import GradingLog


def course(**changes):
    values = {"asked": True, "failure": None, "explanation": None, "requests": 1, "malformed": 0, "cut": False}
    return GradingCourse(**{"rubrics": 3, "seconds": 1.0, **values, **changes})


def failed(kind="malformed", explanation="found no list"):
    return course(failure=kind, explanation=explanation, requests=3, malformed=3 if kind == "malformed" else 0)


def log_of(*courses):
    log = GradingLog()
    for item in courses:
        log.add(item)
    return log


def test_the_metrics_of_a_step():
    metrics = log_of(
        course(seconds=1.0),
        course(seconds=3.0, requests=2, malformed=1, rubrics=5),
        failed(),
        course(asked=False, requests=0),
        course(cut=True, seconds=2.0),
    ).metrics()
    assert metrics.pop("reward/latency_p50") == pytest.approx(1.5)
    assert metrics.pop("reward/latency_p95") == pytest.approx(2.85)
    assert metrics == {
        "reward/gradings": 4,
        "reward/failed": 1,
        "reward/retries": 3,
        "reward/parse_failures": 4,
        "reward/parse_failures/3_rubrics": 3,
        "reward/parse_failures/5_rubrics": 1,
        "reward/cut_conversations": 1,
        "reward/without_answer": 1,
    }


def test_a_step_without_open_ended_tasks_has_no_such_metrics():
    assert GradingLog().metrics() == {}


def test_only_unanswered_tasks_have_no_latency():
    metrics = log_of(course(asked=False)).metrics()
    assert metrics["reward/without_answer"] == 1 and "reward/latency_p50" not in metrics


@pytest.mark.parametrize(
    ("good", "bad", "planned", "exceeds"),
    [(4, 1, 0, False), (3, 1, 0, True), (0, 1, 0, True), (0, 1, 16, False), (0, 4, 16, True), (0, 0, 0, False)],
)
def test_the_limit(good, bad, planned, exceeds):
    log = log_of(*[course()] * good, *[failed()] * bad)
    assert log.exceeds(0.2, planned=planned) is exceeds


def test_a_limit_of_one_never_stops():
    assert not log_of(failed()).exceeds(1.0, planned=0)


def test_the_explanation_names_the_most_common_kind():
    text = log_of(
        course(), failed(), failed("timed_out", "no answer in 5 s"), failed("timed_out", "no answer in 9 s")
    ).explain()
    assert text == "3 of 4 gradings failed (2 timed out, 1 malformed); for example: no answer in 9 s"
