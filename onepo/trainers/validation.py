"""Validation rows whose grading failed: they are shown, but no score is made from them. Pure."""

import math
from collections import Counter
from statistics import fmean
from typing import Any


class GradedRows:
    """The rows of a validation that have a score (``acc`` is a number).

    Args:
        data_sources, sample_uids: one entry per row.
        infos: verl's lists of reward details by name, ``acc`` among them, one entry per row.
    """

    def __init__(self, data_sources: list[str], sample_uids: list[str], infos: dict[str, list]):
        rows = [row for row, acc in enumerate(infos["acc"]) if not math.isnan(acc)]
        self.data_sources = [data_sources[row] for row in rows]
        self.sample_uids = [sample_uids[row] for row in rows]
        self.infos = {name: [values[row] for row in rows] for name, values in infos.items()}
        self._failed = Counter(zip(map(str, data_sources), map(str, sample_uids), strict=True))
        self._failed.subtract(zip(map(str, self.data_sources), map(str, self.sample_uids), strict=True))

    def means(self, name: str) -> dict[str, float]:
        """The mean of a detail over all rows ("") and by type of task; empty without a row."""
        by_type: dict[str, list[float]] = {}
        for value, task_type in zip(self.infos[name], self.infos["type"], strict=True):
            for key in ("", task_type):
                by_type.setdefault(key, []).append(value)
        return {key: fmean(values) for key, values in by_type.items()}

    def expected(self, counts: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
        """How many rows to expect by (data source, uid), without the failed ones: verl counts a missing row as 0."""
        return {key: count - self._failed[key] for key, count in counts.items() if count > self._failed[key]}


def without_nan(values: list[Any]) -> list[Any]:
    """The values for a JSON file, which knows no NaN."""
    return [None if isinstance(value, float) and math.isnan(value) else value for value in values]
