"""The configuration of a pipeline: one TOML file, checked whole before anything starts.

::

    [pipeline]
    index = "alerts/index"              # folder or URL
    checkpoint = "alerts/checkpoint"
    output = "pairs"                    # pairs, lists, counts
    names = {error = "why"}             # optional: other names for the columns that are added
    subscribers = true                  # add the other columns of the subscriptions to pairs
    trigger = "1 second"                # or "available-now": take what is there and stop

    [schema]
    file = "schema.json"                # or: attributes = {symbol = "string", price = "double"}

    [subscriptions]
    path = "subscriptions.parquet"      # id, filter and the subscriber's columns
    format = "parquet"
    id = "rule_id"                      # optional: what the table calls its ids; default id
    filter = "condition"                # optional: and its filters; default filter
    options = {header = true}           # optional: Spark's for this format
    sequence = 0                        # number of the last change that the table contains, where there are changes

    [plan]
    strategy = "auto"                   # broadcast, event-space, filter-set
    servers = 8
    rebalance = 2.0                     # largest load by smallest; leave out for never
    sample = "sample.parquet"           # optional: events to plan for; files sources are looked at themselves

    [events]
    source = "files"                    # files, kafka, rate
    path = "events"
    format = "parquet"
    columns = "id BIGINT, symbol STRING, price DOUBLE"      # optional: default the attributes of the schema
    select = ["upper(symbol) AS symbol"]                    # optional: SQL that makes events of the source's rows
    per_trigger = 10                    # files, or Kafka offsets, or rows per second
    options = {}                        # optional: any other of Spark's for this source

    [changes]                           # optional: upserts and deletes while it runs
    source = "files"
    path = "changes"

    [sink]
    kind = "parquet"                    # parquet, kafka, delta, iceberg, jdbc, broker
    path = "matches"
    batch_column = "batch_id"           # optional: what Parquet calls the number of the batch
    partition_by = ["day"]              # optional: columns that become folders of Parquet, inside those of the batches
    goes_on = false                     # optional: whether a stream that has written elsewhere may go on in an empty folder
    written_by = "spark"                # optional: or "python", which writes Parquet while it matches

    [dead_letters]                      # optional: events that do not fit the schema
    kind = "parquet"
    path = "dead-letters"

    [refused_changes]                   # optional: changes that cannot be read or whose filter is refused
    kind = "parquet"
    path = "refused-changes"

    [limits]                            # optional
    layers = 16                         # of a server, laid by changes, before they are merged
    versions = 10                       # kept beside those that a running batch may need; 2 or more

    [spark]                             # optional: settings of the session
    "spark.sql.shuffle.partitions" = 8

Relative paths are relative to the file.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from wherecast.errors import SchemaError, WherecastError
from wherecast.language.events.schema import Schema
from wherecast.spark.columns import Names
from wherecast.spark.sinks.kinds import KINDS

T = TypeVar("T")


class ConfigError(WherecastError):
    """A configuration that cannot be used; the message names table and key."""


@dataclass(frozen=True, slots=True)
class SchemaConfig:
    file: str | None = None
    attributes: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionsConfig:
    path: str
    format: str = "parquet"
    sequence: int = 0
    id: str = "id"
    filter: str = "filter"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlanConfig:
    strategy: str = "auto"
    servers: int | None = None
    rebalance: float | None = None
    sample: str | None = None


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """Where events or changes come from."""

    source: str
    path: str | None = None
    format: str = "parquet"
    servers: str | None = None
    topic: str | None = None
    columns: str | None = None
    select: Sequence[str] | None = None
    per_trigger: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SinkConfig:
    """Where matches or dead letters go."""

    kind: str
    path: str | None = None
    servers: str | None = None
    topic: str | None = None
    url: str | None = None
    table: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    batch_column: str = "batch_id"
    partition_by: Sequence[str] = ()
    goes_on: bool = False
    written_by: str = "spark"


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    layers: int = 16
    versions: int = 10


@dataclass(frozen=True, slots=True)
class PipelineConfig:
    """A whole pipeline."""

    folder: Path
    index: str
    checkpoint: str
    output: str
    subscribers: bool
    trigger: str
    schema: Schema
    subscriptions: SubscriptionsConfig
    plan: PlanConfig
    events: SourceConfig
    changes: SourceConfig | None
    sink: SinkConfig
    dead_letters: SinkConfig | None
    refused_changes: SinkConfig | None
    limits: LimitsConfig
    spark: Mapping[str, Any]
    names: Mapping[str, str]

    def path(self, name: str) -> str:
        """A path of the configuration as seen from here; URLs and absolute paths stay as they are."""
        return name if "://" in name else str(self.folder / name)

    def checkpoint_of(self, query: str) -> str:
        """Where a query keeps its place: `events` or `changes`."""
        return f"{self.path(self.checkpoint).rstrip('/')}/{query}"


_TABLES = (
    "pipeline",
    "schema",
    "subscriptions",
    "plan",
    "events",
    "changes",
    "sink",
    "dead_letters",
    "refused_changes",
    "limits",
    "spark",
)
_CHOICES = {
    "pipeline.output": ("pairs", "lists", "counts"),
    "plan.strategy": ("auto", "broadcast", "event-space", "filter-set"),
    "events.source": ("files", "kafka", "rate"),
    "changes.source": ("files", "kafka"),
    "sink.kind": tuple(KINDS),
    "sink.written_by": ("spark", "python"),
    "dead_letters.kind": tuple(KINDS),
    "refused_changes.kind": tuple(KINDS),
}
_AT_LEAST = {
    "subscriptions.sequence": 0,
    "plan.servers": 1,
    "plan.rebalance": 1,
    "events.per_trigger": 1,
    "changes.per_trigger": 1,
    "limits.layers": 1,
    "limits.versions": 2,  # a batch that is about to begin may still mean the last but one
}
#: Keys that a source or a sink cannot do without: one of each group.
_NEEDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "files": (("path",),),
    "rate": (),
    **{name: kind.needs for name, kind in KINDS.items()},
}
_KINDS: dict[str, tuple[Any, str]] = {
    "str": (str, "a string"),
    "int": (int, "a whole number"),
    "float": ((int, float), "a number"),
    "bool": (bool, "true or false"),
    "Mapping[str, Any]": (dict, "a table"),
    "Sequence[str]": (list, "a list of strings"),
}
#: The trigger that takes what is there, and stops.
AVAILABLE_NOW = "available-now"
_INTERVAL = re.compile(r"\d+ (millisecond|second|minute|hour)s?")


@dataclass(frozen=True, slots=True)
class _Main:
    index: str
    checkpoint: str
    output: str = "pairs"
    subscribers: bool = False
    trigger: str = "1 second"
    names: Mapping[str, Any] = field(default_factory=dict)


def read_config(path: Path) -> PipelineConfig:
    """Read and check a configuration. Raises ConfigError."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"'{path}' cannot be read: {error.strerror or error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"'{path}' is not valid TOML: {error}") from None
    for name, content in tables.items():
        if name not in _TABLES or not isinstance(content, dict):
            raise ConfigError(f"unknown table [{name}]{_like(name, _TABLES)}; there are: {', '.join(_TABLES)}")
    main = _table(_Main, "pipeline", tables)
    if main.subscribers and main.output != "pairs":
        raise ConfigError(f"pipeline.subscribers needs pipeline.output = 'pairs', which is {main.output!r}")
    if main.trigger != AVAILABLE_NOW and not _INTERVAL.fullmatch(main.trigger):
        raise ConfigError(
            f"pipeline.trigger is {main.trigger!r}; expected {AVAILABLE_NOW!r} or an interval such as '5 seconds'"
        )
    return PipelineConfig(
        path.parent.absolute(),
        main.index,
        main.checkpoint,
        main.output,
        main.subscribers,
        main.trigger,
        _schema(_table(SchemaConfig, "schema", tables), path.parent),
        _table(SubscriptionsConfig, "subscriptions", tables),
        _table(PlanConfig, "plan", {"plan": {}, **tables}),
        _table(SourceConfig, "events", tables),
        _table(SourceConfig, "changes", tables) if "changes" in tables else None,
        _table(SinkConfig, "sink", tables),
        _table(SinkConfig, "dead_letters", tables) if "dead_letters" in tables else None,
        _table(SinkConfig, "refused_changes", tables) if "refused_changes" in tables else None,
        _table(LimitsConfig, "limits", {"limits": {}, **tables}),
        tables.get("spark", {}),
        _names(main.names),
    )


