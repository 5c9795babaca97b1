"""Teacher answers on disk: what is found again, who may share the file, and what is no such file."""

import contextlib
import multiprocessing
import sqlite3
import subprocess
import sys
import threading
import time

import pytest

from onepo.errors import UserError
from onepo.teachers import answers as module
from onepo.teachers.answers import AnswerStore, question_key


def ask(text):
    return [{"role": "user", "content": text}]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "teacher" / "answers.sqlite"


def test_an_answer_is_found_again(path):
    store = AnswerStore(path)
    assert store.get("m", ask("Why?")) is None
    text = "Because \x00 of 水 \U0001f600\r\n" * 5000
    store.put("m", ask("Why?"), text)
    store.put("m", ask("empty"), "")
    for reader in (store, AnswerStore(str(path))):
        assert reader.get("m", ask("Why?")) == text
        assert reader.get("m", ask("empty")) == ""
        assert reader.get("other", ask("Why?")) is None
        assert reader.get("m", [{"role": "system", "content": "Be kind."}, *ask("Why?")]) is None


def test_the_first_answer_stays(path):
    store = AnswerStore(path)
    store.put("m", ask("Why?"), "first")
    store.put("m", ask("Why?"), "second")
    assert store.get("m", ask("Why?")) == "first"


def test_a_question_is_known_by_its_canonical_form():
    assert question_key("m", [{"role": "user", "content": "é"}]).hex() == (
        # {"messages":[{"content":"\\u00e9","role":"user"}],"model":"m"}, by sha256sum
        "b69d8c941abde0adb6257a602c785c6f23b93b7c0575abbfe4d9849b469ecf96"
    )
    assert question_key("m", [{"content": "é", "role": "user"}]) == question_key("m", ask("é"))
    assert question_key("ma", ask("b")) != question_key("m", ask("ab"))


def test_no_answer_is_lost_when_the_process_is_killed(path):
    code = f"""
from onepo.teachers.answers import AnswerStore
store = AnswerStore({str(path)!r})
number = 0
while True:
    store.put("m", [{{"role": "user", "content": str(number)}}], "x" * 20000)
    print(number, flush=True)
    number += 1
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if int(line) >= 30:
                process.kill()  # in the middle of one of the next
                break
        told = [30, *map(int, process.stdout)]
    store = AnswerStore(path)
    for number in range(told[-1] + 1):
        assert store.get("m", ask(str(number))) == "x" * 20000


def _write_many(path, barrier, prefix):
    barrier.wait()  # both find no file
    store = AnswerStore(path)
    for number in range(40):
        store.put("m", ask(f"{prefix}{number}"), f"{prefix}{number}")
        store.put("m", ask(f"both{number}"), "same")


def test_two_runs_share_the_file(path):
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    runs = [context.Process(target=_write_many, args=(path, barrier, prefix)) for prefix in "ab"]
    for run in runs:
        run.start()
    for run in runs:
        run.join(60)
    assert [run.exitcode for run in runs] == [0, 0]
    store = AnswerStore(path)
    for number in range(40):
        assert [store.get("m", ask(f"{prefix}{number}")) for prefix in "ab"] == [f"a{number}", f"b{number}"]
        assert store.get("m", ask(f"both{number}")) == "same"


def test_threads_share_a_store(path):
    store = AnswerStore(path)
    found = []

    def work(prefix):
        for number in range(20):
            store.put("m", ask(f"{prefix}{number}"), f"{prefix}{number}")
            found.append(store.get("m", ask(f"{prefix}{number}")) == f"{prefix}{number}")

    threads = [threading.Thread(target=work, args=(prefix,)) for prefix in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 80


def refused(path) -> str:
    with pytest.raises(UserError) as raised:
        AnswerStore(path)
    assert str(raised.value).startswith(f"{path}: ") and "\n" not in str(raised.value)
    return str(raised.value)


def test_a_file_that_is_something_else_is_left_alone(tmp_path):
    text = tmp_path / "train.jsonl"
    text.write_text('{"prompt": "Why?"}\n' * 100)
    assert "is damaged, or no file of teacher answers" in refused(text)
    assert text.read_text() == '{"prompt": "Why?"}\n' * 100

    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE answers (question TEXT PRIMARY KEY, answer TEXT)")
    before = other.read_bytes()
    assert "none of teacher answers" in refused(other)
    assert other.read_bytes() == before


def test_another_layout_is_not_guessed_at(path):
    with AnswerStore(path):
        pass
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 2")
    assert "none of teacher answers" in refused(path)


def filled(path) -> bytes:
    with AnswerStore(path) as store:
        for number in range(50):
            store.put("m", ask(str(number)), "x" * 3000)
    return path.read_bytes()


@pytest.mark.parametrize("damage", ["cut", "torn", "overwritten"])
def test_damage_is_found_at_the_start(path, damage):
    content = filled(path)
    middle = len(content) // 2
    path.write_bytes(
        {
            "cut": content[:middle],
            "torn": content[: middle + 100],
            "overwritten": content[:4096] + b"\xff" * 8192 + content[12288:],
        }[damage]
    )
    assert "is damaged" in refused(path)


def test_an_empty_file_is_a_new_one(path):
    path.parent.mkdir()
    path.touch()
    store = AnswerStore(path)
    store.put("m", ask("Why?"), "So.")
    assert store.get("m", ask("Why?")) == "So."


def test_places_that_hold_no_file(tmp_path):
    assert "cannot be kept there" in refused(tmp_path)
    (tmp_path / "file").touch()
    assert "cannot be kept there" in refused(tmp_path / "file" / "answers.sqlite")


def test_a_writer_that_never_ends_is_told(path, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 0.05)
    store = AnswerStore(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(UserError, match=r"cannot be kept there \(database is locked\)"):
        store.put("m", ask("Why?"), "So.")
    other.execute("COMMIT")
    store.put("m", ask("Why?"), "So.")
    assert store.get("m", ask("Why?")) == "So."


def test_a_file_that_stays_locked_is_waited_for_once(path, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 0.5)
    with AnswerStore(path) as store, contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # reading is possible, which must not count as the lock's end
        began = time.monotonic()
        for number in range(20):
            assert store.get("m", ask(str(number))) is None
            with pytest.raises(UserError, match="locked"):
                store.put("m", ask(str(number)), "Because.")
        assert 0.5 <= time.monotonic() - began < 3
        other.execute("COMMIT")
        store.put("m", ask("Why?"), "Because.")
        assert store.get("m", ask("Why?")) == "Because."
