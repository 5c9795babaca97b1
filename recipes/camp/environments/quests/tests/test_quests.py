"""Quests: solvable, repeatable in any process, bounded, and calm when the student talks nonsense."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from random import Random

import pytest

from camp.environments.quests import DOMAIN
from camp.environments.quests.domain import Quest
from camp.environments.tests import playing

play = partial(playing.play, DOMAIN)

LIMITS = {"room": 8, "rooms": 15, "errands": 25, "doors": 20, "locks": 30}


@cache
def walkthrough(task, seed):
    """The way that TextWorld gives for its game."""
    return Quest(task, seed)._game.walkthrough


def wander(task, seed):
    """An episode of commands that are possible, drawn at random; its turns."""
    episode, random, turns = Quest(task, seed), Random(seed), []
    while not turns or turns[-1].success is None:
        turns.append(episode.act(random.choice(sorted(episode._possible()))))
    return turns


@pytest.mark.parametrize("task", DOMAIN.tasks)
@pytest.mark.parametrize("seed", range(2))
def test_the_walkthrough_solves_every_quest(task, seed):
    turns = play(task, seed, walkthrough(task, seed))[1:]
    assert turns[-1][2] is True
    assert sum(reward for _, reward, _ in turns) == 1.0
    assert all(success is None for *_, success in turns[:-1])


@pytest.mark.parametrize("task", DOMAIN.tasks)
def test_from_wherever_one_strays_the_policy_leads_to_the_end(task):
    for seed in range(2):
        quest, random = Quest(task, seed), Random(seed)
        for _ in range(LIMITS[task] // 4):
            following = sorted(command for command in quest._possible() if not command.startswith("eat"))
            if quest.act(random.choice(following)).success is not None:
                break
        while not quest._world.done:
            turn = quest.act(quest._world.winning_policy[0].format_command(quest._names))
            assert quest._turns <= 2 * LIMITS[task] and "That cannot be done" not in turn.text
        assert quest._world.completed


@pytest.mark.parametrize("task", DOMAIN.tasks)
def test_turns_are_limited(task):
    begin, *turns = play(task, 1, ["look"] * 100)
    assert len(turns) == LIMITS[task] and turns[-1] == (f"The {LIMITS[task]} turns are over.", 0.0, False)
    assert f"You have {LIMITS[task]} turns." in begin


@pytest.mark.parametrize("task", DOMAIN.tasks)
def test_a_wanderer_stays_within_the_bounds(task):
    for seed in range(2):
        turns = wander(task, seed)
        earned = sum(turn.reward for turn in turns)
        assert len(turns) <= LIMITS[task] and 0.0 <= earned <= 1.0
        assert (earned == 1.0) == (turns[-1].success is True)
        assert max(len(turn.text) for turn in turns) < 700


def test_each_errand_is_half_of_the_reward():
    turns = play("errands", 3, walkthrough("errands", 3))[1:]
    first, last = (turn for turn in turns if turn[1])
    assert first[0].startswith("One part of your task is fulfilled.") and first[1:] == (0.5, None)
    assert last[1:] == (0.5, True)


def test_eating_what_is_needed_loses_the_quest():
    """The errands of this seed want butter put into a drawer."""
    quest = Quest("errands", 74)
    assert "insert stick of butter into drawer" in quest.begin()
    for command in quest._game.walkthrough:
        if "eat stick of butter" in quest._possible():
            break
        quest.act(command)
    turn = quest.act("eat stick of butter")
    assert turn.success is False and turn.text == "Your task can no longer be fulfilled."


@pytest.mark.parametrize("task", DOMAIN.tasks)
def test_the_seed_makes_the_episode(task):
    episodes = [play(task, seed, walkthrough(task, 1)) for seed in (0, 1, 1)]
    assert episodes[1] == episodes[2] and episodes[0][0] != episodes[1][0]


def test_another_process_has_the_same_episodes():
    """Sets of strings have another order in each process, which must not show."""
    code = (
        "from camp.environments.quests import DOMAIN\n"
        "for task in DOMAIN.tasks:\n"
        "    episode = DOMAIN.open(task, 5)\n"
        "    print(episode.begin(), episode._game.walkthrough, sorted(episode._possible()))"
    )
    environment = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    quests = [Quest(task, 5) for task in DOMAIN.tasks]
    assert told.stdout == "".join(
        f"{quest.begin()} {quest._game.walkthrough} {sorted(quest._possible())}\n" for quest in quests
    )


@pytest.mark.parametrize(("task", "step"), [("doors", "open"), ("locks", "unlock")])
def test_a_door_is_in_the_way(task, step):
    for seed in range(1, 3):
        doors = {info.name for info in Quest(task, seed)._game.infos.values() if info.type == "d"}
        assert any(command.startswith(f"{step} {door}") for command in walkthrough(task, seed) for door in doors)


def test_what_closed_things_hold_is_seen_when_they_are_opened():
    opened = 0
    for seed in range(30):
        quest = Quest("room", seed)
        inside = sorted(fact for fact in quest._world.state.facts if fact.signature.types == ("o", "c"))
        for thing, holder in ([quest._names[argument.name] for argument in fact.arguments] for fact in inside):
            if f"{holder} (closed)" in quest._view():
                assert f"{holder} (closed) [" not in quest._view()
                quest.act(f"open {holder}")
                assert thing in quest._view().partition(f"{holder} (open) [")[2].partition("]")[0].split(", ")
                opened += 1
    assert opened > 3


def test_commands_are_taken_with_articles_and_in_capitals():
    commands = walkthrough("rooms", 3)
    said = [command.upper().replace("TAKE ", "TAKE THE ") + "." for command in commands]
    assert play("rooms", 3, said)[1:] == play("rooms", 3, commands)[1:]


def test_where_something_is_taken_from_need_not_be_said():
    commands = walkthrough("errands", 3)
    assert any(" from " in command for command in commands)
    short = [command.partition(" from ")[0] for command in commands]
    assert play("errands", 3, short)[1:] == play("errands", 3, commands)[1:]


@pytest.mark.parametrize(
    "said",
    [
        "",
        " ",
        "x" * 10**6,
        "go " * 10**4,
        "\x00\x1b[2J",
        "go '; DROP TABLE",
        "take {0.__class__}",
        "開ける",
        "take\nkey",
    ],
)
def test_nothing_that_is_said_breaks_a_quest(said):
    (_, (text, reward, success)) = play("room", 1, [said])
    assert reward == 0.0 and success is None and len(text) < 700
    assert text.startswith(("There is no such command. The commands are: ", "That cannot be done here and now."))


def test_an_unknown_quest_is_named():
    with pytest.raises(ValueError, match="there is no quest 'castle'; there are room, "):
        DOMAIN.open("castle", 1)


def test_quests_side_by_side_are_those_alone():
    def episode(number):
        seed, task = divmod(number, 3)
        return play(DOMAIN.tasks[task], seed, walkthrough(DOMAIN.tasks[task], seed))

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(episode, range(16))) == [episode(number) for number in range(16)]
