"""One small Ray actor per run that knows what became of every group, filtered ones included.

The trainer's batch cannot tell: each agent-loop worker decides its own groups, and dynamic sampling throws some away.
The ledger also answers whether the teacher is still in use, and holds what the terminal shows of a running step.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import Enum
from statistics import fmean
from typing import Any

import ray

from onepo.rewards.course import GradingCourse
from onepo.rollout.gradings import GradingLog
from onepo.settings import Settings
from onepo.teachers.online import TeacherAnswer
from onepo.teachers.retirement import RetirementController

# a metric must be a number
_REASON_CODES = {None: 0, "step_limit": 1, "plateau": 2, "switched_off": 3}


class GroupSignal(str, Enum):
    """What the accuracies of a group say once the teacher's response had its chance."""

    MIXED = "mixed"  # differ: the group carries a signal
    ALL_RIGHT = "all_right"
    ALL_WRONG = "all_wrong"
    EQUAL = "equal"  # equal, neither 0 nor 1
    FAILED = "failed"  # a rollout raised; its error is in the logs
    UNGRADED = "ungraded"  # too many gradings failed: the prompt is replaced


@dataclass(frozen=True)
class GroupReport:
    """One decided group of a training step."""

    step: int
    signal: GroupSignal
    student_acc: float | None  # mean accuracy of what the student wrote; None when every rollout failed
    teacher_candidate: bool
    teacher_used: bool
    teacher_failed: bool  # there was a response without a score, or the online teacher had none
    teacher_acc: float | None  # accuracy of the teacher's response, None without one


