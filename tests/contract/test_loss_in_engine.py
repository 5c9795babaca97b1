"""verl's real learner engine computes the pure loss and its gradient, on one and two ranks, in any micro-batches."""

import json
import os
import socket
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM

from onepo.algorithms.losses import onepo_policy_loss
from tests.contract.engine_rank import CLIP, FLOOR, make_rows


@pytest.fixture(scope="module")
def expected(student):
    """Loss and gradient norm of the whole batch, by plain torch."""
    model = AutoModelForCausalLM.from_pretrained(student, dtype=torch.float32)
    rows = make_rows(model.config.vocab_size)
    width = max(len(row["responses"]) for row in rows)

    def pad(values):
        return torch.stack([torch.nn.functional.pad(value, (0, width - len(value))) for value in values])

    log_probs = []
    for row in rows:
        logits = model(row["input_ids"][None]).logits[0, len(row["prompts"]) - 1 : -1]
        log_probs.append(torch.log_softmax(logits, -1).gather(1, row["responses"][:, None])[:, 0])
    loss, metrics = onepo_policy_loss(
        log_prob=pad(log_probs),
        old_log_prob=pad([row["old_log_probs"] for row in rows]),
        advantages=pad([row["advantages"] for row in rows]),
        response_mask=pad([row["response_mask"] for row in rows]),
        teacher_mask=pad([row["teacher_mask"] for row in rows]),
        probability_floor=FLOOR,
        denominator=sum(len(row["responses"]) for row in rows),
        **CLIP,
    )
    loss.backward()
    assert metrics["onepo/floored_tokens"] > 0 and metrics["onepo/clipped_tokens"] > 0
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
    return {"loss": loss.item(), "grad_norm": norm.item()}


@pytest.mark.parametrize(("ranks", "micro_batch_size"), [(1, 8), (2, 1)])
def test_the_engine_computes_the_pure_loss(student, expected, ranks, micro_batch_size):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.contract.engine_rank", str(student), str(micro_batch_size)],
            env={
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    outputs = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0] * ranks, outputs
    computed = json.loads(outputs[0][0].splitlines()[-1])
    assert computed == pytest.approx(expected, rel=1e-5)
