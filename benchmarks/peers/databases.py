"""DuckDB and Spark SQL: filters as rows of a table where all are conjunctions over numbers, else as expressions of one query."""

from __future__ import annotations

import re
import time
from functools import cache, reduce
from operator import and_
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from benchmarks.peers.peer import CannotError, Measured, Peer, time_passes
from benchmarks.peers.workloads import TEXTS, PeerWorkload, Test

from wherecast.bench.database import build_database
from wherecast.bench.workloads.catalogue import find_entry

#: Expressions in one query; more take a planner minutes.
MOST_EXPRESSIONS = 1_000
#: Of the JVM that runs Spark.
HEAP = "2g"


def conditions(workload: PeerWorkload, *, spark: bool) -> list[str]:
    """The filters as SQL of the database; words are looked for in a list of words, topics become regular expressions."""
    if workload.name == "words":
        has = "array_contains" if spark else "list_contains"
        return [" AND ".join(f"{has}(words, '{t.value}')" for t in f[0]) for f in workload.filters]
    if workload.name == "topics":
        call = "rlike" if spark else "regexp_matches"
        return [f"{call}(topic, '{topic_regex(f[0][0])}')" for f in workload.filters]
    return workload.texts


def topic_regex(test: Test) -> str:
    """A pattern of topics as a regular expression."""
    levels = [{"+": "[^/]+", "#": ""}.get(level, re.escape(level)) for level in test.value.split("/")]
    return f"^{'/'.join(levels[:-1])}(/.*)?$" if levels[-1] == "" else f"^{'/'.join(levels)}$"


def event_table(workload: PeerWorkload) -> pa.Table:
    """The events; those of words with their list of words."""
    table = workload.table()
    if workload.name == "words":
        table = table.append_column("words", pa.array([sorted(set(e["body"].split())) for e in workload.events]))
    return table


class DuckDBPeer(Peer):
    """DuckDB, one thread."""

    name = "DuckDB"
    form = "filters over numbers: a join with a table of filters, in the fastest form found (`wherecast.bench.database`); else one query with every filter as an expression, at most 1,000"

    def measure(self, workload: PeerWorkload, budget_s: float) -> Measured:
        if workload.name not in TEXTS:
            entry, _ = find_entry(workload.name)
            start = time.perf_counter()
            count = build_database(entry.make(len(workload.filters)))
            load_s = time.perf_counter() - start
            us, n = time_passes(count, len(workload.events), budget_s, whole=True)
            return Measured(load_s, us, n, n, np.array([count(n)]), is_total=True)
        if len(workload.filters) > MOST_EXPRESSIONS:
            raise CannotError(
                f"a query of more than {MOST_EXPRESSIONS:,} expressions is not tried: planning takes long"
            )
        database = duckdb.connect(config={"threads": 1})
        database.register("source", event_table(workload))
        database.execute("CREATE TABLE events AS SELECT row_number() OVER () AS event, * FROM source")
        listed = ", ".join(f"CASE WHEN {c} THEN {i} END" for i, c in enumerate(conditions(workload, spark=False)))
        query = f"SELECT unnest(list_filter([{listed}], lambda x: x IS NOT NULL)) AS id FROM events WHERE event <= $n"
        start = time.perf_counter()
        database.execute(f"PREPARE matching AS {query}")
        load_s = time.perf_counter() - start

        def run(n: int) -> Any:
            return database.execute(f"EXECUTE matching(n := {n})").fetchnumpy()["id"]

        us, n = time_passes(run, len(workload.events), budget_s, whole=True)
        return Measured(load_s, us, n, n, np.bincount(np.asarray(run(n), np.int64), minlength=len(workload.filters)))


