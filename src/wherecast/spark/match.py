"""Match: events in, matches out, the same call for batch and stream, classic Spark and Spark Connect.

Broadcast: every task maps the whole index and matches the events it has. Other plans: events are routed (those that no
summary admits are dropped), sent to their servers by `repartitionById`, and matched there. Python sees the columns that filters
use and gives back what matches (`tasks`); rows stay in Spark.

Nothing is reported twice: a subscription may live on several servers, but no event is sent to two of these. Event-space
sends an event to the owner of its bucket, and to the residual server, which has other subscriptions; filter-set has every
subscription once.

What matching took and found (`Numbers`) is counted by the tasks, a piece of a batch at a time, and comes back by Spark's observations.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from wherecast.errors import SchemaError
from wherecast.language.events.schema import Schema
from wherecast.spark.columns import (
    ERROR,
    FOUND,
    ID,
    IDS,
    PREFIX,
    SERVER,
    SERVERS,
    TALLY,
    WHY,
    NameRule,
    Names,
    Output,
    Path,
    check_moments,
    check_session,
    quote,
    resolve,
    rule_field,
)
from wherecast.spark.index import Index
from wherecast.spark.manifest import Manifest
from wherecast.spark.rules import choose_columns, columns_of
from wherecast.spark.tasks import MatchTask
from wherecast.spark.versions import add_column, repartition_by_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession
    from pyspark.sql.types import DataType, StructField

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

    def observe(self, frame: DataFrame, wanted: str | None) -> DataFrame:
        """Collect what tasks have counted in the answers of a frame; of its events, those that are wanted go on (None: all).

        One aggregate, of a column that is NULL but on the first event of a piece: every further aggregate costs Spark time on every event.
        Unwanted events go before, but for the first of a piece: Spark copies every event that it observes.
        """
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812

        tally = f"{ANSWER}.{TALLY}"
        if wanted is not None:
            frame = frame.where(f"{wanted} OR {tally} IS NOT NULL")
        self._observations.append(Observation())
        return frame.observe(self._observations[-1], F.expr(f"concat_ws(',', collect_list({tally})) AS told"))

    def get(self) -> dict[str, int]:
        """The numbers by name; waits until the result has been computed."""
        found: Counter[str] = Counter()
        for part in self._observations:
            for counted in json.loads(f"[{part.get.get('told') or ''}]"):  # without any, where nothing came that far
                found.update(counted)
        # Where events stay, each counts for one server; tasks do not count that.
        return {name: found[name] for name in NAMES} | ({} if "sent" in found else {"sent": found["events"]})


_EVENT, ANSWER, _MATCH = f"{PREFIX}_event", f"{PREFIX}_answer", f"{PREFIX}_match"
#: The same task for the same questions: `add_column` makes a column of it once, not for every micro-batch.
_make_task = lru_cache(maxsize=64)(MatchTask)
#: Rule columns that a caller asks for: names, names with other ones for the result, or `*`.
RuleColumns: TypeAlias = Iterable[str] | Mapping[str, str] | str
#: What becomes of an event with a value that does not fit the schema.
OnError: TypeAlias = Literal["raise", "skip", "keep"]


def match(
    events: DataFrame,
    index: Index | str,
    *,
    output: Output = "pairs",
    version: int | Manifest | None = None,
    subscribers: DataFrame | None = None,
    unmatched: bool = False,
    explain: bool = False,
    on_error: OnError = "raise",
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
    task, used, plan, names, rules = ask(
        events,
        index,
        output=output,
        version=version,
        subscribers=subscribers,
        explain=explain,
        on_error=on_error,
        tally=numbers is not None,
        names=names,
        columns=columns,
    )
    keep_events, keep_errors = unmatched and output != "pairs", on_error == "keep"
    if plan is None and task.is_plain and output != "pairs" and not rules and ERROR not in events.columns:
        return _add_answers(events, task, used, names.found(output), keep_events=keep_events)
    if plan is None:
        found = _answered(events, task, used, numbers, keep_events=keep_events)
    else:
        found = _match_routed(
            events, task, used, plan, output, numbers, keep_events=keep_events, keep_errors=keep_errors
        )
    own = [quote(name) for name in events.columns if name != ERROR]
    return _shape(found, task, own, output, subscribers, unmatched, names, rules, keep_errors=keep_errors)


class Question(NamedTuple):
    """What a version of an index is asked about events."""

    task: MatchTask
    used: dict[str, Path]
    """The columns that tasks match, and where the events have them."""
    plan: Plan | None
    names: Names
    rules: dict[str, str]
    """Rule columns, and what the result calls them."""


def ask(
    events: DataFrame,
    index: Index | str,
    *,
    output: Output,
    version: int | Manifest | None,
    on_error: OnError,
    tally: bool,
    names: Mapping[str, str] | Names | None,
    columns: RuleColumns,
    subscribers: DataFrame | None = None,
    explain: bool = False,
) -> Question:
    """Check what `match` is called with. Raises SchemaError if the events do not fit the index."""
    if on_error not in ("raise", "skip", "keep"):
        raise ValueError(f"on_error must be 'raise', 'skip' or 'keep', got {on_error!r}")
    index = Index(index) if isinstance(index, str) else index
    manifest = version if isinstance(version, Manifest) else index.read(version)
    names = Names.of(names)
    rules = choose_rules(columns, output, manifest, events.sparkSession)
    added = [FOUND[output], *(["explanation"] if explain else []), *(["error"] if on_error == "keep" else [])]
    names.refuse_clashes(added, events, subscribers, rules.values() if output == "pairs" else ())
    known = Schema.from_json(manifest.schema)
    found = {n: path for n, path in check_columns(events, manifest).items() if n in manifest.attributes}
    used = {known[name].column: path for name, path in found.items()}
    task = _make_task(
        index.url,
        manifest,
        counts=output == "counts",
        explain=explain and output == "pairs",
        tally=tally,
        strict=on_error == "raise",
        rules=tuple(rules),
    )
    return Question(task, used, index.plan(manifest), names, rules)


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


def _add_answers(
    events: DataFrame, task: MatchTask, used: Mapping[str, Path], name: str, *, keep_events: bool
) -> DataFrame:
    """Events with their answer as the last column, where that is all that was asked for: two steps of the plan in place of three."""
    found = add_column(events, name, task.match, used, _answer_type(task))
    return found if keep_events else found.where(_is_some(task, quote(name)))


def _answered(
    events: DataFrame, task: MatchTask, used: Mapping[str, Path], numbers: Numbers | None, *, keep_events: bool
) -> DataFrame:
    """Events with what they match. Where that is counted, those that match nothing go unless they are to be kept."""
    inputs = {**used, **{name: (name,) for name in (SERVER, ERROR) if name in events.columns}}
    found = add_column(events, IDS if task.is_plain else ANSWER, task.match, inputs, _answer_type(task))
    if numbers is None:
        return found
    wanted = None if keep_events else f"{_is_found(task)} OR {_part(task, ERROR)} IS NOT NULL"
    return numbers.observe(found, wanted)


def _is_found(task: MatchTask) -> str:
    """Whether an event matches something, as SQL."""
    return _is_some(task, _part(task, IDS))


def _is_some(task: MatchTask, ids: str) -> str:
    """Whether what was found, a list or a count, is not nothing, as SQL."""
    return f"{ids} > 0" if task.counts else f"size({ids}) > 0"


def _part(task: MatchTask, name: str) -> str:
    """Where a part of an answer is, as SQL: a plain answer is a column, any other a struct. A step that unpacks it costs more than it saves."""
    return name if task.is_plain else f"{ANSWER}.{name}"


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

    # Where an event goes to one server at most, its answer is complete there.
    is_split = output != "pairs" and not plan.sends_to_one
    if is_split:
        if events.isStreaming:
            raise SchemaError(
                f"output={output!r} brings together what several servers found, which a stream cannot do on its own; "
                "use output='pairs', a broadcast index, or wherecast.spark.stream"
            )
        events = events.withColumn(_EVENT, F.monotonically_increasing_id())
    own = [quote(name) for name in events.columns if name != ERROR]
    known = {ERROR: (ERROR,)} if ERROR in events.columns else {}
    routed = add_column(
        events, SERVERS if task.is_plain else ANSWER, task.route, {**used, **known}, _route_type(task, plan)
    )
    servers, error = _part(task, SERVERS), _part(task, ERROR)
    if numbers is not None:
        is_sent = f"{servers} IS NOT NULL" if plan.sends_to_one else f"size({servers}) > 0"
        routed = numbers.observe(routed, None if keep_events else f"{is_sent} OR {error} IS NOT NULL")
    n = len(task.manifest.servers)
    server = servers if plan.sends_to_one else f"explode_outer({servers})"
    sent = routed.selectExpr(*own, f"{server} AS {SERVER}", *([] if task.is_plain else [f"{error} AS {ERROR}"]))
    if not keep_events:
        sent = sent.where(f"{SERVER} IS NOT NULL" + (f" OR {ERROR} IS NOT NULL" if keep_errors else ""))
    anywhere = F.pmod(F.monotonically_increasing_id(), F.lit(n)).cast("int") if keep_events else F.lit(0)
    sent = repartition_by_id(sent, n, F.coalesce(F.col(SERVER), anywhere))
    result = _answered(sent, task, used, numbers, keep_events=keep_events)
    return _bring_together(result, task, own) if is_split else result


def _bring_together(result: DataFrame, task: MatchTask, own: list[str]) -> DataFrame:
    """What several servers found of an event, in one row."""
    from pyspark.sql import functions as F  # noqa: N812

    ids = _part(task, IDS)
    all_ids = f"sum({ids})" if task.counts else f"flatten(collect_list({ids}))"
    answer = (
        f"{all_ids} AS {IDS}"
        if task.is_plain
        else f"struct({all_ids} AS {IDS}, first({_part(task, ERROR)}) AS {ERROR}) AS {ANSWER}"
    )
    columns = [f"first({name}) AS {name}" for name in own if name != quote(_EVENT)]
    return result.groupBy(_EVENT).agg(*map(F.expr, [*columns, answer]))


def _route_type(task: MatchTask, plan: Plan) -> DataType:
    from pyspark.sql.types import ArrayType, IntegerType, StructField, StructType

    servers: DataType = IntegerType() if plan.sends_to_one else ArrayType(IntegerType(), containsNull=False)
    if task.is_plain:
        return servers
    return StructType([StructField(SERVERS, servers), *_said_beside(task)])


def _answer_type(task: MatchTask) -> DataType:
    from pyspark.sql.types import ArrayType, LongType, StructField, StructType

    ids = LongType() if task.counts else ArrayType(match_type(task), containsNull=False)
    if task.is_plain:
        return ids
    return StructType([StructField(IDS, ids), *_said_beside(task)])


def match_type(task: MatchTask) -> DataType:
    """What a match is: an id, or a struct of its id and more."""
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    id_type: DataType = LongType() if task.manifest.id_type == "bigint" else StringType()
    if not task.is_wide:
        return id_type
    known = columns_of(task.manifest)
    why = [StructField(WHY, StringType())] if task.explain else []
    rules = [StructField(rule_field(n), known[name].dataType) for n, name in enumerate(task.rules)]
    return StructType([StructField(ID, id_type), *why, *rules])


def _said_beside(task: MatchTask) -> list[StructField]:
    """What an answer says apart from what was found."""
    from pyspark.sql.types import StringType, StructField

    names = [ERROR, TALLY] if task.tally else [ERROR]
    return [StructField(name, StringType()) for name in names]


def _shape(
    found: DataFrame,
    task: MatchTask,
    own: list[str],
    output: Output,
    subscribers: DataFrame | None,
    unmatched: bool,
    names: Names,
    rules: Mapping[str, str],
    *,
    keep_errors: bool,
) -> DataFrame:
    """What was asked for, of events with what they match. In few steps: Spark analyses the whole plan anew at each.

    All as SQL: a column object takes ten calls of the JVM.
    """
    ids, error = _part(task, IDS), _part(task, ERROR)
    kept = [f"{error} AS {quote(names.error)}"] if keep_errors else []
    if output == "pairs":
        return _pairs(found, task, own, kept, subscribers, names, rules)
    wanted = "true" if unmatched else _is_found(task)
    if not task.is_plain:
        wanted = f"{error} IS NOT NULL OR {wanted}" if keep_errors else f"{error} IS NULL AND {wanted}"
    if rules:
        ids = f"transform({ids}, {_MATCH} -> struct({', '.join(_parts_of(_MATCH, names, rules))}))"
    return found.where(wanted).selectExpr(*own, f"{ids} AS {quote(names.found(output))}", *kept)


def _parts_of(match: str, names: Names, rules: Mapping[str, str]) -> list[str]:
    """The id and the rule columns of a match, under the names that the caller knows."""
    shown = [f"{match}.{rule_field(n)} AS {quote(name)}" for n, name in enumerate(rules.values())]
    return [f"{match}.{ID} AS {quote(names.subscription)}", *shown]


def _pairs(
    found: DataFrame,
    task: MatchTask,
    own: list[str],
    error: list[str],
    subscribers: DataFrame | None,
    names: Names,
    rules: Mapping[str, str],
) -> DataFrame:
    """A row for each id; of an event that has none, one row if it has an error that is kept."""
    each = f"{'explode_outer' if error else 'explode'}({_part(task, IDS)})"
    shown = [quote(names.error)] if error else []
    if task.is_wide:
        why = [f"{IDS}.{WHY} AS {quote(names.explanation)}"] if task.explain else []
        matches = found.selectExpr(*own, f"{each} AS {IDS}", *error)
        pairs = matches.selectExpr(*own, *_parts_of(IDS, names, rules), *why, *shown)
    else:
        pairs = found.selectExpr(*own, f"{each} AS {quote(names.subscription)}", *error)
    if error:
        pairs = pairs.where(f"{quote(names.subscription)} IS NOT NULL OR {shown[0]} IS NOT NULL")
    if subscribers is not None:
        return pairs.join(subscribers.withColumnRenamed("id", names.subscription), names.subscription, "left")
    return pairs
