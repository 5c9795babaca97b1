"""Values of two episodes, packed into one row and each alone: ``python -m tests.contract.packed_critic MODEL``.

A process of its own: verl's patch, which it needs, changes the model's classes for everything else in it.
"""

import json
import sys
from inspect import signature

import torch
from transformers import AutoConfig, AutoModelForTokenClassification
from verl.models.transformers.monkey_patch import apply_monkey_patch

from camp.rl.critic import provide_qwen3_5


def main(folder: str) -> None:
    provide_qwen3_5()
    config = AutoConfig.from_pretrained(folder)
    config.num_labels = 1
    torch.manual_seed(0)
    critic = AutoModelForTokenClassification.from_pretrained(folder, config=config, attn_implementation="sdpa").eval()
    apply_monkey_patch(critic, use_remove_padding=True)
    ids = torch.randint(0, 200, (1, 12))
    positions = torch.cat([torch.arange(5), torch.arange(7)])[None, None].expand(4, 1, -1)
    ends = torch.tensor([0, 5, 12])

    def values(begin: int, end: int, **packed: torch.Tensor) -> torch.Tensor:
        part = {"input_ids": ids[:, begin:end], "position_ids": positions[..., begin:end]}
        return critic(**part, attention_mask=None, use_cache=False, **packed).logits

    with torch.no_grad():
        packed = values(0, 12, cu_seqlens=ends, cu_seqlens_cpu=ends)
        alone = torch.cat([values(0, 5), values(5, 12)], dim=1)
        leaking = values(0, 12)
    found = {
        "named": "cu_seqlens" in signature(critic.forward).parameters,
        "arrive": not torch.equal(packed, leaking),
        "packed": float((packed - alone).abs().max()),
        "leaking": float((leaking - alone).abs().max()),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
