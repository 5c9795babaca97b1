import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from onepo.teachers.retirement import RetirementController, draw_response, draw_session, teacher_is_used

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "retirement.json").read_text())


def controller(max_steps=-1, window=-1, tolerance=0.01, min_rate=0.9):
    return RetirementController(
        max_steps=max_steps, plateau_window=window, plateau_tolerance=tolerance, plateau_min_rate=min_rate
    )


@pytest.mark.parametrize("case", VECTORS["replacement"])
def test_replacement_vectors(case):
    assert teacher_is_used(float(case["teacher_reward"]), case["student_rewards"]) is case["teacher_used"]


def test_rewards_are_compared_as_they_are_stored():
    assert not teacher_is_used(0.7 + 1e-9, [0.7])  # one float32 value
    assert teacher_is_used(0.7 + 1e-6, [0.7])
    assert not teacher_is_used(1.0, [0.0, float("nan")])  # nothing is above a reward that is not known


@pytest.mark.parametrize("case", VECTORS["plateau"])
def test_plateau_vectors(case):
    control = controller(window=case["window"], tolerance=case["tolerance"], min_rate=case["min_rate"])
    stopped_after = None
    for step, rate in enumerate(case["rates"], start=1):
        assert control.teacher_enabled(step) == (stopped_after is None)
        control.close_step(step, rate)
        if stopped_after is None and control.disabled_reason is not None:
            stopped_after = step
    assert stopped_after == case["stops_after"]
    assert control.disabled_reason == (None if stopped_after is None else "plateau")


def test_plateau_ignores_steps_without_candidates_and_never_restarts():
    control = controller(window=2)
    for step, rate in enumerate([0.95, None, None, 0.95], start=1):
        assert control.teacher_enabled(step)
        control.close_step(step, rate)
    assert not control.teacher_enabled(5)
    control.close_step(5, 0.0)
    assert not control.teacher_enabled(6)


@pytest.mark.parametrize(("max_steps", "enabled"), [(-1, [1, 2, 3, 4]), (0, []), (1, [1]), (3, [1, 2, 3])])
def test_step_limit(max_steps, enabled):
    control = controller(max_steps=max_steps)
    seen = []
    for step in range(1, 5):
        if control.teacher_enabled(step):
            seen.append(step)
        control.close_step(step, 0.5)
    assert seen == enabled
    assert control.disabled_reason == (None if max_steps == -1 else "step_limit")


def test_a_step_beyond_the_limit_is_refused_before_the_last_one_is_closed():
    control = controller(max_steps=2)
    assert control.teacher_enabled(2) and not control.teacher_enabled(3)


def test_state_survives_a_checkpoint_as_json():
    first = controller(window=3)
    first.close_step(1, 0.95)
    first.close_step(2, 0.95)
    second = controller(window=3)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    second.close_step(3, 0.95)
    assert second.disabled_reason == "plateau"

    third = controller(window=3)
    third.load_state_dict(json.loads(json.dumps(second.state_dict())))
    assert third.disabled_reason == "plateau" and not third.teacher_enabled(4)


def test_draws_are_uniform_and_depend_on_every_number():
    sessions = Counter(draw_session(seed=42, step=step, index=index, n=8) for step in range(40) for index in range(100))
    assert set(sessions) == set(range(8))
    assert all(400 < count < 600 for count in sessions.values())
    base = [draw_session(seed=1, step=1, index=index, n=1000) for index in range(50)]
    assert base != [draw_session(seed=2, step=1, index=index, n=1000) for index in range(50)]
    assert base != [draw_session(seed=1, step=2, index=index, n=1000) for index in range(50)]
    assert len(set(base)) > 40
    assert base != [draw_response(seed=1, step=1, index=index, count=1000) for index in range(50)]
    assert draw_response(seed=1, step=1, index=1, count=1) == 0


def test_draws_are_the_same_in_another_process():
    code = (
        "from onepo.teachers.retirement import draw_response, draw_session\n"
        "print([draw_session(seed=42, step=3, index=i, n=8) for i in range(20)],"
        " [draw_response(seed=42, step=3, index=i, count=4) for i in range(20)])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True, text=True, check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }  # fmt: skip
    sessions = [draw_session(seed=42, step=3, index=index, n=8) for index in range(20)]
    responses = [draw_response(seed=42, step=3, index=index, count=4) for index in range(20)]
    assert outputs == {f"{sessions} {responses}"}


def test_a_plateau_is_kept_under_the_limits_of_the_run_that_goes_on():
    first = controller(window=2, min_rate=0.5)
    first.close_step(1, 1.0)
    first.close_step(2, 1.0)
    state = first.state_dict()
    assert state["disabled_reason"] == "plateau"
    for changes, enabled in (({}, False), ({"window": -1}, True), ({"max_steps": 9}, False)):
        again = controller(**{"window": 2, "min_rate": 0.5, **changes})
        again.load_state_dict(state)
        assert again.teacher_enabled(3) == enabled, changes


def test_a_step_limit_is_that_of_the_run_that_goes_on():
    first = controller(max_steps=3)
    for step in (1, 2, 3):
        first.close_step(step, 0.0)
    assert first.state_dict()["disabled_reason"] == "step_limit"
    longer, same = controller(max_steps=5), controller(max_steps=3)
    for again in (longer, same):
        again.load_state_dict(first.state_dict())
    assert longer.teacher_enabled(4) and longer.teacher_enabled(5) and not longer.teacher_enabled(6)
    assert not same.teacher_enabled(4)


def test_rates_go_on_across_a_restart():
    first, whole = controller(window=3), controller(window=3)
    for step in (1, 2):
        first.close_step(step, 0.9)
        whole.close_step(step, 0.9)
    again = controller(window=3)
    again.load_state_dict(first.state_dict())
    for found in (again, whole):
        found.close_step(3, 0.9)
        assert found.disabled_reason == "plateau"
