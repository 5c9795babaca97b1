"""The weights of a model directory: that every file is there and whole, found without reading the weights."""

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from safetensors import SafetensorError, safe_open

from onepo.preflight.model_files import read_json, some_of

_INDEXES = {"model.safetensors.index.json": "model.safetensors", "pytorch_model.bin.index.json": "pytorch_model.bin"}
_LENGTH = 8  # bytes of a safetensors file that hold the length of its header


def weight_problems(path: Path, option: str) -> Iterator[str]:
    """Weight files that are missing or broken in a model directory, which the user gave by ``option``.

    Raises:
        UserError: the index is no JSON object.
    """
    where = f"{option}={path}"
    whole = [name for name in _INDEXES.values() if (path / name).is_file()]
    for index, single in _INDEXES.items():
        if (path / index).is_file():
            if single in whole:
                yield (
                    f"{where} has both {single} and {index}, and which one is loaded depends on the program: "
                    "remove the one that is not of this model"
                )
            yield from _indexed(path, index, where)
            return
    for name in whole:
        yield from _broken(path / name, where)
    if not whole:
        yield f"{where} has no weights (model.safetensors or an index of shards)"


def _indexed(path: Path, index: str, where: str) -> Iterator[str]:
    content = read_json(path / index)
    weight_map = content.get("weight_map")
    names = weight_map.values() if isinstance(weight_map, dict) else ()
    if not names or not all(isinstance(name, str) for name in names):
        yield f"{where}: {index} has no weight_map that names the weight files"
        return
    tensors = defaultdict(set)
    for tensor, shard in weight_map.items():
        tensors[shard].add(tensor)
    missing = sorted(name for name in tensors if not (path / name).is_file())
    if missing:
        yield (
            f"{where}: {index} names {len(tensors)} weight files, {len(missing)} are missing ({some_of(missing)}): "
            "download them"
        )
    present = sorted(tensors.keys() - set(missing))
    broken = [problem for name in present for problem in _broken(path / name, where)]
    yield from broken
    if not missing and not broken and all(name.endswith(".safetensors") for name in present):
        metadata = content.get("metadata")
        declared = metadata.get("total_size") if isinstance(metadata, dict) else None
        yield from _differing(path, index, where, tensors, declared)


def _differing(path: Path, index: str, where: str, tensors: dict[str, set[str]], declared: object) -> Iterator[str]:
    """What an index says of its shards, which are whole: the tensors of each, and the size of all."""
    absent = {name: tensors[name] - _stored(path / name) for name in tensors}
    for name, lacking in absent.items():
        if lacking:
            yield (
                f"{where}: {name} lacks {len(lacking)} of the tensors that {index} says are in it "
                f"({some_of(sorted(lacking))}): index and shards are not of one model, download them again"
            )
    found = sum(_data_size(path / name) for name in tensors)
    if declared not in (None, found) and not any(absent.values()):
        yield (
            f"{where}: {index} declares {declared} bytes of weights (total_size), its shards hold {found}: "
            "download them again, or correct total_size if the model was published with another one"
        )


def _broken(file: Path, where: str) -> Iterator[str]:
    """A safetensors file that was cut off or has something behind its end; other formats are not looked into."""
    if file.suffix == ".safetensors":
        try:
            with safe_open(file, "pt"):  # compares the file's size with what its header declares
                pass
        except (SafetensorError, OSError) as error:
            reason = _sizes(file) or error
            yield f"{where}: {file.name} is not a whole safetensors file ({reason}): download it again"


def _sizes(file: Path) -> str | None:
    """How large a broken file is and should be; None when its header does not say it."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError), file.open("rb") as stream:
        size = file.stat().st_size
        length = int.from_bytes(stream.read(_LENGTH), "little")
        if length < size:
            header = json.loads(stream.read(length))
            header.pop("__metadata__", None)
            declared = _LENGTH + length + max(entry["data_offsets"][1] for entry in header.values())
            if declared != size:
                return f"it has {size} bytes, by its header {declared}"
    return None


def _stored(file: Path) -> set[str]:
    with safe_open(file, "pt") as shard:
        return set(shard.keys())


def _data_size(file: Path) -> int:
    """Bytes of the tensors in a whole safetensors file: nothing else is behind its header."""
    with file.open("rb") as stream:
        return file.stat().st_size - _LENGTH - int.from_bytes(stream.read(_LENGTH), "little")


def stored_shapes(path: Path) -> Iterator[tuple[str, list[int]]]:
    """Names and shapes of the tensors in a model directory's safetensors files; nothing for older formats."""
    for file in path.glob("*.safetensors"):
        with safe_open(file, "pt") as shard:
            for name in shard.keys():
                yield name, shard.get_slice(name).get_shape()
