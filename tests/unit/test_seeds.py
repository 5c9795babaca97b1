"""Seeds of sampled responses."""

from onepo.rollout.seeds import PromptSeeds, session_seed


def test_a_run_can_be_repeated_in_any_order():
    forwards, backwards = PromptSeeds(1), PromptSeeds(1)
    drawn = {i: forwards.next(step=3, validate=False, index=i) for i in range(10)}
    again = {i: backwards.next(step=3, validate=False, index=i) for i in reversed(range(10))}
    assert drawn == again


def test_everything_that_names_a_response_changes_its_seed():
    seeds = {
        session_seed(PromptSeeds(run).next(step=step, validate=validate, index=index), session)
        for run in (1, 2)
        for step in (1, 2)
        for validate in (False, True)
        for index in (1, 2)
        for session in (0, 1)
    }
    assert len(seeds) == 32
    assert all(0 <= seed < 2**62 for seed in seeds)


def test_a_record_that_comes_up_again_in_a_step_is_sampled_anew():
    seeds = PromptSeeds(1)
    first, second = (seeds.next(step=1, validate=False, index=5) for _ in range(2))
    assert first != second
    seeds.next(step=2, validate=False, index=5)
    assert PromptSeeds(1).next(step=1, validate=False, index=5) == first
