"""What a training is made of: the recipe, the user's overrides, and what only the named options decide."""

import os
import subprocess
import sys

import pytest
import yaml
from omegaconf import OmegaConf
from typer.testing import CliRunner

from camp.configuration import Named, compose_config, printable, recipe_config
from camp.train import app
from onepo.errors import UserError
from onepo.report.secrets import masked_override
from tests.conftest import ROOT

WITH_RECIPE = [method for method in ("rl", "opd") if (ROOT / "recipes" / "camp" / method / "recipe.yaml").exists()]
NAMED = Named(
    method="rl",
    student="/models/student",
    teacher=None,
    routes="/prepared/routes.json",
    schedule="/prepared/train_schedule.jsonl",
    output="/runs/one",
    resume=None,
)
OWNED = {
    "camp.method": "--method",
    "trainer.v1.trainer_mode": "--method",
    "actor_rollout_ref.model.path": "--student",
    "actor_rollout_ref.model.tokenizer_path": "--student",
    "critic.model.path": "--student",
    "distillation.teacher_models.teacher_model.model_path": "--teacher",
    "camp.routes": "--routes",
    "actor_rollout_ref.rollout.agent.agent_loop_config_path": "--routes",
    "data.train_files": "--schedule",
    "data.shuffle": "--schedule",
    "data.custom_cls.path": "--schedule",
    "camp.output": "--output",
    "trainer.default_local_dir": "--output",
    "trainer.rollout_data_dir": "--output",
    "camp.resume": "--resume",
    "trainer.resume_mode": "--resume",
    "trainer.resume_from_path": "--resume",
}


def named(**changes) -> Named:
    return Named(**{**vars(NAMED), **changes})


