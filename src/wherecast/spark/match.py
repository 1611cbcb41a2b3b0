"""Match: events in, matches out, the same call for batch and stream, classic Spark and Spark Connect.

Broadcast: every task maps the whole index and matches the events it has. Other plans: events are routed (those that no
summary admits are dropped), sent to their servers by `repartitionById`, and matched there. Tasks (`MatchTask`) get the
address of the index and a manifest, nothing else; what they open they keep for the tasks that follow.

Nothing is reported twice: a subscription may live on several servers, but no event is sent to two of these. Event-space
sends an event to the owner of its bucket, and to the residual server, which has other subscriptions; filter-set has every
subscription once.

What matching took and found (`Numbers`) is counted while the result is computed, by Spark's observations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.engine.engine import Engine
from wherecast.engine.matches import Matches
from wherecast.errors import EventError, SchemaError
from wherecast.language.events.convert import field_of, struct_of
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.spark.columns import (
    CANDIDATES,
    ERROR,
    FOUND,
    ID,
    IDS,
    PREFIX,
    SERVER,
    SERVERS,
    WHY,
    NameRule,
    Names,
    Output,
    Path,
    check_moments,
    check_session,
    quoted,
    renamed,
    resolve,
    rule_field,
    without_dots,
)
from wherecast.spark.index import Index
from wherecast.spark.manifest import Manifest
from wherecast.spark.rules import RuleTable, arrow_form, choose_columns, columns_of
from wherecast.spark.versions import repartition_by_id

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession
    from pyspark.sql.types import DataType, StructType


NAMES = ("events", "errors", "sent", "dropped", "candidates", "matches")


class Numbers:
    """Counts what matching does: pass one to `match`, compute the result, then call `get`.

    - `events`, and those of them that are `errors`, because a value does not fit the schema;
    - `sent`: pairs of event and server, and `dropped`: events that were sent to no server because no summary admits them;
    - `candidates`: clauses that events were compared with, estimated from some of the events;
    - `matches`: pairs of event and subscription.
    """

    def __init__(self) -> None:
        self._observations: list[Observation] = []

    def observe(self, frame: DataFrame, **numbers: str) -> DataFrame:
        """Count on the way: SQL aggregates by the name of their number. Every call costs Spark a few milliseconds."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812

        self._observations.append(Observation())
        return frame.observe(self._observations[-1], *(F.expr(f"{sql} AS {name}") for name, sql in numbers.items()))

    def get(self) -> dict[str, int]:
        """The numbers by name; waits until the result has been computed."""
        return {name: int(value or 0) for part in self._observations for name, value in part.get.items()}


_EVENT = f"{PREFIX}_event"
#: Rule columns that a caller asks for: names, names with other ones for the result, or `*`.
RuleColumns: TypeAlias = Iterable[str] | Mapping[str, str] | str


def match(
    events: DataFrame,
    index: Index | str,
    *,
    output: Output = "pairs",
    version: int | Manifest | None = None,
    subscribers: DataFrame | None = None,
    unmatched: bool = False,
    explain: bool = False,
    on_error: Literal["raise", "skip", "keep"] = "raise",
    numbers: Numbers | None = None,
    names: Mapping[str, str] | Names | None = None,
    columns: RuleColumns = (),
) -> DataFrame:
    """Match events against an index: `events.transform(match, index)`.

    Args:
        events: Columns are found by name, as `spark.sql.caseSensitive` says; those that filters do not use are passed
            through, missing ones are NULL. An event that is known to be bad carries the reason in a column
            `__wherecast_error` and is matched with nothing.
        index: An `Index`, or its path.
        output: `pairs`: the event and one `subscription` per row. `lists`: one row per event with an array
            `subscriptions`. `counts`: one row per event with the number `matches`.
        version: The version to match against; by default the current one, decided now.
        subscribers: A DataFrame with a column `id`; its other columns are joined to each pair.
        unmatched: Whether `lists` and `counts` keep events that match nothing.
        explain: Adds `explanation` to pairs: which clause held and why. Slow: meant for a few events.
        on_error: What becomes of an event with a value that does not fit the schema: `raise` fails the query, `skip` leaves the
            event out, both as in `Engine.match_batch`; `keep` keeps it with the reason in a column `error`.
        numbers: Filled with counts once the result has been computed.
        names: Other names for the columns that are added, such as `{"subscription": "rule"}`, where the events have columns
            of these names.
        columns: Rule columns to add to each match, as they are in the version: their names, a mapping to other names, or
            `*` for all. In `lists`, the elements of `subscriptions` are then structs of the id and these columns.
    """
    if on_error not in ("raise", "skip", "keep"):
        raise ValueError(f"on_error must be 'raise', 'skip' or 'keep', got {on_error!r}")
    index = Index(index) if isinstance(index, str) else index
    manifest = version if isinstance(version, Manifest) else index.read(version)
    names = Names.of(names)
    rules = choose_rules(columns, output, manifest, events.sparkSession)
    added = [FOUND[output], *(["explanation"] if explain else []), *(["error"] if on_error == "keep" else [])]
    names.refuse_clashes(added, events, subscribers, rules.values() if output == "pairs" else ())
    found_at = check_columns(events, manifest)
    plain = without_dots(events.columns)
    events = renamed(events, plain)
    known = Schema.from_json(manifest.schema)
    where = tuple((known[name].column, (plain.get(path[0], path[0]), *path[1:])) for name, path in found_at.items())
    task = MatchTask(
        index.url,
        manifest,
        counts=output == "counts",
        explain=explain and output == "pairs",
        tally=numbers is not None,
        strict=on_error == "raise",
        columns=where,
        rules=tuple(rules),
    )
    if manifest.plan is None:
        found = _match_here(events, task, numbers)
    else:
        keep_events, keep_errors = unmatched and output != "pairs", on_error == "keep"
        found = _match_routed(events, task, output, numbers, keep_events=keep_events, keep_errors=keep_errors)
    result = _shape(found, output, subscribers, unmatched, names, rules, keep_errors=on_error == "keep")
    return renamed(result, {other: name for name, other in plain.items()})


