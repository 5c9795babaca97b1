"""Search questions: answers are unique and reached by searching, episodes repeatable and not broken by nonsense."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from camp.environments.search import DOMAIN
from camp.environments.search.documents import LINKS, SENTENCES
from camp.environments.search.index import INDEX
from camp.environments.tests import playing

play = partial(playing.play, DOMAIN)

SEEDS = range(25)


def told(text, relation):
    """What a document tells of a relation, read from its sentences."""
    found = []
    for relations in SENTENCES.values():
        for sentence in relations.get(relation, ()):
            before, after = map(re.escape, sentence.split("{}"))
            found += re.findall(f"(?<!\\w){before}([^.]+?){after}", text)
    (fact,) = set(found)
    return fact


def solve(task, seed):
    """Search each title, open the document that begins with it, read on; all turns, and the answer's last."""
    episode = DOMAIN.open(task, seed)
    question, turns, ends = episode.question, [], {}
    for start in question.starts:
        title = start
        for relation in question.relations:
            turns.append(episode.act(f"search: {title}"))
            (id,) = re.findall(rf"^(\w+): {re.escape(title)}\. ", turns[-1].text, re.MULTILINE)
            turns.append(episode.act(f"open: {id}"))
            title = told(turns[-1].text, relation)
        ends[start] = title
    if question.largest is None:
        answer = ends[question.starts[0]]
    else:
        answer = (max if question.largest else min)(ends, key=lambda start: int(ends[start]))
    return [*turns, episode.act(f"answer: {answer}")]


@pytest.mark.parametrize("task", DOMAIN.tasks)
def test_a_perfect_player_finds_every_answer(task):
    for seed in SEEDS:
        turns = solve(task, seed)
        assert sum(turn.reward for turn in turns) == 1.0 and turns[-1].success is True, seed
        assert {turn.success for turn in turns[:-1]} == {None}


@pytest.mark.parametrize("task", DOMAIN.tasks)
def test_a_wrong_answer_is_the_end(task):
    assert play(task, 1, ["answer: Nowhere", "answer: 1"])[1:] == [("That is wrong.", 0.0, False)]


def test_names_are_unique_and_facts_are_told():
    documents = list(INDEX.by_title.values())
    assert (
        len({document.title.casefold() for document in documents}) == len({d.id for d in documents}) == len(documents)
    )
    for document in documents:
        for relation, fact in document.facts.items():
            assert told(document.text, relation) == fact
        for relation, kind in LINKS[document.kind].items():
            assert INDEX.by_title[document.facts[relation]].kind == kind


def test_a_search_for_a_name_finds_its_document_first():
    for title, document in list(INDEX.by_title.items())[::7]:
        assert INDEX.search(title, 1) == [document]


@pytest.mark.parametrize("task", DOMAIN.tasks)
def test_the_seed_makes_the_episode(task):
    actions = ["search: town river", "search: mayor", "answer: 0"]
    assert play(task, 3, actions) == play(task, 3, actions)
    assert len({play(task, seed, [])[0] for seed in range(100)}) > 95


def test_another_process_has_the_same_documents():
    code = """if True:
        from camp.environments.search import DOMAIN
        episode = DOMAIN.open("three_hops", 5)
        print(episode.begin(), episode.act("search: mayor of the river town").text, end="")"""
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    episode = DOMAIN.open("three_hops", 5)
    assert run.stdout.decode() == f"{episode.begin()} {episode.act('search: mayor of the river town').text}"


@pytest.mark.parametrize(("task", "limit"), zip(DOMAIN.tasks, (6, 10, 14, 14), strict=True))
def test_turns_are_limited(task, limit):
    turns = play(task, 1, ["look around"] * 100)[1:]
    assert len(turns) == limit and turns[-1][1:] == (0.0, False)
    assert turns[-1][0].endswith(f"The {limit} turns are over.") and turns[0][0].startswith("Say search: WORDS")


@pytest.mark.parametrize("verb", ["search: ", "open: ", "answer: ", "", "SEARCH :", "search:search: "])
@pytest.mark.parametrize(
    "said",
    ["", " ", "the", "x" * 10**6, "town " * 10**5, "\x00\x1b[2J", "'; DROP TABLE", "左 ä \ud800", "../../etc/passwd",
     "D0000", "<b>{0}</b> %s {}", "[", "town\nriver"],
)  # fmt: skip
def test_nothing_that_is_said_breaks_an_episode(verb, said):
    for task in DOMAIN.tasks:
        (_, (text, reward, success)) = play(task, 1, [verb + said])
        assert text and reward == 0.0 and success in (None, False) and len(text) < 600


def test_unknown_words_and_ids_are_told():
    turns = play("one_hop", 1, ["search: qqqq", "search: the of", "open: D1", "open: mayor"])[1:]
    assert [text for text, _, _ in turns[:2]] == ["No document has any of these words."] * 2
    assert [text for text, _, _ in turns[2:]] == ["There is no such document. Search, and open one by its ID."] * 2


def test_an_answer_is_right_in_other_capitals_and_with_an_article():
    for seed in SEEDS:
        answer = DOMAIN.open("three_hops", seed).question.answer
        for said in (f"ANSWER:  The {answer.upper()}. ", f"answer: '{answer}'", f"answer:{answer.lower()}"):
            assert play("three_hops", seed, [said])[1][1:] == (1.0, True)
        assert play("three_hops", seed, [f"answer: {answer} or {answer}x"])[1][1:] == (0.0, False)


def test_an_unknown_task_is_named():
    with pytest.raises(ValueError, match="there are no search tasks 'chess'; there are one_hop, "):
        DOMAIN.open("chess", 1)


def test_episodes_side_by_side_are_those_alone():
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda seed: solve("three_hops", seed), range(16)))
    assert together == [solve("three_hops", seed) for seed in range(16)]
