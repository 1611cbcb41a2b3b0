"""The engine against DuckDB's hash join on `stock`: 20,000 events, from Arrow to the ids of all matches, one thread.

    python benchmarks/hash_join.py [--scale 1.0] [--rounds 5] [--snapshot FOLDER]

Every filter of `stock` has an equality, so a join on it is what a user of a database would write, with the bounds as conditions of the same
query. DuckDB is used as its guides recommend: the subscriptions are a table of its own, sorted by the key of the join; events are scanned
from Arrow and results fetched as Arrow, without copies; statistics are there because the table was made by one statement. Two formulations are
measured, one row per subscription, and one row per distinct filter joined with the subscribers of each; the faster one counts.
Contestants take turns of five calls, so that each finds its own data in the cache, as in a stream of batches. CPU and wall-clock time are medians of
all calls. `ratio_first` and `cpu_us_per_event_first` are of the first call of each turn alone, which finds in the cache what the others have left.
With `--snapshot`, the engine is kept in that folder for the next run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from wherecast import Engine
from wherecast.bench.workloads.catalogue import make_workload
from wherecast.bench.workloads.form import ABOVE, BELOW, Workload

#: Beyond every value; what is not bounded.
FAR = 1e300
BOUNDS = ("price", "volume", "change")
#: Calls of a turn.
CALLS = 5


def bounds_of(workload: Workload) -> pa.Table:
    """One row per subscription: id, symbol, and exclusive bounds on the other attributes."""
    owner, attr, op, value = workload.predicates.owners(), *workload.predicates[1:]
    names = list(workload.attributes)
    first = workload.predicates.ptr[:-1]
    columns: dict[str, object] = {
        "id": np.arange(len(workload)),
        "symbol": pa.array([f"S{int(v):05d}" for v in value[first].tolist()]),
    }
    for name in BOUNDS:
        mine = attr == names.index(name)
        low, high = np.full(len(workload), -FAR), np.full(len(workload), FAR)
        low[owner[mine & (op == ABOVE)]] = value[mine & (op == ABOVE)]
        high[owner[mine & (op == BELOW)]] = value[mine & (op == BELOW)]
        columns |= {f"low_{name}": low, f"high_{name}": high}
    return pa.table(columns)


def open_database(workload: Workload) -> duckdb.DuckDBPyConnection:
    """DuckDB with the subscriptions, once row by row and once by distinct filter."""
    database = duckdb.connect()
    database.execute("SET threads = 1")
    database.register("given", bounds_of(workload))
    database.execute("CREATE TABLE subscriptions AS SELECT * FROM given ORDER BY symbol")
    keys = "symbol, " + ", ".join(f"low_{n}, high_{n}" for n in BOUNDS)
    numbered = f"SELECT id, dense_rank() OVER (ORDER BY {keys}) AS filter, {keys} FROM subscriptions"
    database.execute(f"CREATE TABLE numbered AS {numbered}")
    database.execute(f"CREATE TABLE filters AS SELECT DISTINCT filter, {keys} FROM numbered ORDER BY symbol")
    database.execute("CREATE TABLE subscribers AS SELECT filter, id FROM numbered ORDER BY filter")
    return database


def make_contestants(workload: Workload, engine: Engine, events: pa.Table) -> dict[str, Callable[[], int]]:
    """Each matches all events and answers how many ids it has found."""
    database = open_database(workload)
    within = " AND ".join(f"e.{n} > s.low_{n} AND e.{n} < s.high_{n}" for n in BOUNDS)
    rows = f"SELECT e.event, s.id FROM events e JOIN subscriptions s ON e.symbol = s.symbol AND {within}"
    distinct = (
        f"SELECT e.event, m.id FROM events e JOIN filters s ON e.symbol = s.symbol AND {within} "
        "JOIN subscribers m USING (filter)"
    )
    numbered = events.append_column("event", pa.array(np.arange(len(events))))

    def ask(query: str) -> Callable[[], int]:
        database.register("events", numbered)
        return lambda: len(database.sql(query).to_arrow_table())

    return {
        "engine": lambda: int(engine.match_batch(events).subscription_ids().size),
        "rows": ask(rows),
        "filters": ask(distinct),
    }


def load_engine(workload: Workload, events: pa.Table, snapshot: Path | None) -> Engine:
    """An engine planned for the events; from the folder, if it has been there."""
    if snapshot is not None and snapshot.is_dir():
        engine = Engine.open(snapshot)
    else:
        engine = Engine(workload.schema)
        engine.subscribe_many(workload.subscription_table())
        engine.plan(events.slice(0, 1_000))
        if snapshot is not None:
            engine.save(snapshot)
    engine.plan(events.slice(0, 1_000))  # an opened engine would otherwise plan while it is measured
    return engine


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--snapshot", type=Path)
    given = parser.parse_args()
    workload = make_workload("stock", given.scale)
    events = pa.Table.from_batches([workload.event_batch()])
    contestants = make_contestants(workload, load_engine(workload, events, given.snapshot), events)
    found = {name: run() for name, run in contestants.items()}
    if len(set(found.values())) != 1:
        sys.exit(f"the contestants do not agree: {found}")
    wall, cpu = measure(contestants, given.rounds, len(events))
    all_calls, first = medians(cpu), medians({name: taken[::CALLS] for name, taken in cpu.items()})
    result = {
        "ratio": ratio_of(all_calls),
        "ratio_first": ratio_of(first),
        "cpu_us_per_event": all_calls,
        "cpu_us_per_event_first": first,
        "wall_us_per_event": medians(wall),
        "events": len(events),
        "matches_per_event": round(found["engine"] / len(events), 2),
    }
    sys.stdout.write(json.dumps(result) + "\n")


def measure(
    contestants: dict[str, Callable[[], int]], rounds: int, n_events: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Wall-clock and CPU microseconds per event of each call, in turns."""
    wall: dict[str, list[float]] = {name: [] for name in contestants}
    cpu: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            for _ in range(CALLS):
                begin, begin_cpu = time.perf_counter(), time.process_time()
                run()
                wall[name].append((time.perf_counter() - begin) / n_events * 1e6)
                cpu[name].append((time.process_time() - begin_cpu) / n_events * 1e6)
    return wall, cpu


def medians(taken: dict[str, list[float]]) -> dict[str, float]:
    """The median of each contestant."""
    return {name: round(statistics.median(times), 3) for name, times in taken.items()}


def ratio_of(us: dict[str, float]) -> float:
    """The engine's time in units of the faster query's."""
    return round(us["engine"] / min(us["rows"], us["filters"]), 3)


if __name__ == "__main__":
    main()
