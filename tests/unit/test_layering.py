"""Imports go one way, the pure parts stay pure, and the environment is read at the edge only."""

import ast
from pathlib import Path

import pytest

from tests.conftest import ROOT

# from the ground up; a module imports from its own floor or below
FLOORS = [
    "errors",
    "terminal",
    "whole",
    "settings",
    "compat",
    "endpoints",
    "data",
    "rewards",
    "teachers",
    "distillation",
    "algorithms",
    "rollout",
    "trainers",
    "backends",
    "servers",
    "report",
    "plugin",
    "preflight",
    "process",
    "show",
    "run",
    "graded_run",
    "train",
]
PURE = (
    "onepo/algorithms/*.py",
    "onepo/teachers/retirement.py",
    "onepo/rewards/[mrsv]*.py",
    "onepo/rollout/gradings.py",
    "onepo/servers/engines.py",
    "onepo/data/*.py",
)
IMPURE_FILES = {"manager.py"}
# the plugin is where a process begins: verl gives it nothing but the environment
READS_ENVIRONMENT = {
    "onepo/train.py",
    "onepo/process.py",
    "onepo/preflight/build.py",
    "onepo/preflight/server.py",
    "onepo/plugin.py",
    "onepo/rewards/check.py",  # a command line of its own
    "onepo/teachers/generate.py",  # another one
    "onepo/servers/supervisor.py",  # hands its environment on to the server
}
FILES = sorted(path for path in (ROOT / "onepo").rglob("*.py") if path.name != "__init__.py")


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            if node.module == "onepo":
                found.update(f"onepo.{alias.name}" for alias in node.names)
    return found


def floor(module: str) -> int:
    return FLOORS.index(module.split(".")[1])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_down(path):
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    own = floor(module)
    for name in imports(path):
        if name.startswith("onepo.") and name.split(".")[1] != "__version__":
            assert floor(name) <= own, f"{module} imports {name}, which stands above it"
        assert not name.startswith(("tests", "recipes", "benchmarks")), f"{module} imports {name}"


def test_the_pure_parts_know_neither_verl_nor_ray_nor_the_system():
    checked = 0
    for pattern in PURE:
        for path in ROOT.glob(pattern):
            if path.name in IMPURE_FILES:
                continue
            checked += 1
            roots = {name.split(".")[0] for name in imports(path)}
            assert not roots & {"verl", "ray", "hydra", "omegaconf", "os", "vllm", "sglang"}, path
    assert checked >= 12


def test_the_environment_is_read_at_the_edge():
    for path in FILES:
        name = str(path.relative_to(ROOT))
        if name not in READS_ENVIRONMENT:
            assert "os.environ" not in path.read_text() and "getenv" not in path.read_text(), name


def test_no_drawer_for_everything():
    assert not [path for path in FILES if path.stem in ("utils", "helpers", "common", "misc")]
