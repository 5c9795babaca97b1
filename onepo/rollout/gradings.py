"""What became of the gradings of one training step or one validation. Pure."""

from collections import Counter

import numpy as np

from onepo.rewards.course import GradingCourse


class GradingLog:
    """Counts the gradings that were attempted, which is one for each response, however many requests it took."""

    def __init__(self):
        self.attempted = self.failed = 0
        self._retries = self._cut = self._without_answer = 0
        self._parse_failures: Counter[int] = Counter()  # refused outputs by number of rubrics
        self._kinds: Counter[str] = Counter()
        self._explanations: dict[str, str] = {}  # the last one of each kind
        self._seconds: list[float] = []

    def add(self, course: GradingCourse) -> None:
        if not course.asked:
            self._without_answer += 1
            return
        self.attempted += 1
        self._retries += max(course.requests - 1, 0)
        self._cut += course.cut
        self._parse_failures[course.rubrics] += course.malformed
        self._seconds.append(course.seconds)
        if course.failure is not None:
            self.failed += 1
            self._kinds[course.failure] += 1
            self._explanations[course.failure] = course.explanation or course.failure

    def metrics(self) -> dict[str, float]:
        """The ``reward/*`` metrics; none when nothing open-ended came up. Latencies are seconds, waits included."""
        if not self.attempted and not self._without_answer:
            return {}
        metrics: dict[str, float] = {
            "reward/gradings": self.attempted,
            "reward/failed": self.failed,
            "reward/retries": self._retries,
            "reward/parse_failures": self._parse_failures.total(),
            "reward/cut_conversations": self._cut,
            "reward/without_answer": self._without_answer,
        }
        for rubrics, count in sorted(self._parse_failures.items()):
            if count:
                metrics[f"reward/parse_failures/{rubrics}_rubrics"] = count
        if self._seconds:
            p50, p95 = np.percentile(self._seconds, [50, 95])
            metrics |= {"reward/latency_p50": float(p50), "reward/latency_p95": float(p95)}
        return metrics

    def exceeds(self, rate: float, *, planned: int) -> bool:
        """Whether more than the given share failed.

        Args:
            rate: the largest share that is tolerated.
            planned: while gradings are still to come: their number in all, so that a few early failures decide nothing.
        """
        return self.failed > rate * max(self.attempted, planned)

    def explain(self) -> str:
        """How many failed and of what, with the words of the most common kind."""
        kinds = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in self._kinds.most_common())
        example = self._explanations[self._kinds.most_common(1)[0][0]]
        return f"{self.failed} of {self.attempted} gradings failed ({kinds}); for example: {example}"
