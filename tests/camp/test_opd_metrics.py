"""What is told of an update that a teacher taught."""

import pytest
import torch

from camp.opd.metrics import domain_distances, loss_metrics


def test_distances_by_domain():
    k1 = [torch.tensor([0.0, 2.0]), torch.tensor([12.0]), torch.tensor([-1.0, 1.0, -2.0]), torch.ones(0)]
    found = domain_distances(k1, ["games", "quests", "games", "search"])
    assert found == {"domain/games/kl": 0.0, "domain/quests/kl": 12.0}


@pytest.mark.parametrize("averaged_over", [1, 2])
def test_sums_of_the_loss_become_shares(averaged_over):
    sums = {"response_tokens": 40, "clipped_tokens": 4, "lower_clipped_tokens": 2, "abs_k1_sum": 20, "k1_sum": 9}
    metrics = {f"actor/distillation/{name}": value / averaged_over for name, value in sums.items()} | {"actor/lr": 1.0}
    assert loss_metrics(metrics) == {
        "actor/pg_clipfrac": 0.1,
        "actor/pg_clipfrac_lower": 0.05,
        "distillation/k1_abs": 0.5,
    }
    assert metrics == {"actor/lr": 1.0}


def test_an_update_without_tokens_has_no_shares():
    assert loss_metrics({"actor/distillation/response_tokens": 0.0}) == {}
