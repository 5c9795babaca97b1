"""The option block, the configuration and the documentation say the same, and every option reaches what it names."""

import re
import shlex

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from tests.launchers.conftest import CAMP, ONEPO, OPD, every_launcher

# Options that set no key of the configuration, with the reason.
NO_KEY = {
    "DRY_RUN": "the launcher itself",
    "PYTHON": "the launcher itself",
    "REWARD_MODEL_API_KEY": "a secret: read from the environment, in no configuration",
    "ONEPO_TEACHER_API_KEY": "another one",
    "TEACHER_API_KEY": "another one",
    "CAMP_SERVICES_PYTHON": "of the services, which are no part of the configuration",
    "CUDA_VISIBLE_DEVICES": "read by CUDA from the environment",
    "SWANLAB_DIR": "read by SwanLab from the environment",
    "TMP_DIR": "read by Python from the environment",
}
# Inputs, and what the launcher makes anew for every run: no default to compare.
NO_DEFAULT = {
    *ONEPO.inputs,
    *CAMP.inputs,
    *OPD.inputs,
    "TEACHER_URL",
    "OUTPUT_DIR",
    "DEVICE",
    "HARDWARE",
    "RAY_SOCKET_DIR",
    "TEACHER_ANSWERS_DIR",
}
# What a run needs that its launcher names, and so every composition here.
RUN = {
    ONEPO: ["onepo.run_dir=/run"],
    CAMP: ["--method", "rl", "--output", "/run", "--"],
    OPD: ["--method", "opd", "--output", "/run", "--"],
}
# Options that decide more than the key that they set.
FAR_REACHING = {"DEVICE", "HARDWARE", "OUTPUT_DIR"}
OTHER_NAMES = {"TEACHER_MODEL": "ONEPO_TEACHER_MODEL", "TEACHER_API_URL": "ONEPO_TEACHER_API_URL"}
# Sentinels for options that accept only some values.
SENTINEL = {
    "DEVICE": "cpu",
    "HARDWARE": "hopper",
    "PPO_MAX_TOKEN_LEN_PER_GPU": "7",
    "INFER_BACKEND": "vllm",
    "RAY_SOCKET_DIR": "/tmp/short",
    "LOGGER": "[console,wandb]",
    "START_REWARD_SERVER": "0",
    "AUTO_KILL_REWARD_SERVER": "0",
    "REWARD_SERVER_BACKEND": "vllm",
    "TEACHER_BACKEND": "vllm",
    "TEACHER_URL": "http://host:8000",
    "START_TEACHER_SERVER": "1",
    "AUTO_KILL_TEACHER_SERVER": "0",
}


composed = ONEPO.compose


def parsed(text):
    return OverridesParser.create().parse_override(f"key={text}").value()


def sentinel(name, default):
    if name in SENTINEL:
        return SENTINEL[name]
    if default.lower() in ("true", "false"):
        return str(default.lower() != "true")
    if re.fullmatch(r"-?\d+", default):
        return "7"
    if re.fullmatch(r"-?[\d.]+(e-?\d+)?", default):
        return "0.375"
    if default.startswith("["):
        return "[7,9]"
    path = name.endswith(
        ("_PATH", "_FILE", "_DIR", "_TEMPLATE", "_FUNCTION", "RESUME", "ROUTES", "SCHEDULE", "_TOKENIZER")
    )
    return f"/a b/{name}" if path else f"a, ü={name}"


def without_time(settings):
    return {name: re.sub(r"-\d{8}-\d{6}", "", value) for name, value in settings.items()}


@every_launcher
def test_documentation_repeats_the_block(options, documented):
    assert list(documented) == list(options)
    for name, option in options.items():
        assert documented[name][:2] == option, name


@every_launcher
def test_block_repeats_the_configuration(launcher, options, documented):
    config = launcher.compose(RUN[launcher])
    for name in options.keys() - NO_KEY.keys() - NO_DEFAULT:
        key = documented[name][2]
        value = OmegaConf.select(config, "camp.resume" if key == "--resume" else key, throw_on_missing=True)
        inside = re.search(r"empty means (\w+/) in the run directory", options[name].help)
        otherwise = re.search(r"empty means .*, else (\d+)\.", options[name].help)
        if inside:
            assert value == f"/run/{inside[1]}".rstrip("/"), name
        elif otherwise:
            assert value == int(otherwise[1]), name
        elif options[name].default == "":
            assert value in (None, ""), name
        elif isinstance(value, str):
            assert value == options[name].default, name
        else:
            assert value == parsed(options[name].default), name


