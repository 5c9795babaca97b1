"""What an update learned from the teacher, in figures. Pure."""

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

_SUMS = "actor/distillation/"


def domain_distances(k1: Sequence[Tensor], domains: Sequence[str]) -> dict[str, float]:
    """Mean ``k1`` of each domain that has tokens.

    Args:
        k1: of each episode.
        domains: of each episode.
    """
    by_domain: dict[str, list[Tensor]] = defaultdict(list)
    for row, domain in zip(k1, domains, strict=True):
        by_domain[domain].append(row)
    tokens = {domain: torch.cat(rows) for domain, rows in sorted(by_domain.items())}
    return {f"domain/{domain}/kl": found.mean().item() for domain, found in tokens.items() if len(found)}


def loss_metrics(metrics: dict[str, float]) -> dict[str, float]:
    """Shares of an update's tokens, out of the loss's sums, which are taken out of ``metrics``.

    Args:
        metrics: verl's, among them means or sums of ours over ranks: of all of them alike, so that shares are right.
    """
    sums = {name.removeprefix(_SUMS): metrics.pop(name) for name in list(metrics) if name.startswith(_SUMS)}
    tokens = sums["response_tokens"]
    if not tokens:
        return {}
    return {
        "actor/pg_clipfrac": sums["clipped_tokens"] / tokens,
        "actor/pg_clipfrac_lower": sums["lower_clipped_tokens"] / tokens,
        "distillation/k1_abs": sums["abs_k1_sum"] / tokens,
    }
