"""Everything that can be checked before a process is started or a file is written.

Each check returns the problems it found, in the words of the launcher's options; all are reported together.
"""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib import metadata
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from warnings import catch_warnings, simplefilter

from omegaconf import DictConfig, OmegaConf

from onepo.compat import PINNED_COMMIT, RELEASE
from onepo.errors import UserError
from onepo.settings import Settings, parse_settings

_LOGGER_PACKAGES = ("swanlab", "wandb", "mlflow", "tensorboard", "clearml", "trackio")


def check(config: DictConfig) -> Settings:
    """Check a composed configuration, the student and the data.

    Raises:
        UserError: with one line per problem.
    """
    settings = parse_settings(OmegaConf.to_container(config.onepo, resolve=True))
    problems = [*_verl_build(), *_device(config), *_options(config, settings), *_student(config)]
    if not problems:  # these read the student's tokenizer and the data, which takes a while
        problems = [*_data(config, settings), *_upstream(config), *_disk(config, settings)]
    if problems:
        raise UserError("\n".join(problems))
    return settings


def verl_commit() -> str | None:
    """The commit that the installed verl was built from, as far as it is recorded."""
    import verl

    direct_url = metadata.distribution("verl").read_text("direct_url.json")
    if direct_url:
        commit = json.loads(direct_url).get("vcs_info", {}).get("commit_id")
        if commit:
            return commit
    head = Path(verl.__file__).parents[1] / ".git" / "HEAD"  # a source tree on PYTHONPATH
    return head.read_text().strip() if head.exists() else None


def _verl_build() -> Iterator[str]:
    import verl

    if verl.__version__ == RELEASE:
        return
    commit = verl_commit()
    if commit != PINNED_COMMIT:
        yield (
            f"verl {verl.__version__} (commit {commit or 'not recorded'}) is not a build that OnePO was made for: "
            f"install release {RELEASE} (requirements-cpu.txt) or commit {PINNED_COMMIT} (requirements.txt); "
            "other builds share the label 0.10.0.dev"
        )


def _device(config: DictConfig) -> Iterator[str]:
    if config.trainer.device == "cpu":
        return
    import torch

    wanted, found = config.trainer.n_gpus_per_node, torch.cuda.device_count()
    if found == 0:
        yield "no GPU is visible: set DEVICE=cpu to train on the CPU, or check the driver and CUDA_VISIBLE_DEVICES"
    elif found < wanted:
        yield f"NGPUS_PER_NODE={wanted}, but {found} GPU(s) are visible: set it to {found}, or CUDA_VISIBLE_DEVICES"


def _options(config: DictConfig, settings: Settings) -> Iterator[str]:
    data, actor, rollout = config.data, config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    ranks = config.trainer.n_gpus_per_node * config.trainer.nnodes // actor.ulysses_sequence_parallel_size
    if rollout.n < 2:
        yield f"ROLLOUT_N={rollout.n}: a group needs at least 2 responses to compare"
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
                    f"{ranks} learner(s)): set a divisor, or USE_DYNAMIC_BSZ=True"
                )
    if settings.enable_overlong_buffer and settings.overlong_buffer_len >= data.max_response_length:
        yield (
            f"OVERLONG_BUFFER_LEN={settings.overlong_buffer_len} leaves no response without a penalty: it must be "
            f"below MAX_RESPONSE_LENGTH={data.max_response_length}, or set ENABLE_OVERLONG_BUFFER=False"
        )
    if actor.loss_agg_mode != "token-mean":
        yield f"actor_rollout_ref.actor.loss_agg_mode={actor.loss_agg_mode}: the OnePO loss is a token mean"
    if config.algorithm.rollout_correction.rollout_is is not None:
        yield "algorithm.rollout_correction.rollout_is: teacher tokens have no importance weights; leave it null"
    yield from _loggers(config)
    validates = config.trainer.test_freq > 0 or settings.test_steps or config.trainer.val_before_train
    if validates and not data.val_files:
        yield "VAL_FILE is not set, but validation is on: set it, or TEST_FREQ=0 TEST_STEPS=[] VAL_BEFORE_TRAIN=False"


def _loggers(config: DictConfig) -> Iterator[str]:
    from verl.utils.tracking import Tracking

    known = Tracking.supported_backend
    for name in config.trainer.logger:
        if name not in known:
            yield f"LOGGER: {name!r} is not one of {', '.join(known)}"
        elif name in _LOGGER_PACKAGES and find_spec(name) is None:
            yield f"LOGGER: {name!r} is not installed: {sys.executable} -m pip install {name}"


