"""How well a grader does its work: what two passes of gradings over the same answers tell."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from onepo.rewards.grader import Grading, shown
from onepo.rewards.rubric import rubric_score

WORST_SHOWN = 5


def summarise(
    rubrics: Sequence[list[dict[str, Any]]], first: Sequence[Grading], second: Sequence[Grading]
) -> dict[str, str]:
    """The lines of the summary (name: value).

    Args:
        rubrics: of each answer.
        first, second: the two passes; everything but the agreement is about the first.
    """
    wrote = [grading for grading in first if grading.met is not None or grading.malformed]
    graded = [grading for grading in first if grading.met is not None]
    at_once = [grading for grading in graded if not grading.malformed]
    failures = Counter(grading.failure for grading in first if grading.failure)
    p50, p95 = np.percentile([grading.seconds for grading in first], [50, 95])
    scores = [_score(*pair) for pair in zip(rubrics, first, strict=True)]
    known = [score for score in scores if score is not None]
    both = [(a, b) for a, b in zip(first, second, strict=True) if a.met is not None and b.met is not None]
    decisions = [x == y for a, b in both for x, y in zip(a.met, b.met, strict=True)]
    again = [_score(*pair) for pair in zip(rubrics, second, strict=True)]
    same = [x == y for x, y in zip(scores, again, strict=True) if x is not None and y is not None]
    return {
        "gradings": str(len(first)),
        "output usable at the first attempt": _share(len(at_once), len(wrote)),
        "output usable after retries": _share(len(graded), len(wrote)),
        "failed": ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in failures.most_common()) or "none",
        "conversation cut": str(sum(grading.cut for grading in first)),
        "requests": str(sum(grading.requests for grading in first)),
        "seconds per grading, p50 / p95": f"{p50:.2f} / {p95:.2f}",
        "mean score": f"{np.mean(known):.3f}" if known else "-",
        "agreement per criterion": _share(sum(decisions), len(decisions)),
        "identical score": _share(sum(same), len(same)),
    }


def malformed_outputs(*passes: Sequence[Grading]) -> list[tuple[str, int]]:
    """The most common outputs that were refused, on one line each, and how often they came."""
    outputs = Counter(shown(text) for gradings in passes for grading in gradings for text in grading.malformed)
    return outputs.most_common(WORST_SHOWN)


def _score(rubrics: list[dict[str, Any]], grading: Grading) -> float | None:
    return None if grading.met is None else rubric_score(rubrics, grading.met)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%} ({part} of {whole})" if whole else "-"
