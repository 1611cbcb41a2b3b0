"""A pipeline from its configuration: build, explain, run.

Also a program for `spark-submit`, and for `python -m wherecast.spark.pipeline CONFIG.toml`: it runs until it is stopped or,
with the trigger `available-now`, until everything is done.
"""

from __future__ import annotations

import logging
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from wherecast.errors import WherecastError
from wherecast.spark.build import Built, build_index, plan_subscriptions
from wherecast.spark.changes import ChangesQuery, follow_changes
from wherecast.spark.clean import stream_name
from wherecast.spark.columns import ERROR, MESSAGE, Output
from wherecast.spark.config import AVAILABLE_NOW, ConfigError, PipelineConfig, SinkConfig, SourceConfig, read_config
from wherecast.spark.files import CheckFiles, Folder, Opened
from wherecast.spark.index import Index
from wherecast.spark.kafka import connector_package, read_changes, read_events
from wherecast.spark.match import check_columns
from wherecast.spark.rules import columns_of
from wherecast.spark.servers import Rebalancer
from wherecast.spark.session import create_session, has_session
from wherecast.spark.sinks.kinds import KINDS
from wherecast.spark.sinks.sink import Sink
from wherecast.spark.stream import MatchQuery, stream
from wherecast.spark.versions import parse_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from wherecast.partition.plan import Plan, Strategy

_PER_TRIGGER = {"files": "maxFilesPerTrigger", "kafka": "maxOffsetsPerTrigger", "rate": "rowsPerSecond"}
_KAFKA_TIMEOUT_S = 5
#: How often a run without a view looks after its queries.
_LOOK_S = 5.0


class PipelineError(WherecastError):
    """A pipeline that cannot start or go on; the message says what stopped it."""


