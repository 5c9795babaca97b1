"""Runs of CAMP's launchers as a user starts them: five real services, real verl on real Ray, a tiny student."""

import json
import os
import random
import subprocess
import sys
import uuid
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import psutil

from camp.sampling.record import EpisodeRecord
from tests.camp.commands import SERVICES_PYTHON, run
from tests.conftest import ROOT
from tests.e2e.launch import KEPT, MARKER, Launch
from tests.launchers.conftest import mind_signals

EPISODES = 5  # of an update
QUICK = {
    "DEVICE": "cpu",
    "EPISODES_PER_UPDATE": str(EPISODES),
    "TOTAL_UPDATES": "3",
    "SAVE_FREQ": "1",
    "MAX_PROMPT_LENGTH": "2600",
    "MAX_RESPONSE_LENGTH": "1200",
    "PPO_MAX_TOKEN_LEN_PER_GPU": "8000",
    "ACTOR_LR": "1e-4",
    "OMP_NUM_THREADS": "1",
}


@dataclass
class CampLaunch(Launch):
    """A launcher process and the directory of its run."""

    @cached_property
    def attempt(self) -> Path:
        """The newest invocation's directory."""
        return max((self.output_dir / "state").iterdir(), key=lambda folder: folder.stat().st_mtime_ns)

    @property
    def run_dir(self) -> Path:
        return self.output_dir

    def tell(self) -> str:
        logs = [log.read_text()[-5000:] for log in self.output_dir.glob("state/*/logs/train.log")]
        return "\n".join([self.stdout, self.stderr, *logs])

    def episodes(self, update: int) -> list[EpisodeRecord]:
        lines = (self.output_dir / "rollout_data" / f"{update}.jsonl").read_text().splitlines()
        return [EpisodeRecord.model_validate_json(line) for line in lines]


def lineage(checkpoint: Path) -> dict:
    """What a checkpoint says of the schedule's rows."""
    return json.loads((checkpoint / "episodes.json").read_text())


def prepare(folder: Path, *arguments: object) -> dict[str, str]:
    """Routes and a schedule, as the launcher's options."""
    done = run("camp.routes", "prepare", "--out", folder, "--first-port", free_ports(5), *arguments)
    assert done.returncode == 0, done.stderr
    return {"ROUTES": str(folder / "routes.json"), "SCHEDULE": str(folder / "train_schedule.jsonl")}


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody listens at, below those of outgoing connections."""

    taken = {connection.laddr.port for connection in psutil.net_connections("tcp") if connection.laddr}
    while True:
        first = random.randrange(12000, 19000)
        if not taken & set(range(first, first + count)):
            return first


def start(output_dir: Path, *overrides: str, launcher: str = "CAMP_RL.sh", **options: str) -> CampLaunch:
    marker = uuid.uuid4().hex
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment = {
        **kept,
        **QUICK,
        MARKER: marker,
        "PYTHON": sys.executable,
        "CAMP_SERVICES_PYTHON": SERVICES_PYTHON,
        "OUTPUT_DIR": str(output_dir),
        **options,
    }
    process = subprocess.Popen(
        ["bash", str(ROOT / launcher), *overrides],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=mind_signals,
    )
    return CampLaunch(process, output_dir, marker)
