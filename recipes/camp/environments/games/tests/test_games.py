"""Games: solvable, repeatable, bounded, and calm when the student talks nonsense."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from camp.environments.games import DOMAIN
from camp.environments.games.domain import Lake, Taxi
from camp.environments.tests import playing

play = partial(playing.play, DOMAIN)

SEEDS = range(5)


def way(env, start, is_end):
    """The shortest list of action numbers by gymnasium's own transition table."""
    seen, queue = {start: []}, deque([start])
    while queue:
        state = queue.popleft()
        for action, ((_, following, reward, ended),) in env.P[state].items():
            if ended and is_end(reward):
                return [*seen[state], action]
            if not ended and following not in seen:
                seen[following] = [*seen[state], action]
                queue.append(following)
    raise AssertionError("there is no way")


def solution(task, seed):
    episode = DOMAIN.open(task, seed)
    is_end = (lambda reward: reward > 0) if task.startswith("lake") else (lambda reward: reward == 20)
    return [episode.actions[action] for action in way(episode._env, int(episode._state), is_end)]


@pytest.mark.parametrize("task", ["lake_4", "lake_6", "taxi"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_perfect_player_solves_every_game(task, seed):
    turns = play(task, seed, solution(task, seed))
    assert sum(reward for _, reward, _ in turns[1:]) == 1.0 and turns[-1][2] is True


def test_cards_are_won_drawn_and_lost():
    ends = {turns[-1][1:] for turns in (play("blackjack", seed, ["stick"]) for seed in range(60))}
    assert ends == {(1.0, True), (0.5, False), (0.0, False)}


def test_a_hole_ends_the_game():
    ends = {play("lake_4", seed, ["right", "down"] * 8)[-1][2] for seed in range(20)}
    assert False in ends
    texts = [play("lake_4", seed, ["right", "down"] * 8)[-1][0] for seed in range(20)]
    assert "You fell into a hole." in texts


@pytest.mark.parametrize("task", DOMAIN.tasks)
def test_the_seed_makes_the_episode(task):
    actions = list(DOMAIN.open(task, 0).actions) * 2
    assert play(task, 3, actions) == play(task, 3, actions)
    assert len({play(task, seed, [])[0] for seed in range(20)}) > 5


@pytest.mark.parametrize(("task", "limit"), [("lake_4", 16), ("lake_6", 24), ("taxi", 40), ("blackjack", 20)])
def test_turns_are_limited(task, limit):
    turns = play(task, 1, ["look around"] * 100)[1:]
    assert len(turns) == limit and turns[-1] == (f"The {limit} turns are over.", 0.0, False)
    assert turns[0][0].startswith("There is no such action. The actions are ")


@pytest.mark.parametrize(
    "said", ["", " ", "LEFT.", "x" * 10**6, "\x00\x1b[2J", "leftright", "'; DROP TABLE", "左", "left\nleft"]
)
def test_nothing_that_is_said_breaks_a_game(said):
    for task in DOMAIN.tasks:
        (_, (text, reward, success)) = play(task, 1, [said])
        assert text and reward == 0.0 and success in (None, False)
        assert len(text) < 600


def test_a_word_in_other_capitals_is_an_action():
    assert play("lake_4", 1, ["DOWN."])[1:] == play("lake_4", 1, ["down"])[1:]


def test_an_unknown_game_is_named():
    with pytest.raises(ValueError, match="there is no game 'chess'; there are lake_4, "):
        DOMAIN.open("chess", 1)


def test_games_side_by_side_are_those_alone():
    def episode(seed):
        return play("taxi", seed, solution("taxi", seed))

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(episode, range(16))) == [episode(seed) for seed in range(16)]


def test_the_view_shows_where_one_is():
    lake = Lake(4, 0)
    assert lake.begin().endswith(lake._view()) and lake._view().startswith("*")
    taxi = Taxi(0)
    before = taxi._view()
    assert "Your taxi is at (" in before and "wants to go to" in before
