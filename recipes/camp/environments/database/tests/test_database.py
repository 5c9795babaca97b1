"""Database questions: solvable by SQL, repeatable, bounded, and with nothing to be read or written but the tables."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from camp.environments.database import DOMAIN, engine
from camp.environments.database.domain import LONGEST_STATEMENT, is_answer
from camp.environments.database.engine import Engine
from camp.environments.service import Turn
from camp.environments.tests import playing

play = partial(playing.play, DOMAIN)

SEEDS = range(4)
TABLES = {"shops": {"columns": [["id", "INTEGER"], ["name", "VARCHAR"]], "values": [[1, 2, 3], ["a", "b", None]]}}


@pytest.fixture(scope="module")
def database():
    """One process, so that a statement that follows another one meets what that left behind."""
    return Engine(processes=1)


def solve(task, seed):
    """Ask the query that the question was made with, and answer with what the student sees of its result."""
    episode = DOMAIN.open(task, seed)
    seen = episode.act(episode.question.query)
    return [seen, episode.act(f"answer: {seen.text.splitlines()[1]}")]


@pytest.mark.parametrize("task", DOMAIN.tasks)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_perfect_player_solves_every_question(task, seed):
    seen, last = solve(task, seed)
    assert last == Turn("That is right.", 1.0, True) and (seen.reward, seen.success) == (0.0, None)


@pytest.mark.parametrize("task", DOMAIN.tasks)
def test_a_wrong_answer_is_the_end(task):
    assert play(task, 1, ["answer: a guess", "answer: 1"])[1:] == [("That is wrong.", 0.0, False)]


@pytest.mark.parametrize("task", DOMAIN.tasks)
def test_the_seed_makes_the_episode(task):
    actions = ["SHOW TABLES", "SELECT random(), uuid()", "answer: 0"]
    assert play(task, 3, actions) == play(task, 3, actions)
    assert len({play(task, seed, [])[0] for seed in range(10)}) > 7


def test_another_process_makes_the_same_episode():
    code = "from camp.environments.database import DOMAIN; print(DOMAIN.open('steps', 5).begin(), end='')"
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert run.stdout.decode() == DOMAIN.open("steps", 5).begin()


@pytest.mark.parametrize(("task", "limit"), zip(DOMAIN.tasks, (6, 6, 8, 10, 12), strict=True))
def test_turns_are_limited(task, limit):
    turns = play(task, 1, ["look around"] * 100)[1:]
    assert len(turns) == limit and turns[-1][1:] == (0.0, False)
    assert turns[-1][0].endswith(f"The {limit} turns are over.")


@pytest.mark.parametrize(
    ("said", "answer", "right"),
    [
        (" 12", 12, True),
        ("12.0", 12, True),
        ("1,204", 1204, True),
        ("13", 12, False),
        ("12.001", 12, False),
        ("nan", 12, False),
        ("1e999", 12, False),
        ("", 12, False),
        ("3.14159", 3.14, True),
        ("3.15", 3.14, False),
        ("'White  MASSAGE'.", "white massage", True),
        ("white", "white massage", False),
    ],
)
def test_answers_are_compared_by_what_they_mean(said, answer, right):
    assert is_answer(said, answer) is right


def test_results_are_cut():
    text = play("filter", 0, ["SELECT repeat('ab', 500) AS x FROM range(100)"])[1][0]
    assert text.splitlines()[1:] == ["ab" * 20 + "..."] * 10 + ["(there are more rows)"]
    wide = play("filter", 0, [f"SELECT {', '.join(['1.25'] * 500)}"])[1][0]
    assert len(wide) < 750
    assert play("filter", 0, ["SELECT 1 WHERE false"])[1][0] == "The result has no rows."
    assert play("filter", 0, ["SELECT NULL AS x"])[1][0] == "x\nNULL"


@pytest.mark.parametrize(
    "said",
    [
        "",
        " ",
        ";",
        "-- only a remark",
        "x" * 10**6,
        "SELECT '\x00\x1b[2J'",
        "SELECT 1\x00",
        "SELECT '\ud800'",
        "SELECT '左' AS \"ä\"",
        "'; DROP TABLE books; --",
        "<action>SELECT 1",
        "answer",
        "answer:",
        "ANSWER : \x00",
        "SELECT " + "(" * 1500 + "1" + ")" * 1500,
        "SELECT 9" + "9" * 3000,
        "SELECT 'infinity'::DATE, 'nan'::DOUBLE, 'x'::BLOB, {'a': [1]}, INTERVAL 1 DAY",
        "SELECT * FROM range(5) LIMIT -1",
    ],
)
def test_nothing_that_is_said_breaks_an_episode(said):
    (_, (text, reward, success)) = play("join", 1, [said])
    assert text and reward == 0.0 and success in (None, False) and len(text) < 750


def test_a_long_statement_is_not_carried_out():
    assert "was not carried out" in play("filter", 0, ["SELECT 1" + " " * LONGEST_STATEMENT + "-- 1"])[1][0]


def test_nothing_is_written(database):
    for statement in (
        "INSERT INTO shops VALUES (4, 'd')",
        "WITH x AS (INSERT INTO shops VALUES (4, 'd') RETURNING *) SELECT * FROM x",
        "WITH x AS (DELETE FROM shops RETURNING *) SELECT * FROM x",
        "UPDATE shops SET id = 0",
        "DELETE FROM shops",
        "DROP TABLE shops",
        "CREATE TABLE more AS SELECT 1",
        "CREATE MACRO one() AS 1",
        "ALTER TABLE shops ADD COLUMN x INTEGER",
        "COMMENT ON TABLE shops IS 'x'",
        "SELECT 1; DELETE FROM shops",
        "COMMIT",
        "BEGIN",
        "PREPARE x AS DELETE FROM shops",
        "EXPLAIN ANALYZE DELETE FROM shops",
        "SET threads = 8",
        "RESET threads",
        "PRAGMA threads = 8",
        "CALL enable_logging()",
        "CHECKPOINT",
        "USE system",
        "SELECT * FROM query('DELETE FROM shops')",
    ):
        assert "error" in database.ask(TABLES, statement), statement
        rows = database.ask(TABLES, "SELECT count(*), sum(id) FROM shops")["rows"]
        assert rows == [[3, 6]], statement


def test_no_file_is_read_or_written(database, tmp_path):
    (tmp_path / "secret.csv").write_text("hidden\ntreasure\n")
    (tmp_path / "secret.json").write_text('{"hidden": "treasure"}\n')
    file, new = tmp_path / "secret.csv", tmp_path / "new"
    statements = [
        *(f"SELECT * FROM {read}('{file}')" for read in ("read_csv", "sniff_csv", "read_text", "read_blob")),
        *(f"SELECT * FROM {read}('{tmp_path}/*.json')" for read in ("read_json", "read_ndjson_objects")),
        *(f"SELECT * FROM {read}('{file}')" for read in ("read_parquet", "parquet_scan", "parquet_metadata")),
        *(f"SELECT * FROM {read}('{file}', 'x')" for read in ("sqlite_scan", "iceberg_scan", "st_read", "read_xlsx")),
        f"SELECT * FROM '{file}'",
        f'FROM "{file}"',
        f"SELECT * FROM query('FROM ''{file}''')",
        f"SELECT * FROM query_table('{file}')",
        f"SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT * FROM ''{file}'''))",
        f"SELECT * FROM glob('{tmp_path}/*')",
        "SELECT * FROM read_text('file:///proc/self/environ')",
        "SELECT * FROM read_csv('https://example.org/x.csv')",
        f"COPY shops TO '{new}'",
        f"COPY shops FROM '{file}'",
        f"COPY (SELECT 1) TO '{new}' (FORMAT parquet)",
        f"ATTACH '{new}' AS other",
        "ATTACH ':memory:' AS other",
        f"EXPORT DATABASE '{new}'",
        f"IMPORT DATABASE '{tmp_path}'",
        "INSTALL httpfs",
        f"LOAD '{file}'",
        "FORCE INSTALL spatial",
        "CREATE PERSISTENT SECRET s (TYPE http)",
        "DROP SECRET s",
        "SELECT getenv('HOME')",
        f"SELECT * FROM duckdb_logs_parsed('{file}')",
        f"SELECT write_log('x', log_type := '{file}')",
        f"SET temp_directory = '{new}'",
        "SET enable_external_access = true",
        f"SET allowed_paths = ['{file}']",
    ]  # fmt: skip
    for statement in statements:
        reply = database.ask(TABLES, statement)
        assert "error" in reply or "write_log" in statement, (statement, reply)
        assert "treasure" not in str(reply).replace(str(file), ""), statement
    for statement in ("FROM duckdb_settings()", "FROM duckdb_secrets()", "FROM duckdb_databases()", "FROM TABLES"):
        assert str(tmp_path) not in str(database.ask(TABLES, statement))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret.csv", "secret.json"]


def test_a_table_name_finds_no_variable_of_the_program(database):
    for name in ("tables", "sys", "json", "_CONFIG", "statements", "connection"):
        assert "error" in database.ask(TABLES, f"SELECT * FROM {name}")


ENDLESS = "WITH RECURSIVE a AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM a) SELECT max(x) FROM a"


def test_an_endless_statement_is_told_and_the_session_goes_on():
    turns = play("filter", 1, [ENDLESS, "SELECT 1 AS x", DOMAIN.open("filter", 1).question.query])
    assert turns[1] == ("The statement took more than 2 s and was stopped.", 0.0, None)
    assert turns[2] == ("x\n1", 0.0, None) and turns[3][0].splitlines()[1:]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range + b.range = -1",  # ends by interrupt
        "SELECT 1 AS a0, " + ", ".join(f"a{i} + a{i} AS a{i + 1}" for i in range(40)),  # hears no interrupt
        "SELECT range(300000000)",  # DuckDB's limit does not count this memory
        "SELECT length(repeat('x' || range, 1000000)) FROM range(2048)",
        "SELECT * FROM range(100000000) ORDER BY range DESC",
        "SELECT NULL::INTEGER[100000] FROM range(100000)",
    ],
)
def test_time_and_memory_are_limited(database, statement):
    assert "error" in database.ask(TABLES, statement)
    assert database.ask(TABLES, "SELECT 1 AS x") == {"columns": ["x"], "rows": [[1]], "more": False}


def test_the_processes_end_with_the_service():
    code = """if True:
        import time
        from engine import Engine
        engine = Engine(1)
        engine.ask({}, "SELECT 1")
        print(engine._free.get().pid, flush=True)
        time.sleep(600)"""
    # the worker has the service's standard error: its end is the end of that pipe
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=Path(engine.__file__).parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as service:
        worker = int(service.stdout.readline())
        os.kill(worker, 0)
        service.send_signal(signal.SIGKILL)
        assert service.stderr.read() == b""


def test_an_unknown_task_is_named():
    with pytest.raises(ValueError, match="there are no database tasks 'chess'; there are filter, "):
        DOMAIN.open("chess", 1)


def test_episodes_side_by_side_are_those_alone():
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda seed: solve("steps", seed), range(16)))
    assert together == [solve("steps", seed) for seed in range(16)]
