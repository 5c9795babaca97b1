"""The questions: a chain of facts from a document that is named to the answer, or a comparison of several documents."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from camp.environments.search.documents import LINKS, SENTENCES
from camp.environments.search.index import INDEX

HOPS = {"one_hop": 1, "two_hops": 2, "compare": 1, "three_hops": 3}  # documents that lead to the answer
_COMPARED = 4

_PHRASES = {  # a link on the way
    "mayor": "the mayor of {}",
    "birthplace": "the town where {} was born",
    "employer": "the employer of {}",
    "seat": "the town where {} has its seat",
    "head": "the head of {}",
    "maker": "the maker of {}",
    "designer": "the designer of {}",
}
_ASKED = {  # the last fact
    "region": "To which region does {} belong?",
    "river": "Which river flows through {}?",
    "founded": "In which year was {} founded?",
    "population": "How many inhabitants does {} have?",
    "mayor": "Who is the mayor of {}?",
    "born": "In which year was {} born?",
    "birthplace": "In which town was {} born?",
    "employer": "Who is the employer of {}?",
    "industry": "In which industry is {} active?",
    "employees": "How many employees does {} have?",
    "seat": "In which town does {} have its seat?",
    "head": "Who is the head of {}?",
    "introduced": "In which year was {} introduced?",
    "weight": "How many grams does {} weigh?",
    "maker": "Which company makes {}?",
    "designer": "Who designed {}?",
}
_COMPARISONS = {  # the question, and whether the largest is asked for
    ("town", "founded"): ("Which of these towns was founded first", False),
    ("town", "population"): ("Which of these towns has the most inhabitants", True),
    ("person", "born"): ("Which of these people was born first", False),
    ("company", "founded"): ("Which of these companies was founded first", False),
    ("company", "employees"): ("Which of these companies has the most employees", True),
    ("product", "introduced"): ("Which of these products was introduced first", False),
    ("product", "weight"): ("Which of these products weighs the most", True),
}


@dataclass(frozen=True)
class Question:
    """A question.

    Attributes:
        starts: titles of the documents that it names.
        relations: to follow from each of them.
        largest: for a comparison, whether the start with the largest number is asked for, or the one with the smallest.
    """

    text: str
    starts: Sequence[str]
    relations: Sequence[str]
    answer: str
    largest: bool | None = None


def make_question(task: str, seed: int) -> Question:
    """The question of a task and a seed."""
    rng = random.Random(f"search {task} {seed}")
    return _comparison(rng) if task == "compare" else _chain(rng, HOPS[task])


def _chain(rng: random.Random, hops: int) -> Question:
    while True:
        document = start = INDEX.by_title[rng.choice(list(INDEX.by_title))]
        passed, relations = [start.title], []
        phrase = start.title if start.kind == "person" else f"the {start.kind} {start.title}"
        for _ in range(hops - 1):
            relation = rng.choice(list(LINKS[document.kind]))
            relations.append(relation)
            phrase = _PHRASES[relation].format(phrase)
            document = INDEX.by_title[document.facts[relation]]
            passed.append(document.title)
        last = rng.choice([relation for relation in SENTENCES[document.kind] if relation in _ASKED])
        answer = document.facts[last]
        if len({*passed, answer}) > hops:  # no way that leads back to where it has been
            return Question(_ASKED[last].format(phrase), (start.title,), (*relations, last), answer)


def _comparison(rng: random.Random) -> Question:
    (kind, relation), (text, largest) = rng.choice(list(_COMPARISONS.items()))
    titles = [document.title for document in INDEX.by_title.values() if document.kind == kind]
    while True:
        starts = rng.sample(titles, _COMPARED)
        numbers = {int(INDEX.by_title[title].facts[relation]): title for title in starts}
        if len(numbers) == len(starts):
            answer = numbers[max(numbers) if largest else min(numbers)]
            return Question(f"{text}: {', '.join(starts)}?", starts, (relation,), answer, largest)
