"""The search tasks: the student searches, opens what looks right, and gives the answer."""

from camp.environments.search.index import INDEX
from camp.environments.search.questions import HOPS, Question, make_question
from camp.environments.service import Domain, Episode, Turn

MOST_TURNS = {"one_hop": 6, "two_hops": 10, "compare": 14, "three_hops": 14}
_FOUND = 4  # documents in the result of a search
_LONGEST_EXCERPT = 70
_LONGEST_QUERY = 300
_HOW = "Say search: WORDS, open: ID or answer: VALUE, between <action> and </action>."


class Search(Episode):
    """A question about the documents."""

    def __init__(self, question: Question, most_turns: int):
        self.question = question
        self.most_turns = most_turns
        self._turns = 0

    def begin(self) -> str:
        return (
            f"You answer a question with the help of {len(INDEX.by_title)} short documents about towns, people, "
            "companies and products that you cannot know from elsewhere. In each turn say one action between tags:\n"
            f"<action>search: WORDS</action> shows the beginnings of the {_FOUND} documents that fit the words best,\n"
            "<action>open: ID</action> shows a whole document,\n"
            "<action>answer: VALUE</action> gives your answer: a name, a number or a few words, nothing else. Only the "
            f"first one counts.\nYou have {self.most_turns} turns, the answer included.\n\n"
            f"Question: {self.question.text}"
        )

    def act(self, action: str) -> Turn:
        self._turns += 1
        verb, _, said = action.partition(":")
        said = said.strip()
        match verb.strip().casefold():
            case "answer":
                right = _plain(said) == _plain(self.question.answer)
                return Turn("That is right." if right else "That is wrong.", float(right), success=right)
            case "search":
                text = self._search(said)
            case "open":
                document = INDEX.open(said)
                text = document.text if document else "There is no such document. Search, and open one by its ID."
            case _:
                text = _HOW
        if self._turns >= self.most_turns:
            return Turn(f"{text}\n\nThe {self.most_turns} turns are over.", success=False)
        return Turn(text)

    def _search(self, query: str) -> str:
        found = INDEX.search(query[:_LONGEST_QUERY], _FOUND)
        if not found:
            return "No document has any of these words."
        return "\n".join(f"{document.id}: {document.text[:_LONGEST_EXCERPT]}..." for document in found)


def _plain(text: str) -> str:
    """Without case, blanks, marks around it, an article before it, and commas within numbers."""
    text = text.casefold().strip(" \t\r\n'\"`.")
    for article in ("the ", "an ", "a "):
        text = text.removeprefix(article)
    return "".join(text.replace(",", "").split())


def _open(task: str, seed: int) -> Episode:
    if task not in HOPS:
        raise ValueError(f"there are no search tasks {task!r}; there are {', '.join(HOPS)}")
    return Search(make_question(task, seed), MOST_TURNS[task])


DOMAIN = Domain(name="search", tasks=tuple(HOPS), open=_open, seconds=10.0)
