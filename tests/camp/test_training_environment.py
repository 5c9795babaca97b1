"""The files of the training environment agree with each other, and the hardware table with verl and the recipe."""

import ast
import re
from dataclasses import fields
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from hydra.utils import get_class
from omegaconf import OmegaConf

ROOT = Path(__file__).parents[2]
TABLE = sorted((ROOT / "recipes/camp/config/hardware").glob("*.yaml"))


def requirements(name: str) -> list[str]:
    lines = (line.strip() for line in (ROOT / name).read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def project(requirement: str) -> str:
    return re.split(r"[ =<>@]", requirement)[0].lower().replace("_", "-")


TRAINING = [line for line in requirements("requirements-training.txt") if not line.startswith("-c")]
LOCK = {project(line): line for line in requirements("requirements.lock")}


def test_the_lock_is_what_the_first_command_installs():
    assert "-c requirements.lock" in requirements("requirements-training.txt")
    assert {project(line) for line in TRAINING} <= LOCK.keys()
    exact = [line for line in TRAINING if "==" in line]
    assert [LOCK[project(line)] for line in exact] == [line.lower() for line in exact]
    assert [line for line in LOCK.values() if "==" not in line] == [line for line in TRAINING if " @ " in line]


def test_training_and_production_use_one_verl_and_one_queue():
    shared = [line for line in requirements("requirements.txt") if line.startswith(("verl @", "TransferQueue"))]
    assert len(shared) == 2
    assert set(shared) <= set(TRAINING)


def test_what_this_package_needs_is_there_without_its_dependencies():
    tree = ast.walk(ast.parse((ROOT / "setup.py").read_text()))
    (needed,) = (node.value for node in tree if isinstance(node, ast.keyword) and node.arg == "install_requires")
    assert set(ast.literal_eval(needed)) <= set(TRAINING)


def test_the_check_supports_the_version_that_is_installed():
    script = (ROOT / "scripts/patch_sglang.py").read_text()
    assert LOCK["sglang"] == "sglang==" + re.search(r'^SUPPORTED = "(.+)"$', script, re.MULTILINE)[1]


def test_compiled_kernels_are_no_part_of_the_first_command():
    kernels = requirements("runtime-overrides.txt")
    assert all("==" in line for line in kernels)
    assert {project(line) for line in kernels}.isdisjoint(LOCK)


def keys(file: Path) -> list[tuple[str, ...]]:
    """The path of every value in a file of the table."""

    def below(node, path: tuple[str, ...]) -> list[tuple[str, ...]]:
        if not isinstance(node, dict):
            return [path]
        return [leaf for key, value in node.items() for leaf in below(value, (*path, key))]

    return below(OmegaConf.to_container(OmegaConf.load(file)), ())


def known(configuration, path: tuple[str, ...]) -> bool:
    """In verl's own YAML, in the dataclass that verl makes of that section, or an option of SGLang's server."""
    section = OmegaConf.select(configuration, ".".join(path[:-1]))
    if path[-2:-1] == ("sglang",):
        return path[-1] in {"attention_backend", "mm_attention_backend"}
    return path[-1] in section or path[-1] in {field.name for field in fields(get_class(section._target_))}


@pytest.mark.parametrize("file", TABLE, ids=lambda file: file.stem)
def test_the_hardware_table_sets_keys_that_verl_reads(file):
    with initialize_config_module("verl.trainer.config", version_base=None):
        configuration = compose("ppo_trainer")
    assert [path for path in keys(file) if not known(configuration, path)] == []


@pytest.mark.parametrize("file", TABLE, ids=lambda file: file.stem)
def test_the_longest_episode_fits_into_every_micro_batch(file):
    recipe, table = OmegaConf.load(ROOT / "recipes/camp/config/common.yaml"), OmegaConf.load(file)
    longest = recipe.data.max_prompt_length + recipe.data.max_response_length
    assert table.actor_rollout_ref.actor.ppo_max_token_len_per_gpu >= longest
    assert table.critic.ppo_infer_max_token_len_per_gpu >= longest


def test_the_table_has_every_generation_and_the_same_keys_where_it_can():
    assert [file.stem for file in TABLE] == ["ampere", "blackwell", "hopper"]
    ampere, blackwell, hopper = (set(keys(file)) for file in TABLE)
    assert ampere == hopper
    assert {path[-1] for path in blackwell ^ hopper} == {"mm_attention_backend", "entropy_from_logits_with_chunking"}
