"""A dry run prints the command that would run, and nothing else happens."""

import os
import shlex
import shutil

import pytest

from tests.launchers.conftest import AWKWARD, ONEPO, every_launcher

composed = ONEPO.compose


@pytest.mark.parametrize("path", AWKWARD)
def test_paths_arrive_unchanged(path, dry_run):
    config = composed(dry_run(TRAIN_FILE=path, MODEL_PATH=path, CHECKPOINT_DIR=path, PROJECT_NAME=path))
    assert config.data.train_files == path
    assert config.actor_rollout_ref.model.path == path
    assert config.trainer.default_local_dir == path
    assert config.trainer.project_name == path


def test_relative_paths_count_from_the_callers_directory(dry_run, tmp_path):
    config = composed(dry_run(TRAIN_FILE="a/train.json", VAL_FILE="./val.json"))
    assert config.data.train_files == f"{tmp_path}/a/train.json"
    assert config.data.val_files == f"{tmp_path}/val.json"
    assert config.onepo.run_dir.startswith(f"{tmp_path}/runs/OnePO_Qwen3_8B-")


@every_launcher
def test_extra_arguments_come_last_and_win(launcher, dry_run):
    size = "TRAIN_BATCH_SIZE" if launcher is ONEPO else "EPISODES_PER_UPDATE"
    arguments = dry_run("data.train_batch_size=3", "trainer.nnodes=4", **{size: "64"})
    overrides = arguments if launcher is ONEPO else arguments[arguments.index("--") + 1 :]
    assert overrides[0] == "device=gpu" and "data.train_batch_size=64" in overrides
    assert overrides[-2:] == ["data.train_batch_size=3", "trainer.nnodes=4"]
    assert launcher.compose(arguments).data.train_batch_size == 3


@pytest.mark.parametrize("variables", [{}, {"DEVICE": "cpu"}, {"NGPUS_PER_NODE": "6", "USE_DYNAMIC_BSZ": "1"}])
def test_verl_accepts_the_configuration(variables, dry_run):
    from verl.utils.config import validate_config

    config = composed(dry_run(MODEL_PATH="/student", TRAIN_FILE="t.json", VAL_FILE="v.json", **variables))
    validate_config(config, use_reference_policy=False, use_critic=False)


def test_verl_refuses_what_does_not_fit(dry_run):
    from verl.utils.config import validate_config

    config = composed(dry_run(MODEL_PATH="/student", NGPUS_PER_NODE="7"))
    with pytest.raises(AssertionError, match="must be divisible"):
        validate_config(config, use_reference_policy=False, use_critic=False)


@every_launcher
def test_nothing_is_needed_and_nothing_is_made(launcher, launch, tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("bash", "awk", "sort", "dirname", "readlink"):
        (tools / tool).symlink_to(shutil.which(tool))
    result = launch(DRY_RUN="1", PATH=str(tools), OUTPUT_DIR="out")
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 1
    assert shlex.split(result.stdout).count(launcher.module) == 1
    assert sorted(os.listdir(tmp_path)) == ["bin"]


@every_launcher
def test_inputs_still_to_be_set_are_named(launcher, launch):
    given, *absent = launcher.inputs
    result = launch(DRY_RUN="1", **{given: "given"})
    told = [line.split("still to be set: ")[1] for line in result.stderr.splitlines() if "still to be set: " in line]
    assert told == absent


def test_what_differs_is_listed(launch):
    result = launch(DRY_RUN="1", TRAIN_BATCH_SIZE="64", ROLLOUT_N="8", USE_DYNAMIC_BSZ="false", REQUIRE_THINKING="0")
    assert "TRAIN_BATCH_SIZE=64 (default: 128)" in result.stderr
    assert "ROLLOUT_N" not in result.stderr
    assert "USE_DYNAMIC_BSZ" not in result.stderr
    assert "REQUIRE_THINKING" not in result.stderr


def test_variables_that_are_no_options_are_listed(launch):
    near = {"TRAIN_BATCHSIZE": "TRAIN_BATCH_SIZE", "TOTAL_EPOCH": "TOTAL_EPOCHS", "LOG_DIR": "LOGS_DIR", "SEDE": "SEED"}
    far = {"TEACHER_BEARD": "1", "ROLLOUT_XYZ": "1"}
    foreign = {"TMPDIR": "/tmp", "LOGNAME": "me", "CUDA_HOME": "/cuda", "RAY_ADDRESS": "auto", "MAX_JOBS": "4"}
    result = launch(DRY_RUN="1", **dict.fromkeys(near, "1"), **far, **foreign)
    ignored = [line.split("ignored: ")[1] for line in result.stderr.splitlines() if "ignored: " in line]
    assert sorted(ignored) == sorted([*(f"{a} (did you mean {b}?)" for a, b in near.items()), *far])


def test_secrets_are_never_shown(launch, inputs):
    secrets = dict.fromkeys(("ONEPO_TEACHER_API_KEY", "REWARD_MODEL_API_KEY", "SWANLAB_API_KEY", "HF_TOKEN"), "s3cret")
    for variables in ({"DRY_RUN": "1"}, {**inputs, "STAND_IN_EXIT": "0"}):
        result = launch(**secrets, **variables)
        assert result.returncode == 0
        assert "s3cret" not in result.stdout + result.stderr
        assert "ONEPO_TEACHER_API_KEY=..." in result.stderr


@every_launcher
def test_ray_is_private_unless_a_cluster_is_named(launcher, dry_run):
    assert any(word.startswith(f"{launcher.section}.ray_dir='/tmp/onepo-") for word in dry_run())
    assert not any(word.startswith(f"{launcher.section}.ray_dir") for word in dry_run(RAY_ADDRESS="10.0.0.1:6379"))


@every_launcher
def test_the_python_of_the_command(launcher, launch, tmp_path):
    def chosen(**variables):
        words = shlex.split(launch(DRY_RUN="1", **variables).stdout)
        return words[words.index("-m") - 1]

    environments = [tmp_path / "venv", tmp_path / "conda"]
    for directory in environments:
        (directory / "bin").mkdir(parents=True)
        (directory / "bin/python").symlink_to("/bin/true")
    active = {"VIRTUAL_ENV": str(environments[0]), "CONDA_PREFIX": str(environments[1])}
    assert chosen(PYTHON="my python", **active) == "my python"
    assert chosen(**active) == f"{environments[0]}/bin/python"
    assert chosen(CONDA_PREFIX=active["CONDA_PREFIX"]) == f"{environments[1]}/bin/python"
    repository = launcher.script.parent / ".venv/bin/python"
    assert chosen() == (str(repository) if os.access(repository, os.X_OK) else "python3")
