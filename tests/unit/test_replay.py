"""The two waits that verl's replay buffer would never end."""

import pytest
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from onepo.trainers import replay
from onepo.trainers.replay import BoundedReplayBuffer


class Exhausted(Exception):
    pass


class Died(Exception):
    pass


def buffer():
    def exhausted():
        raise Exhausted

    def died():
        raise Died

    upstream = ReplayBuffer(
        trainer_mode="sync",
        trainer_config={},
        max_off_policy_threshold=8,
        max_off_policy_strategy="drop",
        sampler_kwargs={},
        train_batch_size=4,
    )
    return BoundedReplayBuffer.over(upstream, poll_interval=0.001, on_exhausted=exhausted, check_progress=died)


def test_it_keeps_what_upstream_was_given():
    assert buffer().train_batch_size == 4 and buffer().poll_interval == 0.001


@pytest.mark.parametrize("under_way", ["pending_keys", "running_keys"])
def test_a_group_under_way_is_waited_for(under_way):
    bounded = buffer()
    getattr(bounded, under_way)["train"].add("uid")
    bounded._wait_for_next_poll("train", 0.0)


def test_no_group_under_way_ends_the_wait():
    with pytest.raises(Exhausted):
        buffer()._wait_for_next_poll("train", 0.0)


def test_validation_is_never_exhausted():
    buffer()._wait_for_next_poll("val", 0.0)


def test_a_worker_that_died_ends_the_wait(monkeypatch):
    monkeypatch.setattr(replay, "_CHECK_SECONDS", 0.0)
    bounded = buffer()
    bounded.running_keys["train"].add("uid")
    with pytest.raises(Died):
        bounded._wait_for_next_poll("train", 0.0)


def test_a_finished_group_without_rows_is_replaced():
    """Its gradings failed. With the filter on, verl would look for its rewards and raise."""
    asked = []
    upstream = ReplayBuffer(
        trainer_mode="sync",
        trainer_config={},
        max_off_policy_threshold=8,
        max_off_policy_strategy="drop",
        sampler_kwargs={},
        train_batch_size=4,
        gen_batch_size=1,
        refill_fn=asked.append,
        filter_groups_metric="acc",
        sync_refill_failed_groups=True,
    )
    bounded = BoundedReplayBuffer.over(upstream, poll_interval=0.001, on_exhausted=None, check_progress=None)
    bounded.finished_keys["train"] = {"empty"}
    stale, filtered, failed, _ = bounded._terminal_eviction_reasons(1, "train")
    assert (stale, filtered, failed) == (set(), set(), {"empty"})


def test_validation_groups_without_rows_stay_finished():
    bounded = buffer()
    bounded.finished_keys["val"] = {"empty"}
    bounded._terminal_eviction_reasons(1, "val")
    assert bounded.finished_keys["val"] == {"empty"}