def _student(config: DictConfig) -> Iterator[str]:
    path = Path(config.actor_rollout_ref.model.path)
    if not path.is_dir():
        yield f"MODEL_PATH={path} is not a directory"
        return
    if not (path / "config.json").exists():
        yield f"MODEL_PATH={path} has no config.json: it is not a Hugging Face model directory"
        return
    yield from _weights(path)
    if not config.actor_rollout_ref.model.trust_remote_code:
        for name in ("config.json", "tokenizer_config.json"):
            file = path / name
            if file.exists() and "auto_map" in json.loads(file.read_text()):
                # verl's reward worker would load a tokenizer's code whatever its own option says
                yield (
                    f"MODEL_PATH={path}: {name} names Python code of its own; to run it, add the override "
                    "actor_rollout_ref.model.trust_remote_code=True"
                )
                return
    try:
        tokenizer = _tokenizer(config)
    except (OSError, ValueError) as error:
        yield f"MODEL_PATH={path} has no tokenizer that can be loaded: {str(error).splitlines()[0]}"
        return
    if not tokenizer.chat_template:
        yield f"MODEL_PATH={path}: the tokenizer has no chat template (usually in chat_template.jinja)"
    if tokenizer.eos_token_id is None:
        yield f"MODEL_PATH={path}: the tokenizer has no end-of-sequence token, so responses would never end"


def _weights(path: Path) -> Iterator[str]:
    for index in (path / "model.safetensors.index.json", path / "pytorch_model.bin.index.json"):
        if index.exists():
            shards = sorted(set(json.loads(index.read_text())["weight_map"].values()))
            missing = [name for name in shards if not (path / name).exists()]
            if missing:
                yield (
                    f"MODEL_PATH={path}: {index.name} names {len(shards)} weight files, "
                    f"{len(missing)} are missing ({', '.join(missing[:3])})"
                )
            return
    if not any((path / name).exists() for name in ("model.safetensors", "pytorch_model.bin")):
        yield f"MODEL_PATH={path} has no weights (model.safetensors or an index of shards)"


def _tokenizer(config: DictConfig):
    from transformers import AutoTokenizer

    model = config.actor_rollout_ref.model
    return AutoTokenizer.from_pretrained(model.path, trust_remote_code=model.trust_remote_code)


def _data(config: DictConfig, settings: Settings) -> Iterator[str]:
    from onepo.data.lengths import count_usable
    from onepo.data.table import load_tasks

    tokenizer = _tokenizer(config)
    for option, files in (("TRAIN_FILE", config.data.train_files), ("VAL_FILE", config.data.val_files)):
        if not files:
            continue
        try:
            tasks = load_tasks(files)
        except UserError as error:
            yield f"{option}: {error}"
            continue
        open_ended = tasks.column("type").to_pylist().count("open_ended")
        if open_ended:
            yield (
                f"{option}: {open_ended} of {len(tasks)} records are open-ended and need a grader, which this version "
                "does not have yet: use multiple-choice records only"
            )
        options = config.data.apply_chat_template_kwargs or {}
        usable, _ = count_usable(tasks, tokenizer, config.data.max_prompt_length, **options)
        if option == "TRAIN_FILE" and usable < config.data.train_batch_size:
            yield (
                f"TRAIN_FILE: {usable} of {len(tasks)} prompts fit into MAX_PROMPT_LENGTH="
                f"{config.data.max_prompt_length}, fewer than TRAIN_BATCH_SIZE={config.data.train_batch_size}"
            )
        if option == "VAL_FILE" and usable == 0:
            yield f"VAL_FILE: none of {len(tasks)} prompts fits into MAX_PROMPT_LENGTH={config.data.max_prompt_length}"


def _upstream(config: DictConfig) -> Iterator[str]:
    """verl's own validation, whose complaints are assertions."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    with redirect_stdout(StringIO()), catch_warnings():  # what it prints says only that it passed
        simplefilter("ignore")
        try:
            validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
            return
        except (AssertionError, ValueError) as error:
            refusal = str(error)
    yield f"verl refuses the configuration: {refusal}"


def _disk(config: DictConfig, settings: Settings) -> Iterator[str]:
    weights = sum(file.stat().st_size for file in Path(config.actor_rollout_ref.model.path).glob("*.safetensors"))
    place = Path(config.trainer.default_local_dir)
    while not place.exists():
        place = place.parent
    needed, free = weights * (settings.max_checkpoints + 1), shutil.disk_usage(place).free
    if free < needed:
        yield (
            f"{place} has {free / 1e9:.1f} GB free, and MAX_ACTOR_CHECKPOINTS={settings.max_checkpoints} checkpoints "
            f"of this student need {needed / 1e9:.1f} GB: free some, lower it, or set OUTPUT_DIR or CHECKPOINT_DIR"
        )
