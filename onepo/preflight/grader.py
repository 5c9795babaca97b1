"""The grader of open-ended records: everything about it that can be known before it is started or asked."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from omegaconf import DictConfig

from onepo.endpoints.address import plain_address_problem
from onepo.errors import UserError
from onepo.preflight.weights import weight_problems
from onepo.rewards.template import load_template
from onepo.servers.ports import port_holder
from onepo.settings import RewardServerSettings, Settings

_LOCAL = ("127.0.0.1", "localhost", "::1", "0.0.0.0", "::")


def grader_problems(config: DictConfig, settings: Settings, open_ended: int) -> Iterator[str]:
    """Problems of the grader; only asked for when there are ``open_ended`` records."""
    try:
        load_template(settings.grader.prompt_file)
    except UserError as error:
        yield str(error)
    if settings.reward_server.start:
        yield from _managed(config, settings, open_ended)
    else:
        yield from _external(settings, open_ended)


def _external(settings: Settings, open_ended: int) -> Iterator[str]:
    given = {"REWARD_MODEL_URL": settings.grader.url, "REWARD_MODEL_NAME": settings.grader.name}
    if missing := [option for option, value in given.items() if not value]:
        yield (
            f"{open_ended} records are open-ended and need a grader: with START_REWARD_SERVER=0 set "
            f"{' and '.join(missing)}"
        )
    elif problem := plain_address_problem(settings.grader.url):
        yield f"REWARD_MODEL_URL: {problem}; a key goes into REWARD_MODEL_API_KEY"


def _managed(config: DictConfig, settings: Settings, open_ended: int) -> Iterator[str]:
    server = settings.reward_server
    if settings.grader.url:
        yield (
            f"REWARD_MODEL_URL={settings.grader.url} names a grader that runs already, and START_REWARD_SERVER=1 "
            "starts one: set START_REWARD_SERVER=0 to use it, or leave REWARD_MODEL_URL empty"
        )
        return
    if not server.path:
        yield (
            f"{open_ended} records are open-ended and need a grader: set REWARD_MODEL_PATH to its model, or "
            "START_REWARD_SERVER=0 with REWARD_MODEL_URL and REWARD_MODEL_NAME of one that runs already"
        )
        return
    if not Path(server.path).is_dir():
        yield f"REWARD_MODEL_PATH={server.path} is not an existing directory: give a local one, nothing is downloaded"
    elif not Path(server.path, "config.json").is_file():
        yield f"REWARD_MODEL_PATH={server.path}: is not a model directory, it has no config.json"
    else:
        try:
            yield from weight_problems(Path(server.path), "REWARD_MODEL_PATH")
        except UserError as error:
            yield f"REWARD_MODEL_PATH={server.path}: {error}"
    if server.chat_template and not Path(server.chat_template).is_file():
        yield f"REWARD_MODEL_CHAT_TEMPLATE={server.chat_template} is not an existing file"
    try:
        shlex.split(server.extra_args)
    except ValueError as error:
        yield f"REWARD_MODEL_EXTRA_ARGS={server.extra_args}: cannot be split into words: {error}"
    try:
        holder = port_holder(server.host, server.port)
    except OSError as error:
        yield f"REWARD_SERVER_HOST={server.host}, REWARD_MODEL_PORT={server.port}: no server can listen there ({error})"
    else:
        if holder:
            yield (
                f"REWARD_MODEL_PORT={server.port} is in use by {holder}: stop it or set another port; a grader that "
                "runs already is used with START_REWARD_SERVER=0, REWARD_MODEL_URL and REWARD_MODEL_NAME"
            )
    if config.trainer.nnodes > 1 and server.host in _LOCAL:
        yield (
            f"REWARD_SERVER_HOST={server.host} cannot be reached from other machines (NNODES={config.trainer.nnodes}): "
            "set it to the address that this machine has for them"
        )
    yield from _engine(server)
    if config.trainer.device != "cpu":
        yield from _gpus(config, server)


def _engine(server: RewardServerSettings) -> Iterator[str]:
    python, module = server.python or sys.executable, server.backend  # the engines' modules have their names
    whose = f"REWARD_SERVER_PYTHON={python}" if server.python else f"the Python of the run, {python},"
    lookup = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    try:
        missing = subprocess.run([python, "-c", lookup], capture_output=True, timeout=60).returncode != 0
    except (OSError, subprocess.TimeoutExpired) as error:
        yield f"REWARD_SERVER_PYTHON={python} cannot be run ({error}): give ENVIRONMENT/bin/python"
        return
    if missing:
        yield (
            f"{whose} has no {module}, with which the grader is served (REWARD_SERVER_BACKEND={server.backend}): set "
            "REWARD_SERVER_PYTHON to the Python of an environment that has it"
        )


def _gpus(config: DictConfig, server: RewardServerSettings) -> Iterator[str]:
    named = server.gpus.split(",") if server.gpus else None
    visible = len(set(named)) if named else torch.cuda.device_count()
    needed = server.dp * server.tp
    if needed > visible:
        where = f"REWARD_MODEL_GPUS={server.gpus} names {visible}" if named else f"{visible} GPU(s) are visible"
        yield (
            f"REWARD_MODEL_DP={server.dp} x REWARD_MODEL_TP={server.tp} need {needed} GPUs, and {where}: lower them "
            "or add GPUs"
        )
    of_the_run = os.environ.get("CUDA_VISIBLE_DEVICES")
    shared = named is None or of_the_run is None or bool(set(named) & set(of_the_run.split(",")))
    rollout = config.actor_rollout_ref.rollout.gpu_memory_utilization
    if shared and rollout + server.mem_fraction >= 1:
        advice = "give the run others with CUDA_VISIBLE_DEVICES" if named else "name others with REWARD_MODEL_GPUS"
        yield (
            f"ROLLOUT_GPU_MEMORY_UTILIZATION={rollout} and REWARD_MODEL_MEM_FRACTION={server.mem_fraction} together "
            f"leave nothing of the GPUs that they share: lower one of them, or {advice}"
        )
