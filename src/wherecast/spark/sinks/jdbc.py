"""Tables of a database, through JDBC: one transaction takes a batch in, together with its key.

Theory of operation. Spark's own JDBC writer appends partition by partition, each in a transaction of its own. A run that is killed half
way leaves some of them, and the next attempt appends all again. So the writer fills a *staging table* of this attempt
only, which nobody reads. Then one transaction

1. puts the batch's key into the *ledger*, a table `wherecast_batches` beside the target, where keys are unique;
2. copies the rows, `INSERT INTO target SELECT ... FROM staging`.

Either both are there or neither. If the key is in the ledger already, the batch is in the target, and nothing is done. Staging
tables of attempts that were killed are dropped with the next attempt at the batch. This is plain SQL that every database with
transactions understands; `INSERT ... ON CONFLICT` differs between databases, and would need a key in the rows.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from wherecast.spark.sinks.sink import Sink, SinkError, computed, refuse_lost_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from wherecast.spark.config import SinkConfig
    from wherecast.spark.stream import Batch

LEDGER = "wherecast_batches"
#: Classes of drivers by the beginning of the URL; for others the option `driver` says it.
_DRIVERS = {
    "jdbc:postgresql:": "org.postgresql.Driver",
    "jdbc:mysql:": "com.mysql.cj.jdbc.Driver",
    "jdbc:mariadb:": "org.mariadb.jdbc.Driver",
    "jdbc:sqlserver:": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
}
_NAME = re.compile(r"(?:\w+\.)?(\w+)")


class Jdbc(Sink):
    """A table of a database; needs the database's JDBC driver in the session, and not Spark Connect.

    The table is made if it is missing. `options` are those of Spark's JDBC writer: `user`, `password`, `driver`, `batchsize`.
    """

    needs = (("url",), ("table",))

    def __init__(self, url: str, table: str, options: Mapping[str, str] | None = None) -> None:
        if not _NAME.fullmatch(table):
            raise SinkError(f"the table is {table!r}; expected a name such as 'matches' or 'public.matches'")
        self.url = url
        self.table = table
        driver = next((name for start, name in _DRIVERS.items() if url.startswith(start)), None)
        self.options = {**({} if driver is None else {"driver": driver}), **(options or {})}
        if "driver" not in self.options:
            raise SinkError(
                f"the driver of {url.partition('?')[0]} is not known; give its class as the option 'driver'"
            )

    @classmethod
    def of(cls, config: SinkConfig, application: str) -> Self:  # noqa: ARG003 - keys have the stream
        return cls(str(config.url), str(config.table), config.options)

    def holds(self, batch: Batch) -> bool:
        """A batch is in when its key is in the ledger."""
        from pyspark.sql import SparkSession

        with self._connect(SparkSession.active()) as database:
            return database.has_table(self._beside(LEDGER)) and database.has_key(self._beside(LEDGER), batch.key)

    def write(self, matches: DataFrame, batch: Batch) -> None:
        """Fill a staging table, then take it over in one transaction."""
        prefix = f"{self._beside('wherecast_')}{hashlib.sha256(batch.key.encode()).hexdigest()[:16]}_"
        staging = f"{prefix}{secrets.token_hex(4)}"
        with self._connect(matches.sparkSession) as database:
            is_new = not database.has_table(self.table)
            if is_new:
                refuse_lost_table(self.table, batch)
            with computed(matches) as rows:
                for old in database.tables_like(prefix):
                    database.drop(old)
                if not database.has_table(self._beside(LEDGER)):
                    database.make_ledger(self._beside(LEDGER))
                if is_new:
                    self._save(rows.limit(0), self.table, "append")
                self._save(rows, staging, "error")
                try:
                    database.take_over(staging, self.table, rows.columns, self._beside(LEDGER), batch.key)
                finally:
                    database.drop(staging)

    def _save(self, rows: DataFrame, table: str, mode: str) -> None:
        rows.write.format("jdbc").options(**self.options).option("url", self.url).option("dbtable", table).mode(
            mode
        ).save()

    def _beside(self, name: str) -> str:
        """A table in the schema of ours."""
        schema, dot, _ = self.table.rpartition(".")
        return f"{schema}{dot}{name}"

    @contextmanager
    def _connect(self, spark: SparkSession) -> Iterator[_Database]:
        """A connection through the session's own JVM, which has the driver."""
        jvm = getattr(spark, "_jvm", None)
        if jvm is None:
            raise SinkError("a JDBC sink needs a session with a JVM of its own, and this one is a Spark Connect client")
        properties = jvm.java.util.Properties()
        for name, value in self.options.items():
            properties.setProperty(name, value)
        try:
            jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry.register(self.options["driver"])
            connection = jvm.java.sql.DriverManager.getConnection(self.url, properties)
        except Exception as error:  # noqa: BLE001 - what Java throws comes in several classes
            cause = str(getattr(error, "java_exception", error)).splitlines()[0]
            raise SinkError(
                f"{self.url.partition('?')[0]} cannot be reached ({cause}); is the database running, and its JDBC driver in the "
                'session ("spark.jars.packages")?'
            ) from None
        try:
            yield _Database(connection)
        finally:
            connection.close()


