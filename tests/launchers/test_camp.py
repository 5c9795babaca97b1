"""What is CAMP_RL.sh's own; the rest of it is tested with all launchers, in the files beside this one."""

import re
import shlex

import pytest
from verl.utils.config import validate_config

from onepo.errors import UserError
from tests.launchers.conftest import AWKWARD, CAMP

composed = CAMP.compose


@pytest.fixture
def launcher():
    return CAMP


def refusals(result):
    assert result.returncode == 2 and result.stdout == "", result.stderr
    return [line.split("error: ")[1] for line in result.stderr.splitlines() if "error: " in line]


# ---- what arrives


@pytest.mark.parametrize("path", [path for path in AWKWARD if "${" not in path])
def test_paths_arrive_unchanged(path, dry_run):
    inputs = dict.fromkeys(("STUDENT_PATH", "ROUTES", "SCHEDULE", "OUTPUT_DIR", "RESUME"), path)
    config = composed(dry_run(**inputs, PROJECT_NAME=path))
    assert config.actor_rollout_ref.model.path == config.critic.model.path == path
    assert config.camp.routes == config.data.train_files == config.camp.output == config.camp.resume == path
    assert config.trainer.default_local_dir == f"{path}/checkpoints"
    assert config.trainer.project_name == path


@pytest.mark.parametrize("path", [path for path in AWKWARD if "${" in path])
def test_a_path_that_verl_would_take_for_a_reference_is_refused(path, dry_run):
    assert composed(dry_run(PROJECT_NAME=path)).trainer.project_name == path  # a name may look like one
    arguments = dry_run(STUDENT_PATH=path)
    assert arguments[arguments.index("--student") + 1] == path
    with pytest.raises(UserError, match=r"--student .* contains"):
        composed(arguments)


def test_relative_paths_count_from_the_callers_directory(dry_run, tmp_path):
    config = composed(dry_run(STUDENT_PATH="a/student", ROUTES="./routes.json", SCHEDULE="../s.jsonl"))
    assert config.actor_rollout_ref.model.path == f"{tmp_path}/a/student"
    assert config.camp.routes == f"{tmp_path}/routes.json"
    assert config.data.train_files == f"{tmp_path}/../s.jsonl"
    assert config.camp.output == f"{tmp_path}/runs/camp-rl"


def test_named_options_stand_before_the_overrides(dry_run):
    arguments = dry_run(STUDENT_PATH="/s", RESUME="/c/global_step_3")
    behind = arguments.index("--")
    assert arguments[:behind] == [
        *("--method", "rl"),
        *("--output", arguments[3]),
        *("--student", "/s"),
        *("--resume", "/c/global_step_3"),
    ]
    assert all("=" in override for override in arguments[behind + 1 :])


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"DEVICE": "cpu"},
        {"DEVICE": "cpu", "LEARNER_GPUS": "3", "SAMPLER_GPUS": "2", "EPISODES_PER_UPDATE": "5"},
        {"LEARNER_GPUS": "5", "SAMPLER_GPUS": "1", "HARDWARE": "hopper", "WARMUP_BATCHES": "1.5"},
        {"HARDWARE": "blackwell", "INFER_BACKEND": "vllm", "ROLLOUT_TP": "2"},
    ],
    ids=lambda variables: " ".join(variables.values()) or "recipe",
)
def test_verl_accepts_the_configuration(variables, dry_run, student):
    config = composed(dry_run(STUDENT_PATH=str(student), **variables))
    validate_config(config, use_reference_policy=False, use_critic=True)


def test_verl_refuses_what_does_not_fit(dry_run, student):
    config = composed(dry_run("critic.use_dynamic_bsz=False", STUDENT_PATH=str(student)))
    with pytest.raises(Exception, match="micro_batch_size"):
        validate_config(config, use_reference_policy=False, use_critic=True)


def test_what_a_named_option_decides_is_refused_behind_the_command(dry_run):
    with pytest.raises(UserError, match="use --student"):
        composed(dry_run("actor_rollout_ref.model.path=/other", STUDENT_PATH="/s"))


def test_a_fraction_of_a_batch_may_be_under_way(dry_run):
    assert composed(dry_run(WARMUP_BATCHES="1.5")).trainer.v1.separate_async.num_warmup_batches == 1.5


def test_the_hardware_decides_what_nobody_set(dry_run):
    hopper = composed(dry_run(HARDWARE="hopper"))
    assert hopper.actor_rollout_ref.rollout.engine_kwargs.sglang.attention_backend == "flashinfer"
    blackwell = composed(dry_run(HARDWARE="blackwell"))
    assert blackwell.actor_rollout_ref.rollout.engine_kwargs.sglang.attention_backend == "triton"
    assert blackwell.actor_rollout_ref.actor.ppo_max_token_len_per_gpu == 16384
    own = composed(dry_run(HARDWARE="blackwell", PPO_MAX_TOKEN_LEN_PER_GPU="11000"))
    assert own.actor_rollout_ref.actor.ppo_max_token_len_per_gpu == 11000


def test_the_device_decides_on_a_cpu(launch, dry_run):
    variables = {"DEVICE": "cpu", "INFER_BACKEND": "vllm", "HARDWARE": "hopper"}
    result = launch(DRY_RUN="1", **variables)
    for name in ("INFER_BACKEND", "HARDWARE"):
        assert f"ignored: {name} (DEVICE=cpu decides it)" in result.stderr
    config = composed(dry_run(**variables))
    assert config.actor_rollout_ref.rollout.name == "transformers"
    assert config.actor_rollout_ref.actor.fsdp_config.param_offload is config.critic.fsdp.param_offload is False
    assert config.trainer.n_gpus_per_node == config.actor_rollout_ref.rollout.n_gpus_per_node == 1
    more = composed(dry_run(DEVICE="cpu", LEARNER_GPUS="2", SAMPLER_GPUS="3"))
    assert (more.trainer.n_gpus_per_node, more.actor_rollout_ref.rollout.n_gpus_per_node) == (2, 3)