class SparkSQL(Peer):
    """Spark SQL without Wherecast, on one core."""

    name = "Spark SQL"
    form = "filters over numbers: a join with a table of bounds, by the symbol where there is one; else one query with every filter as an expression, at most 1,000"
    most = 10_000

    def measure(self, workload: PeerWorkload, budget_s: float) -> Measured:
        spark = session()
        events = spark.createDataFrame(event_table(workload).to_pandas(), spark_schema(workload)).coalesce(1).cache()
        events.count()
        start = time.perf_counter()
        if workload.name not in TEXTS:
            filters = spark.createDataFrame(*bounds(workload)).coalesce(1).cache()
            filters.count()
            found = events.join(filters.hint("broadcast"), on=self._join(workload, events, filters)).select("id")
        elif len(workload.filters) > MOST_EXPRESSIONS:
            raise CannotError(
                f"a query of more than {MOST_EXPRESSIONS:,} expressions is not tried: planning takes long"
            )
        else:
            listed = ", ".join(f"IF({c}, {i}, NULL)" for i, c in enumerate(conditions(workload, spark=True)))
            found = events.selectExpr(f"explode(filter(array({listed}), x -> x IS NOT NULL)) AS id")
        load_s = time.perf_counter() - start

        def run(_: int) -> None:
            found.write.format("noop").mode("overwrite").save()

        n = len(workload.events)
        try:
            us, _ = time_passes(run, n, budget_s, whole=True)
        except Exception as error:
            if "OutOfMemoryError" not in str(error):
                raise
            spark.stop()  # what is left of it cannot be trusted
            session.cache_clear()
            raise CannotError(
                f"a query of {len(workload.filters):,} expressions does not fit into a heap of {HEAP}"
            ) from None
        passes = found.toPandas()["id"].to_numpy()
        return Measured(load_s, us, n, n, np.bincount(passes, minlength=len(workload.filters)))

    def _join(self, workload: PeerWorkload, events: Any, filters: Any) -> Any:
        holds = [
            (events[a] > filters[f"lo_{a}"]) & (events[a] < filters[f"hi_{a}"])
            for a, type_name in workload.schema.items()
            if type_name != "string" and f"lo_{a}" in filters.columns
        ]
        if "symbol" in workload.schema:
            holds.append(events["symbol"] == filters["is_symbol"])
        barred = [name for name in filters.columns if name.startswith("not_")]
        holds += [filters[name].isNull() | (events[name[4:]] != filters[name]) for name in barred]
        return reduce(and_, holds)


def bounds(workload: PeerWorkload) -> tuple[list[tuple[Any, ...]], str]:
    """The filters as rows: open bounds per number, the symbol, and where filters say <> the excluded value."""
    kinds: dict[str, set[str]] = {}
    for (clause,) in workload.filters:
        for test in clause:
            kinds.setdefault(test.attribute, set()).add(test.kind)
    names = ["id"]
    for a, type_name in workload.schema.items():
        if type_name == "string":
            names.append(f"is_{a}")
        elif a in kinds:
            names += [f"lo_{a}", f"hi_{a}"] + ([f"not_{a}"] if "not" in kinds[a] else [])
    usual = {"lo": -1e300, "hi": 1e300}
    rows = []
    for number, (clause,) in enumerate(workload.filters):
        row: dict[str, Any] = {name: usual.get(name[:2]) for name in names} | {"id": number}
        for kind, a, value in clause:
            if kind == "is" and workload.schema[a] == "string":
                row[f"is_{a}"] = value
            elif kind == "is":
                row[f"lo_{a}"], row[f"hi_{a}"] = value - 0.5, value + 0.5  # whole numbers only
            else:
                row[{"below": "hi_", "above": "lo_", "not": "not_"}[kind] + a] = float(value)
        rows.append(tuple(row.values()))
    types = ["id long", *(f"{n} {'string' if n.startswith('is_') else 'double'}" for n in names[1:])]
    return rows, ", ".join(types)


def spark_schema(workload: PeerWorkload) -> str:
    fields = [f"{name} {'bigint' if type_name == 'long' else type_name}" for name, type_name in workload.schema.items()]
    return ", ".join([*fields, "words array<string>"] if workload.name == "words" else fields)


@cache
def session() -> Any:
    from wherecast import spark as ws  # noqa: PLC0415 - starts a JVM, and only where Spark is asked for

    settings = {"spark.sql.shuffle.partitions": 1, "spark.ui.enabled": "false", "spark.driver.memory": HEAP}
    return ws.create_session("peers", "local[1]", **settings)