def choose_rules(chosen: RuleColumns, output: Output, manifest: Manifest, spark: SparkSession) -> dict[str, str]:
    """Rule columns that are asked for, and what the result calls them."""
    rules = choose_columns(chosen, manifest, spark) if chosen else {}
    if rules and output == "counts":
        raise SchemaError("output='counts' tells no rules, so it has no rule columns; use 'pairs' or 'lists'")
    return rules


def check_columns(events: DataFrame, manifest: Manifest) -> dict[str, Path]:
    """Where attributes are. Raises SchemaError if that is not clear, or none is there that a filter asks for."""
    known = Schema.from_json(manifest.schema)
    found = resolve(events.schema, known, manifest.attributes, NameRule.of(events.sparkSession))
    if manifest.attributes and not found.keys() & set(manifest.attributes):
        names = ", ".join(a.name for a in known)
        raise SchemaError(f"the events have none of the attributes that filters ask for ({names}); check the columns")
    check_session(events.sparkSession, known)
    check_moments(events.schema, known, {name: path for name, path in found.items() if name in manifest.attributes})
    return found


def _match_here(events: DataFrame, task: MatchTask, numbers: Numbers | None) -> DataFrame:
    found = events.mapInArrow(task.match_here, _with(events, _result_fields(task)))
    if numbers is None:
        return found
    here = {"events": "count(1)", "sent": "count(1)", "dropped": "0", "errors": f"count({ERROR})"}
    return numbers.observe(found, **here, **_outcome(task))


def _outcome(task: MatchTask) -> dict[str, str]:
    """Numbers of what tasks answer, as SQL."""
    return {"candidates": f"sum({CANDIDATES})", "matches": f"sum({IDS})" if task.counts else f"sum(size({IDS}))"}


def _match_routed(
    events: DataFrame,
    task: MatchTask,
    output: Output,
    numbers: Numbers | None,
    *,
    keep_events: bool,
    keep_errors: bool,
) -> DataFrame:
    """Events by way of their servers. Those that have none travel only if they are wanted in the result."""
    from pyspark.sql import functions as F  # noqa: N812

    original = events
    if output != "pairs":
        if events.isStreaming:
            raise SchemaError(
                f"output={output!r} brings together what several servers found, which a stream cannot do on its own; "
                "use output='pairs', a broadcast index, or wherecast.spark.stream"
            )
        events = events.withColumn(_EVENT, F.monotonically_increasing_id())
    routed = events.mapInArrow(task.route, _with(events, _route_fields()))
    if numbers is not None:
        dropped = f"count_if(size({SERVERS}) = 0 AND {ERROR} IS NULL)"
        traffic = {"events": "count(1)", "sent": f"sum(size({SERVERS}))", "dropped": dropped}
        routed = numbers.observe(routed, **traffic, errors=f"count({ERROR})")
    n = len(task.manifest.servers)
    sent = routed.withColumn(SERVER, F.explode_outer(SERVERS)).drop(SERVERS)
    if not keep_events:
        sent = sent.where(f"{SERVER} IS NOT NULL" + (f" OR {ERROR} IS NOT NULL" if keep_errors else ""))
    anywhere = "0" if output == "pairs" else f"int(pmod({_EVENT}, {n}))"
    sent = repartition_by_id(sent, n, F.expr(f"coalesce({SERVER}, {anywhere})"))
    result = sent.mapInArrow(task.match_served, _with(events, _result_fields(task)))
    if numbers is not None:
        result = numbers.observe(result, **_outcome(task))
    if output == "pairs":
        return result
    columns = [F.first(quoted(c)).alias(c) for c in original.columns if c != ERROR]
    ids = F.sum(IDS).alias(IDS) if task.counts else F.flatten(F.collect_list(IDS)).alias(IDS)
    return result.groupBy(_EVENT).agg(*columns, ids, F.first(ERROR).alias(ERROR)).drop(_EVENT)


