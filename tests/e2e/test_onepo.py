"""``bash OnePO.sh`` on the CPU: two real steps, looked at from all sides."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.e2e.launch import start
from tests.students import make_base_student


@pytest.fixture(scope="module")
def base_student(student, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "student of a base model"
    make_base_student(student, folder)
    return folder


@pytest.fixture(scope="module")
def run(base_student, tmp_path_factory):
    """A run in a directory with a long name, blanks and a comma; the student is a base model."""
    output_dir = tmp_path_factory.mktemp("runs") / f"a, b {'x' * 150}"
    ray_dirs = set(Path("/tmp").glob("onepo-*"))
    launch = start(
        output_dir,
        MODEL_PATH=str(base_student),
        TOTAL_TRAINING_STEPS="2",
        TEST_FREQ="0",
        TEST_STEPS="[1]",
        SAVE_FREQ="1",
        MAX_ACTOR_CHECKPOINTS="1",
        ENABLE_FILTER_GROUPS="False",
        VAL_BEFORE_TRAIN="True",
    ).finish()
    assert launch.code == 0, launch.tell()
    launch.left_behind = [*launch.processes(), *(set(Path("/tmp").glob("onepo-*")) - ray_dirs)]
    return launch


def test_nothing_is_left_behind(run):
    assert run.left_behind == []


def test_the_terminal_is_readable(run):
    lines = run.stdout.splitlines()
    assert sum(line.startswith("step 1/2  reward ") for line in lines) == 1
    assert sum(line.startswith("step 2/2  reward ") for line in lines) == 1
    assert "1600 training prompts, 1600 of them with a teacher response, and 64 validation prompts" in run.stdout
    assert "the final step is 2 (from TOTAL_TRAINING_STEPS" in run.stdout
    assert not [line for line in lines if "pid=" in line or "WARNING" in line]
    assert len(lines) < 25
    assert "Traceback" not in run.stdout + run.stderr
    assert "pid=" in (run.run_dir / "logs" / "train.log").read_text()  # there, the workers' output is


def test_the_metrics_file_tells_both_steps(run):
    before, *steps = run.metrics()
    assert before["step"] == 0 and 0 <= before["validation/acc"] <= 1
    assert [record["step"] for record in steps] == [1, 2]
    for record in steps:
        assert record["onepo/teacher_candidates"] == 4
        assert record["onepo/retirement_rate"] == 1 - record["onepo/teacher_replaced"] / 4
        # a random student is never right: all four groups take the teacher's response, 9 words and the end each
        assert record["onepo/teacher_replaced"] == 4 and record["onepo/teacher_failures"] == 0
        assert record["onepo/teacher_acc"] == 1.0
        assert record["onepo/teacher_tokens"] == pytest.approx(40)
        assert record["onepo/floored_tokens"] == pytest.approx(40)  # each about 1/256 likely
        assert record["onepo/rescaled_tokens"] == pytest.approx(
            40
        )  # better than its group, so its advantage is positive
        trained = 16 * record["response_length/mean"]
        assert record["onepo/teacher_token_fraction"] == pytest.approx(40 / trained)
        assert 0 < record["actor/grad_norm"] < 100
        assert record["onepo/groups_mixed"] == 4
        # rollout and learner compute the same log-probabilities
        assert record["training/rollout_probs_diff_max"] < 1e-4
        assert record["rollout_corr/log_ppl_abs_diff"] < 1e-4
        assert record["training/rollout_actor_probs_pearson_corr"] > 0.9999
    assert [("validation/acc" in record) for record in steps] == [True, True]  # by the list, and at the end


def test_the_first_step_starts_where_the_student_was(run):
    assert run.metrics()[1]["onepo/student_acc"] == 0.0
    assert run.metrics()[1]["reward/acc"] == pytest.approx(1 / 4)  # one of four rollouts gave way to the teacher


def test_the_checkpoint_is_a_hugging_face_model(run, base_student):
    (checkpoint,) = (run.run_dir / "checkpoints").iterdir()  # one is kept, nothing unfinished is left
    assert checkpoint.name == "global_step_2"
    folder = checkpoint / "actor" / "huggingface"
    trained = AutoModelForCausalLM.from_pretrained(folder)
    assert trained.dtype == torch.float32  # as it was trained, without being asked for
    student = AutoModelForCausalLM.from_pretrained(base_student, dtype=torch.float32)
    changed = [(a - b).abs().max() for a, b in zip(trained.parameters(), student.parameters(), strict=True)]
    assert 1e-5 < max(changed) < 0.1
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": "fever"}], add_generation_prompt=True)[
        "input_ids"
    ]
    assert trained.generate(torch.tensor([prompt]), max_new_tokens=3).shape[1] > len(prompt)
    assert json.loads((checkpoint / "retirement.json").read_text())["disabled_reason"] is None


def test_a_base_model_learns_to_stop_where_its_template_does(run, base_student):
    tokenizer = AutoTokenizer.from_pretrained(base_student)
    end = tokenizer.convert_tokens_to_ids("<eos>")
    assert tokenizer.eos_token_id != end
    assert "'<eos>'" in run.stdout  # said on the terminal
    folder = next((run.run_dir / "checkpoints").iterdir()) / "actor" / "huggingface"
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == sorted(
        [end, tokenizer.eos_token_id]
    )


def test_validation_generations_are_kept(run):
    files = sorted((run.run_dir / "validation").glob("*.jsonl"))
    assert [file.name for file in files] == ["0.jsonl", "1.jsonl", "2.jsonl"]
    for file in files:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        assert len(rows) == 64
        assert {"input", "output", "gts", "score", "acc"} <= set(rows[0])


def test_the_end_names_the_checkpoint_its_score_and_how_to_serve_it(run):
    folder = str(run.facts()["checkpoints"][0]["model_dir"])
    assert Path(folder).is_dir()
    assert folder in run.stdout
    assert "checkpoint of step 2, validation accuracy" in run.stdout
    assert "Hugging Face model directory" in run.stdout


def test_the_run_describes_itself(run, base_student):
    facts = run.facts()
    assert facts["exit_code"] == 0 and facts["reason"] == "finished"
    assert facts["student"] == str(base_student)
    assert facts["packages"]["verl"]
    config = (run.run_dir / "config" / "config.yaml").read_text()
    assert "probability_floor: 0.1" in config and "${" not in config
