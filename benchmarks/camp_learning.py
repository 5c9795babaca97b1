"""Does CAMP RL learn? ``python benchmarks/camp_learning.py [--seeds 3]``

CAMP's quickstart with several seeds, one after the other (about 15 minutes each on two cores), drawn in one picture.
Exit code 1 unless in every run, and in each domain, the mean reward of the last 20 updates is at least 1.5 times that
of the first 20.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import matplotlib.pyplot as plt

from onepo.report.curves import RECENT, read_domains, read_metric, recent_means, save

ROOT = Path(__file__).parents[1]
RISE = 1.5


def train(seed: int, output_dir: Path) -> Path:
    options = {"SEED": str(seed), "EXPERIMENT_NAME": f"seed-{seed}", "OUTPUT_DIR": str(output_dir)}
    environment = {**os.environ, **options, "PYTHON": sys.executable}
    subprocess.run(["bash", str(ROOT / "recipes/camp_quickstart/run.sh")], env=environment, check=True)
    return output_dir / "camp-quickstart" / f"seed-{seed}"


def rewards(run: Path) -> dict[str, tuple[list[int], list[float]]]:
    """Updates and mean rewards by domain."""
    return {domain: read_metric(run, f"domain/{domain}/reward") for domain in read_domains(run)}


def draw(runs: Sequence[Path], target: Path) -> Path:
    figure, axes = plt.subplots(figsize=(7, 4))
    for number, run in enumerate(runs):
        for colour, (domain, (steps, values)) in enumerate(rewards(run).items()):
            axes.plot(steps, recent_means(values), color=f"C{colour}", label=None if number else domain)
    axes.set(xlabel="update", ylabel=f"reward, mean of {RECENT} updates", ylim=(0, None))
    return save(figure, axes, target)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--picture", type=Path, default=ROOT / "docs" / "camp-quickstart.png")
    arguments = parser.parse_args()
    output_dir = Path(tempfile.mkdtemp(prefix="camp-learning-"))
    runs, lines, rising = [], [], True
    for seed in range(1, arguments.seeds + 1):
        start = time.perf_counter()
        runs.append(train(seed, output_dir))
        seconds = time.perf_counter() - start
        told = []
        for domain, (_, values) in rewards(runs[-1]).items():
            first, last = mean(values[:RECENT]), mean(values[-RECENT:])
            rising = rising and last >= RISE * first and last > 0
            told.append(f"{domain} {first:.3f} to {last:.3f}")
        lines.append(f"seed {seed}: {', '.join(told)}; {seconds:.0f} s in all")
    print(f"mean reward of the first and of the last {RECENT} updates", *lines, sep="\n")
    print(f"picture: {draw(runs, arguments.picture)}")
    return int(not rising)


if __name__ == "__main__":
    sys.exit(main())
