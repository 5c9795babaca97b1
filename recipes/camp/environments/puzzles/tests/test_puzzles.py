"""Puzzles: solvable, repeatable in any process, fair to ways of writing, and calm when the student talks nonsense."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from camp.environments.puzzles import DOMAIN
from camp.environments.tests import playing

play = partial(playing.play, DOMAIN)

NUMBERS = ("leg_counting", "chain_sum")


def answer(task, seed):
    return DOMAIN.open(task, seed)._entry["answer"]


@pytest.mark.parametrize("task", DOMAIN.tasks)
def test_the_answer_is_right(task):
    for seed in range(20):
        assert play(task, seed, [answer(task, seed)])[1:] == [("That is right.", 1.0, True)]


@pytest.mark.parametrize("task", DOMAIN.tasks)
def test_later_attempts_earn_less(task):
    said = answer(task, 1)
    assert play(task, 1, ["?", said])[-1] == ("That is right.", 0.6, True)
    assert play(task, 1, ["?", "?", said])[-1] == ("That is right.", 0.3, True)


@pytest.mark.parametrize("task", DOMAIN.tasks)
def test_attempts_are_limited(task):
    turns = play(task, 1, ["?"] * 10)[1:]
    assert [success for *_, success in turns] == [None, None, False] and sum(reward for _, reward, _ in turns) == 0.0
    assert turns[0][0].endswith("You have 2 more attempts.") and turns[1][0].endswith("You have 1 more attempt.")
    assert turns[2][0].endswith("That was the last attempt.")


@pytest.mark.parametrize("task", sorted({*DOMAIN.tasks} - {"knights_knaves"}))
def test_what_holds_the_answer_among_other_things_is_not_right(task):
    said = answer(task, 1)
    for wrong in (f"{said} {said}", f"{said}\n{said}", f"it is {said}?", f"0 {said} 1", said + said[-1]):
        assert play(task, 1, [wrong])[-1][2] is None


def test_whoever_is_called_both_is_not_called_right():
    said = answer("knights_knaves", 1)
    terms = DOMAIN.open("knights_knaves", 1)._entry["metadata"]["knight_knave_terms"]
    name = said.split()[0]
    hedged = f"{name} is {terms['a_knight']}, {name} is {terms['a_knave']}, {said}"
    assert play("knights_knaves", 1, [hedged])[-1][2] is None


@pytest.mark.parametrize("task", NUMBERS)
def test_numbers_are_told_to_be_small_or_large(task):
    right = int(answer(task, 1))
    assert play(task, 1, [str(right - 1)])[-1][0].startswith("That is too small.")
    assert play(task, 1, [str(right + 20)])[-1][0].startswith("That is too large.")
    assert play(task, 1, ["many"])[-1][0].startswith("The answer is a number and nothing else.")
    assert play(task, 1, [f" = {right}."])[-1][2] is True


def test_half_a_solution_is_told_to_be_one():
    rows = answer("mini_sudoku", 1).split("\n")
    half = "\n".join([*rows[:3], rows[2]])
    assert play("mini_sudoku", 1, [half])[-1][0].startswith("That is wrong, though much of it is right.")
    words = answer("word_sorting", 1).split(", ")
    some = ", ".join([words[0], *reversed(words[1:])])
    assert play("word_sorting", 1, [some])[-1][0].startswith("That is wrong, though some of it is right.")


def test_blanks_and_capitals_do_not_make_an_answer_wrong():
    loose = answer("mini_sudoku", 1).replace("\n", "  \n\n  ").replace(" ", "  ")
    assert play("mini_sudoku", 1, [loose])[-1][2] is True
    assert play("spell_backward", 1, [answer("spell_backward", 1).upper()])[-1][2] is True
    assert play("word_sorting", 1, [answer("word_sorting", 1).replace(", ", ",")])[-1][2] is True


@pytest.mark.parametrize("task", DOMAIN.tasks)
def test_remarks_do_not_tell_the_answer(task):
    for seed in range(5):
        said = answer(task, seed)
        assert all(said.casefold() not in text.casefold() for text, *_ in play(task, seed, ["999", "a", "?"])[1:])


@pytest.mark.parametrize("task", DOMAIN.tasks)
def test_the_seed_makes_the_episode(task):
    assert play(task, 3, ["1", "a"]) == play(task, 3, ["1", "a"])
    texts = {play(task, seed, [])[0] for seed in range(20)}
    assert len(texts) == 20 and max(map(len, texts)) < 900


def test_another_process_has_the_same_episodes():
    """Sets of strings have another order in each process, which must not show."""
    code = (
        "from camp.environments.puzzles import DOMAIN\n"
        "for task in DOMAIN.tasks:\n"
        "    episode = DOMAIN.open(task, 5)\n"
        "    print(episode.begin(), episode._entry['answer'])"
    )
    environment = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    episodes = [(play(task, 5, [])[0], answer(task, 5)) for task in DOMAIN.tasks]
    assert told.stdout == "".join(f"{begin} {said}\n" for begin, said in episodes)


@pytest.mark.parametrize(
    "said",
    [
        "",
        " \n ",
        "x" * 10**6,
        "9" * 10**5,
        "9**9**9**9",
        "__import__('os').system('true')",
        "\x00\x1b[2J",
        "'; DROP TABLE",
        "{0.__class__}",
        "\uff11\uff12",
        "is a knight, and",
        ",,,,",
    ],
)
def test_nothing_that_is_said_breaks_a_puzzle(said):
    for task in DOMAIN.tasks:
        (_, (text, reward, success)) = play(task, 1, [said])
        assert text and reward == 0.0 and success is None and len(text) < 200


def test_an_unknown_puzzle_is_named():
    with pytest.raises(ValueError, match="there is no puzzle 'rebus'; there are spell_backward, "):
        DOMAIN.open("rebus", 1)


def test_puzzles_side_by_side_are_those_alone():
    def episode(number):
        task = DOMAIN.tasks[number % len(DOMAIN.tasks)]
        return play(task, number, ["7", "a", answer(task, number)])

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(episode, range(16))) == [episode(number) for number in range(16)]