@every_launcher
def test_every_constant_of_the_documentation_holds(launcher):
    text = launcher.documentation.read_text().split("## Constants")[1]
    rows = re.findall(r"^\| `([a-z_.]+)` \| `(.*?)` \|", text, re.M)
    assert len(rows) > 10
    config = launcher.compose(RUN[launcher])
    for key, value in rows:
        assert OmegaConf.select(config, key, throw_on_missing=True) == parsed(value), key


@every_launcher
def test_every_option_changes_its_own_key_only(launcher, options, documented, dry_run):
    names_the_run = {"EXPERIMENT_NAME"} if launcher is ONEPO else set()
    base = without_time(launcher.settings(dry_run()))
    overrides, expected = [], {}
    for name in options.keys() - NO_KEY.keys() - FAR_REACHING - names_the_run:
        value = sentinel(name, options[name].default)
        found = without_time(launcher.settings(dry_run(**{name: value})))
        changed = {key: text for key, text in found.items() if base.get(key) != text}
        (key,) = changed
        assert key == documented[name][2], name
        if key.startswith("--"):
            assert changed == {key: value}, name
        else:
            overrides.append(f"{key}={changed[key]}")
            expected[name] = value
    config = launcher.compose([*RUN[launcher], *overrides])
    for name in expected.keys() - {*OTHER_NAMES, *OTHER_NAMES.values(), "RAY_SOCKET_DIR"}:
        value = OmegaConf.select(config, documented[name][2])
        assert value == (expected[name] if isinstance(value, str) else parsed(expected[name])), name


def test_options_that_name_the_run(dry_run, tmp_path):
    arguments = dry_run(OUTPUT_DIR="out", EXPERIMENT_NAME="my run")
    config = composed(arguments)
    assert re.fullmatch(re.escape(f"{tmp_path}/out/my run-") + r"\d{8}-\d{6}", config.onepo.run_dir)
    assert config.trainer.experiment_name == "my run"


@every_launcher
def test_device_selects_its_file(launcher, dry_run):
    assert launcher.compose(dry_run(DEVICE="cpu")).trainer.device == "cpu"
    assert launcher.compose(dry_run(DEVICE="gpu")).trainer.device == "cuda"


def test_the_device_decides_on_a_cpu(launch, dry_run):
    result = launch(DRY_RUN="1", DEVICE="cpu", INFER_BACKEND="vllm", PARAM_OFFLOAD="True")
    assert "ignored: INFER_BACKEND (DEVICE=cpu decides it)" in result.stderr
    assert "ignored: PARAM_OFFLOAD (DEVICE=cpu decides it)" in result.stderr
    config = composed(dry_run(DEVICE="cpu", INFER_BACKEND="vllm", PARAM_OFFLOAD="True"))
    assert config.actor_rollout_ref.rollout.name == "transformers"
    assert config.actor_rollout_ref.actor.fsdp_config.param_offload is False
    assert config.trainer.n_gpus_per_node == 1
    assert composed(dry_run(DEVICE="cpu", NGPUS_PER_NODE="2")).trainer.n_gpus_per_node == 2


@every_launcher
@pytest.mark.parametrize(
    ("name", "variable"), [("CUDA_VISIBLE_DEVICES",) * 2, ("SWANLAB_DIR", "SWANLAB_LOG_DIR"), ("TMP_DIR", "TMPDIR")]
)
def test_options_for_the_environment(launch, name, variable):
    words = shlex.split(launch(DRY_RUN="1", **{name: "/a b"}).stdout)
    assert f"{variable}=/a b" in words[: words.index("-m")]


def test_two_names_of_one_option(launch, dry_run):
    for name, other in OTHER_NAMES.items():
        assert dry_run(**{name: "a"})[-1] == dry_run(**{other: "a"})[-1]
        assert launch(DRY_RUN="1", **{name: "a", other: "a"}).returncode == 0
        result = launch(DRY_RUN="1", **{name: "a", other: "b"})
        assert result.returncode == 2
        assert f"{name}=a and {other}=b are two names of one option" in result.stderr


@every_launcher
def test_help_is_the_block(options, launch):
    for flag in ("--help", "-h"):
        result = launch("trainer.nnodes=2", flag)
        assert result.returncode == 0
        for name, option in options.items():
            row = f"  {name:36} {option.default:18} {option.help}"
            assert row in result.stdout.splitlines(), name


@every_launcher
def test_own_prefixes_begin_options(launcher, options):
    source = launcher.script.read_text().replace("\\\n", " ")
    for prefix in re.search(r"^own_prefixes (.*)$", source, re.M)[1].split():
        assert any(name.startswith(prefix) for name in options), prefix
