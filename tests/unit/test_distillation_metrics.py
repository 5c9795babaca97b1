"""What a teacher's scores say."""

import pytest
import torch

from onepo.distillation.metrics import k1_metrics, knows_nothing, teacher_metrics


def test_figures_by_hand():
    assert k1_metrics(torch.tensor([0.0, 2.0, 12.0, -1.0, 1.0, -2.0]), loss_max_clamp=10.0) == pytest.approx(
        {
            "distillation/kl": 2.0,
            "distillation/tokens": 6,
            "distillation/k1_p05": -1.75,
            "distillation/k1_p50": 0.5,
            "distillation/k1_p95": 9.5,
            "distillation/cut_share": 1 / 6,
        }
    )


def test_without_a_clamp_nothing_is_cut():
    assert "distillation/cut_share" not in k1_metrics(torch.ones(1), loss_max_clamp=None)


def test_no_tokens_tell_nothing():
    assert k1_metrics(torch.ones(0), loss_max_clamp=10.0) == {}


def log_probs(hidden: int, vocabulary: int, weights: float) -> torch.Tensor:
    """Of tokens that somebody else wrote, under a model whose output has random weights."""
    generator = torch.Generator().manual_seed(0)
    states = torch.nn.functional.normalize(torch.randn(40, hidden, generator=generator)) * hidden**0.5
    logits = states @ (weights * torch.randn(hidden, vocabulary, generator=generator))
    tokens = torch.randint(0, vocabulary, (40, 1), generator=generator)
    return torch.log_softmax(logits, -1).gather(1, tokens)[:, 0]


@pytest.mark.parametrize("hidden", [64, 1024, 2560, 5120])
def test_a_teacher_of_random_weights_knows_nothing(hidden):
    assert knows_nothing(log_probs(hidden, 30_000, 0.02), 30_000)
    assert knows_nothing(log_probs(hidden, 30_000, 0.0), 30_000)


@pytest.mark.parametrize(
    "scores",
    [
        torch.tensor([]),
        torch.full((20,), -2.0),  # sure of itself
        -torch.linspace(0, 24, 50),  # of any mean, and spread
        torch.full((20,), -30.0),  # of another text
    ],
)
def test_a_teacher_that_knows_something(scores):
    assert not knows_nothing(scores, 150_000)


def test_how_fast_the_teacher_was():
    found = teacher_metrics([(10.0, 12.0, 100), (11.0, 15.0, 300), (20.0, 21.0, 200)])  # idle between 15 and 20
    assert found == {
        "teacher/latency_mean": pytest.approx(7 / 3),
        "teacher/latency_max": 4.0,
        "teacher/tokens_per_second": pytest.approx(600 / 6),
    }


def test_an_episode_within_another_adds_no_time():
    assert teacher_metrics([(0.0, 10.0, 50), (1.0, 2.0, 50)])["teacher/tokens_per_second"] == 10.0


def test_a_clock_that_stood_still():
    assert teacher_metrics([(3.0, 3.0, 7)]) == {"teacher/latency_mean": 0.0, "teacher/latency_max": 0.0}
