"""Match: events in, matches out, the same call for batch and stream, classic Spark and Spark Connect.

Broadcast: every task maps the whole index and matches the events it has. Other plans: events are routed (those that no
summary admits are dropped), sent to their servers by `repartitionById`, and matched there. Python sees the columns that filters
use and gives back what matches (`tasks`); rows stay in Spark.

Nothing is reported twice: a subscription may live on several servers, but no event is sent to two of these. Event-space
sends an event to the owner of its bucket, and to the residual server, which has other subscriptions; filter-set has every
subscription once.

What matching took and found (`Numbers`) is counted while the result is computed, by Spark's observations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from wherecast.errors import SchemaError
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
    quote,
    quoted,
    resolve,
    rule_field,
)
from wherecast.spark.index import Index
from wherecast.spark.manifest import Manifest
from wherecast.spark.rules import choose_columns, columns_of
from wherecast.spark.tasks import MatchTask
from wherecast.spark.versions import RowWork, add_column, repartition_by_id

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession
    from pyspark.sql.types import DataType

    from wherecast.partition.plan import Plan


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
        found = {name: int(value or 0) for part in self._observations for name, value in part.get.items()}
        # Where events stay, each counts for one server; that is not worth counting row by row.
        return {"sent": found["events"], "dropped": 0, **found}


_EVENT, _ANSWER = f"{PREFIX}_event", f"{PREFIX}_answer"
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
    known = Schema.from_json(manifest.schema)
    used = {n: path for n, path in check_columns(events, manifest).items() if n in manifest.attributes}
    columns_used = {known[name].column: path for name, path in used.items()}
    task = MatchTask(
        index.url,
        manifest,
        counts=output == "counts",
        explain=explain and output == "pairs",
        tally=numbers is not None,
        strict=on_error == "raise",
        rules=tuple(rules),
    )
    plan = index.plan(manifest)
    if plan is None:
        found = _match_here(events, task, columns_used, numbers)
    else:
        keep_events, keep_errors = unmatched and output != "pairs", on_error == "keep"
        found = _match_routed(
            events, task, columns_used, plan, output, numbers, keep_events=keep_events, keep_errors=keep_errors
        )
    return _shape(found, output, subscribers, unmatched, names, rules, keep_errors=on_error == "keep")


def choose_rules(chosen: RuleColumns, output: Output, manifest: Manifest, spark: SparkSession) -> dict[str, str]:
    """Rule columns that are asked for, and what the result calls them."""
    rules = choose_columns(chosen, manifest, spark) if chosen else {}
    if rules and output == "counts":
        raise SchemaError("output='counts' has one number per event and no rule columns; use 'pairs' or 'lists'")
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


def _match_here(events: DataFrame, task: MatchTask, used: Mapping[str, Path], numbers: Numbers | None) -> DataFrame:
    found = _answered(events, task, used)
    if numbers is None:
        return found
    return numbers.observe(found, events="count(1)", errors=f"count({ERROR})", **_outcome(task))


def _answered(events: DataFrame, task: MatchTask, used: Mapping[str, Path]) -> DataFrame:
    """Events with what they match."""
    inputs = {**used, **{name: (name,) for name in (SERVER, ERROR) if name in events.columns}}
    return _add_answer(events, task, task.match, inputs, _answer_type(task), IDS)


def _add_answer(
    events: DataFrame, task: MatchTask, work: RowWork, inputs: Mapping[str, Path], kind: DataType, plain: str
) -> DataFrame:
    """Events with the fields of an answer as columns, in place of what was said before; a plain answer is one column."""
    own = [quote(name) for name in events.columns if name not in (SERVER, ERROR)]
    if task.is_plain:
        answered = add_column(events, plain, work, inputs, kind)
        return answered if len(own) == len(events.columns) else answered.select(*own, plain)
    return add_column(events, _ANSWER, work, inputs, kind).select(*own, f"{_ANSWER}.*")


def _outcome(task: MatchTask) -> dict[str, str]:
    """Numbers of what tasks answer, as SQL."""
    return {"candidates": f"sum({CANDIDATES})", "matches": f"sum({IDS})" if task.counts else f"sum(size({IDS}))"}


def _match_routed(
    events: DataFrame,
    task: MatchTask,
    used: Mapping[str, Path],
    plan: Plan,
    output: Output,
    numbers: Numbers | None,
    *,
    keep_events: bool,
    keep_errors: bool,
) -> DataFrame:
    """Events by way of their servers. Those that have none travel only if they are wanted in the result."""
    from pyspark.sql import functions as F  # noqa: N812

    own = [name for name in events.columns if name != ERROR]
    # Where an event goes to one server at most, its answer is complete there.
    is_split = output != "pairs" and not plan.sends_to_one
    if is_split:
        if events.isStreaming:
            raise SchemaError(
                f"output={output!r} brings together what several servers found, which a stream cannot do on its own; "
                "use output='pairs', a broadcast index, or wherecast.spark.stream"
            )
        events = events.withColumn(_EVENT, F.monotonically_increasing_id())
    known = {ERROR: (ERROR,)} if ERROR in events.columns else {}
    routed = _add_answer(events, task, task.route, {**used, **known}, _route_type(task, plan), SERVERS)
    if numbers is not None:
        each = f"int({SERVERS} IS NOT NULL)" if plan.sends_to_one else f"size({SERVERS})"
        dropped = f"count_if({each} = 0 AND {ERROR} IS NULL)"
        traffic = {"events": "count(1)", "sent": f"sum({each})", "dropped": dropped}
        routed = numbers.observe(routed, **traffic, errors=f"count({ERROR})")
    n = len(task.manifest.servers)
    server = F.col(SERVERS) if plan.sends_to_one else F.explode_outer(SERVERS)
    sent = routed.withColumn(SERVER, server).drop(SERVERS)
    if not keep_events:
        sent = sent.where(f"{SERVER} IS NOT NULL" + (f" OR {ERROR} IS NOT NULL" if keep_errors else ""))
    anywhere = F.pmod(F.monotonically_increasing_id(), F.lit(n)).cast("int") if keep_events else F.lit(0)
    sent = repartition_by_id(sent, n, F.coalesce(F.col(SERVER), anywhere))
    result = _answered(sent, task, used)
    if numbers is not None:
        result = numbers.observe(result, **_outcome(task))
    if not is_split:
        return result
    columns = [F.first(quoted(c)).alias(c) for c in own]
    ids = F.sum(IDS).alias(IDS) if task.counts else F.flatten(F.collect_list(IDS)).alias(IDS)
    error = [] if task.is_plain else [F.first(ERROR).alias(ERROR)]
    return result.groupBy(_EVENT).agg(*columns, ids, *error).drop(_EVENT)


def _route_type(task: MatchTask, plan: Plan) -> DataType:
    from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType

    servers: DataType = IntegerType() if plan.sends_to_one else ArrayType(IntegerType())
    if task.is_plain:
        return servers
    return StructType([StructField(SERVERS, servers), StructField(ERROR, StringType())])


def _answer_type(task: MatchTask) -> DataType:
    from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

    found: DataType = LongType() if task.manifest.id_type == "bigint" else StringType()
    if task.is_wide:
        known = columns_of(task.manifest)
        why = [StructField(WHY, StringType())] if task.explain else []
        rules = [StructField(rule_field(n), known[name].dataType) for n, name in enumerate(task.rules)]
        found = StructType([StructField(ID, found), *why, *rules])
    tally = [StructField(CANDIDATES, LongType())] if task.tally else []
    ids = LongType() if task.counts else ArrayType(found)
    if task.is_plain:
        return ids
    return StructType([StructField(IDS, ids), *tally, StructField(ERROR, StringType())])


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

    # By name: a column object takes ten calls of the JVM, a name three.
    own = [quote(c) for c in found.columns if c not in (IDS, CANDIDATES, ERROR)]
    error = [F.col(ERROR).alias(names.error)] if keep_errors else []
    if output == "pairs":
        return _pairs(found, own, error, subscribers, names, rules)
    any_match = "true" if unmatched else f"{IDS} > 0" if output == "counts" else f"size({IDS}) > 0"
    wanted = any_match
    if ERROR in found.columns:
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
    own: list[str],
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
