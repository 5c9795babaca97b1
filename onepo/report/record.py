"""What stays of a run beside its weights: its directory, ``run.json``, and the lines about its checkpoints."""

import json
import os
import platform
import shlex
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from itertools import count
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

import onepo
from onepo.compat import verl_commit
from onepo.report.secrets import masked
from onepo.whole import write_whole

_PACKAGES = (
    "verl",
    "torch",
    "transformers",
    "ray",
    "TransferQueue",
    "tensordict",
    "sglang",
    "vllm",
    "flash-attn",
)


def reserve_directory(wanted: Path) -> Path:
    """Make the run's directory, under a name with a number behind it if another run of the same second was faster."""
    wanted.parent.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        directory = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        with suppress(FileExistsError):
            directory.mkdir()
            return directory
    raise AssertionError("unreachable")


def point_latest(directory: Path) -> None:
    """Let the link ``latest`` beside a run's directory name it."""
    fresh = directory.with_name(f".latest-{os.getpid()}")
    fresh.symlink_to(directory.name)
    fresh.replace(directory.with_name("latest"))


class RunRecord:
    """``run.json``: written when a run begins and again when it ends, each time as a whole.

    Args:
        directory: the run's own, which exists.
        copy_in: another directory that gets the same file.
        facts: what describes the run, as JSON values.
    """

    def __init__(self, directory: Path, *, copy_in: Path | None = None, **facts: Any):
        self.directory = directory
        self._places = [directory, *([copy_in] if copy_in else [])]
        self._lock = threading.Lock()  # some facts become known in threads
        self._facts = {
            "onepo": onepo.__version__,
            "python": platform.python_version(),
            "packages": {name: version for name in _PACKAGES if (version := _version(name)) is not None},
            "verl_commit": verl_commit(),
            **facts,
        }

    def open(self, config: DictConfig, config_dir: Path) -> None:
        """Write the resolved configuration and the facts."""
        config_dir.mkdir(parents=True, exist_ok=True)
        content = masked(OmegaConf.to_container(config, resolve=True))
        OmegaConf.save(OmegaConf.create(content), config_dir / "config.yaml")
        self._write(started=_now())

    def add(self, **facts: Any) -> None:
        """Write down what became known in the meantime."""
        self._write(**facts)

    def close(self, exit_code: int, reason: str, checkpoints: list[dict[str, Any]]) -> None:
        self._write(ended=_now(), exit_code=exit_code, reason=reason, checkpoints=checkpoints)

    def _write(self, **facts: Any) -> None:
        with self._lock:
            self._facts.update(facts)
            for place in self._places:
                write_whole(place / "run.json", json.dumps(self._facts, indent=2) + "\n")


def _version(package: str) -> str | None:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def checkpoint_lines(checkpoints: list[dict[str, Any]], *, engine: str, dtype: str) -> Iterator[str]:
    """The checkpoints of a run with their scores, and how to serve the last one.

    Args:
        checkpoints: as in ``run.json``, oldest first.
        engine: the one of the rollout: sglang, vllm, or transformers on the CPU, which serves nothing.
        dtype: the type in which it computed.
    """
    for checkpoint in checkpoints:
        score = checkpoint.get("validation_accuracy")
        told = f", validation accuracy {score:.3f}" if score is not None else ""
        yield f"checkpoint of step {checkpoint['step']}{told}"
        yield f"  {checkpoint['model_dir']}"
    if not checkpoints:
        return
    if engine == "transformers":
        yield "a Hugging Face model directory: vLLM or SGLang, in an environment of its own, can serve it"
        return
    command = "vllm serve" if engine == "vllm" else "python -m sglang.launch_server --model-path"
    folder = shlex.quote(checkpoints[-1]["model_dir"])
    # the weights are float32, for which SGLang would choose float16
    yield f"serve the last one: {command} {folder} --dtype {dtype} --port 30000"
