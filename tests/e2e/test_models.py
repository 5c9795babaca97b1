"""Students of other model types than the quickstart's Llama (test_onepo.py) and Qwen3 (test_slow_runs.py)."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageTextToText
from verl.utils import hf_processor

from tests.e2e.launch import start
from tests.students import add_processor, make_qwen3_5_student

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("processor", [False, True], ids=["text only", "with a processor"])
def test_a_qwen3_5_student_of_random_weights_trains(tmp_path, processor):
    """Linear attention, and several position axes with a processor: rollout and learner agree, and it exports."""
    student = tmp_path / "student"
    make_qwen3_5_student(student)
    if processor:
        pytest.importorskip("torchvision", reason="transformers' processor of Qwen3.5 imports it")
        add_processor(student)
        assert type(hf_processor(student)).__name__ == "Qwen3VLProcessor"  # else verl would go on without it
    run = start(
        tmp_path / "runs",
        MODEL_PATH=str(student),
        MAX_PROMPT_LENGTH="128",
        MAX_RESPONSE_LENGTH="80",
        TOTAL_TRAINING_STEPS="2",
        TEST_FREQ="2",
        ENABLE_FILTER_GROUPS="False",
    ).finish()
    assert run.code == 0, run.tell()
    assert "responses are generated without it" not in (run.run_dir / "logs" / "train.log").read_text()
    for record in run.metrics():
        assert record["training/rollout_probs_diff_max"] < 1e-4
        assert record["rollout_corr/log_ppl_abs_diff"] < 1e-4
        assert record["onepo/teacher_replaced"] == 4
        assert record["onepo/groups_failed"] == 0  # though such a student writes placeholders of images, too
        assert record["actor/grad_norm"] > 0
    (checkpoint,) = run.facts()["checkpoints"]
    before = AutoModelForImageTextToText.from_pretrained(student).state_dict()
    assert (Path(checkpoint["model_dir"]) / "processor_config.json").exists() == processor
    model, loading = AutoModelForImageTextToText.from_pretrained(checkpoint["model_dir"], output_loading_info=True)
    assert model.config.model_type == "qwen3_5"
    assert not any(loading.values())  # names that are missing, unexpected or of another shape
    name = "model.language_model.layers.0.input_layernorm.weight"  # begins at 0, which no rounding changes
    assert not torch.equal(model.state_dict()[name].float(), before[name].float())
