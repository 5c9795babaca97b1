"""One small Ray actor per invocation that counts what happened to the episodes, and knows when the run must end.

A fault of a service is counted here and nowhere else: it is no reward and no text.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import ray


@dataclass(frozen=True)
class EpisodeReport:
    """An episode that came to its end.

    Attributes:
        seconds: from its begin in the attempt that succeeded.
        latencies: of the service, in seconds, one for each answer.
    """

    domain: str
    reward: float
    limit: str | None
    seconds: float
    latencies: list[float]


class EpisodeLedger:
    """The actor's class. Counters are of this invocation only; a resumed run begins with new ones.

    Args:
        domains: of the schedule.
    """

    def __init__(self, domains: Sequence[str]):
        self._domains = sorted(domains)
        self._ends: dict[str, Counter] = defaultdict(Counter)
        self._faults: dict[str, Counter] = defaultdict(Counter)
        self._retried: dict[str, set[int]] = defaultdict(set)  # positions
        self._failed: Counter = Counter()
        self._latencies: dict[str, list[float]] = defaultdict(list)  # since the last step
        self._latency_totals: dict[str, list[float]] = {}  # number, sum and largest
        self._under_way: dict[int, str] = {}
        self._told: set[tuple[str, str]] = set()
        self._notes: list[str] = []
        self._stop: str | None = None
        self._counted: Counter = Counter()

    def begin(self, position: int, domain: str, *, again: bool) -> None:
        """An attempt at an episode; ``again``: it is not the first."""
        self._under_way[position] = domain
        if again:
            self._retried[domain].add(position)

    def finish(self, position: int, report: EpisodeReport) -> None:
        self._under_way.pop(position, None)
        ends = self._ends[report.domain]
        ends["finished"] += 1
        if report.limit is not None:
            ends[report.limit] += 1
        if report.latencies:
            self._latencies[report.domain] += report.latencies
            count, total, largest = self._latency_totals.get(report.domain, [0, 0.0, 0.0])
            self._latency_totals[report.domain] = [
                count + len(report.latencies),
                total + sum(report.latencies),
                max(largest, *report.latencies),
            ]

    def fault(self, domain: str, kind: str, text: str) -> None:
        """A service did not do its part."""
        self._faults[domain][kind] += 1
        if (domain, kind) not in self._told:  # each kind once
            self._told.add((domain, kind))
            self._notes.append(f"{domain}: {text} (further faults of this kind are only counted)")

    def give_up(self, position: int, domain: str, reason: str) -> None:
        """An episode has failed for good: the run is to save and stop."""
        self._under_way.pop(position, None)
        self._failed[domain] += 1
        self._stop = self._stop or f"episode {position} of {domain}: {reason}"

    def note(self, text: str) -> None:
        """Something to be told, each text once."""
        if ("", text) not in self._told:
            self._told.add(("", text))
            self._notes.append(text)

    def report_lost(self, what: str, reason: str) -> None:
        """A service or a server has ended for good."""
        self._stop = self._stop or f"{what} is lost: {reason}"

    def stop_reason(self) -> str | None:
        """Why the run is to save and stop, None while it may go on."""
        return self._stop

    def new_notes(self) -> list[str]:
        """What is to be told and was not yet."""
        notes, self._notes = self._notes, []
        return notes

    def close_step(self) -> dict[str, float]:
        """Metrics of what happened since the last call."""
        totals = Counter(
            {
                "episodes/finished": sum(ends["finished"] for ends in self._ends.values()),
                "episodes/retried": self._episodes_retried(),
                "episodes/failed": self._failed.total(),
                **{f"domain/{name}/retried": len(self._retried[name]) for name in self._domains},
                **{f"domain/{name}/failed": self._failed[name] for name in self._domains},
            }
        )
        metrics: dict[str, float] = {name: count - self._counted[name] for name, count in totals.items()}
        self._counted = totals
        for name, seconds in self._latencies.items():
            metrics[f"domain/{name}/latency_mean"] = fmean(seconds)
            metrics[f"domain/{name}/latency_max"] = max(seconds)
        self._latencies.clear()
        return metrics

    def counters(self) -> dict[str, Any]:
        """Everything counted in this invocation, as JSON values, by domain."""
        return {
            name: {
                "finished": self._ends[name]["finished"],
                "limits": {limit: count for limit, count in self._ends[name].items() if limit != "finished"},
                "faults": dict(self._faults[name]),
                "retried": len(self._retried[name]),
                "failed": self._failed[name],
                "answers": self._latency_totals.get(name, [0])[0],
                "latency_mean": self._mean_latency(name),
                "latency_max": self._latency_totals[name][2] if name in self._latency_totals else None,
            }
            for name in self._domains
        }

    def _episodes_retried(self) -> int:
        return sum(map(len, self._retried.values()))

    def _mean_latency(self, name: str) -> float | None:
        if name not in self._latency_totals:
            return None
        count, total, _ = self._latency_totals[name]
        return total / count

    def live(self, step: int) -> dict[str, Any]:
        """What the terminal shows of a running step."""
        return {
            "under_way": len(self._under_way),
            "finished": sum(ends["finished"] for ends in self._ends.values()) - self._counted["episodes/finished"],
            "retried": self._episodes_retried() - self._counted["episodes/retried"],
        }


def ledger_name(attempt_dir: str) -> str:
    """The ledger's name in Ray: with the attempt's, so that runs on one cluster never meet."""
    return f"camp-ledger-{attempt_dir}"


def create_ledger(kind: type[EpisodeLedger], attempt_dir: str, domains: Sequence[str]) -> Any:
    """Start the actor; returns its handle."""
    return ray.remote(kind).options(name=ledger_name(attempt_dir), num_cpus=0).remote(domains)
