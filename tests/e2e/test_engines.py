"""Open-ended training with a grader that a real inference engine serves: vLLM and SGLang, on this machine's CPU.

The grader is a small instruct model. It is no good as a grader, but a JSON schema makes it write usable lists.
"""

import json

import pytest

from tests.e2e.grading import free_port, write_mixed_data
from tests.e2e.launch import start
from tests.engines.environments import engine_python

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("backend", "context"), [("vllm", "--max-model-len 2048"), ("sglang", "--context-length 2048")]
)
def test_a_real_engine_grades(backend, context, student, smollm2, tmp_path):
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
        REWARD_MODEL_PATH=str(smollm2),
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
