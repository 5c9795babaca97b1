"""Reading the chosen option out of a response to a multiple-choice question, and its score.

No pattern has two neighbouring repetitions that could share characters, so the time is linear in the response.
"""

import re
import unicodedata

from onepo.rewards.visible_answer import after_thinking

_TAG = re.compile(r"<answer>\s*([A-Za-z])\s*</answer>", re.IGNORECASE)

_PLAIN = re.compile(
    r"""
    (?: \banswer [\s*_]* (?: is\b | : ) | 答案 [\s*_]* [是为:] )
    [\s*_:'"$(\[【「]*                                  # blanks, markup and brackets around the letter
    (?: (?: option | choice | 选项 ) [\s*_(]* )?
    ([A-Z])
    (?! [A-Z0-9_\u00c0-\u024f] | ['\u2019&/+-][A-Z0-9] )  # part of a word or a term such as B12, C-section, I'm, A/B
    (?= (?P<word> [ \t]+ [A-Z]+ )? )
    """,
    re.IGNORECASE | re.VERBOSE,
)

_AFTER_A_CHOICE = {"as", "because", "for", "since"}


def extract_choice(text: str) -> str | None:
    """The letter that the response chooses, in upper case; None when it chooses none.

    Only what follows the thinking counts. The last ``<answer>X</answer>`` wins; without one, the last plain statement
    ("the answer is X", "answer: X", "答案是X").
    """
    # NFKC turns full-width letters, colons and brackets into ASCII.
    visible = unicodedata.normalize("NFKC", after_thinking(text))
    letters = _TAG.findall(visible) or [match[1] for match in _PLAIN.finditer(visible) if not _is_a_word(match)]
    return letters[-1].upper() if letters else None


def multiple_choice_score(text: str, answer_idx: str) -> float:
    """1.0 when the response chooses exactly the option ``answer_idx`` (its label, one letter), else 0.0."""
    return float(extract_choice(text) == answer_idx.strip().upper())


def _is_a_word(match: re.Match) -> bool:
    """Whether the letter is a sentence's article or pronoun ("the answer is a good one", "answer: I think so")."""
    if match["word"] is None or match["word"].strip().lower() in _AFTER_A_CHOICE:
        return False
    return match[1] in {"a", "I", "i"} or (match[1] == "A" and ":" in match[0])
