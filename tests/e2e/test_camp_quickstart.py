"""CAMP's quickstart from nothing: routes, a student, a training of a few updates, and the curve."""

import json
import os
import subprocess
import sys

import pytest

from tests.camp.commands import SERVICES_PYTHON
from tests.conftest import ROOT
from tests.e2e.camp import free_ports
from tests.e2e.launch import KEPT

UPDATES = 3


@pytest.mark.slow
def test_the_quickstart_from_nothing(tmp_path):
    options = {
        "PYTHON": sys.executable,
        "CAMP_SERVICES_PYTHON": SERVICES_PYTHON,
        "OUTPUT_DIR": str(tmp_path / "with space"),
        "EXPERIMENT_NAME": "first",
        "SEED": "3",
        "TOTAL_UPDATES": str(UPDATES),
        "EPISODES_PER_UPDATE": "8",
        "FIRST_PORT": str(free_ports(2)),
    }
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    script = ["bash", str(ROOT / "recipes/camp_quickstart/run.sh"), "trainer.critic_warmup=1"]
    done = subprocess.run(
        script, env={**kept, **options}, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    home = tmp_path / "with space" / "camp-quickstart"
    assert (home / "student-3" / "model.safetensors").exists()
    run = home / "first"
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == list(range(1, UPDATES + 1))
    assert (run / "final_student" / "config.json").exists()
    assert (run / "curve.png").exists()
    assert "reward in games:" in done.stdout and "reward in quests:" in done.stdout
