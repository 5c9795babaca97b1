"""What the user gave wrongly is named in one line each, with exit code 2 and nothing started."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launchers.conftest import ROOT, every_input, every_launcher


def errors(result):
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    return [line.split("error: ")[1] for line in result.stderr.splitlines() if "error: " in line]


@every_input
def test_missing_input(name, launch, inputs):
    (line,) = errors(launch(**{**inputs, name: ""}))
    assert line.startswith(f"{name} is not set: set it to ")


@every_input
def test_input_that_does_not_exist(name, launch, inputs, tmp_path):
    (line,) = errors(launch(**{**inputs, name: "no such"}))
    assert line.startswith(f"{name}={tmp_path}/no such is not an existing ")


@every_launcher
def test_all_problems_are_named_at_once(launcher, launch, inputs):
    lines = errors(launch(PYTHON=inputs["PYTHON"], DEVICE="cpu"))
    assert [line.split()[0] for line in lines] == list(launcher.inputs)


@pytest.mark.parametrize("variables", [{"TEST_STEPS": "[5]"}, {"VAL_BEFORE_TRAIN": "True"}, {"TEST_FREQ": "2"}])
def test_validation_data_is_needed_for_any_validation(variables, launch, inputs):
    variables = {**inputs, "TEST_FREQ": "0", "VAL_FILE": "", **variables}
    assert errors(launch(**variables))[0].startswith("VAL_FILE is not set")


def test_validation_data_is_not_needed_without_validation(launch, inputs):
    result = launch(**{**inputs, "TEST_FREQ": "0", "VAL_FILE": "no such", "STAND_IN_EXIT": "0"})
    assert result.returncode == 0, result.stderr
    assert "validation is off: VAL_FILE is not read" in result.stderr
    assert "data.val_files" not in result.stdout


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"DEVICE": "tpu"}, "DEVICE=tpu: must be one of cpu gpu"),
        ({"INFER_BACKEND": "hf"}, "INFER_BACKEND=hf: must be one of sglang vllm"),
        ({"DRY_RUN": "yes"}, "DRY_RUN=yes: must be one of 0 1"),
        ({"TRAIN_BATCH_SIZE": "1e2"}, "TRAIN_BATCH_SIZE=1e2: must be a whole number"),
        ({"TEST_FREQ": "a[$(touch made)]"}, "TEST_FREQ=a[$(touch made)]: must be a whole number"),
        ({"ACTOR_LR": "2e-"}, "ACTOR_LR=2e-: must be a number"),
        ({"USE_DYNAMIC_BSZ": "maybe"}, "USE_DYNAMIC_BSZ=maybe: must be True or False"),
        ({"TEST_STEPS": "[1"}, "TEST_STEPS=[1: must be a list such as [a,b]"),
        ({"EXPERIMENT_NAME": "a/b"}, "EXPERIMENT_NAME=a/b: is the name of a folder, too, so no '/' in it"),
    ],
)
def test_values_of_the_wrong_form(variables, line, launch, inputs, tmp_path):
    assert errors(launch(**{**inputs, **variables})) == [line]
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(("given", "passed"), [("5,10", "[5,10]"), ("[5, 10]", "[5, 10]"), ("5", "[5]")])
def test_lists_may_lack_their_brackets(given, passed, dry_run):
    assert f"onepo.test_steps={passed}" in dry_run(TEST_STEPS=given)


@pytest.mark.parametrize(
    ("argument", "hint"),
    [
        ("--train-batch-size=64", "TRAIN_BATCH_SIZE=... bash OnePO.sh"),
        ("TRAIN_BATCH_SIZE=64", "TRAIN_BATCH_SIZE=... bash OnePO.sh"),
        ("device=cpu", "DEVICE=... bash OnePO.sh"),
        ("WANDB_API_KEY=s3cret", "WANDB_API_KEY=... bash OnePO.sh"),
        ("ONEPO_TEACHER_API_KEY=s3cret", "is set in the environment, not as an argument"),
        ("--onepo-teacher-api-key=s3cret", "ONEPO_TEACHER_API_KEY=... bash OnePO.sh"),
        ("--api-key=s3cret", "see --help"),
        ("--again", "see --help"),
        ("-x", "see --help"),
        ("again", "see --help"),
        ("=", "neither an option"),
    ],
)
def test_arguments_that_are_no_overrides(argument, hint, launch, inputs):
    result = launch(argument, **inputs, STAND_IN_EXIT="0")
    if argument == "=":  # Hydra's to refuse; the launcher must not stumble over it
        assert result.returncode == 0
    else:
        (line,) = errors(result)
        assert line.startswith(f"{argument.partition('=')[0]}: ") and hint in line
        assert "s3cret" not in result.stdout + result.stderr


@every_launcher
def test_long_socket_directories_are_refused(launch, inputs):
    (line,) = errors(launch(**inputs, RAY_SOCKET_DIR="/" + "d" * 30))
    assert line.startswith("RAY_SOCKET_DIR=/ddd")


@every_launcher
@pytest.mark.parametrize("hidden", [{}, {"CUDA_VISIBLE_DEVICES": ""}, {"CUDA_VISIBLE_DEVICES": "-1"}])
def test_no_gpu_and_no_device(hidden, launch, inputs):
    if not hidden and any(name.startswith("nvidia") for name in os.listdir("/dev")):
        pytest.skip("this machine has a GPU")
    del inputs["DEVICE"]
    (line,) = errors(launch(**inputs, **hidden))
    assert "set DEVICE=cpu" in line


@every_launcher
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_missing_packages_name_the_interpreter_and_the_command(device, launcher, launch, inputs, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    python = f"{tmp_path}/bare/bin/python"
    (line,) = errors(launch(**{**inputs, "DEVICE": device, "PYTHON": python}))
    assert line.startswith(f"PYTHON={python} lacks verl, ray, torch, hydra: ")
    file = "requirements-cpu.txt" if device == "cpu" else launcher.requirements
    assert f"{python} -m pip install -r {ROOT}/{file} " in line


@every_launcher
@pytest.mark.parametrize("python", ["/no/python", "/bin/true", "/bin/echo"])
def test_a_python_that_does_not_run(python, launch, inputs):
    (line,) = errors(launch(**{**inputs, "PYTHON": python}))
    assert line.startswith(f"PYTHON={python} lacks a working Python")


def test_scripts_are_clean():
    scripts = [*ROOT.glob("*.sh"), *ROOT.glob("scripts/*.sh"), *ROOT.glob("recipes/*/*.sh"), ROOT / ".ci/run"]
    assert len(scripts) >= 5
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    result = subprocess.run([shellcheck, *scripts], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_setup_names_the_pythons_that_it_can_use():
    result = subprocess.run(
        ["bash", ROOT / "scripts/setup_env.sh", "/no/environment"],
        env={**os.environ, "PYTHON": "/bin/false"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 2
    assert "PYTHON=/bin/false is not a Python 3.11 or 3.12" in result.stderr


def test_setup_does_not_empty_a_foreign_directory(tmp_path):
    (tmp_path / "precious").touch()
    result = subprocess.run(["bash", ROOT / "scripts/setup_env.sh", tmp_path], capture_output=True, text=True)
    assert result.returncode == 2
    assert "is no virtual environment" in result.stderr
    assert (tmp_path / "precious").exists()


@pytest.mark.parametrize(
    "url", ["http://me:word@host/v1", "https://host/v1?key=word", "https://host/v1?api-version=1&key=word"]
)
def test_an_address_with_a_secret_is_refused_and_not_repeated(url, launch, inputs):
    result = launch(**inputs, START_REWARD_SERVER="0", REWARD_MODEL_URL=url)
    (line,) = errors(result)
    assert "a key in REWARD_MODEL_API_KEY" in line and "word" not in result.stderr.replace("password", "")


def test_an_address_may_name_an_api_version(launch, inputs):
    url = "https://host/v1/chat/completions?api-version=2024-10-21"
    assert launch(**inputs, DRY_RUN="1", START_REWARD_SERVER="0", REWARD_MODEL_URL=url).returncode == 0
