"""The step's figures from the sums of its parts."""

from onepo.trainers.loss_metrics import step_metrics


def sums(**changes):
    names = (
        "response_tokens",
        "teacher_tokens",
        "floored_tokens",
        "rescaled_tokens",
        "rescale_sum",
        "clipped_tokens",
        "lower_clipped_tokens",
        "approx_kl_sum",
    )
    return {f"actor/onepo/{name}": changes.get(name, 0.0) for name in names}


def test_means_over_parts_become_sums_and_shares():
    metrics = {
        "actor/pg_loss": 1.0,
        **sums(response_tokens=100.0, teacher_tokens=20.0, floored_tokens=10.0, rescaled_tokens=5.0, rescale_sum=20.0),
        **{"actor/onepo/clipped_tokens": 2.0, "actor/onepo/approx_kl_sum": 8.0},
    }
    found = step_metrics(metrics, averaged_over=4)
    assert metrics == {"actor/pg_loss": 1.0}
    assert found["onepo/teacher_tokens"] == 80 and found["onepo/teacher_token_fraction"] == 0.2
    assert found["onepo/rescaled_token_fraction"] == 0.25 and found["onepo/rescale_mean"] == 4.0
    assert found["actor/pg_clipfrac"] == 0.02 and found["actor/ppo_kl"] == 0.1  # over the student's tokens


def test_a_step_without_teacher_rows():
    found = step_metrics(sums(response_tokens=10.0), averaged_over=1)
    assert found["onepo/rescaled_token_fraction"] == 0.0 and found["onepo/rescale_mean"] == 1.0


def test_a_step_without_a_token():
    assert step_metrics(sums(), averaged_over=1)["actor/pg_clipfrac"] == 0.0
