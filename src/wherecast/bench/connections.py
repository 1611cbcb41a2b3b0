"""The two databases: DuckDB in this process, PostgreSQL at a URL. All that differs between them is here.

Both run the same statements. Arrays go in as relations that exist for one call: DuckDB reads them where they are, through
Arrow; PostgreSQL copies them to a temporary table. Answers come out as arrays by column.
"""

from __future__ import annotations

import io
import os
import re
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt
import pyarrow as pa

from wherecast.errors import MatcherError

if TYPE_CHECKING:
    import duckdb
    import psycopg

Columns = Mapping[str, npt.NDArray[Any]]

#: Where matchers look for the URL of a PostgreSQL server when they are not given one; without it they use DuckDB.
URL_VARIABLE = "WHERECAST_DATABASE_URL"


class Database(Protocol):
    """A database of one matcher's own: tables that nobody else sees, gone when the matcher is."""

    title: str

    def run(self, statements: Sequence[str], **relations: Columns) -> None:
        """Run statements that may read the relations: all of them, or, with a MatcherError, none."""

    def fetch(self, query: str, **relations: Columns) -> dict[str, npt.NDArray[Any]]:
        """The answer to a query, by column. Threads may call this at the same time."""

    def explain(self, query: str, **relations: Columns) -> str:
        """How the database would answer."""

    def nbytes(self) -> int:
        """Memory of all tables."""


def open_database(url: str | None) -> Database:
    """PostgreSQL at the URL, or at that of the environment; DuckDB without either."""
    url = url or os.environ.get(URL_VARIABLE)
    return PostgreSQL(url) if url else DuckDB()


class DuckDB:
    """DuckDB, in memory, on one thread: its times compare with those of matchers that use one."""

    MEMORY = "4GB"  # a statement that needs more is refused: a main-memory database does not go to disk

    def __init__(self) -> None:
        try:
            import duckdb
        except ImportError:
            raise MatcherError("matching in a database needs DuckDB; install wherecast[lab]") from None
        self.title = f"DuckDB {duckdb.__version__}"
        self._error = duckdb.Error
        self._connection = duckdb.connect(
            config={"threads": 1, "memory_limit": self.MEMORY, "temp_directory": "", "preserve_insertion_order": False}
        )
        # Grouping before a join as well as behind it would cost predicate grouping twice the time. Older versions do not.
        optimizers = self._connection.execute("SELECT name FROM duckdb_optimizers()").fetchall()
        if (optimizer := "partial_aggregate_pushdown",) in optimizers:
            self._connection.execute(f"SET disabled_optimizers = '{optimizer}'")
        self._local = threading.local()

    def run(self, statements: Sequence[str], **relations: Columns) -> None:
        with self._reading(relations) as cursor:
            cursor.begin()
            try:
                for statement in statements:
                    cursor.execute(statement)
                cursor.commit()
            except self._error:
                cursor.rollback()
                raise

    def fetch(self, query: str, **relations: Columns) -> dict[str, npt.NDArray[Any]]:
        with self._reading(relations) as cursor:
            return cursor.execute(query).fetchnumpy()

    def explain(self, query: str, **relations: Columns) -> str:
        with self._reading(relations) as cursor:
            return str(cursor.execute(f"EXPLAIN {query}").fetchall()[0][1])

    def nbytes(self) -> int:
        used = self.fetch("SELECT memory_usage_bytes AS bytes FROM duckdb_memory()")
        return int(used["bytes"].sum())

    @contextmanager
    def _reading(self, relations: Mapping[str, Columns]) -> Iterator[duckdb.DuckDBPyConnection]:
        """This thread's cursor, which sees the arrays as relations."""
        if not hasattr(self._local, "cursor"):
            self._local.cursor = self._connection.cursor()
        cursor: duckdb.DuckDBPyConnection = self._local.cursor
        try:
            for name, columns in relations.items():
                cursor.register(name, pa.table(dict(columns)))
            yield cursor
        except self._error as error:
            raise MatcherError(f"{self.title} refused a statement: {error}") from error
        finally:
            for name in relations:
                cursor.unregister(name)


