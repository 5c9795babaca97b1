"""The database tasks: the student queries, reads, queries again, and gives the answer."""

import math

from camp.environments.database.engine import ENGINE
from camp.environments.database.questions import TASKS, Question, make_question
from camp.environments.service import Domain, Episode, Turn

LONGEST_STATEMENT = 4000  # characters
_LONGEST_ERROR = 300
_LONGEST_RESULT = 700


class Database(Episode):
    """A question over tables that nobody else has."""

    def __init__(self, question: Question, most_turns: int):
        self.question = question
        self.most_turns = most_turns
        self._turns = 0

    def begin(self) -> str:
        tables = "\n".join(
            f"{name}({', '.join(f'{column} {kind}' for column, kind in table['columns'])})"
            for name, table in self.question.tables.items()
        )
        example = f"SELECT * FROM {next(iter(self.question.tables))} LIMIT 3"
        return (
            "You answer a question about a database by querying it with SQL (DuckDB). In each turn say one action "
            f"between tags: a single SELECT statement, such as <action>{example}</action>, or, when you know it, the "
            "answer: <action>answer: VALUE</action>. Only the first answer counts. Results are cut after 10 rows. "
            f"You have {self.most_turns} turns, the answer included.\n\n"
            f"Tables:\n{tables}\n\nQuestion: {self.question.text}"
        )

    def act(self, action: str) -> Turn:
        self._turns += 1
        head, colon, said = action.partition(":")
        if colon and head.strip().casefold() == "answer":
            right = is_answer(said, self.question.answer)
            return Turn("That is right." if right else "That is wrong.", float(right), success=right)
        text = self._query(action)
        if self._turns >= self.most_turns:
            return Turn(f"{text}\n\nThe {self.most_turns} turns are over.", success=False)
        return Turn(text)

    def _query(self, sql: str) -> str:
        if not sql:
            return "Say a SELECT statement or answer: VALUE, between <action> and </action>."
        if len(sql) > LONGEST_STATEMENT:
            return f"The statement has more than {LONGEST_STATEMENT} characters and was not carried out."
        reply = ENGINE.ask(self.question.tables, sql)
        return _cut(reply["error"], _LONGEST_ERROR) if "error" in reply else _cut(_table(reply), _LONGEST_RESULT)


def is_answer(said: str, answer: int | float | str) -> bool:
    """Whether what was said is the answer: text without case and blanks, a number as exact as it was asked for."""
    said = said.strip().strip("'\"`.").strip()
    if isinstance(answer, str):
        return "".join(said.split()).casefold() == "".join(answer.split()).casefold()
    try:
        number = float(said.replace(",", ""))
    except ValueError:
        return False
    return math.isclose(number, answer, rel_tol=0, abs_tol=1e-6 if isinstance(answer, int) else 0.0051)


def _table(reply: dict) -> str:
    if not reply["rows"]:
        return "The result has no rows."
    lines = [reply["columns"], *reply["rows"]]
    text = "\n".join(" | ".join("NULL" if cell is None else str(cell) for cell in line) for line in lines)
    return f"{text}\n(there are more rows)" if reply["more"] else text


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]} ... ({len(text) - longest} characters cut)"


def _open(task: str, seed: int) -> Episode:
    if task not in TASKS:
        raise ValueError(f"there are no database tasks {task!r}; there are {', '.join(TASKS)}")
    return Database(make_question(task, seed), TASKS[task].most_turns)


DOMAIN = Domain(name="database", tasks=tuple(TASKS), open=_open, seconds=60.0)
