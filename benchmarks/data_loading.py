"""Time and memory of loading a data set of the size of OnePO-Medical-20K: ``python benchmarks/data_loading.py``.

A synthetic file of 20,338 mixed records is written in each format and loaded in a fresh interpreter on two cores.
Exit code 1 when one of them takes 10 s or more, or 1 GiB or more above the interpreter with its imports.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.json
import pyarrow.parquet as pq

MULTIPLE_CHOICE, OPEN_ENDED = 10_191, 10_147
TEACHER_CHARACTERS, RUBRICS = 6_000, 10
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


def records() -> Iterator[dict]:
    draw = random.Random(0)
    words = [f"word{number}" for number in range(2_000)] + ["a", "of", "the", "\n", "心肌梗死", "β-blocker", '"quoted"']

    def text(characters: int) -> str:
        return " ".join(draw.choices(words, k=characters // 8))[:characters]

    order = ["multiple_choice"] * MULTIPLE_CHOICE + ["open_ended"] * OPEN_ENDED
    draw.shuffle(order)
    for number, kind in enumerate(order):
        shared = {"type": kind, "teacher_response": text(TEACHER_CHARACTERS), "extra_info": {"id": number}}
        if kind == "multiple_choice":
            options = {label: text(40) for label in "ABCDE"}
            yield {**shared, "question": text(600), "options": options, "answer_idx": draw.choice("ABCDE")}
        else:
            rubrics = [{"criterion": text(150), "points": draw.randint(-10, 10)} for _ in range(RUBRICS)]
            yield {**shared, "prompt": [{"role": "user", "content": text(800)}], "rubrics": rubrics}


def write_files(folder: Path) -> list[Path]:
    """Write the same records as JSON array, JSON Lines and Parquet."""
    lines = [json.dumps(record, ensure_ascii=False) for record in records()]
    array, jsonl, parquet = (folder / f"tasks.{suffix}" for suffix in ("json", "jsonl", "parquet"))
    array.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    jsonl.write_text("\n".join(lines) + "\n", encoding="utf-8")
    pq.write_table(pyarrow.json.read_json(jsonl), parquet)
    return [array, jsonl, parquet]


def measure(file: Path) -> tuple[int, float, float, float]:
    """Records, seconds, MiB at the peak above the interpreter, MiB of the table."""
    command = [sys.executable, "-c", LOAD, str(file)]
    rows, *numbers = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return int(rows), *map(float, numbers)


def main() -> int:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    over = False
    with tempfile.TemporaryDirectory() as folder:
        for file in write_files(Path(folder)):
            rows, seconds, peak, table = measure(file)
            over |= rows != MULTIPLE_CHOICE + OPEN_ENDED or seconds >= LIMIT_SECONDS or peak >= LIMIT_MIB
            print(
                f"{file.suffix:9}{file.stat().st_size / 2**20:6.0f} MiB file, {rows} records: {seconds:5.2f} s "
                f"(limit {LIMIT_SECONDS:.0f}), peak {peak:4.0f} MiB (limit {LIMIT_MIB:.0f}), table {table:.0f} MiB"
            )
    print("over the limit" if over else "within the limits")
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
