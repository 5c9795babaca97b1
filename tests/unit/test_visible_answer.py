import pytest

from onepo.rewards.visible_answer import has_closed_thinking, thinking_is_open, visible_answer, whole_turn

MARKER = "## Final Response"


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("Take aspirin.", "Take aspirin."),
        ("<think>hm</think>\n\nTake aspirin.\n", "Take aspirin."),
        ("opened in the prompt</think>Take aspirin.", "Take aspirin."),
        ("<think>a</think> first <think>b</think> second", "second"),
        ("<think>a</think> first <think>cut off", "first"),
        ("<think>never closed", ""),
        ("thoughts\n## Final Response\nTake aspirin.", "Take aspirin."),
        ("thoughts\r\n  ## Final Response \r\nTake aspirin.", "Take aspirin."),
        ("one\n## Final Response\ntwo\n## Final Response\nthree", "three"),
        ("## Final Response", ""),
        ("see ## Final Response\nanswer", "see ## Final Response\nanswer"),
        ("## Final Responses\nanswer", "## Final Responses\nanswer"),
        ("<think>x\n## Final Response\ny</think>z", "z"),
        ("<think>x</think>\n## Final Response\nz", "z"),
        ("<think>x\n## Final Response\nz", "z"),
        ("", ""),
    ],
)
def test_visible_answer(text, visible):
    assert visible_answer(text, marker=MARKER) == visible


def test_an_empty_marker_is_never_found():
    assert visible_answer("first\n\nsecond", marker="") == "first\n\nsecond"
    assert not has_closed_thinking("first\n\nsecond", marker="")


def test_a_marker_is_plain_text():
    assert visible_answer("a\n(Answer.*)\nb", marker="(Answer.*)") == "b"


@pytest.mark.parametrize(
    ("text", "opened_in_prompt", "closed"),
    [
        ("<think>hm</think>x", False, True),
        ("hm</think>x", True, True),
        ("hm</think>x", False, False),
        ("<think>hm", False, False),
        ("hm", True, False),
        ("</think><think>hm", False, False),
        ("hm\n## Final Response\nx", False, True),
        ("<think>hm\n## Final Response\nx", False, True),
        ("x", False, False),
    ],
)
def test_has_closed_thinking(text, opened_in_prompt, closed):
    assert has_closed_thinking(whole_turn(text, opened_in_prompt=opened_in_prompt), marker=MARKER) is closed


@pytest.mark.parametrize(
    ("text", "opened_in_prompt", "is_open"),
    [
        ("answer", False, False),
        ("thought", True, True),
        ("thought</think>answer", True, False),
        ("<think>thought", False, True),
        ("<think>thought</think>answer", False, False),
        ("<think>a</think> first <think>cut off", False, True),
        ("a</think> first <think>cut off", True, True),
        ("thought\n## Final Response\nanswer", True, False),
        ("<think>thought\n## Final Response\nanswer", False, False),
        ("## Final Response\nanswer <think>more", False, True),
        ("", True, True),
        ("", False, False),
    ],
)
def test_thinking_is_open(text, opened_in_prompt, is_open):
    assert thinking_is_open(whole_turn(text, opened_in_prompt=opened_in_prompt), marker=MARKER) is is_open