class RunLedger:
    """The actor's class; every method is quick and keeps no reference to its arguments' tensors."""

    def __init__(self, settings: Settings):
        self._controller = RetirementController(
            max_steps=settings.teacher_max_steps,
            plateau_window=settings.retirement_plateau_window,
            plateau_tolerance=settings.retirement_plateau_tolerance,
            plateau_min_rate=settings.retirement_plateau_min_rate,
        )
        self._teacher_switched_on = settings.teacher_enabled
        self._max_failure_rate = settings.grader.max_failure_rate
        self._signals: dict[int, Counter] = defaultdict(Counter)
        self._candidates: Counter = Counter()
        self._replaced: Counter = Counter()
        self._failures: Counter = Counter()
        self._student_acc: dict[int, list[float]] = defaultdict(list)
        self._teacher_acc: dict[int, list[float]] = defaultdict(list)
        self._rollouts: dict[str, dict[str, int]] = {}
        self._teacher_requests: Counter = Counter()
        self._teacher_seconds: dict[int, list[float]] = defaultdict(list)
        self._gradings: dict[int, GradingLog] = defaultdict(GradingLog)
        self._validation_gradings = GradingLog()
        self._first_failure: str | None = None
        self._lost_grader: str | None = None
        self._told_failures: set[tuple[str, str]] = set()
        self._new_failures: list[str] = []

    def teacher_enabled(self, step: int) -> bool:
        """Whether groups of this step may use a teacher response."""
        return self._teacher_switched_on and self._controller.teacher_enabled(step)

    def report_group(self, report: GroupReport) -> None:
        self._signals[report.step][report.signal] += 1
        self._candidates[report.step] += report.teacher_candidate
        self._replaced[report.step] += report.teacher_used
        self._failures[report.step] += report.teacher_failed
        if report.student_acc is not None:
            self._student_acc[report.step].append(report.student_acc)
        if report.teacher_acc is not None:
            self._teacher_acc[report.step].append(report.teacher_acc)

    def report_failure(self, text: str) -> None:
        """A rollout raised; the first one is remembered, as it explains the others more often than not."""
        self._first_failure = self._first_failure or text

    def first_failure(self) -> str | None:
        return self._first_failure

    def report_grading(self, step: int, course: GradingCourse, *, validate: bool) -> None:
        """The grading of one response is over: it has a score, or it is given up."""
        (self._validation_gradings if validate else self._gradings[step]).add(course)
        what = "a grading failed" if course.rubrics else "a reward failed"
        self._note_failure(what, course.failure, course.explanation)

    def report_teacher_answer(self, step: int, answer: TeacherAnswer) -> None:
        """The online teacher has answered a question of this step, or failed to."""
        self._teacher_requests[step] += answer.requests
        if answer.text is not None and not answer.from_disk:
            self._teacher_seconds[step].append(answer.seconds)
        if answer.text is not None and answer.explanation:
            self._note_failure("an answer of the teacher is used and not kept", "disk", answer.explanation)
        self._note_failure("the teacher gave no answer", answer.failure, answer.explanation)

    def _note_failure(self, what: str, kind: str | None, explanation: str | None) -> None:
        if kind is not None and (what, kind) not in self._told_failures:
            self._told_failures.add((what, kind))
            self._new_failures.append(f"{what} ({kind.replace('_', ' ')}): {explanation}")

    def new_failures(self) -> list[str]:
        """An example of each kind of failure that came up since the last call, for the first time in the run."""
        failures, self._new_failures = self._new_failures, []
        return failures

    def report_lost_grader(self, reason: str) -> None:
        """The managed grader ended and will not be started again."""
        self._lost_grader = reason

    def stop_reason(self, step: int, *, validate: bool, planned: int) -> str | None:
        """Why the run cannot go on grading, or None.

        Args:
            step: the training step; with ``validate`` the validation that is running counts instead.
            planned: as in :meth:`GradingLog.exceeds`; 0 when all gradings are done.
        """
        if self._lost_grader:
            return f"the grader is lost: {self._lost_grader}"
        log = self._validation_gradings if validate else self._gradings[step]
        if not log.exceeds(self._max_failure_rate, planned=planned):
            return None
        return f"{log.explain()} (REWARD_MAX_FAILURE_RATE={self._max_failure_rate:g})"

    def close_validation(self) -> dict[str, float]:
        """End a validation: its gradings, which are then forgotten. Empty when nothing open-ended was validated."""
        log, self._validation_gradings = self._validation_gradings, GradingLog()
        return {"validation/gradings": log.attempted, "validation/failed_gradings": log.failed} if log.attempted else {}

    def report_rollouts(self, worker: str, states: dict[str, int]) -> None:
        """How many rollouts of one worker are ``generating`` or ``grading``, and how many questions it is ``asking``.

        Replaces what the worker said before.
        """
        self._rollouts[worker] = states

    def group_signals(self, step: int) -> dict[str, int]:
        """Decided groups of the step by :class:`GroupSignal` value."""
        return {signal.value: count for signal, count in self._signals.get(step, {}).items()}

    def live(self, step: int) -> dict[str, Any]:
        """What the terminal's live line shows about a running step."""
        rollouts: Counter = Counter()
        for counts in self._rollouts.values():
            rollouts.update(counts)
        return {"signals": self.group_signals(step), **rollouts}

    def close_step(self, step: int) -> dict[str, float]:
        """End a training step: update the retirement state and return the ``onepo/*`` metrics of its groups.

        ``onepo/retirement_rate`` is absent when no group had a candidate. ``onepo/student_acc`` is the accuracy of the
        student alone, over every group generated for the step, before the teacher's responses came in, and
        ``onepo/teacher_acc`` that of the teacher's responses.
        """
        enabled = self.teacher_enabled(step)
        candidates, replaced = self._candidates.pop(step, 0), self._replaced.pop(step, 0)
        signals, student_acc = self._signals.pop(step, Counter()), self._student_acc.pop(step, [])
        rate = 1 - replaced / candidates if candidates else None
        if self._teacher_switched_on:
            self._controller.close_step(step, rate)
        metrics: dict[str, float] = {
            "onepo/teacher_candidates": candidates,
            "onepo/teacher_replaced": replaced,
            "onepo/teacher_failures": self._failures.pop(step, 0),
            "onepo/teacher_enabled": float(enabled),
            "onepo/teacher_disabled_reason": _REASON_CODES[self.disabled_reason()],
        }
        if rate is not None:
            metrics["onepo/retirement_rate"] = rate
        if step in self._teacher_requests:
            metrics["onepo/teacher_requests"] = self._teacher_requests.pop(step)
        if seconds := self._teacher_seconds.pop(step, []):
            metrics["onepo/teacher_latency_s"] = fmean(seconds)
        if student_acc:
            metrics["onepo/student_acc"] = fmean(student_acc)
        if teacher_acc := self._teacher_acc.pop(step, []):
            metrics["onepo/teacher_acc"] = fmean(teacher_acc)
        metrics.update(self._gradings.pop(step, GradingLog()).metrics())
        metrics.update({f"onepo/groups_{signal.value}": signals[signal] for signal in GroupSignal})
        return metrics

    def disabled_reason(self) -> str | None:
        """Why the teacher is out of use for good, or None."""
        return self._controller.disabled_reason if self._teacher_switched_on else "switched_off"

    def state_dict(self) -> dict[str, Any]:
        """The retirement state, which a checkpoint keeps."""
        return self._controller.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the state that a checkpoint kept."""
        self._controller.load_state_dict(state)


def create_ledger(name: str, settings: Settings) -> ray.actor.ActorHandle:
    """Start the run's ledger; it ends with the process that called this."""
    return ray.remote(RunLedger).options(name=name, num_cpus=0).remote(settings)


def ledger_name(run_dir: str) -> str:
    """The actor's name: it carries the run, so that two runs on one cluster keep apart."""
    return f"onepo_ledger:{run_dir}"
