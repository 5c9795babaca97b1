import json
from pathlib import Path

import pytest

from onepo.rewards.shaping import answer_length_penalty, overlong_penalty

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "rewards.json").read_text())


@pytest.mark.parametrize("case", VECTORS["overlong"])
def test_overlong_vectors(case):
    arguments = {name: value for name, value in case.items() if name != "penalty"}
    assert overlong_penalty(**arguments) == pytest.approx(case["penalty"], abs=1e-12)


@pytest.mark.parametrize("case", VECTORS["answer_length"])
def test_answer_length_vectors(case):
    arguments = {name: value for name, value in case.items() if name != "penalty"}
    assert answer_length_penalty(**arguments) == pytest.approx(case["penalty"], abs=1e-12)


def test_a_buffer_of_zero_tokens_never_punishes():
    assert overlong_penalty(response_tokens=10, max_response_length=10, buffer_len=0, penalty_factor=1.0) == 0
