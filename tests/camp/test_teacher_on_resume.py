"""Which teacher a run may go on with: the same model, whoever serves it."""

import shutil

import pytest

from camp.configuration import Named, compose_config
from camp.learning.state import checkpoint_problems, run_facts, write_state
from camp.routes import Routes
from tests.camp.test_camp_preflight import ROUTE
from tests.students import make_talking_student

URL = "http://127.0.0.1:8000"
START = "camp.teacher.server.start=true"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    make_talking_student(folder / "student")
    shutil.copytree(folder / "student", folder / "same")
    shutil.copytree(folder / "student", folder / "other")
    (folder / "other" / "config.json").write_text((folder / "student" / "config.json").read_text() + "\n")
    return folder


@pytest.mark.parametrize(
    ("then", "now", "fits"),
    [
        (("student",), ("same",), True),
        (("student",), ("same", START), True),
        (("student", START), ("same",), True),
        (("student",), ("other",), False),
        (("student",), ("other", START), False),
        (("student", START), ("other", START), False),
        ((URL,), ("student",), True),  # nothing is known of the first
        (("student",), (URL,), True),  # or of the second
        (("student",), (URL, "camp.teacher.tokenizer={other}"), False),
    ],
)
def test_the_teacher_must_be_the_same(then, now, fits, models, tmp_path):
    routes = Routes.of({"games": ROUTE}, schedule_sha256="s", seed=1)

    def config(teacher, *overrides):
        place = teacher if teacher == URL else str(models / teacher)
        named = Named("opd", str(models / "student"), place, None, None, None, None)
        return compose_config(named, ["device=cpu", *(each.format(other=models / "other") for each in overrides)])

    checkpoint = tmp_path / "global_step_1"
    checkpoint.mkdir()
    write_state(checkpoint, update=1, facts=run_facts(config(*then), routes))
    told = [line for line in checkpoint_problems(checkpoint, config(*now), routes) if "saved by a run" in line]
    assert told == ([] if fits else [f"--resume {checkpoint} was saved by a run with another --teacher"])
