"""What the plugin adds to ``import verl``: ``python benchmarks/plugin_import.py``.

Fresh interpreters, alternating, with and without the plugin. Exit code 1 when it adds 1 s or more (median), on the CPU
backend, where it registers most.
"""

import os
import statistics
import subprocess
import sys
import time

LIMIT_SECONDS, REPEATS = 1.0, 7


def seconds(code: str, **environment: str) -> float:
    env = {name: value for name, value in os.environ.items() if not name.startswith("VERL_")}
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], env={**env, **environment}, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> int:
    cases = {
        "import verl": {},
        "with the plugin (GPU)": {"VERL_USE_EXTERNAL_MODULES": "onepo.plugin"},
        "with the plugin (CPU)": {"VERL_USE_EXTERNAL_MODULES": "onepo.plugin", "VERL_PLATFORM": "cpu"},
    }
    seconds("import verl")  # the first import reads the files from disk
    times = {name: [] for name in cases}
    for _ in range(REPEATS):
        for name, environment in cases.items():
            # without the entry point an installed package would load the plugin in the plain case, too
            times[name].append(seconds("import verl", VERL_USE_EXTERNAL_PLUGINS="none", **environment))
    plain = statistics.median(times["import verl"])
    for name, values in times.items():
        median = statistics.median(values)
        print(f"{name:<24} {median:5.2f} s  (+{median - plain:.2f} s; min {min(values):.2f}, max {max(values):.2f})")
    added = max(statistics.median(values) for values in times.values()) - plain
    return int(added >= LIMIT_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
