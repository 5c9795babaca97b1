"""Do students learn with CAMP? ``python benchmarks/camp_learning.py rl|opd [--seeds 3]``

CAMP's quickstart of a method with several seeds, one after the other (10 to 15 minutes each on two cores), drawn in one
picture. Exit code 1 unless in every run, and in each domain, the mean reward of the last 20 updates is at least 1.5
times that of the first 20; and with opd the distance from the teacher in the last 20 at most half of that in the first
5, before much was learned.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from onepo.report.curves import DISTANCE, RECENT, figure_for, read_domains, read_metric, recent_means, save

ROOT = Path(__file__).parents[1]
RISE, FALL = 1.5, 0.5
BEGINNING = 5  # updates


@dataclass(frozen=True)
class Quickstart:
    """A script of ``recipes/camp_quickstart``, and the name of its runs and of its picture."""

    script: str
    name: str


QUICKSTARTS = {
    "rl": Quickstart("run.sh", "camp-quickstart"),
    "opd": Quickstart("run_opd.sh", "camp-opd-quickstart"),
}


def train(quickstart: Quickstart, seed: int, output_dir: Path) -> Path:
    options = {"SEED": str(seed), "EXPERIMENT_NAME": f"seed-{seed}", "OUTPUT_DIR": str(output_dir)}
    environment = {**os.environ, **options, "PYTHON": sys.executable}
    script = ROOT / "recipes/camp_quickstart" / quickstart.script
    subprocess.run(["bash", str(script)], env=environment, check=True)
    return output_dir / quickstart.name / f"seed-{seed}"


def rewards(run: Path) -> dict[str, tuple[list[int], list[float]]]:
    """Updates and mean rewards by domain."""
    return {domain: read_metric(run, f"domain/{domain}/reward") for domain in read_domains(run)}


def draw(runs: Sequence[Path], target: Path) -> Path:
    figure, axes = figure_for(runs)
    for number, run in enumerate(runs):
        for colour, (domain, (steps, values)) in enumerate(rewards(run).items()):
            label = None if number else f"reward in {domain}, mean of {RECENT} updates"
            axes.plot(steps, recent_means(values), color=f"C{colour}", label=label)
    axes.set(xlabel="update", ylabel="reward", ylim=(0, None))
    return save(figure, target)


def judge(run: Path) -> tuple[list[str], bool]:
    """What is told of a run, and whether its student has learned."""
    told, learned = [], True
    for domain, (_, values) in rewards(run).items():
        first, last = mean(values[:RECENT]), mean(values[-RECENT:])
        learned = learned and last >= RISE * first and last > 0
        told.append(f"reward in {domain} {first:.3f} to {last:.3f}")
    _, distances = read_metric(run, DISTANCE)
    if distances:
        first, last = mean(distances[:BEGINNING]), mean(distances[-RECENT:])
        learned = learned and last <= FALL * first
        told.append(f"distance from the teacher {first:.3f} in the first {BEGINNING} updates, {last:.3f} in the last")
    return told, learned


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("method", choices=QUICKSTARTS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--picture", type=Path, help="docs/NAME.png of the quickstart unless given")
    arguments = parser.parse_args()
    quickstart = QUICKSTARTS[arguments.method]
    output_dir = Path(tempfile.mkdtemp(prefix="camp-learning-"))
    runs, lines, all_learned = [], [], True
    for seed in range(1, arguments.seeds + 1):
        start = time.perf_counter()
        runs.append(train(quickstart, seed, output_dir))
        told, learned = judge(runs[-1])
        all_learned = all_learned and learned
        lines.append(f"seed {seed}: {', '.join(told)}; {time.perf_counter() - start:.0f} s in all")
    print(f"means of the first and of the last {RECENT} updates", *lines, sep="\n")
    print(f"picture: {draw(runs, arguments.picture or ROOT / 'docs' / f'{quickstart.name}.png')}")
    return int(not all_learned)


if __name__ == "__main__":
    sys.exit(main())
