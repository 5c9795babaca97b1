"""One learner rank of verl's FSDP2 engine over gloo, for the test beside this file; started as a program of its own.

It trains one mini-batch of which each rank holds an equal part, with the loss as our trainer sends it.
"""

import json
import sys
from functools import partial
from types import SimpleNamespace

import torch
from tensordict import NonTensorStack, TensorDict

ROWS, CLIP, FLOOR = 8, {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 10.0}, 0.1


def make_rows(vocabulary: int) -> list[dict[str, torch.Tensor]]:
    """Rows of different lengths; every third is a teacher's; same on every rank."""
    generator = torch.Generator().manual_seed(5)
    rows = []
    for number in range(ROWS):
        prompt, response = 2 + number % 3, 3 + (5 * number) % 7
        ids = torch.randint(3, vocabulary, (prompt + response,), generator=generator)
        rows.append(
            {
                "prompts": ids[:prompt],
                "responses": ids[prompt:],
                "input_ids": ids,
                "position_ids": torch.arange(prompt + response),
                "response_mask": torch.ones(response, dtype=torch.int64),
                "loss_mask": torch.ones(response, dtype=torch.int64),
                "old_log_probs": -6.5 + 2.0 * torch.rand(response, generator=generator),
                "advantages": torch.full((response,), (-1.0) ** number * (1 + number / 4)),
                "teacher_mask": torch.full((response,), number % 3 == 0),
            }
        )
    return rows


def batch_of(rows: list[dict[str, torch.Tensor]], micro_batch_size: int) -> TensorDict:
    from verl.utils import tensordict_utils as tu

    fields = {name: torch.nested.as_nested_tensor([row[name] for row in rows], layout=torch.jagged) for name in rows[0]}
    fields["uid"] = NonTensorStack(*[str(number) for number in range(len(rows))])
    fields["global_steps"] = NonTensorStack(*[1] * len(rows))
    data = TensorDict(fields, batch_size=len(rows))
    tu.assign_non_tensor(
        data,
        use_dynamic_bsz=False,
        micro_batch_size_per_gpu=micro_batch_size,
        use_remove_padding=False,
        use_fused_kernels=False,
        temperature=1.0,
        calculate_entropy=False,
        global_batch_size=ROWS,
        distillation_use_topk=False,
    )
    return data


def main(model_path: str, micro_batch_size: int) -> None:
    from verl.trainer.config import CheckpointConfig
    from verl.utils import distributed
    from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
    from verl.workers.engine import EngineRegistry

    from onepo.trainers.policy_loss import onepo_loss

    distributed.initialize_global_process_group_ray()
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    float32 = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    engine = EngineRegistry.new(
        model_type="language_model",
        backend="fsdp2",
        model_config=HFModelConfig(
            path=model_path,
            use_remove_padding=False,
            enable_gradient_checkpointing=False,
            override_config={"attn_implementation": "sdpa"},
        ),
        engine_config=FSDPEngineConfig(strategy="fsdp2", mixed_precision=float32, use_torch_compile=False),
        optimizer_config=FSDPOptimizerConfig(lr=1e-3, total_training_steps=1),
        checkpoint_config=CheckpointConfig(),
    )
    engine.initialize()
    rows = make_rows(engine.module.config.vocab_size)[rank * ROWS // size : (rank + 1) * ROWS // size]
    config = SimpleNamespace(**CLIP, entropy_coeff=0, use_kl_loss=False)
    with engine.train_mode():
        output = engine.train_batch(
            batch_of(rows, micro_batch_size), loss_function=partial(onepo_loss, config, probability_floor=FLOOR)
        )
    loss = torch.tensor(output["loss"]).sum()
    torch.distributed.all_reduce(loss, op=torch.distributed.ReduceOp.AVG)
    if rank == 0:
        print(json.dumps({"loss": loss.item(), "grad_norm": float(output["metrics"]["grad_norm"])}))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
