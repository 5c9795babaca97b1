"""The learning curve of a run: ``python -m onepo.report.curves RUN`` draws RUN/curve.png from its metrics file.

Of a run of OnePO these are accuracies, of a run of CAMP the rewards of its domains and the distance from its teacher.
"""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no screen is needed
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from onepo.trainers.journal import METRICS_FILE

CURVES = {  # metric: label
    "validation/acc": "held-out accuracy",
    "onepo/student_acc": "accuracy of the student's rollouts",
    "onepo/retirement_rate": "retirement rate of the teacher",
}
DOMAIN_REWARD = re.compile(r"domain/(.+)/reward")
DISTANCE = "distillation/kl"
RECENT = 20  # updates whose mean is drawn: an update has only some episodes of a domain


def read_metric(run: Path, name: str) -> tuple[list[int], list[float]]:
    """Steps and values of one metric, where it was recorded.

    Raises:
        FileNotFoundError: the run has no metrics file.
    """
    points = {record["step"]: record[name] for record in _records(run) if record.get(name) is not None}
    return list(points), list(points.values())


def read_domains(run: Path) -> list[str]:
    """The domains whose rewards were recorded.

    Raises:
        FileNotFoundError: the run has no metrics file.
    """
    return sorted({found[1] for record in _records(run) for name in record if (found := DOMAIN_REWARD.fullmatch(name))})


def _records(run: Path) -> list[dict[str, Any]]:
    whole = [line for line in (run / METRICS_FILE).read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [json.loads(line) for line in whole]


def recent_means(values: Sequence[float]) -> list[float]:
    """For each value the mean of the ``RECENT`` ones that end with it, or of fewer at the beginning."""
    windows = (values[max(0, end - RECENT) : end] for end in range(1, len(values) + 1))
    return [sum(window) / len(window) for window in windows]


def draw_run(run: Path) -> Path:
    """Draw the curves of one run into its directory."""
    figure, axes = figure_for([run])
    for name, label in CURVES.items():
        steps, values = read_metric(run, name)
        if steps:
            marker = "o" if name.startswith("validation") else None
            axes.plot(steps, values, label=label, marker=marker)
    for domain in read_domains(run):
        steps, values = read_metric(run, f"domain/{domain}/reward")
        axes.plot(steps, recent_means(values), label=f"reward in {domain}, mean of {RECENT} updates")
    axes.set(xlabel="training step", ylim=(-0.03, 1.03))
    figure.axes[0].set_title(run.resolve().name)
    return save(figure, run / "curve.png")


def figure_for(runs: Sequence[Path]) -> tuple[Figure, Axes]:
    """A figure and the part of it to draw in; above that the distances from their teachers, for runs that have some."""
    distances = [read_metric(run, DISTANCE) for run in runs]
    if not any(steps for steps, _ in distances):
        return plt.subplots(figsize=(7, 4))
    figure, (above, below) = plt.subplots(2, sharex=True, figsize=(7, 6), height_ratios=(1, 2))
    for number, (steps, values) in enumerate(distances):
        label = None if number else "distance from the teacher, nats per token"
        above.plot(steps, values, color="black", linewidth=0.8, label=label)
    above.set(ylim=(0, None))
    return figure, below


def draw_comparison(groups: dict[str, list[Path]], metric: str, target: Path) -> Path:
    """Draw one metric of several runs in one picture, a colour for each group of runs."""
    figure, axes = plt.subplots(figsize=(7, 4))
    for colour, (label, runs) in enumerate(groups.items()):
        for number, run in enumerate(runs):
            steps, values = read_metric(run, metric)
            axes.plot(steps, values, color=f"C{colour}", marker="o", alpha=0.8, label=label if number == 0 else None)
    axes.set(xlabel="training step", ylabel=CURVES[metric], ylim=(-0.03, 1.03))
    return save(figure, target)


def save(figure: Figure, target: Path) -> Path:
    for axes in figure.axes:
        axes.grid(alpha=0.3)
        axes.legend()
    figure.tight_layout()
    figure.savefig(target, dpi=120)
    plt.close(figure)
    return target


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not (Path(arguments[0]) / METRICS_FILE).exists():
        print(f"usage: python -m onepo.report.curves RUN   (a run directory with {METRICS_FILE})", file=sys.stderr)
        return 2
    run = Path(arguments[0]).resolve()
    picture = draw_run(run)
    steps, values = read_metric(run, "validation/acc")
    if steps:
        print(f"held-out accuracy: {values[0]:.3f} at step {steps[0]}, {values[-1]:.3f} at step {steps[-1]}")
    told = {f"reward in {domain}": f"domain/{domain}/reward" for domain in read_domains(run)}
    for what, metric in {**told, "distance from the teacher": DISTANCE}.items():
        _, values = read_metric(run, metric)
        if values:
            first, last = (sum(part) / len(part) for part in (values[:RECENT], values[-RECENT:]))
            print(f"{what}: {first:.3f} in the first {RECENT} updates, {last:.3f} in the last {RECENT}")
    print(f"curve: {picture}\nmetrics: {run / METRICS_FILE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