class _Database:
    """The few statements that are not Spark's."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.about = connection.getMetaData()

    def tables_like(self, prefix: str) -> list[str]:
        """Tables whose names begin so, with the schema as given."""
        schema, dot, name = self._stored(prefix).rpartition(".")
        escape = self.about.getSearchStringEscape()
        pattern = re.sub(r"([_%\\])", lambda found: escape + found[1], name) + "%"
        rows = self.about.getTables(None, schema or self.connection.getSchema(), pattern, None)
        found = []
        while rows.next():
            found.append(f"{schema}{dot}{rows.getString('TABLE_NAME')}")
        return found

    def has_table(self, name: str) -> bool:
        return self._stored(name) in self.tables_like(name)

    def _stored(self, name: str) -> str:
        """A name without quotes, as the database keeps it."""
        if self.about.storesLowerCaseIdentifiers():
            return name.lower()
        return name.upper() if self.about.storesUpperCaseIdentifiers() else name

    def has_key(self, ledger: str, key: str) -> bool:
        query = self.connection.prepareStatement(f"SELECT 1 FROM {ledger} WHERE batch = ?")  # noqa: S608 - a checked name
        query.setString(1, key)
        found = bool(query.executeQuery().next())
        query.close()
        return found

    def make_ledger(self, name: str) -> None:
        self._run(
            f"CREATE TABLE {name} (batch VARCHAR(250) PRIMARY KEY, written TIMESTAMP DEFAULT CURRENT_TIMESTAMP)",
            unless=lambda: self.has_table(name),  # another stream's first batch may be quicker
        )

    def drop(self, table: str) -> None:
        self._run(f"DROP TABLE {table}")

    def take_over(self, staging: str, target: str, columns: Sequence[str], ledger: str, key: str) -> None:
        """Rows and key in one transaction; nothing if the key is there."""
        quote = self.about.getIdentifierQuoteString()
        names = ", ".join(quote + name.replace(quote, quote * 2) + quote for name in columns)
        self.connection.setAutoCommit(False)
        try:
            enter = self.connection.prepareStatement(f"INSERT INTO {ledger} (batch) VALUES (?)")  # noqa: S608 - a checked name
            enter.setString(1, key)
            enter.executeUpdate()
            copy = f"INSERT INTO {target} ({names}) SELECT {names} FROM {staging}"  # noqa: S608 - checked and quoted names
            self.connection.createStatement().executeUpdate(copy)
            self.connection.commit()
        except Exception:
            self.connection.rollback()
            if not self.has_key(ledger, key):  # else a run that was thought dead was quicker
                raise
        finally:
            self.connection.setAutoCommit(True)

    def _run(self, statement: str, unless: Callable[[], bool] = lambda: False) -> None:
        try:
            self.connection.createStatement().execute(statement)
        except Exception:
            if not unless():
                raise
