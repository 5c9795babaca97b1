"""Dynamic sampling ends: with an error when nothing can be learned, in peace when everything is known."""

import json

import pytest
from transformers import AutoModelForCausalLM

from tests.e2e.launch import start
from tests.students import make_constant_student

OPTIONS = {"TRAIN_BATCH_SIZE": "2", "MAX_NUM_GEN_BATCHES": "3", "TOTAL_TRAINING_STEPS": "4", "TEST_FREQ": "2"}


@pytest.fixture
def inputs(student, tmp_path):
    """A student that always answers A, and a writer of data whose right answer is given."""
    make_constant_student(student, tmp_path / "student", answer="A")

    def data(answer):
        record = {
            "type": "multiple_choice",
            "options": {"A": "rest", "B": "water"},
            "answer_idx": answer,
            "prompt": [{"role": "user", "content": "fever tree"}],
        }
        path = tmp_path / f"{answer}.jsonl"
        path.write_text((json.dumps(record) + "\n") * 10)
        return {"MODEL_PATH": str(tmp_path / "student"), "TRAIN_FILE": str(path), "VAL_FILE": str(path)}

    return data


def test_all_wrong_stops_with_the_weights_saved(inputs, tmp_path):
    run = start(tmp_path / "runs", **OPTIONS, **inputs("B")).finish()
    assert run.code == 3, run.tell()
    assert "6 prompts gave no batch of 2" in run.stdout
    assert "6 all_wrong" in run.stdout and "ENABLE_FILTER_GROUPS=False" in run.stdout
    (checkpoint,) = run.facts()["checkpoints"]
    assert checkpoint["step"] == 0
    AutoModelForCausalLM.from_pretrained(checkpoint["model_dir"])
    assert run.processes() == []


@pytest.mark.slow
def test_all_right_ends_normally_saved_and_validated(inputs, tmp_path):
    run = start(tmp_path / "runs", **OPTIONS, **inputs("A")).finish()
    assert run.code == 0, run.tell()
    assert "every answer is right" in run.stdout
    (checkpoint,) = run.facts()["checkpoints"]
    assert checkpoint["validation_accuracy"] == 1.0
