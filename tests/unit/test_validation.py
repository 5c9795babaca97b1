"""Validation answers whose grading failed are left out, not counted as 0."""

import math

from onepo.trainers.validation import GradedRows, without_nan

NAN = math.nan


def test_rows_without_a_score_are_left_out():
    infos = {"acc": [1.0, NAN, 0.0], "met": ["[true]", "", "[false]"], "reward": [0.9, NAN, 0.0]}
    rows = GradedRows(["a", "a", "b"], ["u1", "u1", "u2"], infos)
    assert rows.data_sources == ["a", "b"] and rows.sample_uids == ["u1", "u2"]
    assert rows.infos == {"acc": [1.0, 0.0], "met": ["[true]", "[false]"], "reward": [0.9, 0.0]}


def test_they_are_not_expected_either():
    rows = GradedRows(["a", "a", "b", "c"], ["u1", "u1", "u2", "u3"], {"acc": [1.0, NAN, NAN, 1.0]})
    expected = rows.expected({("a", "u1"): 2, ("b", "u2"): 1, ("c", "u3"): 2})
    # a row of c is missing for another reason, and stays expected
    assert expected == {("a", "u1"): 1, ("c", "u3"): 2}


def test_no_row_may_be_left():
    rows = GradedRows(["a"], ["u"], {"acc": [NAN]})
    assert rows.sample_uids == [] and rows.infos == {"acc": []} and rows.expected({("a", "u"): 1}) == {}


def test_nan_becomes_null():
    assert without_nan([1.0, NAN, "x", None]) == [1.0, None, "x", None]


def test_means_are_also_told_by_type_of_task():
    infos = {"acc": [1.0, NAN, 0.0, 0.5], "type": ["multiple_choice", "open_ended", "multiple_choice", "open_ended"]}
    rows = GradedRows(["a"] * 4, ["u1", "u2", "u3", "u4"], infos)
    assert rows.means("acc") == {"": 0.5, "multiple_choice": 0.5, "open_ended": 0.5}
    assert GradedRows(["a"], ["u"], {"acc": [NAN], "type": ["custom"]}).means("acc") == {}
