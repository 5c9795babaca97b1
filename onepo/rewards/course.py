"""What is counted about the grading of one response."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GradingCourse:
    """How the grading of one response went, for the run's counters."""

    rubrics: int
    asked: bool  # False: there was no visible answer to ask about
    failure: str | None  # the kind of failure (``Grading.failure``), None when there is a score
    explanation: str | None
    requests: int
    malformed: int  # outputs that were refused
    cut: bool  # the conversation was longer than the grader's context
    seconds: float

    @classmethod
    def not_asked(cls, *, rubrics: int) -> "GradingCourse":
        return cls(rubrics, False, None, None, requests=0, malformed=0, cut=False, seconds=0.0)

    @classmethod
    def broken(cls, *, rubrics: int, explanation: str) -> "GradingCourse":
        """The reward itself raised: a worker that died, a defect."""
        return cls(rubrics, True, "error", explanation, requests=0, malformed=0, cut=False, seconds=0.0)
