"""Records that are tasks, the tolerated spellings, and the words of every refusal."""

import datetime
import json

import pytest

from onepo.data.schema import InvalidTask, parse_task

CHOICE = {"type": "multiple_choice", "question": "Which?", "options": {"A": "one", "B": "two"}, "answer_idx": "B"}
OPEN = {
    "type": "open_ended",
    "prompt": [{"role": "system", "content": ""}, {"role": "user", "content": "Why?"}],
    "rubrics": [{"criterion": "says so", "points": 5}, {"criterion": "invents", "points": -2.5}],
}
CUSTOM = {"type": "custom", "prompt": "Add 2 and 3.", "sum": 5}


def problems(record):
    with pytest.raises(InvalidTask) as error:
        parse_task(record)
    return error.value.problems


def test_a_multiple_choice_record_gets_its_prompt_from_question_and_options():
    task = parse_task({**CHOICE, "options": {"B": "two", "A": "one"}})
    [message] = task["prompt"]
    assert message["role"] == "user"
    assert message["content"].startswith("Which?\n\nA. one\nB. two\n\n")
    assert "<answer>A</answer>" in message["content"].splitlines()[-1]
    assert (task["answer_idx"], task["rubrics"], task["data_source"]) == ("B", [], "multiple_choice")


def test_an_open_ended_record_keeps_messages_and_signed_points():
    task = parse_task(OPEN)
    assert task["prompt"] == OPEN["prompt"]
    assert task["rubrics"] == OPEN["rubrics"]
    assert (task["answer_idx"], task["data_source"]) == (None, "open_ended")


def test_a_custom_record_reaches_the_reward_function_as_it_was_read():
    further = {
        "sum": 5,
        "hidden": {"tests": [["1 + 1", 2], None], "limit": 0.1},
        "note": "",
        "gone": None,
        "名": "half \ud83d",
    }
    record = {**CUSTOM, **further, "source": "arithmetic", "rubrics": "not ours", "answer_idx": 3}
    task = parse_task({**record, "teacher_response": "5", "model_response": None})
    assert json.loads(task["record"]) == record
    assert task["prompt"] == [{"role": "user", "content": "Add 2 and 3."}]
    assert (task["type"], task["data_source"], task["teacher_responses"]) == ("custom", "arithmetic", ["5"])
    assert (task["answer_idx"], task["rubrics"], task["extra_info"]) == (None, [], "{}")


@pytest.mark.parametrize("record", [CHOICE, OPEN])
def test_the_other_types_carry_no_record(record):
    assert parse_task({**record, "anything": 1})["record"] is None


def test_what_json_has_no_form_for_becomes_text():
    assert json.loads(parse_task({**CUSTOM, "day": datetime.date(2025, 1, 2)})["record"])["day"] == "2025-01-02"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"prompt": None}, "prompt: found nothing, expected text or a list of messages"),
        ({"prompt": [{"role": "user"}]}, "prompt[0].content: found nothing, expected the message as text"),
        ({"teacher_response": 3}, "teacher_response: found 3, expected text, a list of texts, or null"),
        ({"data_source": 3}, "data_source: found 3, expected text"),
        ({"extra_info": 3}, "extra_info: found 3, expected a JSON object"),
        ({"days": {datetime.date(2025, 1, 2): 1}}, "record: found keys must be str"),
        ({"type": "Custom"}, 'type: found "Custom", expected one of multiple_choice, mc, open_ended, openend, custom'),
    ],
)
def test_what_is_wrong_with_a_custom_record(change, problem):
    [found] = problems({**CUSTOM, **change})
    assert problem in found


def test_a_custom_record_says_so():
    [found] = problems({**CUSTOM, "type": None})
    assert found.startswith("type: found nothing, and neither of answer_idx and rubrics, expected one of")


@pytest.mark.parametrize(
    ("name", "kind"), [("mc", "multiple_choice"), ("multiple_choice", "multiple_choice"), (None, "multiple_choice")]
)
def test_names_of_the_choice_type(name, kind):
    assert parse_task({**CHOICE, "type": name})["type"] == kind


@pytest.mark.parametrize("name", ["openend", "open_ended", None])
def test_names_of_the_open_type(name):
    assert parse_task({**OPEN, "type": name})["type"] == "open_ended"


def test_fields_that_arrow_filled_with_null_are_as_absent():
    filled = {
        **dict.fromkeys(["prompt", "rubrics", "teacher_response", "data_source", "extra_info"]),
        **CHOICE,
        "options": {"A": "one", "B": "two", "C": None, "D": None},
        "model_response": "kept, although teacher_response is there and null",
        "source": "exam",
    }
    task = parse_task(filled)
    assert "C." not in task["prompt"][0]["content"]
    assert task["teacher_responses"] == [filled["model_response"]]
    assert task["data_source"] == "exam"
    assert problems({**filled, "answer_idx": "C"}) == [
        'answer_idx: found "C", expected the label of one of its options (A, B)'
    ]


def test_a_list_of_options_is_labelled_and_labels_are_read_tolerantly():
    assert "A. one\nB. two" in parse_task({**CHOICE, "options": ["one", "two"]})["prompt"][0]["content"]
    task = parse_task({**CHOICE, "options": {" b ": "two", "a": "one"}, "answer_idx": " b\n"})
    assert task["answer_idx"] == "B"
    assert "A. one\nB. two" in task["prompt"][0]["content"]


