"""The quickstart's task with records of the type custom: python -m recipes.own_reward.make_data FOLDER"""

import json
import sys
from pathlib import Path

from recipes.quickstart.task import DATA, REMEDIES


def custom(choice: dict) -> dict:
    """The multiple-choice record as one whose answer is the remedy itself."""
    remedy = REMEDIES[choice["answer_idx"]]
    thought, tag, _ = choice["teacher_response"].partition("</think>")
    return {
        "type": "custom",
        "prompt": choice["prompt"],
        "remedy": remedy,
        "teacher_response": f"{thought}{tag} {remedy}",
    }


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train.jsonl", "val.jsonl"):
        records = map(json.loads, (DATA / name).read_text().splitlines())
        (folder / name).write_text("".join(json.dumps(custom(record)) + "\n" for record in records))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
