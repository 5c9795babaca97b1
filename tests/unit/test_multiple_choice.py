import json
import time
from pathlib import Path

import pytest

from onepo.rewards.multiple_choice import extract_choice, multiple_choice_score

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "rewards.json").read_text())["multiple_choice"]


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["response"] or "empty")
def test_vectors(case):
    assert extract_choice(case["response"]) == case["predicted"]
    assert multiple_choice_score(case["response"], case["answer_idx"]) == case["score"]


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        # tags
        ("<ANSWER>c</ANSWER>", "C"),
        ("<answer>\nB\n</answer>", "B"),
        ("<answer>\uff22</answer>", "B"),
        ("<answer>A</answer> The answer is B.", "A"),
        ("<answer>1</answer>", None),
        ("<answer></answer>", None),
        ("<answer>A", None),
        # thinking
        ("</think><answer>B</answer><think>or <answer>A</answer>", "B"),
        ("<think>I pick <answer>A</answer>", None),
        ("<think>The answer is A.</think> The answer is B.", "B"),
        ("The answer is A.</think>", None),
        # plain statements
        ("The answer is (d)", "D"),
        ("the ANSWER IS b.", "B"),
        ("Answer: **C**", "C"),
        ("**Answer:** C", "C"),
        ("**Answer**: C", "C"),
        ("Final answer: [E]", "E"),
        ("Answer:\n\nD\n\nExplanation: because", "D"),
        ("Answer: A\nExplanation: because", "A"),
        ("The correct answer is: B", "B"),
        ("The answer is option B.", "B"),
        ("The answer is A because of the fever.", "A"),
        ("Answer: A because of the fever.", "A"),
        ("The answer is a", "A"),
        ("The answer is A. No, the answer is C.", "C"),
        ("Answer: B answer: C", "C"),
        ("答案是B", "B"),
        ("答案是\uff08B\uff09", "B"),
        ("答案是B因为发热", "B"),
        ("正确答案\uff1a\uff23。", "C"),
        ("答案是选项D", "D"),
        # a letter that is no choice
        ("The answer is a good one.", None),
        ("Answer: A good one would be rest.", None),
        ("Answer: I think it is hard.", None),
        ("The answer is aspirin.", None),
        ("The answer is Ménière's disease.", None),
        ("The answer is B12.", None),
        ("The answer is C-section.", None),
        ("Answer: I'm not sure.", None),
        ("The answer is A/B.", None),
        ("The answer is not B.", None),
        ("The answers: B", None),
        ("The answer isn't B", None),
        ("B", None),
    ],
)
def test_extract_choice(text, choice):
    assert extract_choice(text) == choice


def test_the_label_is_compared_without_case_and_blanks():
    assert multiple_choice_score("<answer>b</answer>", " b ") == 1.0
    assert multiple_choice_score("no choice", "") == 0.0


@pytest.mark.parametrize(
    "piece",
    ["<answer>", "<answer> ", "answer is ", "answer:", "answer * ", "answer", " ", "答案是", "答案 ", "<think>"],
)
@pytest.mark.parametrize("head", ["", "<answer>", "answer", "answer is", "answer: option", "answer: a", "答案"])
def test_time_is_linear_in_the_response(head, piece):
    text = head + piece * (100_000 // len(piece))
    start = time.process_time()
    extract_choice(text)
    assert time.process_time() - start < 1.0  # a quadratic pattern needs minutes