def _route_fields() -> list[tuple[str, DataType]]:
    from pyspark.sql.types import ArrayType, IntegerType, StringType

    return [(SERVERS, ArrayType(IntegerType())), (ERROR, StringType())]


def _result_fields(task: MatchTask) -> list[tuple[str, DataType]]:
    from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

    found: DataType = LongType() if task.manifest.id_type == "bigint" else StringType()
    if task.is_wide:
        known = columns_of(task.manifest)
        why = [StructField(WHY, StringType())] if task.explain else []
        rules = [StructField(rule_field(n), known[name].dataType) for n, name in enumerate(task.rules)]
        found = StructType([StructField(ID, found), *why, *rules])
    tally: list[tuple[str, DataType]] = [(CANDIDATES, LongType())] if task.tally else []
    return [(IDS, LongType() if task.counts else ArrayType(found)), *tally, (ERROR, StringType())]


def _with(events: DataFrame, fields: list[tuple[str, DataType]]) -> StructType:
    from pyspark.sql.types import StructField, StructType

    more = [StructField(name, kind) for name, kind in fields]
    return StructType([*(f for f in events.schema.fields if f.name != ERROR), *more])


def _shape(
    found: DataFrame,
    output: Output,
    subscribers: DataFrame | None,
    unmatched: bool,
    names: Names,
    rules: Mapping[str, str],
    *,
    keep_errors: bool,
) -> DataFrame:
    """What was asked for, of events with what they match. In few steps: Spark analyses the whole plan anew at each."""
    from pyspark.sql import functions as F  # noqa: N812

    own = [quoted(c) for c in found.columns if c not in (IDS, CANDIDATES, ERROR)]
    error = [F.col(ERROR).alias(names.error)] if keep_errors else []
    if output == "pairs":
        return _pairs(found, own, error, subscribers, names, rules)
    any_match = "true" if unmatched else f"{IDS} > 0" if output == "counts" else f"size({IDS}) > 0"
    wanted = f"{ERROR} IS NOT NULL OR {any_match}" if keep_errors else f"{ERROR} IS NULL AND {any_match}"
    ids = F.col(IDS)
    if rules:
        ids = F.transform(ids, lambda match: F.struct(*_parts_of(match, names, rules)))
    return found.where(wanted).select(*own, ids.alias(names.found(output)), *error)


def _parts_of(match: Column, names: Names, rules: Mapping[str, str]) -> list[Column]:
    """The id and the rule columns of a match, under the names that the caller knows."""
    shown = [match[rule_field(n)].alias(name) for n, name in enumerate(rules.values())]
    return [match[ID].alias(names.subscription), *shown]


