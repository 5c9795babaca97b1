"""Hashes of files: right, known again, and no hindrance to the run beside which they are made."""

import hashlib
import json
import os
import queue
import threading

import pytest

from onepo.report.hashes import HashingThread, Stopped, code_sha256, file_sha256

WAIT = 20.0


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    contents = {"a.safetensors": b"a" * 3_000_000, "b.json": b"{}", "empty.txt": b""}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {name: folder / name for name in contents}


def hashed(files, cache):
    """The results of one thread that runs to its end."""
    results = queue.Queue()
    thread = HashingThread(files, cache=cache, done=results.put)
    thread.start()
    found = results.get(timeout=WAIT)
    thread.join(WAIT)
    assert results.empty()
    return found


def expected(files):
    return {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()}


def test_the_hash_of_a_file_is_that_of_its_content(files):
    assert {name: file_sha256(file) for name, file in files.items()} == expected(files)


def test_a_hash_that_is_not_wanted_any_more_ends(files):
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        file_sha256(files["a.safetensors"], stop=stop)


def test_all_files_are_hashed_in_the_background(files, tmp_path):
    found = hashed(files, tmp_path / "hashes.json")
    assert (found.sha256, found.problems) == (expected(files), {})


def test_a_file_that_is_gone_is_null_with_the_reason(files, tmp_path):
    files["b.json"].unlink()
    found = hashed({**files, "folder": tmp_path}, tmp_path / "hashes.json")
    assert found.sha256["b.json"] is None and found.problems["b.json"] == "No such file or directory"
    assert found.sha256["folder"] is None and found.problems.keys() == {"b.json", "folder"}
    assert found.sha256["a.safetensors"] == file_sha256(files["a.safetensors"])


def test_a_known_file_is_not_read_again(files, tmp_path):
    cache = tmp_path / "cache" / "hashes.json"
    hashed(files, cache)
    content = json.loads(cache.read_text())
    assert content.keys() == {str(file.resolve()) for file in files.values()}
    for entry in content.values():
        entry["sha256"] = "from the cache"
    cache.write_text(json.dumps(content))
    assert set(hashed(files, cache).sha256.values()) == {"from the cache"}


def test_another_name_of_a_known_file_is_known(files, tmp_path):
    cache = tmp_path / "hashes.json"
    hashed(files, cache)
    link = tmp_path / "link.json"
    link.symlink_to(files["b.json"])
    hashed({"linked": link}, cache)
    assert len(json.loads(cache.read_text())) == len(files)


@pytest.mark.parametrize("kind", ["size", "time", "inode"])
def test_a_file_that_may_be_another_is_hashed_again(files, tmp_path, kind):
    cache, file = tmp_path / "hashes.json", files["b.json"]
    before, stat = hashed(files, cache), file.stat()
    if kind == "size":
        file.write_bytes(b"{ }")
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    elif kind == "time":
        file.write_bytes(b"[]")
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    else:
        fresh = file.with_name("fresh")
        fresh.write_bytes(b"[]")
        os.utime(fresh, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        fresh.replace(file)
    found = hashed(files, cache)
    assert found.sha256 == expected(files) and found.sha256["b.json"] != before.sha256["b.json"]


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"a": 1}', '{"%s": {"sha256": "wrong"}}', '{"%s": {"state": null, "sha256": "wrong"}}']
)
def test_a_damaged_cache_is_begun_anew(files, tmp_path, damage):
    cache = tmp_path / "hashes.json"
    cache.write_text(damage.replace("%s", str(files["b.json"].resolve())))
    assert hashed(files, cache).sha256 == expected(files)
    assert json.loads(cache.read_text()).keys() >= {str(file.resolve()) for file in files.values()}
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["hashes.json"]  # nothing half written


def test_a_cache_that_cannot_be_written_costs_no_hash(files, tmp_path):
    (tmp_path / "file").touch()
    assert hashed(files, tmp_path / "file" / "hashes.json").sha256 == expected(files)


class Reached:
    """A file that says when it is opened, and then waits until it may go on."""

    def __init__(self, file):
        self.file, self.opened, self.go_on = file, threading.Event(), threading.Event()

    def stat(self):
        return self.file.stat()

    def resolve(self):
        return self.file.resolve()

    def open(self, *args, **kwargs):
        self.opened.set()
        assert self.go_on.wait(WAIT)
        return self.file.open(*args, **kwargs)


def test_a_stop_ends_it_in_the_middle_and_keeps_what_is_known(files, tmp_path):
    results, cache = queue.Queue(), tmp_path / "hashes.json"
    os.truncate(files["a.safetensors"], 1 << 36)  # zeros without space on the disk, for half a minute at least
    reached = Reached(files["a.safetensors"])
    reached.go_on.set()
    thread = HashingThread({"b.json": files["b.json"], "large": reached}, cache=cache, done=results.put)
    assert thread.daemon
    thread.start()
    assert reached.opened.wait(WAIT)
    thread.stop()
    assert not thread.is_alive() and results.empty()
    assert json.loads(cache.read_text()).keys() == {str(files["b.json"].resolve())}


def test_a_file_that_is_written_to_meanwhile_has_no_hash(files, tmp_path):
    results, cache = queue.Queue(), tmp_path / "hashes.json"
    reached = Reached(files["b.json"])
    HashingThread({"b.json": reached}, cache=cache, done=results.put).start()
    assert reached.opened.wait(WAIT)
    files["b.json"].write_bytes(b"longer")
    reached.go_on.set()
    found = results.get(timeout=WAIT)
    assert found.sha256 == {"b.json": None} and "changed while it was read" in found.problems["b.json"]
    assert not cache.exists()


def test_a_stop_before_the_start_and_after_the_end_is_harmless(files, tmp_path):
    HashingThread(files, cache=tmp_path / "hashes.json", done=print).stop()
    results = queue.Queue()
    thread = HashingThread(files, cache=tmp_path / "hashes.json", done=results.put)
    thread.start()
    results.get(timeout=WAIT)
    thread.stop()
    assert not thread.is_alive()


def test_it_leaves_the_priority_of_the_others_alone(files, tmp_path):
    own = os.getpriority(os.PRIO_PROCESS, 0)
    found = queue.Queue()
    thread = HashingThread(
        files,
        cache=tmp_path / "hashes.json",
        done=lambda _: found.put(os.getpriority(os.PRIO_PROCESS, threading.get_native_id())),
    )
    thread.start()
    assert found.get(timeout=WAIT) == 19
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "package"
    (folder / "inner").mkdir(parents=True)
    (folder / "code.py").write_text("one = 1\n")
    (folder / "inner" / "values.yaml").write_text("a: 1\n")
    (folder / "run.sh").write_text("true\n")
    return folder


def test_the_hash_of_code_minds_names_and_contents_of_code_alone(package, tmp_path):
    before = code_sha256({"package": package})
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "code.cpython-311.pyc").touch()
    (package / "README.md").write_text("words")
    assert code_sha256({"package": package.rename(tmp_path / "elsewhere")}) == before
    package = tmp_path / "elsewhere"
    assert code_sha256({"other": package}) != before
    for name in ("code.py", "inner/values.yaml", "run.sh"):
        content = (package / name).read_text()
        (package / name).write_text(content + "#")
        assert code_sha256({"package": package}) != before, name
        (package / name).write_text(content)
    (package / "code.py").rename(package / "coda.py")
    assert code_sha256({"package": package}) != before


def test_the_order_of_packages_does_not_matter(package, files):
    folder = files["b.json"].parent
    assert code_sha256({"a": package, "b": folder}) == code_sha256({"b": folder, "a": package})