@pytest.mark.parametrize(("given", "arrives"), [("python", "python"), ("./a b/python", "/a b/python")])
def test_the_python_of_the_services(given, arrives, launch, tmp_path):
    words = shlex.split(launch(DRY_RUN="1", CAMP_SERVICES_PYTHON=given).stdout)
    expected = f"{tmp_path}{arrives}" if "/" in arrives else arrives
    assert f"CAMP_SERVICES_PYTHON={expected}" in words[: words.index("-m")]


def test_the_repository_need_not_be_installed(launch):
    words = shlex.split(launch(DRY_RUN="1", PYTHONPATH="/mine").stdout)
    root = CAMP.script.parent
    assert f"PYTHONPATH={root}:{root}/recipes:/mine" in words[: words.index("-m")]


# ---- what is told


def test_what_differs_is_listed(launch):
    result = launch(DRY_RUN="1", EPISODES_PER_UPDATE="32", TOTAL_UPDATES="100", ACTOR_LR="1e-6", GAMMA="0.9")
    assert "EPISODES_PER_UPDATE=32 (default: 64)" in result.stderr and "GAMMA=0.9 (default: 1.0)" in result.stderr
    assert not re.search("TOTAL_UPDATES|ACTOR_LR", result.stderr)


def test_variables_that_are_no_options_are_listed(launch):
    near = {"EPISODES_PER_UPDATES": "EPISODES_PER_UPDATE", "TOTAL_UPDATE": "TOTAL_UPDATES", "SEDE": "SEED"}
    near |= {"MAX_STALENES": "MAX_STALENESS", "CRITIC_RL": "CRITIC_LR"}
    far = {"SAMPLER_XYZ": "1", "SERVICE_BEARD": "1", "STUDENT_COUNT": "1"}
    foreign = {"TMPDIR": "/tmp", "LOGNAME": "me", "CUDA_HOME": "/cuda", "RAY_ADDRESS": "auto", "MAX_JOBS": "4"}
    result = launch(DRY_RUN="1", **dict.fromkeys(near, "1"), **far, **foreign)
    ignored = [line.split("ignored: ")[1] for line in result.stderr.splitlines() if "ignored: " in line]
    assert sorted(ignored) == sorted([*(f"{a} (did you mean {b}?)" for a, b in near.items()), *far])


def test_secrets_are_never_shown(launch, inputs):
    secrets = dict.fromkeys(("SWANLAB_API_KEY", "WANDB_API_KEY", "HF_TOKEN"), "s3cret")
    for variables in ({"DRY_RUN": "1"}, {**inputs, "STAND_IN_EXIT": "0"}):
        result = launch(**secrets, **variables)
        assert result.returncode == 0
        assert "s3cret" not in result.stdout + result.stderr


# ---- what is refused


@pytest.mark.parametrize("kind", ["missing", "a file"])
def test_a_checkpoint_that_is_none(kind, launch, inputs, tmp_path):
    checkpoint = tmp_path / "global_step_3"
    if kind == "a file":
        checkpoint.touch()
    (line,) = refusals(launch(**inputs, RESUME="global_step_3"))
    assert line.startswith(f"RESUME={checkpoint} is not an existing directory: set it to a checkpoint, such as ")


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"DEVICE": "tpu"}, "DEVICE=tpu: must be one of cpu gpu"),
        ({"HARDWARE": "volta"}, "HARDWARE=volta: must be one of blackwell hopper ampere"),
        ({"INFER_BACKEND": "hf"}, "INFER_BACKEND=hf: must be one of sglang vllm"),
        ({"TOTAL_UPDATES": "1e2"}, "TOTAL_UPDATES=1e2: must be a whole number"),
        ({"LEARNER_GPUS": "0,1"}, "LEARNER_GPUS=0,1: must be a whole number"),
        ({"EPISODES_PER_UPDATE": "a[$(touch made)]"}, "EPISODES_PER_UPDATE=a[$(touch made)]: must be a whole number"),
        ({"PPO_MAX_TOKEN_LEN_PER_GPU": "12k"}, "PPO_MAX_TOKEN_LEN_PER_GPU=12k: must be a whole number"),
        ({"CRITIC_LR": "1e-"}, "CRITIC_LR=1e-: must be a number"),
        ({"WARMUP_BATCHES": "one"}, "WARMUP_BATCHES=one: must be a number"),
        ({"LOGGER": "[console"}, "LOGGER=[console: must be a list such as [a,b]"),
    ],
)
def test_values_of_the_wrong_form(variables, line, launch, inputs, tmp_path):
    assert refusals(launch(**{**inputs, **variables})) == [line]
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("argument", "hint"),
    [
        ("TOTAL_UPDATES=3", "TOTAL_UPDATES=... bash CAMP_RL.sh"),
        ("--total-updates=3", "TOTAL_UPDATES=... bash CAMP_RL.sh"),
        ("--resume", "RESUME=... bash CAMP_RL.sh"),
        ("--print-config", "see --help"),
        ("again", "see --help"),
    ],
)
def test_arguments_that_are_no_overrides(argument, hint, launch, inputs):
    (line,) = refusals(launch(argument, **inputs, STAND_IN_EXIT="0"))
    assert line.startswith(f"{argument.partition('=')[0]}: ") and hint in line