def _table(kind: type[T], name: str, tables: Mapping[str, Any]) -> T:
    """One table as its dataclass; keys, choices and what a choice needs are checked."""
    if name not in tables:
        raise ConfigError(f"the table [{name}] is missing")
    content = tables[name]
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    for key in content:
        if key not in known:
            raise ConfigError(f"unknown key {key!r} in [{name}]{_like(key, known)}; there are: {', '.join(known)}")
    for key, about in known.items():
        if key not in content and about.default is MISSING and about.default_factory is MISSING:
            raise ConfigError(f"the key {key!r} is missing in [{name}]")
        _check_value(f"{name}.{key}", content.get(key), str(about.type))
    choice = content.get("source", content.get("kind"))
    for keys in _NEEDS.get(str(choice), ()):
        if not any(content.get(key) for key in keys):
            raise ConfigError(f"[{name}] of {choice} needs the key {' or '.join(map(repr, keys))}")
    return kind(**content)


def _like(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _check_value(place: str, value: Any, declared: str) -> None:
    if value is None:
        return
    choices = _CHOICES.get(place)
    if choices and value not in choices:
        raise ConfigError(f"{place} is {value!r}; there are: {', '.join(choices)}")
    expected, words = _KINDS[declared.removesuffix(" | None")]
    if not isinstance(value, expected) or isinstance(value, bool) != (expected is bool):
        raise ConfigError(f"{place} is {value!r}; expected {words}")
    if place in _AT_LEAST and value < _AT_LEAST[place]:
        raise ConfigError(f"{place} is {value!r}; expected {_AT_LEAST[place]} or more")


def _names(given: Mapping[str, Any]) -> Mapping[str, str]:
    try:
        Names.of(given)
    except SchemaError as error:
        raise ConfigError(f"pipeline.{error}") from None
    return given


def _schema(config: SchemaConfig, folder: Path) -> Schema:
    if (config.file is None) == (config.attributes is None):
        raise ConfigError("[schema] needs either 'file' or 'attributes'")
    try:
        return (
            Schema.of(dict(config.attributes))
            if config.attributes is not None
            else Schema.from_file(folder / str(config.file))
        )
    except (SchemaError, OSError) as error:
        raise ConfigError(f"[schema]: {error}") from None
