"""What a run's main process does with its surroundings: the launcher, the terminal, Ray, a secret."""

import ctypes
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from omegaconf import DictConfig, OmegaConf, open_dict

from onepo.errors import UserError

_BACKENDS = Path(__file__).parent / "config" / "backend"
_LONGEST_SOCKET_DIR = 30  # bytes; the launchers have the same limit


def choose_ray(config: DictConfig, private_dir: str | None) -> str | None:
    """A private Ray unless RAY_ADDRESS names a cluster; a foreign one on this machine is never joined by chance.

    Returns the directory of the private Ray, which goes when the run ends, or None.
    """
    address = os.environ.get("RAY_ADDRESS")
    with open_dict(config.ray_kwargs.ray_init):
        options = config.ray_kwargs.ray_init
        options.address = address or "local"
        if address:
            for name in ("num_cpus", "num_gpus", "include_dashboard"):  # the cluster has its own
                options.pop(name, None)
            return None
        private_dir = private_dir or tempfile.mkdtemp(prefix="onepo-", dir=_place_for_sockets())
        # Ray opens its own directory to everybody, so it gets one inside the directory that only this user can enter
        options._temp_dir = f"{private_dir}/r"
        return private_dir


def _place_for_sockets() -> str:
    """Where temporary files go, unless its name leaves no room for those of Ray's sockets in a path of 107 bytes."""
    place = tempfile.gettempdir()
    return place if len(os.fsencode(place)) <= _LONGEST_SOCKET_DIR else "/tmp"


def chosen_device(overrides: Sequence[str]) -> str:
    """``gpu`` unless the Hydra overrides say otherwise."""
    return next((item.split("=", 1)[1] for item in reversed(overrides) if item.startswith("device=")), "gpu")


def set_process_environment(recipe: Path, *, device: str) -> None:
    """Give this process the variables that the Ray workers get: verl reads them while it is imported.

    Args:
        recipe: the configuration file that names the plugin.

    Raises:
        UserError: there is no such device.
    """
    backend = _BACKENDS / f"{device}.yaml"
    if not backend.exists():
        raise UserError(f"DEVICE={device} is not known: use gpu or cpu")
    for file in (recipe, backend):
        variables = OmegaConf.select(OmegaConf.load(file), "ray_kwargs.ray_init.runtime_env.env_vars")
        os.environ.update({name: str(value) for name, value in (variables or {}).items()})
    if device == "cpu":
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # Ray would count the learners' logical GPUs against it
        # Ray would give each worker one thread, and most of the time only some of them have work
        os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))


def end_with_the_launcher() -> None:
    """Let the kernel send TERM when the launcher dies, even by KILL, so that no Ray is left behind.

    Only in a process session of our own, which is how the launcher starts us: a run that somebody started by hand may
    outlive the shell.
    """
    if os.getsid(0) != os.getpid():
        return
    launcher = os.getppid()
    parent_death_signal = 1  # PR_SET_PDEATHSIG of prctl(2)
    ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGTERM)
    if os.getppid() != launcher:  # it died before the kernel knew
        sys.exit(143)


def keep_terminal(log: Path) -> TextIO:
    """Send this process's output, and with it Ray's and verl's, to the log; return the terminal it had."""
    sys.stdout.flush()
    sys.stderr.flush()
    terminal = os.fdopen(os.dup(1), "w", encoding="utf-8")
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)
    return terminal


def take_secret(variable: str) -> str:
    """The value of a variable, "" without one, and out of the environment with it: no process is to inherit it."""
    return os.environ.pop(variable, "")


def keep_secret(secret: str, file: Path) -> Path:
    """Write a secret where only this user can read it. Workers get the path.

    In the configuration or in Ray's runtime environment it would show in dumps and command lines.
    """
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(secret)
    return file