def refusal(*overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        compose_config(NAMED, overrides)
    (line,) = str(caught.value).splitlines()
    return line


# ---- what the named options own


@pytest.mark.parametrize(("key", "option"), OWNED.items())
def test_an_owned_setting_is_refused_with_the_option_to_use(key, option):
    assert refusal(f"{key}=x") == f"{key}=x: {option} decides this, and nothing behind the --: use {option}"


@pytest.mark.parametrize(
    "spelling",
    [
        "+data.train_files=x",
        "++data.train_files=x",
        "~data.train_files",
        "~data.train_files=x",
        "data.train_files='x y'",
        'data.train_files="x"',
        "'data.train_files'=x",
        '"data.train_files"=x',
        "data.train_files=null",
        "data.train_files=",
        "data.train_files=${camp.routes}",
        "data.train_files=a,b",
        "data.train_files=[a,b]",
        "data/train_files=x",
        "+data/train_files=x",
        "data[train_files]=x",
        "data['train_files']=x",
        "data.train_files@data=x",
        " data.train_files = x",
        "data.train_files.0=x",
        "data.train_files[0]=x",
        "data.custom_cls={path: x, name: y}",
        "data.train_files",
    ],
)
def test_whatever_the_spelling(spelling):
    line = refusal(spelling)
    assert line == f"{spelling}: --schedule decides this, and nothing behind the --: use --schedule"


@pytest.mark.parametrize(
    ("override", "option"),
    [
        ("data={train_files: x}", "--schedule"),
        ("++data={shuffle: true}", "--schedule"),
        ("actor_rollout_ref.model={path: x}", "--student"),
        ("actor_rollout_ref.model=${critic.model}", "--student"),
    ],
)
def test_a_whole_section_hides_nothing(override, option):
    assert refusal(override) == f"{override}: changes what {option} decides: use {option}"


@pytest.mark.parametrize(("section", "option"), [("camp", "--method"), ("critic", "--method"), ("data", "--student")])
def test_a_section_cannot_be_taken_away(section, option):
    assert refusal(f"~{section}") == f"~{section}: {option} decides this, and nothing behind the --: use {option}"


def test_the_one_to_blame_is_found_among_others():
    line = refusal("trainer.save_freq=5", "trainer={default_local_dir: /x}", "camp.seed=3")
    assert line == "trainer={default_local_dir: /x}: changes what --output decides: use --output"


def test_settings_with_names_like_owned_ones_are_free():
    overrides = ["data.train_batch_size=32", "+data.train_files_of_mine=x", "trainer={save_freq: 5}"]
    config = compose_config(NAMED, overrides)
    assert (config.data.train_batch_size, config.data.train_files_of_mine, config.trainer.save_freq) == (32, "x", 5)
    assert config.data.train_files == NAMED.schedule


# ---- what comes out


@pytest.fixture(scope="module")
def config():
    return compose_config(named(resume="/runs/one/checkpoints/global_step_10"), [])


def test_the_named_options_arrive(config):
    assert config.actor_rollout_ref.model.path == config.critic.model.path == NAMED.student
    assert config.data.train_files == NAMED.schedule and config.data.val_files is None
    assert (config.camp.method, config.camp.routes, config.camp.output) == ("rl", NAMED.routes, NAMED.output)
    assert config.trainer.default_local_dir == "/runs/one/checkpoints"
    resume = "/runs/one/checkpoints/global_step_10"
    assert config.camp.resume == config.trainer.resume_from_path == resume
    assert config.trainer.resume_mode == "resume_path"
    assert os.path.exists(config.actor_rollout_ref.rollout.agent.agent_loop_config_path)


def test_a_run_goes_on_from_nothing_unless_it_is_told_to():
    config = compose_config(NAMED, [])
    assert (config.trainer.resume_mode, config.trainer.resume_from_path) == ("disable", None)
    assert config.distillation.enabled is False


RECIPE = {
    "algorithm.adv_estimator": "gae",
    "algorithm.gamma": 1.0,
    "algorithm.lam": 1.0,
    "actor_rollout_ref.actor.optim.lr": 1e-6,
    "critic.optim.lr": 1e-5,
    "critic.enable": True,
    "data.train_batch_size": 64,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 64,
    "data.shuffle": False,
    "trainer.total_training_steps": 100,
    "trainer.save_freq": 10,
    "trainer.n_gpus_per_node": 6,
    "actor_rollout_ref.rollout.n_gpus_per_node": 2,
    "actor_rollout_ref.rollout.n": 1,
    "trainer.v1.separate_async.num_warmup_batches": 1,
    "camp.keep_checkpoints": 1,
}


@pytest.mark.parametrize(("key", "value"), RECIPE.items())
def test_the_values_of_the_recipe(key, value, config):
    assert OmegaConf.select(config, key, throw_on_missing=True) == value


def test_the_other_method_has_a_teacher_and_no_critic():
    config = compose_config(named(method="opd", teacher="/models/teacher"), ["device=cpu"])
    assert config.distillation.teacher_models.teacher_model.model_path == "/models/teacher"
    assert (config.distillation.enabled, config.critic.enable, config.camp.method) == (True, False, "opd")
    assert config.ray_kwargs.ray_init.num_gpus == 3  # learner, sampler, teacher


def test_a_server_of_the_teacher_takes_the_place_of_verls_own():
    started = ["device=cpu", "camp.teacher.server.start=true"]
    config = compose_config(named(method="opd", teacher="/models/teacher"), started)
    assert config.camp.teacher.server.path == "/models/teacher" and config.distillation.enabled is False
    assert config.ray_kwargs.ray_init.num_gpus == 2
    config = compose_config(named(method="opd", teacher="http://teacher:8000"), ["device=cpu"])
    assert config.camp.teacher.url == "http://teacher:8000" and config.distillation.enabled is False
    assert config.camp.teacher.server.path is None


@pytest.mark.parametrize("override", ["critic.optim.lr=1e-3", "+critic.optim.some=1", "critic.strategy=other"])
def test_the_other_method_has_no_options_of_a_critic(override):
    with pytest.raises(UserError) as refused:
        compose_config(named(method="opd", teacher="/models/teacher"), ["camp.seed=7", "device=cpu", override])
    assert str(refused.value) == f"{override}: --method opd has no critic"


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("camp.teacher=null", "camp.teacher: is a section"),
        ("distillation.distillation_loss=null", "distillation.distillation_loss: is a section"),
        ("~distillation.distillation_loss", "distillation.distillation_loss: is a section"),
        ("distillation.teacher_models.teacher_model.inference=null", "inference: is a section"),
        ("+distillation.teacher_models.second.model_path=/x", "second: --teacher decides who teaches"),
    ],
)
def test_a_section_stays_a_section_and_the_teacher_the_named_one(override, told):
    with pytest.raises(UserError, match=told):
        compose_config(named(method="opd", teacher="/models/teacher"), ["device=cpu", override])


