"""CAMP's quickstarts from nothing: routes, models, a training of a few updates, and the curve."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.camp.commands import SERVICES_PYTHON
from tests.conftest import ROOT
from tests.e2e.camp import free_ports
from tests.e2e.launch import KEPT

pytestmark = pytest.mark.slow

UPDATES = 3


def quickstart(script: str, folder: Path, *overrides: str) -> subprocess.CompletedProcess:
    options = {
        "PYTHON": sys.executable,
        "CAMP_SERVICES_PYTHON": SERVICES_PYTHON,
        "OUTPUT_DIR": str(folder / "with space"),
        "EXPERIMENT_NAME": "first",
        "SEED": "3",
        "TOTAL_UPDATES": str(UPDATES),
        "EPISODES_PER_UPDATE": "8",
        "FIRST_PORT": str(free_ports(2)),
    }
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    done = subprocess.run(
        ["bash", str(ROOT / "recipes/camp_quickstart" / script), *overrides],
        env={**kept, **options},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "reward in games:" in done.stdout and "reward in quests:" in done.stdout
    return done


def check(home: Path) -> None:
    assert (home / "student-3" / "model.safetensors").exists()
    run = home / "first"
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == list(range(1, UPDATES + 1))
    assert (run / "final_student" / "config.json").exists()
    assert (run / "curve.png").exists()


def test_rl_from_nothing(tmp_path):
    quickstart("run.sh", tmp_path, "trainer.critic_warmup=1")
    check(tmp_path / "with space" / "camp-quickstart")


def test_opd_from_nothing(tmp_path):
    done = quickstart("run_opd.sh", tmp_path)
    home = tmp_path / "with space" / "camp-opd-quickstart"
    check(home)
    assert (home / "teacher-3" / "model.safetensors").exists()
    assert "distance from the teacher:" in done.stdout