@pytest.mark.parametrize("prompt", ["Pick A or B.", [{"role": "user", "content": "Pick A or B."}]])
def test_a_choice_record_keeps_its_own_prompt_untouched(prompt):
    task = parse_task({**CHOICE, "question": None, "prompt": prompt})
    assert task["prompt"] == [{"role": "user", "content": "Pick A or B."}]


@pytest.mark.parametrize(
    ("given", "kept"),
    [(None, []), ("", []), ("one", ["one"]), (["one", "", None, " two"], ["one", " two"]), ([], [])],
)
@pytest.mark.parametrize("name", ["teacher_response", "model_response"])
def test_teacher_responses(name, given, kept):
    assert parse_task({**OPEN, name: given})["teacher_responses"] == kept


def test_extra_info_passes_through_as_json():
    extra = {"id": 7, "nested": {"list": [1, None, "三"]}}
    assert json.loads(parse_task({**OPEN, "extra_info": extra})["extra_info"]) == extra
    assert parse_task(OPEN)["extra_info"] == "{}"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"question": None}, "question: found nothing, expected text"),
        ({"question": 4}, "question: found 4, expected text"),
        ({"answer_idx": None}, "answer_idx: found nothing, expected the label of one option, as text"),
        ({"answer_idx": 1}, "answer_idx: found 1, expected the label of one option, as text"),
        ({"answer_idx": "F"}, 'answer_idx: found "F", expected the label of one of its options (A, B)'),
        ({"options": None}, "options: found nothing, expected the text of each option under its label"),
        ({"options": "A or B"}, 'options: found "A or B", expected the text of each option under its label'),
        ({"options": {"A": 1, "B": "two"}}, "options.A: found 1, expected the text of each option under its label"),
        ({"options": {"AB": "x", "B": "two"}}, 'options.AB: found "AB", expected the text of each option'),
        ({"options": {"b": "x", "B": "two"}}, "but B comes twice"),
        ({"options": ["x"] * 27}, "expected at most 26 options"),
        ({"prompt": 3}, "prompt: found 3, expected text or a list of messages"),
        ({"type": "essay"}, 'type: found "essay", expected one of multiple_choice, mc, open_ended, openend'),
        ({"type": 1}, "type: found 1, expected one of multiple_choice"),
        ({"teacher_response": 3}, "teacher_response: found 3, expected text, a list of texts, or null"),
        ({"model_response": ["x", 3]}, "model_response[1]: found 3, expected text, a list of texts, or null"),
        ({"source": 3}, "source: found 3, expected text"),
        ({"extra_info": "{}"}, 'extra_info: found "{}", expected a JSON object'),
        ({"question": "half \ud83d"}, 'question: found "half \\ud83d", expected text without a lone surrogate'),
        ({"question": ["x" * 100]}, "..., expected text"),
    ],
)
def test_what_is_wrong_with_a_choice_record(change, problem):
    [found] = problems({**CHOICE, **change})
    assert problem in found


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"prompt": None}, "prompt: found nothing, expected text or a list of messages"),
        ({"prompt": {"role": "user", "content": "x"}}, "expected text or a list of messages"),
        ({"prompt": ["x"]}, 'prompt[0]: found "x", expected text or a list of messages'),
        ({"prompt": [{"role": "user"}]}, "prompt[0].content: found nothing, expected the message as text"),
        ({"prompt": [{"content": "x"}]}, "prompt[0].role: found nothing, expected the role of the message"),
        ({"prompt": [{"role": "user", "content": [{"type": "x"}]}]}, 'found [{"type": "x"}], expected the message'),
        ({"rubrics": None}, "rubrics: found nothing, expected a list of at least one"),
        ({"rubrics": []}, "rubrics: found nothing, expected a list of at least one"),
        ({"rubrics": ["be kind"]}, 'rubrics[0]: found "be kind", expected a list of at least one'),
        ({"rubrics": [{"criterion": "c"}]}, "rubrics[0].points: found nothing, expected a finite number"),
        ({"rubrics": [{"criterion": "c", "points": None}]}, "rubrics[0].points: found null, expected a finite number"),
        ({"rubrics": [{"criterion": "c", "points": "5"}]}, 'points: found "5", expected a finite number'),
        ({"rubrics": [{"criterion": "c", "points": True}]}, "points: found true, expected a finite number"),
        ({"rubrics": [{"criterion": "c", "points": float("inf")}]}, "points: found Infinity, expected a finite"),
        ({"rubrics": [{"criterion": "c", "points": 10**400}]}, "expected a finite number"),
        ({"rubrics": [{"criterion": "", "points": 5}]}, 'rubrics[0].criterion: found "", expected text'),
    ],
)
def test_what_is_wrong_with_an_open_record(change, problem):
    [found] = problems({**OPEN, **change})
    assert problem in found


@pytest.mark.parametrize(("record", "which"), [({**CHOICE, **OPEN}, "both"), ({"question": "Which?"}, "neither")])
def test_an_absent_type_must_be_clear(record, which):
    [found] = problems({**record, "type": None})
    assert found.startswith(f"type: found nothing, and {which} of answer_idx and rubrics, expected one of")


@pytest.mark.parametrize("record", [None, 3, "text", ["list"]])
def test_a_record_is_an_object(record):
    [found] = problems(record)
    assert found.startswith("record: found ") and "JSON object" in found


def test_every_problem_of_a_record_is_told():
    assert len(problems({**CHOICE, "question": 4, "answer_idx": "F", "extra_info": 3})) == 3