class PostgreSQL:
    """PostgreSQL, in temporary tables: they belong to one connection, so threads take turns."""

    SETTINGS = (
        "SET search_path = pg_temp",  # what is created is temporary: in nobody's way, and gone with the connection
        "SET work_mem = '512MB'",
        "SET temp_buffers = '512MB'",
        "SET max_parallel_workers_per_gather = 0",  # one core, as DuckDB above
        "SET enable_nestloop = off",  # how many rows a word of events has is estimated badly; a wrong hash join costs little
        "SET jit = off",  # compiling costs more than most statements take
        "SET client_min_messages = error",
    )
    TYPES: Mapping[str, str] = {"int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT"}

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError:
            raise MatcherError("matching in PostgreSQL needs psycopg; install wherecast[postgresql]") from None
        shown = hide_password(url)
        if not url.startswith(("postgresql://", "postgres://")):
            raise MatcherError(f"{shown}: not a PostgreSQL URL; write postgresql://user@host/name")
        try:
            self._connection = psycopg.connect(url, autocommit=True)
        except psycopg.ProgrammingError:  # its text may quote the URL, password and all
            raise MatcherError(f"{shown}: PostgreSQL cannot read this URL; write postgresql://user@host/name") from None
        except psycopg.OperationalError as error:
            reason = str(error).strip().splitlines()[-1]
            raise MatcherError(
                f"{shown}: no connection ({reason}); is the server running and the name right?"
            ) from None
        weakref.finalize(self, self._connection.close)
        self._error = psycopg.Error
        self._turn = threading.RLock()
        version = self._connection.info.server_version
        self.title = f"PostgreSQL {version // 10000}.{version % 10000}"
        self.run(self.SETTINGS)

    def run(self, statements: Sequence[str], **relations: Columns) -> None:
        with self._reading(relations) as cursor:
            for statement in statements:
                cursor.execute(statement.encode())

    def fetch(self, query: str, **relations: Columns) -> dict[str, npt.NDArray[Any]]:
        import pyarrow.csv  # noqa: PLC0415 - needed here only

        with (
            self._reading(relations) as cursor,
            cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv, HEADER)".encode()) as copy,
        ):
            data = b"".join(copy)
        table = pyarrow.csv.read_csv(pa.py_buffer(data))
        return {name: table[name].cast(pa.int64()).to_numpy() for name in table.column_names}

    def explain(self, query: str, **relations: Columns) -> str:
        with self._reading(relations) as cursor:
            return "\n".join(line for (line,) in cursor.execute(f"EXPLAIN {query}".encode()).fetchall())

    def nbytes(self) -> int:
        used = self.fetch(
            "SELECT sum(pg_total_relation_size(oid))::BIGINT AS bytes FROM pg_class "
            "WHERE relnamespace = pg_my_temp_schema() AND relkind = 'r'"
        )
        return int(used["bytes"].sum())

    @contextmanager
    def _reading(self, relations: Mapping[str, Columns]) -> Iterator[psycopg.Cursor[Any]]:
        """A cursor in a transaction that sees the arrays as tables."""
        with self._turn:
            try:
                with self._connection.transaction(), self._connection.cursor() as cursor:
                    for name, columns in relations.items():
                        self._copy(cursor, name, columns)
                    yield cursor
                    for name in relations:
                        cursor.execute(f"DROP TABLE {name}".encode())
            except self._error as error:
                raise MatcherError(f"{self.title} refused a statement: {error}") from error

    def _copy(self, cursor: psycopg.Cursor[Any], name: str, columns: Columns) -> None:
        import pyarrow.csv  # noqa: PLC0415 - needed here only

        types = ", ".join(f"{column} {self.TYPES[a.dtype.name]}" for column, a in columns.items())
        cursor.execute(f"CREATE TABLE {name} ({types})".encode())
        buffer = io.BytesIO()
        pyarrow.csv.write_csv(pa.table(dict(columns)), buffer, pyarrow.csv.WriteOptions(include_header=False))
        with cursor.copy(f"COPY {name} FROM STDIN (FORMAT csv)".encode()) as copy:
            copy.write(buffer.getbuffer())
        cursor.execute(f"ANALYZE {name}".encode())


def hide_password(url: str) -> str:
    """The URL as it may be shown."""
    return re.sub(r"(password=)[^&\s]*", r"\1...", re.sub(r"(//[^:/@]*):.*@", r"\1@", url))
