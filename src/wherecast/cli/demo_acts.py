"""What the demo shows of a run: quotes with the alerts they fired, a rule edited live, Spark SQL beside it, and several servers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wherecast.cli.demo_market import SCHEMA
from wherecast.engine.engine import Engine
from wherecast.errors import WherecastError
from wherecast.language.events.events import EventBatch
from wherecast.spark.build import build_index
from wherecast.spark.match import Numbers, match
from wherecast.spark.progress import BatchProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Quotes that are shown, and alerts of each.
_QUOTES, _ALERTS = 6, 3
#: Rules that Spark SQL evaluates: two numbers, so that what a query costs anyway can be told from what a rule adds.
_FEW, _MORE = 50, 200


class Alert(NamedTuple):
    """A rule that a quote has fired."""

    id: int
    filter: str
    subscriber: str
    channel: str


class FiredQuote(NamedTuple):
    """A quote with some of the alerts that it has fired."""

    quote: dict[str, Any]
    alerts: list[Alert]
    total: int


class LiveEdit(NamedTuple):
    """A rule that was edited while the stream ran."""

    before: str
    after: str
    seconds: float
    """From writing the edit until its first match was committed."""
    quote: dict[str, Any]


class SqlSample(NamedTuple):
    """Plain Spark SQL on a part of the work."""

    rules: int
    events: int
    seconds: float
    per_rule_s: float
    """What each further rule adds, for these events."""
    matches: int

    def scaled_s(self, rules: int, events: int) -> float:
        """What all of it would take: the time grows with rules and with events."""
        return self.per_rule_s * rules * events / max(self.events, 1)


class SecondAct(NamedTuple):
    """The same rules on several servers."""

    build_s: float
    events: int
    matches: int
    sent: int
    dropped: int
    imbalance: float
    loads: list[float]
    """Of each server, as the plan expects them."""
    events_per_server: list[int]


def read_matches(out: Path, batch: int) -> pa.Table:
    """What the stream wrote of a batch."""
    files = sorted((out / "matches" / f"batch_id={batch}").glob("*.parquet"))
    return pa.concat_tables(pq.read_table(file, partitioning=None) for file in files)


def fired_quotes(out: Path, batch: int, filters: dict[int, str]) -> list[FiredQuote]:
    """Some quotes of a batch with the rules that they have fired; quotes of different symbols."""
    rows = read_matches(out, batch)
    by_quote: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows.slice(0, 5_000).to_pylist():
        by_quote.setdefault((row["symbol"], row["time"], row["price"], row["volume"]), []).append(row)
    found: dict[str, FiredQuote] = {}
    for (symbol, *_), some in by_quote.items():
        alerts = [
            Alert(r["subscription"], filters.get(r["subscription"], ""), r["subscriber"], r["channel"]) for r in some
        ]
        known = [alert for alert in alerts if alert.filter]
        if known and symbol not in found:
            found[symbol] = FiredQuote({n: some[0][n] for n in SCHEMA}, known[:_ALERTS], len(some))
        if len(found) == _QUOTES:
            break
    return list(found.values())


def first_match(
    out: Path, batches: Sequence[BatchProgress], id: int, subscriber: str, before: str, after: str, written: float
) -> LiveEdit | None:
    """The first match of a rule as it is after its edit; None if no quote has fired it."""
    for batch in batches:
        rows = read_matches(out, batch.batch)
        mine = rows.filter(pc.and_(pc.equal(rows["subscription"], id), pc.equal(rows["subscriber"], subscriber)))
        if mine.num_rows:
            quote = {name: mine[name][0].as_py() for name in SCHEMA}
            return LiveEdit(before, after, batch.started_s + batch.seconds - written, quote)
    return None


def try_sql(spark: SparkSession, subscriptions: pa.Table, events: Path) -> SqlSample:
    """Let Spark SQL evaluate some of the rules on one file of quotes, in one pass, and compare what it finds with an engine."""
    rows = spark.read.parquet(str(events)).persist()
    n = rows.count()
    chosen = subscriptions.select(["id", "filter"]).slice(1, _MORE).to_pylist()

    def run(rules: list[dict[str, Any]]) -> tuple[float, int]:
        tests = ", ".join(f"CASE WHEN {rule['filter']} THEN {rule['id']}L END" for rule in rules)
        found = rows.selectExpr(f"size(filter(array({tests}), id -> id IS NOT NULL)) AS found")
        begin = time.perf_counter()
        total = found.selectExpr("sum(found)").first()
        return time.perf_counter() - begin, int((total[0] if total else 0) or 0)

    few = chosen[: min(_FEW, max(len(chosen) // 2, 1))]
    run(few)  # warm
    few_s, _ = run(few)
    seconds, matches = run(chosen)
    rows.unpersist()
    engine = Engine(SCHEMA)
    engine.subscribe_many([(rule["id"], rule["filter"]) for rule in chosen])
    expected = int(engine.count(pq.read_table(events)).sum())
    if expected != matches:
        raise WherecastError(
            f"Spark SQL found {matches:,} matches of {len(chosen)} rules, the engine {expected:,}: report it"
        )
    more = len(chosen) - len(few)
    per_rule = (seconds - few_s) / more if more and seconds > few_s else seconds / len(chosen)
    return SqlSample(len(chosen), n, seconds, per_rule, matches)


def spread_out(
    spark: SparkSession, subscriptions: Path, index: Path, events: Sequence[Path], servers: int
) -> SecondAct:
    """Build the rules onto several servers and send some files of quotes there."""
    begin = time.perf_counter()
    built = build_index(
        spark.read.parquet(str(subscriptions)), SCHEMA, str(index), strategy="event-space", servers=servers
    )
    build_s = time.perf_counter() - begin
    assert built.plan is not None
    numbers = Numbers()
    match(spark.read.parquet(*map(str, events)), built.index, output="counts", numbers=numbers).count()
    found = numbers.get()
    read = EventBatch.read(built.plan.schema, pa.concat_tables(map(pq.read_table, events)))
    routed = np.bincount(built.plan.route(read).servers, minlength=servers)
    loads = built.plan.partition.loads()
    return SecondAct(
        build_s,
        found["events"],
        found["matches"],
        found["sent"],
        found["dropped"],
        float(built.plan.stats()["imbalance"]),
        loads.tolist(),
        routed.tolist(),
    )


def busiest(quotes: Sequence[pa.Table]) -> str:
    """The symbol that is traded most."""
    return str(Counter(symbol for table in quotes for symbol in table["symbol"].to_pylist()).most_common(1)[0][0])
