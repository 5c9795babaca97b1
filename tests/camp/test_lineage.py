"""The proof that a checkpoint has every submitted episode once: trained on, or still to be."""

import json

import pytest

from camp.learning.lineage import BrokenLineage, Lineage


def lineage(submitted, *batches):
    found = Lineage(submitted)
    for update, batch in enumerate(batches, 1):
        found.trained_on(update, batch)
    return found


def test_nothing_was_submitted_yet():
    Lineage().check([])


@pytest.mark.parametrize(
    ("found", "unfinished"),
    [
        (lineage(4, [0, 1], [2, 3]), []),
        (lineage(6, [1, 0], [4, 2]), [5, 3]),  # in any order
        (lineage(2), [0, 1]),
    ],
)
def test_trained_and_unfinished_are_the_beginning_of_the_schedule(found, unfinished):
    found.check(unfinished)


@pytest.mark.parametrize(
    ("found", "unfinished", "told"),
    [
        (lineage(6, [0, 1]), [2], "3 submitted episodes are lost, among them [3, 4, 5]"),
        (lineage(9), [], "9 submitted episodes are lost, among them [0, 1, 2]"),
        (lineage(2, [0, 1]), [2], "1 episodes were never submitted, among them [2]"),
        (lineage(4, [0, 1], [1, 2]), [3], "1 episodes are there twice, among them [1]"),  # trained twice
        (lineage(4, [0, 1]), [1, 2, 3], "1 episodes are there twice, among them [1]"),  # trained, and still to be
        (lineage(2), [0, 1, 1], "1 episodes are there twice, among them [1]"),
        (lineage(4, [0, 1]), [1, 2], "1 submitted episodes are lost, among them [3]"),  # the number is right
    ],
)
def test_what_does_not_add_up(found, unfinished, told):
    with pytest.raises(BrokenLineage) as caught:
        found.check(unfinished)
    assert str(caught.value) == told


def test_a_checkpoint_keeps_it(tmp_path):
    before = lineage(7, [3, 0], [2, 1])
    before.write(tmp_path, {6, 4, 5})
    after = Lineage.read(tmp_path)
    assert after == before and after.trained == {1: [0, 3], 2: [1, 2]}
    after.check([4, 5, 6])
    assert json.loads((tmp_path / "episodes.json").read_text())["unfinished"] == [4, 5, 6]


def test_a_run_that_goes_on_adds_to_it(tmp_path):
    lineage(4, [0, 1]).write(tmp_path, [2, 3])
    after = Lineage.read(tmp_path)
    after.submitted += 2
    after.trained_on(2, [3, 4])
    after.check([2, 5])
    assert list(after.trained) == [1, 2]


@pytest.mark.parametrize(
    "content",
    [None, "", "[]", "{}", '{"submitted": 1}', '{"submitted": 1, "trained": [0]}', '{"submitted": null}'],
)
def test_a_file_that_is_missing_or_damaged(content, tmp_path):
    if content is not None:
        (tmp_path / "episodes.json").write_text(content)
    with pytest.raises((OSError, ValueError, LookupError, TypeError, AttributeError)):
        Lineage.read(tmp_path)