@pytest.mark.parametrize("value", ["abc", "null", "[1]"])
def test_a_count_that_is_none_is_left_to_the_preflight(value):
    overrides = ["device=cpu", f"distillation.n_gpus_per_node={value}"]
    compose_config(named(method="opd", teacher="/models/teacher"), overrides)


def test_a_password_in_an_address_is_not_told():
    for overrides in (["++camp.teacher.url=http://me:secret@host"], []):
        with pytest.raises(UserError) as refused:
            compose_config(named(method="opd", teacher="http://me:secret@host/${a}"), overrides)
        assert "secret" not in str(refused.value)


def test_what_the_critic_follows_may_be_changed_without_one():
    overrides = ["device=cpu", "data.max_prompt_length=7", "trainer.experiment_name=critic_test"]
    assert compose_config(named(method="opd", teacher="/models/teacher"), overrides).data.max_prompt_length == 7


def test_the_mini_batch_follows_the_batch():
    config = compose_config(NAMED, ["data.train_batch_size=10"])
    assert config.actor_rollout_ref.actor.ppo_mini_batch_size == config.critic.ppo_mini_batch_size == 10


def test_the_device_counts_more_than_the_recipe():
    config = compose_config(NAMED, ["device=cpu"])
    assert config.trainer.n_gpus_per_node == config.actor_rollout_ref.rollout.n_gpus_per_node == 1
    assert config.ray_kwargs.ray_init.num_gpus == 2  # one for each
    for network in (config.actor_rollout_ref.model, config.critic.model):
        assert network.use_remove_padding is network.enable_gradient_checkpointing is False
    for engine in (config.actor_rollout_ref.actor.fsdp_config, config.critic.fsdp):
        assert engine.param_offload is engine.optimizer_offload is False
    config = compose_config(NAMED, ["device=cpu", "trainer.n_gpus_per_node=2"])
    assert config.ray_kwargs.ray_init.num_gpus == 3


def test_the_recipe_of_the_same_device():
    """For the list of departures: a device is none."""
    recipe = recipe_config("rl", ["device=cpu", "data.train_batch_size=3"])
    assert (recipe.trainer.device, recipe.data.train_batch_size) == ("cpu", 64)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("data.batch=1", "data.batch"),
        ("device=tpu", "device/tpu"),
        ("data=3", "must be a string"),  # verl has files to choose from by this name
        ("data.seed=${oc.env:NO_SUCH_VARIABLE}", "NO_SUCH_VARIABLE"),
    ],
)
def test_overrides_that_mean_nothing(override, told):
    line = refusal("trainer.save_freq=5", override)
    assert line.startswith("configuration: ") and told in line


@pytest.mark.parametrize("override", ["data.seed=[", "data.seed", "data.seed={a", ""])
def test_overrides_that_are_none(override):
    assert refusal("trainer.save_freq=5", override).startswith(f"{override}: ")


@pytest.mark.parametrize("option", ["student", "routes", "schedule", "output", "resume"])
def test_a_path_that_verl_would_take_for_a_reference(option):
    with pytest.raises(UserError, match=f"--{option} .*: contains '\\${{', which would be taken for a reference"):
        compose_config(named(**{option: "/a/${oc.env:HOME}"}), [])


# ---- what is shown of it