def _pairs(
    found: DataFrame,
    own: list[Column],
    error: list[Column],
    subscribers: DataFrame | None,
    names: Names,
    rules: Mapping[str, str],
) -> DataFrame:
    """A row for each id; of an event that has none, one row if it has an error that is kept."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import ArrayType, StructType

    explode = F.explode_outer if error else F.explode
    found_type = cast("ArrayType", found.schema[IDS].dataType).elementType
    if isinstance(found_type, StructType):
        matches = found.select(*own, explode(IDS).alias(IDS), *error)
        parts = _parts_of(F.col(IDS), names, rules)
        why = [F.col(IDS)[WHY].alias(names.explanation)] if WHY in found_type.names else []
        pairs = matches.select(*own, *parts, *why, *([quoted(names.error)] if error else []))
    else:
        pairs = found.select(*own, explode(IDS).alias(names.subscription), *error)
    if error:
        pairs = pairs.where(quoted(names.subscription).isNotNull() | quoted(names.error).isNotNull())
    if subscribers is not None:
        return pairs.join(subscribers.withColumnRenamed("id", names.subscription), names.subscription, "left")
    return pairs


# What tasks do

#: Matches held at a time, about: larger batches of events are cut so that what they match fits in memory.
_MATCHES = 4_000_000
#: Bytes of matches with their rule columns, likewise.
_BYTES = 256_000_000
_FIRST_PIECE = 2_000
#: Events of a piece whose candidates are counted, to stand for all: counting takes as long as matching.
_TALLIED = 50

Errors = dict[int, str]


@dataclass(slots=True)
class Pace:
    """How many events are matched at a time; it follows what they match."""

    events: int = _FIRST_PIECE


class Served(NamedTuple):
    """What a task has open of a server."""

    engine: Engine
    rules: RuleTable | None
    """None: no rule columns are asked for."""


@dataclass(frozen=True, slots=True)
class MatchTask:
    """How one version of an index is asked. Sent to tasks, so it holds names and numbers only.

    The manifest goes along: a task must not look one up by its number, which a new index at the same place has again.
    """

    url: str
    manifest: Manifest
    counts: bool
    explain: bool
    tally: bool
    """Whether candidates are counted."""
    strict: bool
    """An event that does not fit the schema fails the task; otherwise it carries its error."""
    columns: tuple[tuple[str, Path], ...]
    """Where attributes are (see `columns`); those that are not there are NULL."""
    rules: tuple[str, ...] = ()
    """Rule columns that go along with ids."""

    @property
    def is_wide(self) -> bool:
        """Whether a match is a struct of its id and more."""
        return self.explain or bool(self.rules)

    def match_here(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Events against the one server of a broadcast index."""
        server, pace = self._open(0), Pace()
        for batch in batches:
            good, refused = self._set_apart(batch)
            if refused.num_rows:
                yield self._nothing(refused)
            yield from self._match(server, good, pace)

    def route(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Events with the servers they go to."""
        plan = Index(self.url).plan(self.manifest)
        assert plan is not None
        for batch in batches:
            good, refused = self._set_apart(batch)
            if refused.num_rows:
                nowhere = _empty_lists(refused.num_rows, pa.int32())
                yield _extend(_own_columns(refused), {SERVERS: nowhere, ERROR: refused.column(ERROR)})
            events = EventBatch.read(plan.schema, self._attributes(good), on_error="raise" if self.strict else "skip")
            routes = plan.route(events)
            counts = np.bincount(events.rows[routes.event_ids], minlength=good.num_rows)
            servers = pa.ListArray.from_arrays(pa.array(_offsets(counts)), pa.array(routes.servers, pa.int32()))
            yield _extend(good, {SERVERS: servers, ERROR: _error_column(_errors(events.errors), good.num_rows)})

    def match_served(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Routed events against the server they were sent to."""
        pace = Pace()
        for batch in batches:
            servers = batch.column(SERVER)
            for server in servers.unique().to_pylist():
                chosen = pc.is_null(servers) if server is None else pc.equal(servers, server)
                mine = batch.filter(chosen)
                if server is None:  # nobody's: nothing matches, only errors are carried on
                    yield self._nothing(mine)
                    continue
                yield from self._match(self._open(server), mine, pace)

    def _open(self, server: int) -> Served:
        index = Index(self.url)
        rules = index.serve_rules(self.manifest, server) if self.rules else None
        return Served(index.serve(self.manifest, server), rules)

    def without(self, missing: set[str]) -> MatchTask:
        """The task for events that lack some columns."""
        return replace(self, columns=tuple(c for c in self.columns if c[1][0] not in missing)) if missing else self

    def _attributes(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The attributes of events under their own names; nothing is copied."""
        if not self.columns:
            return batch
        arrays = []
        for _, (column, *fields) in self.columns:
            array = batch.column(column)
            for field in fields:
                struct = struct_of(array.type, in_lists=True)
                assert struct is not None  # the driver has looked
                array = field_of(array, struct.get_field_index(field))
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, [name for name, _ in self.columns])

    def _set_apart(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Events to match, and those that came with an error, which match nothing and keep it."""
        if ERROR not in batch.schema.names:
            return batch, batch.slice(0, 0)
        refused = batch.filter(pc.is_valid(batch.column(ERROR)))
        if self.strict and refused.num_rows:
            raise EventError(str(refused.column(ERROR)[0]))
        return _own_columns(batch.filter(pc.is_null(batch.column(ERROR)))), refused

    def _match(self, server: Served, batch: pa.RecordBatch, pace: Pace) -> Iterator[pa.RecordBatch]:
        """A batch with its matches, in pieces, so that not too many matches are held at a time."""
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, pace.events)
            matches = server.engine.match_batch(self._attributes(piece), on_error="raise" if self.strict else "skip")
            answer = self._answer(server, piece, matches)
            share = max(matches.total() / _MATCHES, answer.column(IDS).nbytes / _BYTES) / max(piece.num_rows, 1)
            yield answer
            start += piece.num_rows
            pace.events = max(1, int(1 / max(share, 0.01 / _MATCHES)))

    def _answer(self, server: Served, batch: pa.RecordBatch, matches: Matches) -> pa.RecordBatch:
        """The events of a batch with what they match."""
        counts = np.zeros(batch.num_rows, np.int64)  # some may have been left out of matching
        counts[matches.rows] = matches.counts()
        columns: dict[str, Any] = {}
        if self.counts:
            columns[IDS] = pa.array(counts)
        else:
            places = None if server.rules is None else matches.places()
            ids = matches.to_list_array().flatten() if places is None else server.engine.ids_at(places)
            ids = ids.cast(self._id_type)  # an engine without ids knows no type of them
            columns[IDS] = pa.ListArray.from_arrays(pa.array(_offsets(counts)), ids)
            if self.is_wide:
                columns[IDS] = self._widen(server, columns[IDS], self._attributes(batch), places)
        if self.tally:
            total = np.zeros(batch.num_rows, np.int64)
            sample = self._attributes(batch.slice(0, _TALLIED))
            total[:1] = round(server.engine.candidates(sample) * batch.num_rows)
            columns[CANDIDATES] = pa.array(total)
        columns[ERROR] = _error_column(_errors(matches.errors), batch.num_rows)
        return _extend(_own_columns(batch), columns)

    def _widen(
        self, server: Served, lists: pa.ListArray, events: pa.RecordBatch, places: npt.NDArray[np.int64] | None
    ) -> pa.ListArray:
        """Lists of structs of lists of ids: with what was asked for beside them."""
        parts = {ID: lists.flatten()}
        if self.explain:
            parts[WHY] = _explanations(server.engine, events, lists)
        if server.rules is not None and places is not None:
            taken = server.rules.take(places, list(self.rules)).combine_chunks()
            for number, column in enumerate(taken.columns):
                parts[rule_field(number)] = column.chunk(0) if column.num_chunks else pa.array([], column.type)
        structs = pa.StructArray.from_arrays(list(parts.values()), list(parts))
        return pa.ListArray.from_arrays(lists.offsets, structs)

    @property
    def _id_type(self) -> pa.DataType:
        return pa.int64() if self.manifest.id_type == "bigint" else pa.string()

    def _found_type(self) -> pa.DataType:
        """What a match is."""
        if not self.is_wide:
            return self._id_type
        form = arrow_form(columns_of(self.manifest))
        why = [(WHY, pa.string())] if self.explain else []
        return pa.struct(
            [(ID, self._id_type), *why, *((rule_field(n), form.field(c).type) for n, c in enumerate(self.rules))]
        )

    def _nothing(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        n = batch.num_rows
        none = pa.array(np.zeros(n, np.int64)) if self.counts else _empty_lists(n, self._found_type())
        columns: dict[str, Any] = {IDS: none}
        if self.tally:
            columns[CANDIDATES] = pa.array(np.zeros(n, np.int64))
        return _extend(_own_columns(batch), {**columns, ERROR: batch.column(ERROR)})


def _explanations(engine: Engine, batch: pa.RecordBatch, lists: pa.ListArray) -> pa.Array:
    events = batch.to_pylist()
    texts = [str(engine.explain(events[row], id)) for row, ids in enumerate(lists.to_pylist()) for id in ids]
    return pa.array(texts, pa.string())


def _empty_lists(n: int, kind: pa.DataType) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(np.zeros(n + 1, np.int32)), pa.array([], kind))


def _own_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([n for n in batch.schema.names if n not in (SERVER, SERVERS, ERROR)])


def _extend(batch: pa.RecordBatch, columns: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, *columns.values()], [*batch.schema.names, *columns])


def _errors(errors: list[EventError]) -> Errors:
    return {e.row: str(e) for e in errors if e.row is not None}


def _error_column(errors: Errors, n: int) -> pa.Array:
    return pa.array([errors.get(i) for i in range(n)], pa.string()) if errors else pa.nulls(n, pa.string())


def _offsets(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    offsets = np.zeros(counts.size + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return offsets