@dataclass(frozen=True, slots=True)
class Running:
    """The queries of a pipeline."""

    matches: MatchQuery
    changes: ChangesQuery | None
    built: Built | None
    """The index, if there was none before."""

    def wait(self, seconds: float) -> bool:
        """Wait for the end, this long at most; whether it has come. Raises PipelineError if a query failed."""
        with plain_errors():
            ended = self.matches.query.awaitTermination(seconds) is True  # type: ignore[arg-type]  # fractions work
            if self.changes is not None and (failure := self.changes.exception()) is not None:
                self.matches.stop()
                raise failure
        return ended

    def stop(self) -> None:
        """Stop both; what is committed stays committed."""
        self.matches.stop()
        if self.changes is not None:
            self.changes.stop()


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A configuration in a session."""

    config: PipelineConfig
    spark: SparkSession

    @property
    def index(self) -> Index:
        return Index(self.config.path(self.config.index))

    def subscriptions(self) -> DataFrame:
        """The table of subscriptions; its ids and filters are called `id` and `filter`, as in changes."""
        about = self.config.subscriptions
        with plain_errors():
            reader = self.spark.read.format(about.format).options(**_texts(about.options))
            rows = reader.load(self._place("subscriptions", about.path))
        for key, name in (("id", about.id), ("filter", about.filter)):
            if name not in rows.columns:
                raise ConfigError(
                    f"the table of subscriptions has no column {name!r}; it has {', '.join(rows.columns)}. "
                    f"Write the one to use as subscriptions.{key}"
                )
            if name != key and key in rows.columns:
                raise ConfigError(
                    f"the subscriptions have the columns {name!r} and {key!r}, and subscriptions.{key} is {name!r}; rename one"
                )
            rows = rows.withColumnRenamed(name, key)
        return rows

    def build(self, *, start_over: bool = False) -> Built:
        """Build a new version of the index from all subscriptions.

        Raises:
            IndexStoreError: the index has changes that the table of subscriptions does not have, and `start_over` is not set.
        """
        plan, sequence = self.config.plan, self.config.subscriptions.sequence
        with plain_errors():
            subscriptions, sample = self.subscriptions(), self.sample()
            return build_index(
                subscriptions,
                self.config.schema,
                self.index.url,
                strategy=cast("Strategy", plan.strategy),
                servers=plan.servers,
                events=sample,
                sequence=sequence,
                start_over=start_over,
            )

    def explain(self) -> Plan:
        """The plan that a build would use; nothing is written."""
        plan = self.config.plan
        strategy = cast("Strategy", plan.strategy)
        with plain_errors():
            return plan_subscriptions(self.subscriptions(), self.config.schema, strategy, plan.servers, self.sample())

    def sample(self) -> DataFrame | None:
        """Events to plan for: those of `plan.sample`, else what a source of files has so far."""
        source, name = self.config.events, self.config.plan.sample
        if name is not None:
            return self.spark.read.load(self._place("plan", name))
        if source.source != "files":
            return None
        place = self._place("events", str(source.path))
        if "://" not in place and not any(Path(place).iterdir()):
            return None
        events = _select(self._open_events(stream=False).rows, source)
        return events.where(f"{ERROR} IS NULL").drop(ERROR, MESSAGE) if ERROR in events.columns else events

    def run(self) -> Running:
        """Build the index if there is none, then start matching, and following changes where they are configured."""
        with plain_errors():
            events, check = self._events()
            built = None if self.index.versions() else self.build()
            check_columns(events, self.index.read())
            changes = self._follow_changes()
            try:
                return Running(self._match(events, check), changes, built)
            except BaseException:
                if changes is not None:
                    changes.stop()
                raise

    def events(self) -> DataFrame:
        """The stream of events; those that cannot be read carry the reason in a column `__wherecast_error`."""
        return self._events().rows

    def _events(self) -> Opened:
        source, check = self.config.events, None
        if source.source == "kafka":
            check_brokers("events", str(source.servers))
            columns = self._columns(source)
            events = read_events(self.spark, str(source.servers), str(source.topic), columns, **_options(source))
        elif source.source == "rate":
            events = self.spark.readStream.options(**_options(source)).format("rate").load()
        else:
            events, check = self._open_events(stream=True)
        return Opened(_select(events, source), check)

    def _open_events(self, *, stream: bool) -> Opened:
        """Events of files."""
        source = self.config.events
        folder = self._folder("events", source, stream=stream)
        return folder.events(self._columns(source), declared=source.columns is not None)

    def changes(self) -> DataFrame | None:
        """The stream of changes, where there is one."""
        opened = self._changes()
        return None if opened is None else opened.rows

    def _changes(self) -> Opened | None:
        source, manifest = self.config.changes, self.index.read()
        if source is None:
            return None
        id_type, rules = manifest.id_type, columns_of(manifest)
        if source.source == "kafka":
            check_brokers("changes", str(source.servers))
            topic = str(source.servers), str(source.topic)
            return Opened(read_changes(self.spark, *topic, id_type, rules, **_options(source)))
        return self._folder("changes", source, stream=True).changes(id_type, rules)

    def _columns(self, source: SourceConfig) -> StructType:
        from pyspark.errors import PySparkException

        if source.columns is None:
            return self.config.schema.to_spark()
        try:
            return _struct(source.columns)
        except PySparkException as error:
            raise ConfigError(f"events.columns is not a list of columns with types: {brief(error)}") from None

    def _match(self, events: DataFrame, check: CheckFiles | None) -> MatchQuery:
        """Start matching."""
        config, stored = self.config, columns_of(self.index.read()).names
        join = config.subscribers and not stored  # an index of an older release has no columns
        return stream(
            events,
            self.index,
            self._sink("sink"),
            config.checkpoint_of("events"),
            output=cast("Output", config.output),
            subscribers=self.subscriptions().drop("filter", "priority") if join else None,
            columns=[n for n in stored if n != "priority"] if config.subscribers and config.output == "pairs" else (),
            dead_letters=None if config.dead_letters is None else self._sink("dead_letters"),
            rebalancer=None if config.plan.rebalance is None else Rebalancer(config.plan.rebalance),
            trigger=_trigger(config.trigger),
            name="wherecast",
            names=config.names,
            check_files=check,
        )

    def _follow_changes(self) -> ChangesQuery | None:
        """Start to apply changes; those that are there already come before events that are there already."""
        opened, limits = self._changes(), self.config.limits
        if opened is None:
            return None
        query = follow_changes(
            opened.rows,
            self.index,
            self.config.checkpoint_of("changes"),
            dead_letters=None if self.config.refused_changes is None else self._sink("refused_changes"),
            most_layers=limits.layers,
            keep_versions=limits.versions,
            check_files=opened.check,
            **_trigger(self.config.trigger),
        )
        if self.config.trigger == AVAILABLE_NOW:
            query.awaitTermination()
        return query

    def _folder(self, table: str, source: SourceConfig, *, stream: bool) -> Folder:
        """The folder of a source of files."""
        options = _options(source) if stream else _texts(source.options)
        return Folder(self.spark, self._place(table, str(source.path)), source.format, options, stream)

    def _sink(self, table: str) -> Sink:
        sink: SinkConfig = getattr(self.config, table)
        if sink.servers is not None:
            check_brokers(table, sink.servers)
        path = None if sink.path is None else self.config.path(sink.path)
        described = replace(sink, path=path, options=_texts(sink.options))
        return KINDS[sink.kind].of(described, self._application(table))

    def _application(self, table: str) -> str:
        """What a Delta table calls the writer of a sink: others that write to that table must not be taken for it."""
        query = "changes" if table == "refused_changes" else "events"
        return f"wherecast-{stream_name(self.config.checkpoint_of(query))}-{table}"

    def _place(self, table: str, name: str) -> str:
        """A path that must be there; URLs are left to Spark."""
        place = self.config.path(name)
        if "://" not in place and not Path(place).exists():
            raise ConfigError(f"[{table}]: there is no '{place}'")
        return place


@contextmanager
def open_pipeline(config: PipelineConfig, master: str | None = None) -> Iterator[Pipeline]:
    """A pipeline in a session: the one that runs already, else one that ends with it."""
    borrowed = has_session()
    logging.getLogger("py4j.clientserver").setLevel(
        logging.CRITICAL
    )  # what a batch raises is its query's error as well
    try:
        spark = create_session("wherecast", master, **config.spark)
    except WherecastError:
        raise
    except Exception as error:
        raise PipelineError(f"Spark does not start (master {master or 'by default'}): {brief(error)}") from error
    try:
        yield Pipeline(config, spark)
    finally:
        if not borrowed:
            spark.stop()


def check_brokers(table: str, servers: str) -> None:
    """Raises PipelineError if no Kafka broker can be reached: Spark itself would try for a long time, in silence."""
    reasons = []
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _KAFKA_TIMEOUT_S).close()
        except ValueError:
            raise ConfigError(
                f"{table}.servers is {servers!r}; expected a list such as 'host:9092,other:9092'"
            ) from None
        except OSError as error:
            reasons.append(f"{server.strip()}: {error.strerror or error}")
        else:
            return
    raise PipelineError(f"[{table}]: no Kafka broker answers ({'; '.join(reasons)}); is it running?")


@contextmanager
def plain_errors() -> Iterator[None]:
    """Spark's errors, which may be pages long, as a PipelineError of one line."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise PipelineError(brief(error)) from error


