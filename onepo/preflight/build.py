"""The verl build and the device."""

import os
from collections.abc import Iterator

import torch
import verl
from omegaconf import DictConfig

from onepo.compat import PINNED_COMMIT, RELEASE, verl_commit


def verl_build_problems() -> Iterator[str]:
    if verl.__version__ == RELEASE:
        return
    commit = verl_commit()
    if commit != PINNED_COMMIT:
        yield (
            f"verl {verl.__version__} (commit {commit or 'not recorded'}) is not a build that OnePO was made for: "
            f"install release {RELEASE} (requirements-cpu.txt) or commit {PINNED_COMMIT} (requirements.txt); "
            "its label alone does not tell, many builds have the same one"
        )


def device_problems(config: DictConfig) -> Iterator[str]:
    if config.trainer.device == "cpu" or os.environ.get("RAY_ADDRESS"):
        return  # the GPUs of a cluster need not be on this machine
    wanted, found = config.trainer.n_gpus_per_node, torch.cuda.device_count()
    if found == 0:
        yield "no GPU is visible: set DEVICE=cpu to train on the CPU, or check the driver and CUDA_VISIBLE_DEVICES"
    elif found < wanted:
        yield f"NGPUS_PER_NODE={wanted}, but {found} GPU(s) are visible: set it to {found}, or CUDA_VISIBLE_DEVICES"
