"""The files of a model directory as files: which they are, and whether all of them came, and from one revision."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from onepo.errors import UserError

# configuration, tokenizer, chat template, weights and code; neither documents nor the state of an optimizer
_SUFFIXES = {".json", ".jinja", ".model", ".txt", ".tiktoken", ".safetensors", ".bin", ".py"}
_POINTER = b"version https://git-lfs."
_LEAST_PICKLE = 1024  # bytes; an empty archive of PyTorch has about as many
_DOWNLOADS = Path(".cache", "huggingface", "download")  # where the Hub's client records what it fetched
_NAMED = 3


def model_files(path: Path) -> list[Path]:
    """Everything in a model directory that says what the model is, sorted by name."""
    return sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES and file.is_file())


def read_json(file: Path) -> dict[str, Any]:
    """The object that a file holds.

    Raises:
        UserError: it holds none. The message names the file without its directory.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file.name} is not valid JSON ({error})") from None
    if not isinstance(content, dict):
        raise UserError(f"{file.name} holds no JSON object")
    return content


def some_of(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def stand_in_problems(path: Path, option: str) -> Iterator[str]:
    """Files in the place of others, as a clone without Git LFS and a failed download leave them."""
    files = model_files(path)
    if pointers := [file.name for file in files if _begins_with(file, _POINTER)]:
        yield (
            f"{option}={path}: {len(pointers)} files are pointers of Git LFS, not the files themselves "
            f"({some_of(pointers)}): run `git lfs pull` in it, or download the model again"
        )
    pickles = [file for file in files if file.name.startswith("pytorch_model") and file.suffix == ".bin"]
    if tiny := [file.name for file in pickles if file.stat().st_size < _LEAST_PICKLE and file.name not in pointers]:
        yield f"{option}={path}: too small to hold weights: {some_of(tiny)}; download the model again"


def _begins_with(file: Path, beginning: bytes) -> bool:
    with file.open("rb") as stream:
        return stream.read(len(beginning)) == beginning


def revision_problems(path: Path, option: str) -> Iterator[str]:
    """Files of different revisions of a model; those without a record are taken as they are."""
    revisions: dict[str, list[str]] = defaultdict(list)
    for name, revision in _recorded(path):
        revisions[revision].append(name)
    if len(revisions) > 1:
        told = "; ".join(f"{revision[:12]}: {some_of(names)}" for revision, names in revisions.items())
        yield (
            f"{option}={path}: its files are of {len(revisions)} revisions, which need not fit together ({told}): "
            "download one revision into an empty directory"
        )


def _recorded(path: Path) -> Iterator[tuple[str, str]]:
    """Names of files and the commits that they are of."""
    for file in model_files(path):
        record = path / _DOWNLOADS / f"{file.name}.metadata"
        if record.is_file():
            commit, *_ = record.read_text(encoding="utf-8", errors="replace").splitlines() or [""]
            if _is_commit(commit.strip()):
                yield file.name, commit.strip()
    commit = read_json(path / "config.json").get("_commit_hash")
    if isinstance(commit, str) and _is_commit(commit):
        yield "_commit_hash in config.json", commit


def _is_commit(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40}", text) is not None
