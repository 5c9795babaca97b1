"""What is CAMP_OPD.sh's own: its teacher."""

import pytest
from verl.utils.config import validate_config

from tests.launchers.conftest import OPD
from tests.launchers.test_camp import refusals

composed = OPD.compose
URL = "http://127.0.0.1:8000"


@pytest.fixture
def launcher():
    return OPD


@pytest.fixture
def served(inputs):
    return {name: value for name, value in inputs.items() if name != "TEACHER_PATH"}


@pytest.mark.parametrize(
    "variables",
    [
        {"TEACHER_PATH": "/t"},
        {"TEACHER_PATH": "/t", "DEVICE": "cpu", "TEACHER_GPUS": "2"},
        {"TEACHER_PATH": "/t", "START_TEACHER_SERVER": "1", "HARDWARE": "hopper"},
        {"TEACHER_URL": URL, "INFER_BACKEND": "vllm"},
    ],
    ids=" ".join,
)
def test_verl_accepts_the_configuration(variables, dry_run, student):
    config = composed(dry_run(STUDENT_PATH=str(student), **variables))
    validate_config(config, use_reference_policy=False, use_critic=False)


def test_the_teachers_of_verl(dry_run):
    config = composed(dry_run(TEACHER_PATH="/the teacher"))
    assert config.distillation.teacher_models.teacher_model.model_path == "/the teacher"
    gpus = (config.trainer.n_gpus_per_node, config.actor_rollout_ref.rollout.n_gpus_per_node)
    assert (*gpus, config.distillation.n_gpus_per_node) == (4, 2, 2)
    assert composed(dry_run(TEACHER_PATH="/t", DEVICE="cpu")).distillation.n_gpus_per_node == 1


def test_a_server_that_the_launcher_starts(launch, dry_run, tmp_path):
    variables = {
        "TEACHER_PATH": "/t",
        "START_TEACHER_SERVER": "1",
        "TEACHER_BACKEND": "vllm",
        "TEACHER_SERVER_PYTHON": "engine/bin/python",
        "TEACHER_SERVER_GPUS": "6,7",
        "TEACHER_SERVER_EXTRA_ARGS": "--seed 7 --served-by 'a b'",
        "TEACHER_GPUS": "4",
    }
    server = composed(dry_run(**variables)).camp.teacher.server
    assert (server.start, server.path, server.backend, server.gpus) == (True, "/t", "vllm", "6,7")
    assert server.python == f"{tmp_path}/engine/bin/python" and server.extra_args == "--seed 7 --served-by 'a b'"
    told = launch(DRY_RUN="1", **variables).stderr
    assert "ignored: TEACHER_GPUS (START_TEACHER_SERVER=1 decides it)" in told


def test_a_server_that_runs_already(launch, dry_run):
    config = composed(dry_run(TEACHER_URL=URL, TEACHER_BACKEND="vllm", TEACHER_NAME="big one"))
    assert (config.camp.teacher.url, config.camp.teacher.engine, config.camp.teacher.model) == (URL, "vllm", "big one")
    assert "TEACHER_GPUS (TEACHER_URL decides it)" in launch(DRY_RUN="1", TEACHER_URL=URL, TEACHER_GPUS="3").stderr


def test_a_key_is_never_shown(launch, served):
    for variables in ({"DRY_RUN": "1"}, {"STAND_IN_EXIT": "0"}):
        result = launch(**served, **variables, TEACHER_URL=URL, TEACHER_API_KEY="s3cret")
        assert result.returncode == 0 and "s3cret" not in result.stdout + result.stderr


def test_which_teacher_is_it(launch, inputs, served):
    assert refusals(launch(**inputs, TEACHER_URL=URL)) == [
        "TEACHER_PATH and TEACHER_URL are both set: which teacher is it? Set one"
    ]
    (line,) = refusals(launch(**served, TEACHER_URL=URL, START_TEACHER_SERVER="1"))
    assert line.startswith("TEACHER_URL names a server that runs already")
    (line,) = refusals(launch(**served))
    assert line.startswith("TEACHER_PATH is not set: set it to a directory with the teacher model")


def test_there_is_no_critic(launch, inputs):
    assert refusals(launch(**inputs, CRITIC_LR="1e-5")) == ["CRITIC_LR: OPD has no critic"]


def test_an_address_without_its_beginning(launch, served):
    line, *_ = refusals(launch(**served, TEACHER_URL="localhost:8000"))
    assert line == "TEACHER_URL: must begin with http:// or https://"


def test_what_is_of_no_use_is_told(launch):
    told = launch(DRY_RUN="1", TEACHER_PATH="/t", TEACHER_SERVER_PORT="7", TEACHER_OUTAGE_LIMIT="9").stderr
    for name in ("TEACHER_SERVER_PORT", "TEACHER_OUTAGE_LIMIT"):
        assert f"ignored: {name} (START_TEACHER_SERVER=0 decides it)" in told
