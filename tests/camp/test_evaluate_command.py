"""What ``python -m camp.evaluate`` refuses before anything is started."""

from pathlib import Path

import pytest

from tests.camp.commands import run
from tests.camp.test_camp_preflight import prepare
from tests.students import make_talking_student


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluated")
    make_talking_student(folder / "student")
    made = prepare(folder / "prepared", rows=4)
    return {"--student": str(folder / "student"), "--routes": made["routes"], "--tasks": made["schedule"]}


@pytest.mark.parametrize(
    ("changes", "overrides", "told"),
    [
        ({}, ["device=cpu"], "and the student has 4096 positions"),
        ({"--records": "/"}, ["device=cpu", "data.max_response_length=1024"], "--records /: cannot be written: name a"),
    ],
)
def test_what_is_in_the_way_is_told_in_a_line(changes, overrides, told, inputs, tmp_path):
    (own := tmp_path / "tmp").mkdir()
    options = [part for pair in {**inputs, **changes}.items() for part in pair]
    result = run("camp.evaluate", *options, "--", *overrides, TMPDIR=str(own))
    assert result.returncode == 2 and not result.stdout
    *notes, line = result.stderr.splitlines()
    assert line.startswith("error: ") and told in line
    assert all(note.startswith("note: ") for note in notes)
    assert [file for file in own.iterdir() if Path(file).name.startswith(("camp-", "onepo-"))] == []
