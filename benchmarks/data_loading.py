"""Time and memory of loading a data set of the size of OnePO-Medical-20K: ``python -m benchmarks.data_loading``.

The synthetic file of ``recipes/onepo_medical`` is written in each format and loaded in a fresh interpreter on two
cores. Exit code 1 when one of them takes 10 s or more, or 1 GiB or more above the interpreter with its imports.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from recipes.onepo_medical.make_synthetic import TOTAL, WRITERS, records

LIMIT_SECONDS, LIMIT_MIB = 10.0, 1024.0

# VmHWM, the peak of this process alone, and not ru_maxrss, which a child inherits from its parent.
LOAD = """
import sys, time
from onepo.data.table import load_tasks

def mib(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name)) / 1024

before, start = mib("VmRSS:"), time.perf_counter()
tasks = load_tasks(sys.argv[1])
seconds = time.perf_counter() - start
print(tasks.num_rows, seconds, mib("VmHWM:") - before, tasks.nbytes / 2**20)
"""


def measure(file: Path) -> tuple[int, float, float, float]:
    """Records, seconds, MiB at the peak above the interpreter, MiB of the table."""
    command = [sys.executable, "-c", LOAD, str(file)]
    rows, *numbers = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return int(rows), *map(float, numbers)


def main() -> int:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    over = False
    with tempfile.TemporaryDirectory() as folder:
        for suffix, write in WRITERS.items():
            file = Path(folder, f"tasks{suffix}")
            write(records(), file)
            rows, seconds, peak, table = measure(file)
            over |= rows != TOTAL or seconds >= LIMIT_SECONDS or peak >= LIMIT_MIB
            print(
                f"{file.suffix:9}{file.stat().st_size / 2**20:6.0f} MiB file, {rows} records: {seconds:5.2f} s "
                f"(limit {LIMIT_SECONDS:.0f}), peak {peak:4.0f} MiB (limit {LIMIT_MIB:.0f}), table {table:.0f} MiB"
            )
    print("over the limit" if over else "within the limits")
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
