"""Options that cannot work, alone or together."""

import math
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from warnings import catch_warnings, simplefilter

from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config
from verl.utils.tracking import Tracking

from onepo.rewards.manager import SCORES
from onepo.settings import Settings
from onepo.trainers.schedule import validation_is_on

# other values would change what is learned, or leave the run without weights, without an error
_FIXED = {
    "trainer.use_v1": True,
    "trainer.v1.trainer_mode": "onepo_sync",
    "trainer.resume_mode": "disable",
    "algorithm.adv_estimator": "onepo_group",
    "algorithm.rollout_correction.bypass_mode": False,
    "actor_rollout_ref.actor.loss_agg_mode": "token-mean",
    "actor_rollout_ref.actor.checkpoint.async_save": False,
    "actor_rollout_ref.model.lora_rank": 0,  # verl would leave adapters under the names of whole weights
    "actor_rollout_ref.model.lora.rank": 0,
    "actor_rollout_ref.rollout.calculate_log_probs": True,
}
_LOGGER_PACKAGES = ("swanlab", "wandb", "mlflow", "tensorboard", "clearml", "trackio")


def fixed_key_problems(config: DictConfig) -> Iterator[str]:
    """Keys of verl that the recipe is built on: another value would change it silently or fail late."""
    for key, value in _FIXED.items():
        found = OmegaConf.select(config, key, default=value)
        if found != value:
            yield f"{key}={found}: OnePO needs {value}"
    engines = ("transformers",) if config.trainer.device == "cpu" else ("sglang", "vllm")
    if config.actor_rollout_ref.rollout.name not in engines:
        yield f"INFER_BACKEND={config.actor_rollout_ref.rollout.name}: on this device it is {' or '.join(engines)}"
    if "hf_model" not in config.actor_rollout_ref.actor.checkpoint.save_contents:
        yield "actor_rollout_ref.actor.checkpoint.save_contents: must contain hf_model, the weights that a run leaves"


def option_problems(config: DictConfig, settings: Settings) -> Iterator[str]:
    data, actor, rollout = config.data, config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    ranks = config.trainer.n_gpus_per_node * config.trainer.nnodes // actor.ulysses_sequence_parallel_size
    if data.train_batch_size % actor.ppo_mini_batch_size:
        yield (
            f"TRAIN_BATCH_SIZE={data.train_batch_size} is not a multiple of "
            f"PPO_MINI_BATCH_SIZE={actor.ppo_mini_batch_size}: the batch is cut into equal mini-batches"
        )
    if ranks < 1 or (actor.ppo_mini_batch_size * rollout.n) % ranks:
        yield (
            f"PPO_MINI_BATCH_SIZE x ROLLOUT_N = {actor.ppo_mini_batch_size * rollout.n} responses cannot be shared "
            f"equally by {ranks} learner(s) (NGPUS_PER_NODE x nodes / SP_SIZE)"
        )
    if ranks >= 1 and not actor.use_dynamic_bsz:
        for option, micro, rows in (
            ("PPO_MICRO_BATCH_SIZE_PER_GPU", actor.ppo_micro_batch_size_per_gpu, actor.ppo_mini_batch_size * rollout.n),
            (
                "LOG_PROB_MICRO_BATCH_SIZE_PER_GPU",
                rollout.log_prob_micro_batch_size_per_gpu,
                data.train_batch_size * rollout.n,
            ),
        ):
            if (rows // ranks) % micro:
                yield (
                    f"{option}={micro} does not divide the {rows // ranks} responses of a learner ({rows} responses, "
                    f"{ranks} learner(s)): set {math.gcd(rows // ranks, micro)}, or USE_DYNAMIC_BSZ=True"
                )
    if settings.enable_overlong_buffer and settings.overlong_buffer_len >= data.max_response_length:
        yield (
            f"OVERLONG_BUFFER_LEN={settings.overlong_buffer_len} leaves no response without a penalty: it must be "
            f"below MAX_RESPONSE_LENGTH={data.max_response_length}, or set ENABLE_OVERLONG_BUFFER=False"
        )
    learners = config.trainer.n_gpus_per_node * config.trainer.nnodes
    if learners % rollout.tensor_model_parallel_size:
        yield f"ROLLOUT_TP={rollout.tensor_model_parallel_size} does not divide {learners} GPU(s)"
    longest = data.max_prompt_length + data.max_response_length
    room = actor.ppo_max_token_len_per_gpu * actor.ulysses_sequence_parallel_size
    if actor.use_dynamic_bsz and room < longest:
        yield (
            f"PPO_MAX_TOKEN_LEN_PER_GPU={actor.ppo_max_token_len_per_gpu} (x SP_SIZE) is below MAX_PROMPT_LENGTH + "
            f"MAX_RESPONSE_LENGTH = {longest}: one response would not fit"
        )
    if config.algorithm.filter_groups.metric not in SCORES:
        yield f"FILTER_GROUPS_METRIC={config.algorithm.filter_groups.metric}: must be one of {', '.join(SCORES)}"
    if settings.per_request_seeds and rollout.name == "sglang":
        yield "onepo.per_request_seeds=true: SGLang takes no seed with a request"
    if config.algorithm.rollout_correction.rollout_is is not None:
        yield "algorithm.rollout_correction.rollout_is: teacher tokens have no importance weights; leave it null"
    yield from logger_problems(config)
    trainer = config.trainer
    validates = validation_is_on(trainer.test_freq, settings.test_steps, trainer.val_before_train)
    if validates and not data.val_files:
        yield "VAL_FILE is not set, but validation is on: set it, or TEST_FREQ=0 TEST_STEPS=[] VAL_BEFORE_TRAIN=False"


def endless_problems(settings: Settings) -> Iterator[str]:
    """Sampling that rewards which always fail would keep going; only for data whose rewards can fail."""
    if settings.grader.max_failure_rate == 1 and settings.max_num_gen_batches <= 0:
        yield (
            f"REWARD_MAX_FAILURE_RATE=1 never stops, and MAX_NUM_GEN_BATCHES={settings.max_num_gen_batches} samples "
            "without limit: what gives the rewards would be asked for ever once it is lost. Set one of them differently"
        )


def logger_problems(config: DictConfig) -> Iterator[str]:
    known, loggers = Tracking.supported_backend, config.trainer.logger
    for name in [loggers] if isinstance(loggers, str) else loggers:
        if name not in known:
            yield f"LOGGER: {name!r} is not one of {', '.join(known)}"
        elif name in _LOGGER_PACKAGES and find_spec(name) is None:
            yield f"LOGGER: {name!r} is not installed: {sys.executable} -m pip install {name}"


def upstream_problems(config: DictConfig) -> Iterator[str]:
    """verl's own validation, whose complaints are assertions."""
    with redirect_stdout(StringIO()), catch_warnings():  # what it prints says only that it passed
        simplefilter("ignore")
        try:
            validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
            return
        except (AssertionError, ValueError) as error:
            refusal = str(error)
    yield f"verl refuses the configuration: {refusal}"
