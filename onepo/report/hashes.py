"""SHA-256 of what a run works with: large files are hashed beside the training, and once."""

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_CHUNK = 1 << 20  # bytes read at one time: a stop waits for one of them
_STOP_SECONDS = 5.0  # a chunk of a file system that hangs is not waited for longer
_LOWEST = 19
_CODE = (".py", ".yaml", ".sh")


@dataclass(frozen=True)
class Hashes:
    """What became known of files, by the names that they were given.

    Attributes:
        sha256: hexadecimal, None for a file that could not be hashed.
        problems: why not, for each of those.
    """

    sha256: dict[str, str | None]
    problems: dict[str, str]


class Stopped(Exception):
    """The hash is no longer wanted."""


def file_sha256(file: Path, *, stop: threading.Event | None = None) -> str:
    """SHA-256 of a file's content, hexadecimal.

    Raises:
        OSError: it cannot be read.
        Stopped: ``stop`` was set in the meantime.
    """
    digest = hashlib.sha256()
    with file.open("rb", buffering=0) as stream:
        while chunk := stream.read(_CHUNK):
            if stop is not None and stop.is_set():
                raise Stopped
            digest.update(chunk)
    return digest.hexdigest()


def code_sha256(packages: Mapping[str, Path]) -> str:
    """One SHA-256 over the code of packages, the same wherever they are installed.

    Args:
        packages: their directories by name. Counted are names and contents of their Python, YAML and shell files.
    """
    digest = hashlib.sha256()
    for name, file in sorted(_code_files(packages)):
        digest.update(f"{name}\0{file_sha256(file)}\n".encode())
    return digest.hexdigest()


def _code_files(packages: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    for package, directory in packages.items():
        for file in directory.rglob("*"):
            if file.suffix in _CODE and file.is_file():
                yield f"{package}/{file.relative_to(directory).as_posix()}", file


class HashingThread(threading.Thread):
    """Hashes files one after the other, with the lowest priority, and does not keep the process alive.

    Args:
        files: paths by the names that the results get.
        cache: a JSON file of hashes that are known; a file counts as known while path, size, time of change and inode
            are the same. It is written after each new hash, and a damaged one is begun anew.
        done: called once, in this thread, with the results of all files; not after a stop.
    """

    def __init__(self, files: Mapping[str, Path], *, cache: Path, done: Callable[[Hashes], None]):
        super().__init__(name="hashing", daemon=True)
        self._files = dict(files)
        self._cache = cache
        self._done = done
        self._stop_wanted = threading.Event()

    def run(self) -> None:
        with suppress(OSError):  # of this thread alone; a system that has no such thing lets it run as the others
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)
        known = _read_cache(self._cache)
        sha256: dict[str, str | None] = {}
        problems: dict[str, str] = {}
        for name, file in self._files.items():
            try:
                sha256[name] = self._sha256(file, known)
            except Stopped:
                return
            except OSError as error:
                sha256[name], problems[name] = None, error.strerror or str(error)
        if not self._stop_wanted.is_set():
            self._done(Hashes(sha256, problems))

    def stop(self) -> None:
        """End it, whatever is left to do; what it has hashed stays in the cache."""
        self._stop_wanted.set()
        if self.is_alive():
            self.join(_STOP_SECONDS)

    def _sha256(self, file: Path, known: dict[str, dict]) -> str:
        state, place = _state(file), str(file.resolve())
        entry = known.get(place)
        if entry is None or entry["state"] != state:
            entry = {"state": state, "sha256": file_sha256(file, stop=self._stop_wanted)}
            if _state(file) != state:
                raise OSError("it changed while it was read")
            known[place] = entry
            _write_cache(self._cache, known)
        return entry["sha256"]


def _state(file: Path) -> list[int]:
    """What changes with a file's content; a list, as JSON gives it back."""
    stat = file.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino]


def _read_cache(cache: Path) -> dict[str, dict]:
    with suppress(OSError, ValueError):
        content = json.loads(cache.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            return {place: entry for place, entry in content.items() if _is_entry(entry)}
    return {}


def _is_entry(entry: object) -> bool:
    return isinstance(entry, dict) and entry.keys() == {"state", "sha256"} and isinstance(entry["sha256"], str)


def _write_cache(cache: Path, known: dict[str, dict]) -> None:
    """As a whole or not at all; a cache that cannot be written costs only time."""
    fresh = cache.with_name(f".{cache.name}-{os.getpid()}")
    with suppress(OSError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
        fresh.replace(cache)
