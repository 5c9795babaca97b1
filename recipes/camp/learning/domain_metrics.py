"""What an update learned from, by domain. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from camp.sampling.record import EpisodeRecord


def domain_metrics(records: Sequence[EpisodeRecord], *, update: int) -> dict[str, float]:
    """Means over the episodes of an update, and how old they are.

    The staleness of an episode is the number of updates between the weights that wrote its first token and those that
    learn from it.
    """
    by_domain: dict[str, list[EpisodeRecord]] = defaultdict(list)
    for record in records:
        by_domain[record.schedule.domain].append(record)
    metrics: dict[str, float] = {
        "episodes/trained": len(records),
        "episodes/reward": fmean(record.reward for record in records),
        "episodes/limit_rate": fmean(record.limit is not None for record in records),
    }
    for name, found in sorted(by_domain.items()):
        metrics[f"domain/{name}/episodes"] = len(found)
        metrics[f"domain/{name}/reward"] = fmean(record.reward for record in found)
        metrics[f"domain/{name}/limit_rate"] = fmean(record.limit is not None for record in found)
        metrics[f"domain/{name}/turns"] = fmean(len(record.turns) for record in found)
        if known := [record.success for record in found if record.success is not None]:
            metrics[f"domain/{name}/success"] = fmean(known)
    ages = sorted(update - 1 - record.versions[0] for record in records)
    metrics |= {
        "staleness/mean": fmean(ages),
        "staleness/median": ages[len(ages) // 2],
        "staleness/max": ages[-1],
        "staleness/weights_per_episode": fmean(record.versions[1] - record.versions[0] + 1 for record in records),
    }
    return metrics
