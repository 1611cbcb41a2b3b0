"""Match: events in, matches out, the same call for batch and stream, classic Spark and Spark Connect.

Broadcast: every task maps the whole index and matches the events it has. Other plans: events are routed (those that no
summary admits are dropped), sent to their servers by `repartitionById`, and matched there. Tasks get the address of the
index and a manifest, nothing else; what they open they keep for the tasks that follow.

Nothing is reported twice: a subscription may live on several servers, but no event is sent to two of these. Event-space
sends an event to the owner of its bucket, and to the residual server, which has other subscriptions; filter-set has every
subscription once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from wherecast.errors import SchemaError
from wherecast.language.schema import Schema
from wherecast.spark.index import Index
from wherecast.spark.manifest import Manifest
from wherecast.spark.names import (
    CANDIDATES,
    ERROR,
    IDS,
    PREFIX,
    SERVER,
    SERVERS,
    WHY,
    Names,
    Path,
    Rule,
    quoted,
    resolve,
)
from wherecast.spark.observed import Numbers
from wherecast.spark.tasks import MatchTask
from wherecast.spark.zone import check_moments, check_session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

Output = Literal["pairs", "lists", "counts"]
_EVENT = f"{PREFIX}_event"
#: The column that says what matches, by output.
FOUND: dict[Output, str] = {"pairs": "subscription", "lists": "subscriptions", "counts": "matches"}


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
) -> DataFrame:
    """Match events against an index: `events.transform(match, index)`.

    Args:
        events: Columns are found by name, as `spark.sql.caseSensitive` says; those that no filter asks for are passed
            through, missing ones are NULL. An event that is known to be bad carries the reason in a column
            `__wherecast_error` and is matched with nothing.
        index: An `Index`, or its path.
        output: `pairs`: the event and one `subscription` per row. `lists`: one row per event with an array
            `subscriptions`. `counts`: one row per event with the number `matches`.
        version: The version to match against; by default the current one, decided now.
        subscribers: A DataFrame with a column `id`; its other columns are joined to each pair.
        unmatched: Whether `lists` and `counts` keep events that match nothing.
        explain: Adds `explanation` to pairs: which clause held and why. For looking, not for bulk.
        on_error: What becomes of an event with a value that does not fit the schema: `raise` fails the query, `skip` leaves the
            event out, both as in `Engine.match_batch`; `keep` keeps it with the reason in a column `error`.
        numbers: Gets what matching took and found, once the result has been computed.
        names: Other names for the columns that are added, such as `{"subscription": "rule"}`, where the events have columns
            of these names.
    """
    if on_error not in ("raise", "skip", "keep"):
        raise ValueError(f"on_error must be 'raise', 'skip' or 'keep', got {on_error!r}")
    index = Index(index) if isinstance(index, str) else index
    manifest = version if isinstance(version, Manifest) else index.read(version)
    names = Names.of(names)
    added = [FOUND[output], *(["explanation"] if explain else []), *(["error"] if on_error == "keep" else [])]
    names.refuse_clashes(added, events, subscribers)
    columns = tuple(check_columns(events, manifest).items())
    task = MatchTask(
        index.url, manifest, output == "counts", explain, numbers is not None, on_error == "raise", columns
    )
    if manifest.plan is None:
        found = _match_here(events, task, numbers)
    else:
        keep_events, keep_errors = unmatched and output != "pairs", on_error == "keep"
        found = _match_routed(events, task, output, numbers, keep_events=keep_events, keep_errors=keep_errors)
    return _shape(found, output, subscribers, unmatched, names, keep_errors=on_error == "keep")


def check_columns(events: DataFrame, manifest: Manifest) -> dict[str, Path]:
    """Where attributes are. Raises SchemaError if that is not clear, or none is there that a filter asks for."""
    known = Schema.from_json(manifest.schema)
    found = resolve(events.schema, known, manifest.attributes, Rule.of(events.sparkSession))
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
    sent = sent.repartitionById(n, F.expr(f"coalesce({SERVER}, {anywhere})"))
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
    from pyspark.sql.types import ArrayType, LongType, StringType

    id_type = LongType() if task.manifest.id_type == "bigint" else StringType()
    why: list[tuple[str, DataType]] = [(WHY, ArrayType(StringType()))] if task.explain else []
    tally: list[tuple[str, DataType]] = [(CANDIDATES, LongType())] if task.tally else []
    return [(IDS, LongType() if task.counts else ArrayType(id_type)), *why, *tally, (ERROR, StringType())]


def _with(events: DataFrame, fields: list[tuple[str, DataType]]) -> StructType:
    from pyspark.sql.types import StructField, StructType

    more = [StructField(name, kind) for name, kind in fields]
    return StructType([*(f for f in events.schema.fields if f.name != ERROR), *more])


def _shape(
    found: DataFrame, output: Output, subscribers: DataFrame | None, unmatched: bool, names: Names, *, keep_errors: bool
) -> DataFrame:
    """What was asked for, of events with what they match. In few steps: Spark analyses the whole plan anew at each."""
    from pyspark.sql import functions as F  # noqa: N812

    own = [quoted(c) for c in found.columns if c not in (IDS, WHY, CANDIDATES, ERROR)]
    error = [F.col(ERROR).alias(names.error)] if keep_errors else []
    if output == "pairs":
        return _pairs(found, own, error, subscribers, names)
    any_match = "true" if unmatched else f"{IDS} > 0" if output == "counts" else f"size({IDS}) > 0"
    wanted = f"{ERROR} IS NOT NULL OR {any_match}" if keep_errors else f"{ERROR} IS NULL AND {any_match}"
    return found.where(wanted).select(*own, F.col(IDS).alias(getattr(names, FOUND[output])), *error)


def _pairs(
    found: DataFrame, own: list[Column], error: list[Column], subscribers: DataFrame | None, names: Names
) -> DataFrame:
    """A row for each id; of an event that has none, one row if it has an error that is kept."""
    from pyspark.sql import functions as F  # noqa: N812

    explode = F.explode_outer if error else F.explode
    if WHY in found.columns:
        both = found.select(*own, explode(F.arrays_zip(IDS, WHY)).alias(IDS), *error)
        ids = [F.col(f"{IDS}.{IDS}").alias(names.subscription), F.col(f"{IDS}.{WHY}").alias(names.explanation)]
        pairs = both.select(*own, *ids, *([quoted(names.error)] if error else []))
    else:
        pairs = found.select(*own, explode(IDS).alias(names.subscription), *error)
    if error:
        pairs = pairs.where(quoted(names.subscription).isNotNull() | quoted(names.error).isNotNull())
    if subscribers is not None:
        return pairs.join(subscribers.withColumnRenamed("id", names.subscription), names.subscription, "left")
    return pairs
