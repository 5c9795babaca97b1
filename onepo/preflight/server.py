"""An inference server that the run is to start: everything about it that can be known before."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from omegaconf import DictConfig

from onepo.errors import UserError
from onepo.preflight.weights import weight_problems
from onepo.servers.local import ServerNames
from onepo.servers.ports import port_holder
from onepo.settings import ServerSettings

_LOCAL = ("127.0.0.1", "localhost", "::1", "0.0.0.0", "::")


def server_model_problems(server: ServerSettings, names: ServerNames) -> Iterator[str]:
    """What is wrong with the directory of its model."""
    option = names.options
    path = f"{option['path']}={server.path}"
    if not Path(server.path).is_dir():
        yield f"{path} is not an existing directory: give a local one, nothing is downloaded"
    elif not Path(server.path, "config.json").is_file():
        yield f"{path}: is not a model directory, it has no config.json"
    else:
        try:
            yield from weight_problems(Path(server.path), option["path"])
        except UserError as error:
            yield f"{path}: {error}"


def server_problems(config: DictConfig, server: ServerSettings, names: ServerNames) -> Iterator[str]:
    """Why a managed server could not be started, or not be reached, whatever its model."""
    option = names.options
    if server.chat_template and not Path(server.chat_template).is_file():
        yield f"{option['chat_template']}={server.chat_template} is not an existing file"
    try:
        shlex.split(server.extra_args)
    except ValueError as error:
        yield f"{option['extra_args']}={server.extra_args}: cannot be split into words: {error}"
    try:
        holder = port_holder(server.host, server.port)
    except OSError as error:
        yield (f"{option['host']}={server.host}, {option['port']}={server.port}: no server can listen there ({error})")
    else:
        if holder:
            reuse = names.reuse.format(address="ADDRESS", backend=server.backend, name="NAME")
            yield (
                f"{option['port']}={server.port} is in use by {holder}: stop it or set another port; if that is "
                f"{names.who}, use it with {reuse}"
            )
    nodes = max(config.trainer.nnodes, config.actor_rollout_ref.rollout.nnodes)
    if nodes > 1 and server.host in _LOCAL:
        yield (
            f"{option['host']}={server.host} cannot be reached from other machines, and the run is on {nodes}: "
            "set it to the address that this machine has for them"
        )
    yield from _engine(server, names)
    if config.trainer.device != "cpu":
        yield from gpu_problems(config, server, names)


def _engine(server: ServerSettings, names: ServerNames) -> Iterator[str]:
    python, module = server.python or sys.executable, server.backend  # the engines' modules have their names
    option = names.options["python"]
    whose = f"{option}={python}" if server.python else f"the Python of the run, {python},"
    lookup = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    try:
        missing = subprocess.run([python, "-c", lookup], capture_output=True, timeout=60).returncode != 0
    except (OSError, subprocess.TimeoutExpired) as error:
        yield f"{option}={python} cannot be run ({error}): give ENVIRONMENT/bin/python"
        return
    if missing:
        yield (
            f"{whose} has no {module}, with which {names.who} is served ({names.options['backend']}={server.backend}): "
            f"set {option} to the Python of an environment that has it"
        )


def gpu_problems(config: DictConfig, server: ServerSettings, names: ServerNames) -> Iterator[str]:
    option = names.options
    named = server.gpus.split(",") if server.gpus else None
    visible = len(set(named)) if named else torch.cuda.device_count()
    needed = server.dp * server.tp
    if needed > visible:
        where = f"{option['gpus']}={server.gpus} names {visible}" if named else f"{visible} GPU(s) are visible"
        yield (
            f"{option['dp']}={server.dp} x {option['tp']}={server.tp} need {needed} GPUs, and {where}: lower them "
            "or add GPUs"
        )
    of_the_run = os.environ.get("CUDA_VISIBLE_DEVICES")
    shared = named is None or of_the_run is None or bool(set(named) & set(of_the_run.split(",")))
    rollout = config.actor_rollout_ref.rollout.gpu_memory_utilization
    if shared and rollout + server.mem_fraction >= 1:
        advice = "give the run others with CUDA_VISIBLE_DEVICES"
        if not named:
            advice = f"name others with {option['gpus']}, and the run's own with CUDA_VISIBLE_DEVICES"
        yield (
            f"{names.rollout_share}={rollout} and {option['mem_fraction']}={server.mem_fraction} together "
            f"leave nothing of the GPUs that they share: lower one of them, or {advice}"
        )
