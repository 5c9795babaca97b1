"""How much time sampling while learning saves: ``python -m benchmarks.camp_async``.

The same job twice, on the CPU, with a service that takes 200 ms for an answer: with no batch under way beside that of
an update (WARMUP_BATCHES=0: sample, learn, sample, ...), and with one. Compared are the seconds from the end of the
first update to that of the last. Exit code 1 when asynchronous training is not faster.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from camp.command_line import services_python
from tests.students import make_talking_student

ROOT = Path(__file__).parents[1]
LATENCY, TURNS, EPISODES, UPDATES = 0.2, 4, 16, 8
SETTINGS = {
    "DEVICE": "cpu",
    "EPISODES_PER_UPDATE": str(EPISODES),
    "TOTAL_UPDATES": str(UPDATES),
    "SAVE_FREQ": str(UPDATES),
    "MAX_PROMPT_LENGTH": "256",
    "MAX_RESPONSE_LENGTH": "512",
    "PPO_MAX_TOKEN_LEN_PER_GPU": "4096",
    "OMP_NUM_THREADS": "1",
    "PYTHON": sys.executable,
}


def prepare(url: str, folder: Path) -> dict[str, str]:
    limits = ["--turns", str(TURNS), "--turn-tokens", "24"]
    sizes = ["--updates", str(UPDATES), "--episodes", str(EPISODES)]
    command = [sys.executable, "-m", "camp.routes", "prepare", "--out", str(folder), "--domain", "slow"]
    subprocess.run([*command, "--url", f"slow={url}", *limits, *sizes], check=True, stdout=subprocess.DEVNULL)
    return {"ROUTES": str(folder / "routes.json"), "SCHEDULE": str(folder / "train_schedule.jsonl")}


def seconds(output: Path, warmup: int, inputs: dict[str, str]) -> tuple[float, list[dict]]:
    """From the first update's end to the last one's, and the metrics."""
    settings = {**os.environ, **SETTINGS, **inputs, "OUTPUT_DIR": str(output), "WARMUP_BATCHES": str(warmup)}
    done = subprocess.run(["bash", str(ROOT / "CAMP_RL.sh")], env=settings, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return records[-1]["time"] - records[0]["time"], records


def main() -> int:
    command = [
        services_python(None, os.environ),
        str(ROOT / "benchmarks" / "slow_service.py"),
        str(LATENCY),
        str(TURNS),
    ]
    with (
        tempfile.TemporaryDirectory() as place,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as service,
    ):
        try:
            folder = Path(place)
            make_talking_student(folder / "student")
            inputs = {"STUDENT_PATH": str(folder / "student")}
            inputs |= prepare(service.stdout.readline().decode().strip(), folder / "prepared")
            found = {}
            for name, warmup in (("synchronous", 0), ("asynchronous", 1)):
                found[name], records = seconds(folder / name, warmup, inputs)
                waiting = sum(record["staleness/waiting_seconds"] for record in records[1:])
                oldest = max(record["staleness/max"] for record in records)
                print(
                    f"{name:<13} {found[name]:6.1f} s for {UPDATES - 1} updates of {EPISODES} episodes, of these "
                    f"{waiting:5.1f} s waiting for episodes; staleness at most {oldest}",
                    flush=True,
                )
        finally:
            service.kill()
    ratio = found["synchronous"] / found["asynchronous"]
    print(f"synchronous takes {ratio:.2f} times as long")
    return int(ratio <= 1)


if __name__ == "__main__":
    sys.exit(main())
