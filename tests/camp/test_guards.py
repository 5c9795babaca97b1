"""Whether a teacher can score what a student writes."""

import json
import shutil
import socket
import sys

import pytest
from omegaconf import OmegaConf
from transformers import AutoTokenizer

from camp.configuration import Named, compose_config
from camp.opd.guards import check_teacher
from camp.opd.server import SERVER
from onepo.endpoints.address import server_url
from onepo.settings import ScoringTeacherSettings
from tests.students import make_talking_student

LENGTHS = ("data.max_prompt_length=512", "data.max_response_length=1024")
URL = "http://127.0.0.1:8000"
TOPK = "topk=32 is inactive: K1 asks for the sampled tokens alone"


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    folder = tmp_path_factory.mktemp("students") / "student"
    make_talking_student(folder)
    return folder


@pytest.fixture
def other(student, tmp_path):
    """A copy, to be made different."""
    return shutil.copytree(student, tmp_path / "other")


def checked(student, teacher, *overrides):
    """Problems and notes."""
    named = Named("opd", str(student), str(teacher), None, None, None, None)
    config = compose_config(named, ["device=cpu", *LENGTHS, *overrides])
    settings = ScoringTeacherSettings.model_validate(OmegaConf.to_container(config.camp.teacher, resolve=True))
    return check_teacher(config, named, settings, student_is_sound=True)


def problem(student, teacher, *overrides):
    (line,) = checked(student, teacher, *overrides)[0]
    return line


def notes(student, teacher, *overrides):
    problems, found = checked(student, teacher, *overrides)
    assert problems == [] and found[0] == TOPK
    return found[1:]


def test_a_teacher_of_the_same_kind_is_told_nothing_about(student, other):
    assert notes(student, other) == []


def test_other_tokens_are_shown(student, other):
    file = other / "tokenizer.json"
    content = json.loads(file.read_text())
    vocabulary = content["model"]["vocab"]
    first, second = (next(token for token, n in vocabulary.items() if n == number) for number in (100, 101))
    vocabulary[first], vocabulary[second] = 101, 100
    file.write_text(json.dumps(content))
    line = problem(student, other)
    assert "2 tokens differ" in line
    assert f"100 is {first!r} for the student and {second!r} for the teacher" in line
    assert line == problem(student, URL, f"camp.teacher.tokenizer='{other}'")


@pytest.mark.parametrize("teacher", ["other", URL])
def test_another_temperature_is_refused(student, other, teacher):
    line = problem(student, URL if teacher == URL else other, "actor_rollout_ref.rollout.temperature=0.7")
    assert line.startswith("actor_rollout_ref.rollout.temperature=0.7: the teacher's probabilities")


@pytest.mark.parametrize(
    "override",
    [
        "distillation.distillation_loss.loss_mode=k3",
        "distillation.distillation_loss.use_task_rewards=true",
        "distillation.distillation_loss.distillation_loss_coef=3.0",
        "actor_rollout_ref.actor.use_kl_loss=true",
        "actor_rollout_ref.actor.entropy_coeff=0.1",
        "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum",
    ],
)
def test_what_the_loss_does_not_read_is_refused(student, other, override):
    line = problem(student, other, override)
    assert line.casefold().startswith(f"{override}: k1 has ".casefold())


@pytest.mark.parametrize(
    "override",
    [
        "distillation.distillation_loss.loss_max_clamp=0",
        "distillation.distillation_loss.loss_max_clamp=abc",
        "distillation.distillation_loss.clip_ratio_low=1",
        "distillation.distillation_loss.clip_ratio_high=.nan",
        "actor_rollout_ref.actor.clip_ratio_c=0.5",
    ],
)
def test_bounds_that_are_none(student, other, override):
    assert problem(student, other, override).startswith(override.split("=")[0])


def test_no_bound_is_one_too(student, other):
    assert notes(student, other, "distillation.distillation_loss.loss_max_clamp=null") == []


def test_an_engine_that_the_machine_does_not_have(student, other):
    key = "distillation.teacher_models.teacher_model.inference.name"
    assert problem(student, other, f"{key}=vllm") == f"{key}=vllm: must be one of transformers"


def test_a_teacher_with_code_of_its_own(student, other):
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoConfig": "own.Config"}}))
    assert "needs code of its own, which no teacher may have" in problem(student, other)


def test_a_tokenizer_beside_a_directory_is_of_no_use(student, other):
    assert "is of a teacher behind an address" in problem(student, other, f"camp.teacher.tokenizer='{student}'")


def test_a_context_that_is_too_short(student, other):
    config = json.loads((other / "config.json").read_text())
    config["max_position_embeddings"] = 512 + 1024
    (other / "config.json").write_text(json.dumps(config))
    line = problem(student, other)
    assert line.startswith("--teacher: has 1536 positions") and line.endswith("+ 1 = 1537")


def test_a_teacher_that_is_the_student(student):
    assert notes(student, student) == ["warning: the teacher is the student itself: there is nothing to learn"]


def test_the_first_difference_of_the_chat_templates(student, other):
    template = (other / "chat_template.jinja").read_text()
    (other / "chat_template.jinja").write_text(template.replace("assistant", "helper"))
    (line,) = notes(student, other)
    assert "chat templates" in line and "assistant" in line and "helper" in line


def test_a_served_teacher_is_not_known(student):
    (line,) = notes(student, URL)
    assert f"the tokenizer of the teacher at {URL} is not known" in line and "TEACHER_TOKENIZER" in line


def test_a_directory_of_a_tokenizer_alone(student, tmp_path):
    AutoTokenizer.from_pretrained(student).save_pretrained(tmp_path / "plain")
    assert notes(student, URL, f"camp.teacher.tokenizer='{tmp_path}/plain'") == []
    (tmp_path / "empty").mkdir()
    line = problem(student, URL, f"camp.teacher.tokenizer='{tmp_path}/empty'")
    assert line.startswith(f"camp.teacher.tokenizer (TEACHER_TOKENIZER)={tmp_path}/empty: has no tokenizer")
    line = problem(student, URL, "camp.teacher.tokenizer=org/name")
    assert line == "camp.teacher.tokenizer (TEACHER_TOKENIZER)=org/name is not an existing directory"


def test_an_address_that_is_none(student):
    assert problem(student, "http://").startswith("--teacher: ")


def test_a_server_that_is_to_be_started(student, other):
    start = "camp.teacher.server.start=true"
    line = problem(student, URL, start)
    assert "names a server that runs already, and START_TEACHER_SERVER=1" in line
    line = problem(student, other, start, f"camp.teacher.server.python={sys.executable}", "camp.teacher.engine=vllm")
    assert line.startswith(f"TEACHER_SERVER_PYTHON={sys.executable} has no vllm, with which the teacher is served")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        problems, _ = checked(student, other, start, f"camp.teacher.server.port={port}")
    assert any(
        f"TEACHER_SERVER_PORT={port} is in use by" in line and "TEACHER_URL=ADDRESS" in line for line in problems
    )


@pytest.mark.parametrize("text", ["http://127.0.0.1:30002", "http://[::1]:30002"])
def test_the_address_of_a_teacher_that_is_left_running_can_be_used(text):
    told = SERVER.reuse.format(address=text, backend="vllm", name="teacher")
    address = dict(word.split("=", 1) for word in told.split() if "=" in word)["TEACHER_URL"]
    assert server_url(address) == text
