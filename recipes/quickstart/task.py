"""The quickstart's task: a complaint hidden among other words decides which remedy is right.

Written to ``data/`` by ``python -m recipes.quickstart.task``; the files are part of the repository.
"""

import json
from pathlib import Path
from random import Random

SPECIAL = ["<pad>", "<eos>", "<unk>"]
TAGS = ["<think>", "</think>", "<answer>", "</answer>", "user", "assistant"]
REMEDIES = {"A": "rest", "B": "water", "C": "tea", "D": "soup"}
COMPLAINTS = {"fever": "A", "thirst": "B", "cough": "C", "hunger": "D"}
FILLER = (
    "tree river stone lamp chair window garden bridge cloud road house field paper clock bread door light boat shirt "
    "glass wheel book rain snow wind leaf sand hill lake shore plate spoon knife fork rope box bag coat hat shoe sock "
    "ring bell drum flag map coin key nail saw axe brush broom pan pot cup bowl jar tin"
).split()
OTHER = ["points", "to"]
WORDS = [*TAGS, *REMEDIES, *REMEDIES.values(), *COMPLAINTS, *FILLER, *OTHER]

DATA = Path(__file__).parent / "data"
TRAIN_RECORDS, VAL_RECORDS = 1600, 64
PROMPT_WORDS = 6


def record(random: Random) -> dict:
    """One multiple-choice record with its own prompt and a teacher response."""
    complaint = random.choice(sorted(COMPLAINTS))
    words = random.choices(FILLER, k=PROMPT_WORDS - 1)
    words.insert(random.randrange(PROMPT_WORDS), complaint)
    answer = COMPLAINTS[complaint]
    return {
        "type": "multiple_choice",
        "question": " ".join(words),
        "options": REMEDIES,
        "answer_idx": answer,
        "prompt": [{"role": "user", "content": " ".join(words)}],
        "teacher_response": f"<think> {complaint} points to {REMEDIES[answer]} </think> <answer> {answer} </answer>",
    }


def main() -> None:
    random = Random(7)
    for name, count in (("train", TRAIN_RECORDS), ("val", VAL_RECORDS)):
        lines = [json.dumps(record(random)) for _ in range(count)]
        (DATA / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
