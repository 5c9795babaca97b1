"""Whether a teacher can score what a student writes."""

import json
import shutil

import pytest
from omegaconf import OmegaConf
from transformers import AutoTokenizer

from camp.configuration import Named, compose_config
from camp.opd.guards import teacher_notes, teacher_problems
from camp.settings import TeacherSettings
from tests.students import make_talking_student

LENGTHS = ("data.max_prompt_length=512", "data.max_response_length=1024")


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    folder = tmp_path_factory.mktemp("students") / "student"
    make_talking_student(folder)
    return folder


@pytest.fixture
def other(student, tmp_path):
    """A copy, to be made different."""
    return shutil.copytree(student, tmp_path / "other")


def composed(student, *overrides):
    named = Named("opd", str(student), str(student), None, None, None, None)
    return compose_config(named, ["device=cpu", *LENGTHS, *overrides])


def notes(student, teacher):
    config = composed(student)
    settings = TeacherSettings.model_validate(OmegaConf.to_container(config.camp.teacher, resolve=True))
    return list(teacher_notes(config, teacher and str(teacher), settings))


def test_a_teacher_of_the_same_kind_is_told_nothing_about(student, other):
    assert list(teacher_problems(composed(student), str(other))) == []
    assert notes(student, other) == ["topk=32 is inactive: K1 asks for the sampled tokens alone"]


def test_other_tokens_are_shown(student, other):
    tokenizer = AutoTokenizer.from_pretrained(other)
    size = len(tokenizer)
    tokenizer.add_tokens(["<more>", "<and more>"])
    tokenizer.save_pretrained(other)
    (line,) = teacher_problems(composed(student), str(other))
    assert "2 tokens differ" in line
    assert f"{size} is no token for the student and '<more>' for the teacher" in line


def test_another_temperature_is_refused(student, other):
    (line,) = teacher_problems(composed(student, "actor_rollout_ref.rollout.temperature=0.7"), str(other))
    assert line.startswith("actor_rollout_ref.rollout.temperature=0.7 (TEMPERATURE): the teacher's probabilities")
    assert list(teacher_problems(composed(student, "actor_rollout_ref.rollout.temperature=0.7"), None)) == [line]


def test_a_context_that_is_too_short(student, other):
    config = json.loads((other / "config.json").read_text())
    config["max_position_embeddings"] = 512 + 1024
    (other / "config.json").write_text(json.dumps(config))
    (line,) = teacher_problems(composed(student), str(other))
    assert line.startswith("--teacher: has 1536 positions") and line.endswith("+ 1 = 1537")


def test_a_teacher_that_is_the_student(student):
    assert any(line.startswith("warning: the teacher is the student itself") for line in notes(student, student))


def test_the_first_difference_of_the_chat_templates(student, other):
    template = (other / "chat_template.jinja").read_text()
    (other / "chat_template.jinja").write_text(template.replace("assistant", "helper"))
    found = [line for line in notes(student, other) if "chat templates" in line]
    assert len(found) == 1 and "assistant" in found[0] and "helper" in found[0]


def test_a_served_teacher_is_not_known(student):
    assert any("is not known" in line for line in notes(student, None))
