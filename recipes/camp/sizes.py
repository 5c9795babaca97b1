"""Whether the numbers of a training fit to each other, to its schedule and to its student."""

import math
from collections.abc import Iterator

from omegaconf import DictConfig, OmegaConf

from camp.routes import Routes
from camp.schedule import ScheduledEpisode, most_under_way
from onepo.preflight.student import positions_of

_ACTOR_ROOM = "actor_rollout_ref.actor.ppo_max_token_len_per_gpu"
_CRITIC_ROOM = "critic.ppo_infer_max_token_len_per_gpu"
_COUNTS = (
    "data.train_batch_size",
    "data.max_prompt_length",
    "data.max_response_length",
    "trainer.total_training_steps",
    "trainer.save_freq",
    "trainer.n_gpus_per_node",
    "trainer.nnodes",
    "actor_rollout_ref.rollout.n_gpus_per_node",
    "actor_rollout_ref.rollout.nnodes",
    "actor_rollout_ref.rollout.tensor_model_parallel_size",
    _ACTOR_ROOM,
)
_TEACHERS_TP = "distillation.teacher_models.teacher_model.inference.tensor_model_parallel_size"
_OF_TEACHERS = ("distillation.n_gpus_per_node", "distillation.nnodes", _TEACHERS_TP)
_WARMUP = "trainer.v1.separate_async.num_warmup_batches"

LAUNCHER_OPTIONS = {
    "actor_rollout_ref.rollout.tensor_model_parallel_size": "ROLLOUT_TP",
    "actor_rollout_ref.rollout.n_gpus_per_node": "SAMPLER_GPUS",
    "actor_rollout_ref.rollout.temperature": "TEMPERATURE",
    "camp.max_staleness": "MAX_STALENESS",
    "distillation.n_gpus_per_node": "TEACHER_GPUS",
    "data.max_prompt_length": "MAX_PROMPT_LENGTH",
    "data.max_response_length": "MAX_RESPONSE_LENGTH",
    "data.train_batch_size": "EPISODES_PER_UPDATE",
    "trainer.n_gpus_per_node": "LEARNER_GPUS",
    "trainer.save_freq": "SAVE_FREQ",
    "trainer.total_training_steps": "TOTAL_UPDATES",
    _WARMUP: "WARMUP_BATCHES",
    _ACTOR_ROOM: "PPO_MAX_TOKEN_LEN_PER_GPU",
}


def setting(key: str, *value: object) -> str:
    """A setting, with its value if that is given, as people know it who use the launcher, and those who do not."""
    told = "=".join([key, *map(str, value)])
    return f"{told} ({option})" if (option := LAUNCHER_OPTIONS.get(key)) else told


def count_problems(config: DictConfig) -> Iterator[str]:
    """Whether the numbers are some; what they have to do with each other is asked afterwards."""
    of_teachers = _OF_TEACHERS if config.distillation.enabled else ()
    for key in (*_COUNTS, *of_teachers):
        value = OmegaConf.select(config, key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            yield f"{setting(key, value)}: must be a whole number of at least 1"
    warmup = OmegaConf.select(config, _WARMUP)
    if not isinstance(warmup, (int, float)) or isinstance(warmup, bool) or not 0 <= warmup < math.inf:
        yield f"{setting(_WARMUP, warmup)}: must be a number of at least 0"


def engine_problems(config: DictConfig) -> Iterator[str]:
    rollout, key = config.actor_rollout_ref.rollout, "actor_rollout_ref.rollout.tensor_model_parallel_size"
    for name, count in (
        ("learners", config.trainer.n_gpus_per_node * config.trainer.nnodes),  # which hold verl's own copies
        ("samplers", rollout.n_gpus_per_node * rollout.nnodes),
    ):
        if count % rollout.tensor_model_parallel_size:
            yield f"{setting(key, rollout.tensor_model_parallel_size)} does not divide the {count} {name}"
    if (teachers := config.distillation).enabled:
        size, count = OmegaConf.select(config, _TEACHERS_TP), teachers.n_gpus_per_node
        if count * teachers.nnodes % size:
            yield f"{_TEACHERS_TP}={size} does not divide {setting('distillation.n_gpus_per_node', count)}"


def schedule_problems(
    config: DictConfig, routes: Routes, schedule: list[ScheduledEpisode], *, max_staleness: int
) -> Iterator[str]:
    size = config.data.train_batch_size
    if len(schedule) < size:
        yield (
            f"--schedule: has {len(schedule)} episodes, fewer than the {size} of one update: "
            f"{setting('data.train_batch_size')}"
        )
    warmup = OmegaConf.select(config, _WARMUP)
    if max_staleness < warmup:
        yield (
            f"{setting('camp.max_staleness', max_staleness)} is below the {warmup} batch(es) that are under way beside "
            f"an update's, {setting(_WARMUP)}: the last of them would be too old"
        )
    under_way = most_under_way(size, warmup)
    for name, route in routes.domains.items():
        if route.managed is not None and route.managed.sessions < under_way:
            yield (
                f"domain {name}: its service is to have {route.managed.sessions} sessions, and {under_way} episodes "
                f"may be under way at one time: make routes with --episodes {size} --warmup {warmup:g}"
            )
    longest = max(row.turn_tokens for row in schedule)
    if longest > config.data.max_response_length:
        yield (
            f"a turn may have {longest} tokens by the schedule, and a whole episode only "
            f"{setting('data.max_response_length', config.data.max_response_length)}: raise it, or make a schedule "
            "with a smaller --turn-tokens"
        )


def context_problems(config: DictConfig) -> Iterator[str]:
    longest, told = _longest(config)
    positions = positions_of(config)
    if positions is not None and longest > positions:
        yield f"{told}, and the student has {positions} positions (max_position_embeddings in its config.json)"


def micro_batch_problems(config: DictConfig) -> Iterator[str]:
    longest, told = _longest(config)
    for key in (_ACTOR_ROOM, _CRITIC_ROOM):
        room = OmegaConf.select(config, key)  # None without a critic
        if room is not None and room < longest:
            yield f"{setting(key, room)} is below {told}: one episode would not fit into a micro-batch"


def _longest(config: DictConfig) -> tuple[int, str]:
    """Tokens of an episode, and how they come about."""
    longest = config.data.max_prompt_length + config.data.max_response_length
    return longest, f"{setting('data.max_prompt_length')} + {setting('data.max_response_length')} = {longest}"
