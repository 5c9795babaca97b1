"""Does OnePO learn, and is it the teacher? ``python benchmarks/learning.py [--seeds 3]``

The quickstart with and without teacher responses, several seeds each, one after the other (about 20 minutes for three
on two cores), drawn in one picture. Exit code 1 unless every run with a teacher ends at 0.8 or more held-out accuracy,
and every run without below 0.1.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from onepo.report.curves import draw_comparison, read_metric

ROOT = Path(__file__).parents[1]
METRIC = "validation/acc"
ARMS = {"with teacher responses (OnePO)": "True", "without (clipped GRPO)": "False"}
REACHED, UNREACHED = 0.8, 0.1


def train(seed: int, teacher: str, output_dir: Path) -> Path:
    options = {"SEED": str(seed), "TEACHER_ENABLED": teacher, "EXPERIMENT_NAME": f"teacher-{teacher}-seed-{seed}"}
    environment = {**os.environ, **options, "OUTPUT_DIR": str(output_dir), "PYTHON": sys.executable}
    subprocess.run(["bash", str(ROOT / "recipes/quickstart/run.sh")], env=environment, check=True)
    return (output_dir / "quickstart" / "latest").resolve()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--picture", type=Path, default=ROOT / "docs" / "quickstart.png")
    arguments = parser.parse_args()
    output_dir = Path(tempfile.mkdtemp(prefix="onepo-learning-"))
    runs: dict[str, list[Path]] = {label: [] for label in ARMS}
    lines = []
    for seed in range(1, arguments.seeds + 1):
        for label, teacher in ARMS.items():
            start = time.perf_counter()
            run = train(seed, teacher, output_dir)
            runs[label].append(run)
            _, accuracy = read_metric(run, METRIC)
            _, retired = read_metric(run, "onepo/retirement_rate")
            rates = f", retirement rate {retired[0]:.2f} to {retired[-1]:.2f}" if retired else ""
            lines.append(
                f"seed {seed}, {label}: accuracy {accuracy[0]:.3f} to {accuracy[-1]:.3f}{rates}, "
                f"{time.perf_counter() - start:.0f} s in all"
            )
    print("\n".join(lines))
    print(f"picture: {draw_comparison(runs, METRIC, arguments.picture)}")
    finals = {label: [read_metric(run, METRIC)[1][-1] for run in group] for label, group in runs.items()}
    with_teacher, without = finals.values()
    return int(min(with_teacher) < REACHED or max(without) >= UNREACHED)


if __name__ == "__main__":
    sys.exit(main())