def test_secrets_are_masked_wherever_they_are(config):
    config = config.copy()
    OmegaConf.set_struct(config, False)
    secrets = {
        "trainer.wandb_api_key": "s3cret",
        "ray_kwargs.ray_init.runtime_env.env_vars.HF_TOKEN": "s3cret",
        "ray_kwargs.ray_init.runtime_env.env_vars.AWS_SECRET_ACCESS_KEY": "s3cret",
        "trainer.login": [{"password": "s3cret"}, "https://me:s3@cret@host/x"],
        "trainer.proxy": "http://s3cret@host:3128",
    }
    for key, value in secrets.items():
        OmegaConf.update(config, key, value)
    text = printable(config)
    assert "s3" not in text and "@cret" not in text and text.count("***") == 6
    found = yaml.safe_load(text)["trainer"]
    assert (found["wandb_api_key"], found["proxy"]) == ("***", "http://***@host:3128")


def test_what_only_looks_like_a_secret_is_shown(config):
    found = yaml.safe_load(printable(config))
    assert found["data"]["prompt_key"] == "prompt"
    assert found["actor_rollout_ref"]["model"]["tokenizer_path"] is None
    assert "***" not in str(found)


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("trainer.save_freq=5", "trainer.save_freq=5"),
        ("+trainer.wandb_api_key=s3cret", "+trainer.wandb_api_key=***"),
        ("++api_key=s3cret", "++api_key=***"),
        ("+trainer.proxy=http://me:s3cret@host:1", "+trainer.proxy=http://***@host:1"),
        ("~trainer.v1", "~trainer.v1"),
    ],
)
def test_overrides_are_written_down_without_secrets(override, text):
    assert masked_override(override) == text


# ---- the command line


def train(folder, *arguments, **variables):
    """``python -m camp.train`` in an empty directory."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "camp.train", *arguments],
        cwd=folder,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("VERL_")},
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'recipes'}",
            "CUDA_VISIBLE_DEVICES": "",
            **variables,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("method", WITH_RECIPE)
def test_print_config(method, tmp_path):
    secrets = ["+trainer.wandb_api_key=s3cret", "+trainer.proxy=http://me:s3cret@host"]
    command = ["--method", method, "--student", "NAME", "--output", "X", "--print-config", "--", *secrets]
    ended = train(tmp_path, *command)
    assert ended.returncode == 0, ended.stderr
    assert "s3cret" not in ended.stdout + ended.stderr and "${" not in ended.stdout
    found = yaml.safe_load(ended.stdout)
    assert found["camp"]["method"] == method
    assert found["actor_rollout_ref"]["model"]["path"] == f"{tmp_path}/NAME"
    assert found["trainer"]["default_local_dir"] == f"{tmp_path}/X/checkpoints"
    assert (found["trainer"]["wandb_api_key"], found["trainer"]["proxy"]) == ("***", "http://***@host")
    assert OmegaConf.create(ended.stdout).data.train_files is None
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_override_is_one_line(tmp_path):
    ended = train(tmp_path, "--method", "rl", "--student", "NAME", "--print-config", "--", "data.batch=1")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "error: configuration: Could not override 'data.batch'.\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("device", ["tpu", "'cpu'"])
def test_an_unknown_device_is_one_line(device, tmp_path):
    ended = train(tmp_path, "--method", "rl", "--student", "NAME", "--print-config", "--", f"device={device}")
    assert ended.returncode == 2 and len(ended.stderr.splitlines()) == 1, ended.stderr
    assert "use gpu or cpu" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "--method"),
        (["--method", "ppo"], "rl"),
        (["--method", "rl", "--students", "x"], "--student"),
        (["--method", "rl", "--student"], "--student"),
    ],
)
def test_usage_errors(arguments, told):
    ended = CliRunner().invoke(app, arguments)
    assert ended.exit_code == 2 and told in ended.output and ended.exc_info[0] is SystemExit


@pytest.mark.parametrize("word", ["--help"])
def test_help_names_the_options(word):
    ended = CliRunner().invoke(app, [word])
    assert ended.exit_code == 0
    for option in ("method", "student", "teacher", "routes", "schedule", "output", "resume", "print-config"):
        assert f"--{option}" in ended.output
