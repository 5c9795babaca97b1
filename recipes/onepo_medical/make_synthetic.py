"""Write a file of the shape and the size of OnePO-Medical-20K, for load tests.

``python -m recipes.onepo_medical.make_synthetic FILE [--records N] [--seed S]`` writes JSON, JSONL or Parquet, by the
suffix of FILE. The texts are words in random order and mean nothing; their lengths are assumed, not measured.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from onepo.data.schema import MULTIPLE_CHOICE, OPEN_ENDED
from recipes.onepo_medical.convert import PUBLISHED

TOTAL = sum(PUBLISHED.values())
# besides plain words what makes files hard to read: quotes, backslashes, line breaks, other scripts, half a tag
WORDS = [
    *"""
    the a of and with in to for is was has no after before left right upper lower acute chronic mild severe daily twice
    patient woman man child year-old presents reports denies history pain fever cough nausea fatigue dyspnea oedema 37.9
    blood pressure heart rate serum creatinine sodium glucose haemoglobin platelet culture biopsy radiograph 120/80 5 mg
    treatment dose tablet antibiotic insulin warfarin metformin β-blocker surgery referral follow-up advice risk benefit
    likely unlikely diagnosis differential because therefore however consider exclude confirm 心肌梗死 高血压 糖尿病
    < > "so-called" patient's C:\\scan naïve … 🙂
    """.split(),
    "\n",
    "\n\n- ",
]
SENTENCES, SENTENCE_WORDS = 4_000, (6, 24)
# characters: median and spread (sigma of the logarithm), then the most
QUESTION, OPTION, TURN, CRITERION = (500, 0.6, 3_000), (40, 0.5, 200), (300, 0.8, 3_000), (140, 0.4, 500)
THOUGHT, REPLY = (4_200, 0.5, 20_000), (1_200, 0.5, 5_000)
TURNS = {1: 60, 3: 20, 5: 12, 7: 8}  # messages of an open-ended prompt: share in per cent
RUBRICS = (5, 20)
POINTS = [points for points in range(-10, 11) if points]

_MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
_RUBRIC = pa.struct([("criterion", pa.string()), ("points", pa.int64())])
SCHEMA = pa.schema(
    [
        ("type", pa.string()),
        ("data_source", pa.string()),
        ("question", pa.string()),
        ("options", pa.struct([(label, pa.string()) for label in "ABCDE"])),
        ("answer_idx", pa.string()),
        ("prompt", pa.list_(_MESSAGE)),
        ("rubrics", pa.list_(_RUBRIC)),
        ("teacher_response", pa.string()),
        ("extra_info", pa.struct([("id", pa.int64())])),
    ]
)
BATCH_ROWS = 512


def records(count: int = TOTAL, *, seed: int = 0) -> Iterator[dict[str, Any]]:
    """``count`` records in the data set's proportion of types, the same ones for the same seed.

    All have the same fields, as in the data set; those that a type does not use are None. No prompt comes twice.
    """
    draw = Random(seed)
    sentences = [" ".join(draw.choices(WORDS, k=draw.randint(*SENTENCE_WORDS))) + "." for _ in range(SENTENCES)]
    mean = sum(map(len, sentences)) / len(sentences)

    def text(length: tuple[int, float, int]) -> str:
        median, spread, most = length
        characters = min(int(median * draw.lognormvariate(0, spread)), most)
        return " ".join(draw.choices(sentences, k=1 + int(characters / mean)))[:characters]

    choices = round(count * PUBLISHED[MULTIPLE_CHOICE] / TOTAL)
    order = [MULTIPLE_CHOICE] * choices + [OPEN_ENDED] * (count - choices)
    draw.shuffle(order)
    for number, kind in enumerate(order):
        record = dict.fromkeys(SCHEMA.names) | {"type": kind, "extra_info": {"id": number}}
        teacher = f"<think>\n{text(THOUGHT)}\n</think>\n\n{text(REPLY)}"
        if kind == MULTIPLE_CHOICE:
            labels = "ABCDE"[: draw.randint(4, 5)]
            answer = draw.choice(labels)
            yield record | {
                "data_source": "synthetic_exam",
                "question": f"Case {number}. {text(QUESTION)}",
                "options": {label: f"{label.lower()} {text(OPTION)}" for label in labels},
                "answer_idx": answer,
                "teacher_response": f"{teacher}\n\n<answer>{answer}</answer>",
            }
        else:
            turns = draw.choices(list(TURNS), list(TURNS.values()))[0]
            contents = [f"Case {number}. {text(TURN)}", *(text(TURN) for _ in range(turns - 1))]
            points = [draw.choice(POINTS) for _ in range(draw.randint(*RUBRICS))]
            points[0] = abs(points[0])  # something can be earned
            yield record | {
                "data_source": "synthetic_consultation",
                "prompt": [
                    {"role": "assistant" if turn % 2 else "user", "content": content}
                    for turn, content in enumerate(contents)
                ],
                "rubrics": [{"criterion": f"Says {text(CRITERION)}", "points": value} for value in points],
                "teacher_response": teacher,
            }


def write_json(items: Iterable[dict[str, Any]], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        for number, item in enumerate(items):
            file.write((",\n" if number else "\n") + json.dumps(item, ensure_ascii=False))
        file.write("\n]\n")


def write_jsonl(items: Iterable[dict[str, Any]], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(item, ensure_ascii=False) + "\n" for item in items)


def write_parquet(items: Iterable[dict[str, Any]], path: Path) -> None:
    remaining = iter(items)
    with pq.ParquetWriter(path, SCHEMA) as writer:
        while batch := list(islice(remaining, BATCH_ROWS)):
            writer.write_batch(pa.RecordBatch.from_pylist(batch, schema=SCHEMA))


WRITERS = {".json": write_json, ".jsonl": write_jsonl, ".parquet": write_parquet}


def make_synthetic(
    file: Annotated[Path, typer.Argument(help="A new .json, .jsonl or .parquet file.")],
    count: Annotated[int, typer.Option("--records", min=1, help="How many records.")] = TOTAL,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
) -> None:
    """Write a synthetic data set for load tests."""
    if file.suffix not in WRITERS:
        raise typer.BadParameter(f"{file} has the suffix '{file.suffix}', expected one of {', '.join(WRITERS)}")
    if file.exists():
        raise typer.BadParameter(f"{file} exists: remove it, or name another file")
    WRITERS[file.suffix](records(count, seed=seed), file)


if __name__ == "__main__":
    typer.run(make_synthetic)
