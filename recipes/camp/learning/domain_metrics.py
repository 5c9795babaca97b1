"""What an update learned from, by domain. Pure."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import fmean, median

from camp.sampling.record import EpisodeRecord, success_rate


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
        if (success := success_rate(found)) is not None:
            metrics[f"domain/{name}/success"] = success
    ages = sorted(update - 1 - record.versions[0] for record in records)
    metrics |= {
        "staleness/mean": fmean(ages),
        "staleness/median": median(ages),
        "staleness/max": ages[-1],
        **{f"staleness/share_of_{age}": count / len(ages) for age, count in sorted(Counter(ages).items())},
        "staleness/weights_per_episode": fmean(record.versions[1] - record.versions[0] + 1 for record in records),
    }
    return metrics
