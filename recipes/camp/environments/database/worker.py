"""The process that carries out statements: ``python worker.py``, a request and a reply per line, as JSON.

A process of its own, because DuckDB's limits do not hold everywhere: a call such as ``repeat('x', 1000000000)`` passes
by its memory limit, and a query that doubles its columns again and again keeps the binder busy past any interrupt. Here
the kernel limits both, and a process that ends takes no session with it. It imports nothing of the service, to start
fast.
"""

import json
import resource
import signal
import sys
import threading
from typing import Any

import duckdb

SECONDS = 2.0  # of a statement, before it is interrupted
LAST_SECONDS = 4  # of a request, before the process is ended: for what hears no interrupt
ADDRESS_SPACE = 2**30  # bytes, of which the interpreter and DuckDB take about a third
ROWS, COLUMNS, WIDTH = 10, 12, 40  # of a result that are told

_LONGEST_ERROR = 1000  # characters
_CONFIG = {
    "memory_limit": "128MB",
    "threads": 1,
    "async_threads": 0,  # otherwise each database starts eight of them
    "temp_directory": "",  # nothing is spilled
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,  # a table name must not find this program's variables
}


def carry_out(tables: dict[str, Any], sql: str) -> dict[str, Any]:
    """The result of one statement over tables that exist for it alone.

    Args:
        tables: for each name, ``columns`` (name and type of each) and ``values`` (of each column, the rows' values).

    Returns:
        ``columns``, ``rows`` and whether there are ``more``; or ``error``, in DuckDB's words or ours.
    """
    with duckdb.connect(":memory:", config=_CONFIG) as connection:
        for name, table in tables.items():
            columns = table["columns"]
            connection.execute(f"CREATE TABLE {name} ({', '.join(f'{column} {kind}' for column, kind in columns)})")
            values = ", ".join(f"unnest(?::{kind}[])" for _, kind in columns)
            connection.execute(f"INSERT INTO {name} SELECT {values}", table["values"])
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        connection.execute("SELECT setseed(0)")  # the same statement, the same result
        connection.execute("BEGIN TRANSACTION READ ONLY")  # a SELECT can hold an INSERT, in its WITH
        timer = threading.Timer(SECONDS, connection.interrupt)
        timer.start()
        try:
            return _select(connection, sql)
        except duckdb.InterruptException:
            return {"error": f"The statement took more than {SECONDS:g} s and was stopped."}
        except Exception as error:  # whatever a statement brings about is the student's to know, and not our end
            return {"error": str(error)[:_LONGEST_ERROR]}
        finally:
            timer.cancel()
            timer.join()  # it must not meet a closed connection


def _select(connection: duckdb.DuckDBPyConnection, sql: str) -> dict[str, Any]:
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        return {"error": "Only a single SELECT statement is carried out."}
    connection.execute(statements[0])
    rows = connection.fetchmany(ROWS + 1)
    return {
        "columns": [_cell(column[0]) for column in connection.description[:COLUMNS]],
        "rows": [[_cell(value) for value in row[:COLUMNS]] for row in rows[:ROWS]],
        "more": len(rows) > ROWS,
    }


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, float):
        return value
    if isinstance(value, int) and value.bit_length() <= 128:
        return value
    text = str(value)
    return text if len(text) <= WIDTH else text[:WIDTH] + "..."


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:  # ends with the service
        signal.alarm(LAST_SECONDS)  # ends the process, whatever it is doing
        reply = carry_out(**json.loads(line))
        print(json.dumps(reply), flush=True)
        signal.alarm(0)


if __name__ == "__main__":
    main()
