"""The smallest and largest values of verl's options that the launcher exposes."""

import math
from collections.abc import Iterator

from omegaconf import DictConfig, OmegaConf

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
_COUNT = (1, math.inf)
# (option, key, whole number?, (smallest, largest))
_RANGES = (
    ("TRAIN_BATCH_SIZE", "data.train_batch_size", True, _COUNT),
    ("PPO_MINI_BATCH_SIZE", f"{_ACTOR}.ppo_mini_batch_size", True, _COUNT),
    ("ROLLOUT_N", f"{_ROLLOUT}.n", True, (2, 4096)),  # one response has nothing to be compared with
    ("ACTOR_LR", f"{_ACTOR}.optim.lr", False, (0, 1)),
    ("WEIGHT_DECAY", f"{_ACTOR}.optim.weight_decay", False, (0, 1)),
    ("LR_WARMUP_STEPS", f"{_ACTOR}.optim.lr_warmup_steps", True, (0, math.inf)),
    ("MAX_PROMPT_LENGTH", "data.max_prompt_length", True, _COUNT),
    ("MAX_RESPONSE_LENGTH", "data.max_response_length", True, _COUNT),
    ("TOTAL_EPOCHS", "trainer.total_epochs", True, _COUNT),
    ("TOTAL_TRAINING_STEPS", "trainer.total_training_steps", True, _COUNT),
    ("PPO_MICRO_BATCH_SIZE_PER_GPU", f"{_ACTOR}.ppo_micro_batch_size_per_gpu", True, _COUNT),
    ("LOG_PROB_MICRO_BATCH_SIZE_PER_GPU", f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu", True, _COUNT),
    ("PPO_MAX_TOKEN_LEN_PER_GPU", f"{_ACTOR}.ppo_max_token_len_per_gpu", True, _COUNT),
    ("DATALOADER_NUM_WORKERS", "data.dataloader_num_workers", True, (0, 1024)),
    ("NNODES", "trainer.nnodes", True, _COUNT),
    ("NGPUS_PER_NODE", "trainer.n_gpus_per_node", True, _COUNT),
    ("SP_SIZE", f"{_ACTOR}.ulysses_sequence_parallel_size", True, _COUNT),
    ("ROLLOUT_TP", f"{_ROLLOUT}.tensor_model_parallel_size", True, _COUNT),
    ("ROLLOUT_GPU_MEMORY_UTILIZATION", f"{_ROLLOUT}.gpu_memory_utilization", False, (0.01, 1)),
    ("TEST_FREQ", "trainer.test_freq", True, (-math.inf, math.inf)),
    ("SAVE_FREQ", "trainer.save_freq", True, (-math.inf, math.inf)),
    ("VAL_N", f"{_ROLLOUT}.val_kwargs.n", True, _COUNT),
    ("VAL_TEMPERATURE", f"{_ROLLOUT}.val_kwargs.temperature", False, (0, 100)),
    ("LOG_VAL_GENERATIONS", "trainer.log_val_generations", True, (0, math.inf)),
    ("actor_rollout_ref.actor.ppo_epochs", f"{_ACTOR}.ppo_epochs", True, _COUNT),
)


def range_problems(config: DictConfig) -> Iterator[str]:
    for option, key, whole, (smallest, largest) in _RANGES:
        value = OmegaConf.select(config, key)
        number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if number and smallest <= value <= largest:
            continue
        kind = "a whole number" if whole else "a number"
        bounds = [f"at least {smallest}"] if smallest > -math.inf else []
        bounds += [f"at most {largest}"] if largest < math.inf else []
        yield f"{option}={value}: must be {', '.join([kind, *bounds])}"
