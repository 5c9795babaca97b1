"""Runs of the launcher as a user starts them: a shell, environment variables, real verl on real Ray."""

import json
import os
import subprocess
import sys
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.conftest import ROOT
from tests.launchers.conftest import mind_signals

MARKER = "ONEPO_TEST_MARKER"  # in the environment of every process of a run, to find those left behind
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH")  # PYTHONPATH can put another verl in front
QUICK = {
    "DEVICE": "cpu",
    "TRAIN_FILE": str(ROOT / "recipes/quickstart/data/train.jsonl"),
    "VAL_FILE": str(ROOT / "recipes/quickstart/data/val.jsonl"),
    "MAX_PROMPT_LENGTH": "32",
    "MAX_RESPONSE_LENGTH": "14",
    "TRAIN_BATCH_SIZE": "4",
    "PPO_MINI_BATCH_SIZE": "2",
    "ROLLOUT_N": "4",
    "PPO_MICRO_BATCH_SIZE_PER_GPU": "4",
    "LOG_PROB_MICRO_BATCH_SIZE_PER_GPU": "8",
    "ENABLE_OVERLONG_BUFFER": "False",
    "ACTOR_LR": "1e-3",
    "EXPERIMENT_NAME": "test",
    "OMP_NUM_THREADS": "1",
}


@dataclass
class Launch:
    """A launcher process and where it writes."""

    process: subprocess.Popen
    output_dir: Path
    marker: str

    def finish(self) -> "Launch":
        self.stdout, self.stderr = self.process.communicate()
        self.code = self.process.returncode
        return self

    @property
    def run_dir(self) -> Path:
        return self.output_dir / "latest"

    def facts(self) -> dict:
        return json.loads((self.run_dir / "run.json").read_text())

    def metrics(self) -> list[dict]:
        return [json.loads(line) for line in (self.run_dir / "metrics.jsonl").read_text().splitlines()]

    def members(self) -> list[psutil.Process]:
        """The living processes of this run."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):  # it ended while we looked, or is not ours to see
                if process.environ().get(MARKER) == self.marker:
                    found.append(process)
        return found

    def processes(self, *, seconds: float = 0) -> list[psutil.Process]:
        """The processes of this run that live on for more than so many seconds."""
        return psutil.wait_procs(self.members(), timeout=seconds)[1]

    def tell(self) -> str:
        """Everything that helps to understand a failure."""
        log = self.run_dir / "logs" / "train.log"
        return f"{self.stdout}\n{self.stderr}\n{log.read_text()[-5000:] if log.exists() else 'no log'}"


def start(output_dir: Path, *overrides: str, **options: str) -> Launch:
    """Start ``OnePO.sh`` with the options of a run that takes seconds."""
    marker = uuid.uuid4().hex
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment = {**kept, **QUICK, MARKER: marker, "PYTHON": sys.executable, "OUTPUT_DIR": str(output_dir), **options}
    process = subprocess.Popen(
        ["bash", str(ROOT / "OnePO.sh"), *overrides],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=mind_signals,
    )
    return Launch(process, output_dir, marker)
