"""Match: events in, matches out, the same call for batch and stream, classic Spark and Spark Connect.

Broadcast: every task maps the whole index and matches the events it has. Other plans: events are routed (those that no
summary admits are dropped), sent to their servers by `repartitionById`, and matched there. Tasks get the address of the
index and a manifest, nothing else; what they open they keep for the tasks that follow.

Nothing is reported twice: a subscription may live on several servers, but no event is sent to two of these. Event-space
sends an event to the owner of its bucket, and to the residual server, which has other subscriptions; filter-set has every
subscription once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from wherecast.errors import SchemaError
from wherecast.language.schema import Schema
from wherecast.spark.index import Index
from wherecast.spark.manifest import Manifest
from wherecast.spark.tasks import CANDIDATES, ERROR, IDS, SERVER, SERVERS, WHY, MatchTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation
    from pyspark.sql.types import StructType

Output = Literal["pairs", "lists", "counts"]
_EVENT = "__event"


def match(
    events: DataFrame,
    index: Index | str,
    *,
    output: Output = "pairs",
    version: int | Manifest | None = None,
    subscribers: DataFrame | None = None,
    unmatched: bool = False,
    explain: bool = False,
    on_error: Literal["raise", "drop", "keep"] = "raise",
    traffic: Observation | None = None,
    effort: Observation | None = None,
) -> DataFrame:
    """Match events against an index: `events.transform(match, index)`.

    Args:
        events: Columns are found by name; those that no filter asks for are passed through, missing ones are NULL. An
            event that is known to be bad carries the reason in a column `__error` and is matched with nothing.
        index: An `Index`, or its path.
        output: `pairs`: the event and one `subscription` per row. `lists`: one row per event with an array
            `subscriptions`. `counts`: one row per event with the number `matches`.
        version: The version to match against; by default the current one, decided now.
        subscribers: A DataFrame with a column `id`; its other columns are joined to each pair.
        unmatched: Whether `lists` and `counts` keep events that match nothing.
        explain: Adds `explanation` to pairs: which clause held and why. For looking, not for bulk.
        on_error: What becomes of an event with a value that does not fit the schema: the query fails, the event is left
            out, or it is kept with the reason in a column `error`.
        traffic: Gets the numbers of `events`, of pairs of event and server `sent`, and of events `dropped` because no
            summary admits them, once the result has been computed.
        effort: Gets the number of `candidates`, clauses that events were compared with, estimated from some of the events.
    """
    index = Index(index) if isinstance(index, str) else index
    manifest = version if isinstance(version, Manifest) else index.read(version)
    check_columns(events, manifest)
    task = MatchTask(index.url, manifest, output == "counts", explain, effort is not None, on_error == "raise")
    if manifest.plan is None:
        found = _match_here(events, task, traffic)
    else:
        keep_events, keep_errors = unmatched and output != "pairs", on_error == "keep"
        found = _match_routed(events, task, output, traffic, keep_events=keep_events, keep_errors=keep_errors)
    if effort is not None:
        from pyspark.sql import functions as F  # noqa: N812

        found = found.observe(effort, F.sum(CANDIDATES).alias("candidates")).drop(CANDIDATES)
    if on_error != "keep":
        found = found.where(f"{ERROR} IS NULL").drop(ERROR)
    return _shape(found, output, subscribers, unmatched, explain, keep_errors=on_error == "keep")


def check_columns(events: DataFrame, manifest: Manifest) -> None:
    """Raises SchemaError where a column has a name that the result needs, or no filter can be served."""
    taken = {IDS, SERVER, SERVERS, WHY, CANDIDATES, _EVENT, "subscription", "subscriptions", "matches", "explanation"}
    clash = sorted(taken & set(events.columns))
    if clash:
        raise SchemaError(f"the events have a column {clash[0]!r}, which matching adds; rename it")
    known = Schema.from_json(manifest.schema)
    present = {name.split(".")[0] for name in manifest.attributes} & set(events.columns)
    if manifest.attributes and not present:
        names = ", ".join(a.name for a in known)
        raise SchemaError(f"the events have none of the attributes that filters ask for ({names}); check the columns")


def _match_here(events: DataFrame, task: MatchTask, traffic: Observation | None) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    if traffic is not None:
        numbers = ("count(1) AS events", "count(1) AS sent", "0 AS dropped")
        events = events.observe(traffic, *map(F.expr, numbers))
    return events.mapInArrow(task.match_here, _with(events, _result_fields(task)))


def _match_routed(
    events: DataFrame,
    task: MatchTask,
    output: Output,
    traffic: Observation | None,
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
    routed = events.mapInArrow(task.route, _with(events, [(SERVERS, "array<int>"), (ERROR, "string")]))
    if traffic is not None:
        dropped = f"count_if(size({SERVERS}) = 0 AND {ERROR} IS NULL) AS dropped"
        numbers = ("count(1) AS events", f"sum(size({SERVERS})) AS sent", dropped)
        routed = routed.observe(traffic, *map(F.expr, numbers))
    n = len(task.manifest.servers)
    sent = routed.withColumn(SERVER, F.explode_outer(SERVERS)).drop(SERVERS)
    if not keep_events:
        sent = sent.where(f"{SERVER} IS NOT NULL" + (f" OR {ERROR} IS NOT NULL" if keep_errors else ""))
    anywhere = "0" if output == "pairs" else f"int(pmod({_EVENT}, {n}))"
    sent = sent.repartitionById(n, F.expr(f"coalesce({SERVER}, {anywhere})"))
    result = sent.mapInArrow(task.match_served, _with(events, _result_fields(task)))
    if output == "pairs":
        return result
    columns = [F.first(c).alias(c) for c in original.columns if c != ERROR]
    columns += [F.sum(CANDIDATES).alias(CANDIDATES)] if task.tally else []
    ids = F.sum(IDS).alias(IDS) if task.counts else F.flatten(F.collect_list(IDS)).alias(IDS)
    return result.groupBy(_EVENT).agg(*columns, ids, F.first(ERROR).alias(ERROR)).drop(_EVENT)


def _result_fields(task: MatchTask) -> list[tuple[str, str]]:
    ids = "bigint" if task.counts else f"array<{task.manifest.id_type}>"
    why = [(WHY, "array<string>")] if task.explain else []
    tally = [(CANDIDATES, "bigint")] if task.tally else []
    return [(IDS, ids), *why, *tally, (ERROR, "string")]


def _with(events: DataFrame, fields: list[tuple[str, str]]) -> StructType:
    from pyspark.sql.types import StructType

    more = cast("StructType", StructType.fromDDL(", ".join(f"`{name}` {kind}" for name, kind in fields)))
    return StructType([*(f for f in events.schema.fields if f.name != ERROR), *more.fields])


def _shape(
    found: DataFrame,
    output: Output,
    subscribers: DataFrame | None,
    unmatched: bool,
    explain: bool,
    *,
    keep_errors: bool,
) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    something = f"{ERROR} IS NOT NULL" if keep_errors else "false"
    if output == "counts":
        counts = found if unmatched else found.where(f"{IDS} > 0 OR {something}")
        return counts.withColumnRenamed(IDS, "matches").withColumnRenamed(ERROR, "error")
    if output == "lists":
        lists = found if unmatched else found.where(f"size({IDS}) > 0 OR {something}")
        return lists.withColumnRenamed(IDS, "subscriptions").withColumnRenamed(ERROR, "error")
    explode = F.explode_outer if keep_errors else F.explode
    if explain:
        zipped = found.withColumn(IDS, explode(F.arrays_zip(IDS, WHY))).drop(WHY)
        pairs = zipped.withColumn("subscription", F.col(f"{IDS}.{IDS}"))
        pairs = pairs.withColumn("explanation", F.col(f"{IDS}.{WHY}")).drop(IDS)
    else:
        pairs = found.withColumn("subscription", explode(IDS)).drop(IDS)
    if keep_errors:
        pairs = pairs.where(f"subscription IS NOT NULL OR {something}").withColumnRenamed(ERROR, "error")
    if subscribers is not None:
        return pairs.join(subscribers.withColumnRenamed("id", "subscription"), "subscription", "left")
    return pairs