def brief(error: Exception) -> str:
    """What went wrong, in one line: our own error where one is behind it."""
    text = str(error)
    if "data source: kafka" in text:
        return (
            f"this Spark session has no Kafka connector; add {connector_package()}: "
            f'"spark.jars.packages" in [spark], or --packages of spark-submit'
        )
    raised = re.findall(r"^\s*(?:: |Caused by: )?([\w.]+(?:Error|Exception)): (.+)$", text, re.MULTILINE)
    raised = [
        (name, message) for name, message in raised if not name.startswith("py4j.")
    ]  # these only say: Java failed
    ours = [message for name, message in raised if name.startswith("wherecast.")]
    if ours:
        return str(ours[-1])
    if "Traceback (most recent call last)" in text and raised:
        return ": ".join(raised[-1])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _select(events: DataFrame, source: SourceConfig) -> DataFrame:
    """Events as `select` makes them; what is wrong with one stays with it."""
    if not source.select:
        return events
    return events.selectExpr(*source.select, *(name for name in (MESSAGE, ERROR) if name in events.columns))


def _options(source: SourceConfig) -> dict[str, str]:
    """Spark's options of a source."""
    limit = {} if source.per_trigger is None else {_PER_TRIGGER[source.source]: source.per_trigger}
    return _texts({**limit, **source.options})


def _trigger(text: str) -> dict[str, Any]:
    return {"availableNow": True} if text == AVAILABLE_NOW else {"processingTime": text}


def _struct(declared: str) -> StructType:
    return parse_columns(declared)


def _texts(options: Any) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}


def main(arguments: list[str]) -> int:
    """Run a pipeline to its end; the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m wherecast.spark.pipeline CONFIG.toml\n")
        return 2
    try:
        with open_pipeline(read_config(Path(arguments[0]))) as pipeline:
            running = pipeline.run()
            if running.built is not None and (refused := running.built.quarantine.count()):
                sys.stderr.write(f"{refused:,} subscriptions were refused; `wherecast pipeline build` names them\n")
            while not running.wait(_LOOK_S):
                pass
    except WherecastError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, ConfigError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
