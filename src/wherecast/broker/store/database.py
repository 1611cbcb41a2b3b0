"""Opening the database: SQLite in a file, or PostgreSQL; migrations run by themselves.

SQLite runs in WAL mode with synchronous=FULL: a commit returns after fsync of the log. The SQLite of Python's standard
library may have the WAL-reset bug, so `pysqlite3` brings its own, and anything before 3.51.3 is refused
(docs/decisions/0058-a-durable-store.md). On a PostgreSQL server the commit is as durable as its `synchronous_commit`, which is on
by default.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError

from wherecast.errors import WherecastError

#: The first SQLite without the WAL-reset bug.
_LEAST_SQLITE = (3, 51, 3)
_BUSY_MS = 10_000
#: Pages of the log after which a commit starts it over, as SQLite has it; see `checkpoints`.
LOG_PAGES = 1_000


class StoreError(WherecastError):
    """The database cannot be opened, or does not do what is asked of it just now."""


class BrokerDatabase:
    """A database of the broker. Reads run beside each other; only the writer writes."""

    def __init__(self, url: str) -> None:
        self.url = url
        parsed = make_url(url)
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        if self.is_sqlite:
            self.engine = _open_sqlite(parsed.database or "")
        elif parsed.get_backend_name() == "postgresql":
            self.engine = create_engine(
                parsed.set(drivername="postgresql+psycopg"),
                pool_pre_ping=True,
                pool_size=8,
                connect_args={"connect_timeout": 5},
            )
        else:
            raise StoreError(
                f"the database {parsed.get_backend_name()!r} is unknown; write sqlite:///FILE or postgresql://..."
            )

    @property
    def name(self) -> str:
        """The address without a password."""
        return make_url(self.url).render_as_string(hide_password=True)

    def migrate(self) -> None:
        """Bring the tables to the newest form. Several processes may start at once: one migrates, the others wait."""
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        try:
            with self.writing() as connection:
                if not self.is_sqlite:
                    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(8714)")
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        except DBAPIError as error:
            raise StoreError(f"{self.name}: {_first_line(error)}") from error

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection for reads; they see one state of the database."""
        with self._told() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that writes; its end is the commit."""
        with self._told() as idle:
            connection = idle.execution_options(immediate=True) if self.is_sqlite else idle
            with connection.begin():
                yield connection

    def checkpoint(self) -> int:
        """Copy the log of SQLite into the database, as far as that disturbs nobody; how many pages the log has."""
        # A checkpoint cannot be part of a transaction, and SQLAlchemy's connections begin one.
        connection = self.engine.raw_connection()
        try:
            _, pages, _ = connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            return int(pages)
        except self.engine.dialect.loaded_dbapi.Error as error:
            raise StoreError(f"no checkpoint: {error}") from error
        finally:
            connection.close()

    @contextmanager
    def _told(self) -> Iterator[Connection]:
        try:
            with self.engine.connect() as connection:
                yield connection
        except DBAPIError as error:
            raise StoreError(f"the database does not answer: {_first_line(error)}") from error

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def _open_sqlite(path: str) -> Engine:
    import pysqlite3.dbapi2 as sqlite  # noqa: PLC0415 - only here

    if sqlite.sqlite_version_info < _LEAST_SQLITE:
        raise StoreError(
            f"SQLite {sqlite.sqlite_version} may lose committed data (its WAL-reset bug is fixed in 3.51.3); "
            "install a newer pysqlite3"
        )
    if path in ("", ":memory:"):
        raise StoreError("the database must be a file: sqlite:///wherecast.db")
    engine = create_engine(
        f"sqlite:///{path}",
        module=sqlite,
        pool_size=16,
        max_overflow=48,
        connect_args={"check_same_thread": False, "timeout": _BUSY_MS / 1000},
    )

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _: object) -> None:
        connection.isolation_level = None  # transactions begin where SQLAlchemy says so, see below
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute(f"PRAGMA wal_autocheckpoint={LOG_PAGES}")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        is_immediate = connection.get_execution_options().get("immediate", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_immediate else "BEGIN")

    return engine


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).strip().split("\n")[0]
