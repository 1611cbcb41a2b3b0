"""Spark: what matching, routing, building and streaming cost beside what Spark does without us, on local[2].

    python benchmarks/spark.py lists|sql|range|routed|build|large|delta|sync|columns|batches|memory [--work DIR] [--rounds N]

Workloads are made once in the work folder. The number of matches is checked before anything is timed. Ways that are
compared take turns; the first rounds warm the JVM up, the median of the rest is printed, so that a ratio belongs to one run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from wherecast import spark as ws
from wherecast.bench.workloads.reference import draw_filters, make_workload
from wherecast.engine.engine import Engine
from wherecast.language.events.schema import Schema

EVENTS, FILES = 5_000_000, 8
WARM_UP = 2
SERVERS = 8


# -- data and timing --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bench:
    """A session, a work folder and how often to measure."""

    work: Path
    rounds: int
    cores: int
    only: tuple[str, ...] = ()

    @property
    def spark(self) -> SparkSession:
        settings = {"spark.sql.shuffle.partitions": 2 * self.cores, "spark.driver.memory": "4g"}
        return ws.create_session("benchmark", f"local[{self.cores}]", **settings)

    def workload(self, name: str) -> Path:
        """The folder of a workload, made if it is not there."""
        folder = self.work / name
        if not (folder / "truth.json").exists():
            make_workload(name).write(folder)
        return folder

    def subscriptions(self, name: str) -> Path:
        return self.workload(name) / "subscriptions.parquet"

    def schema(self, name: str) -> Schema:
        return Schema.from_file(self.workload(name) / "schema.json")

    def engine(self, name: str) -> Engine:
        engine = Engine(self.schema(name))
        engine.subscribe_many(pq.read_table(self.subscriptions(name)))
        return engine

    def events(self, name: str, n: int) -> tuple[DataFrame, int]:
        """So many events, drawn with repetition from those of the workload, and how many matches they have."""
        folder = self.work / f"{name}-{n}"
        if not (folder / "_matches.json").exists():
            source = pq.read_table(self.workload(name) / "events.parquet")
            counts = self.engine(name).count(source)
            truth = json.loads((self.workload(name) / "truth.json").read_text())["counts"]
            if counts[: len(truth)].tolist() != truth:
                raise SystemExit(f"{name}: the engine does not find what brute force finds; nothing is timed")
            drawn = np.random.default_rng(0).integers(0, len(source), n)
            folder.mkdir(parents=True, exist_ok=True)
            for part, rows in enumerate(np.array_split(drawn, FILES)):
                pq.write_table(source.take(rows), folder / f"{part}.parquet")
            (folder / "_matches.json").write_text(str(counts[drawn].sum()))
        return self.spark.read.parquet(str(folder)), int((folder / "_matches.json").read_text())

    def index(self, name: str, strategy: str = "broadcast") -> ws.Index:
        """An index of a workload's subscriptions, built anew: an old one may be of other code."""
        path = self.work / f"index-{name}-{strategy}"
        shutil.rmtree(path, ignore_errors=True)
        rows = self.spark.read.parquet(str(self.subscriptions(name)))
        return ws.build_index(rows, self.schema(name), str(path), strategy=strategy, servers=SERVERS).index

    def compare(self, ways: dict[str, Callable[[], object]]) -> dict[str, float]:
        """Median seconds of each way, taking turns."""
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(WARM_UP + self.rounds):
            for name, work in ways.items():
                taken[name].append(time_s(work))
                print(f"{name}: {taken[name][-1]:.2f} s", file=sys.stderr, flush=True)
        return {name: median(times[WARM_UP:]) for name, times in taken.items()}


def time_s(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def consume(rows: DataFrame) -> None:
    """Compute every column of every row and keep nothing."""
    rows.write.format("noop").mode("overwrite").save()


def check(found: int | None, expected: int, what: str) -> None:
    if found != expected:
        raise SystemExit(f"{what}: {found} matches, expected {expected}; nothing is timed")


def table(title: str, rows: Iterable[tuple[object, ...]]) -> None:
    print(f"\n{title}")
    for name, *cells in rows:
        print(f"  {name!s:<44}" + "".join(f"{cell!s:>16}" for cell in cells), flush=True)


def rates(title: str, taken: dict[str, float], events: int) -> None:
    """A table of events per second, each beside the first."""
    first = next(iter(taken.values()))
    rows = [(n, f"{s:.2f} s", f"{events / s:,.0f}/s", f"{first / s:.2f}") for n, s in taken.items()]
    table(title, [("", "time", "events", "to the first"), *rows])


# -- matching ---------------------------------------------------------------------------------------------------------


def pass_through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def lists(bench: Bench) -> None:
    """Stock, broadcast, one list of ids per event, beside passing the four columns through Python untouched."""
    (events, expected), index = bench.events("stock", EVENTS), bench.index("stock")

    def matched() -> DataFrame:
        return events.transform(ws.match, index, output="lists", unmatched=True)

    found = matched().agg(F.sum(F.size("subscriptions")), F.count("*")).first()
    check(found[0], expected, "lists")
    check(found[1], EVENTS, "events kept")
    taken = bench.compare(
        {
            "pass through": lambda: consume(events.mapInArrow(pass_through, events.schema)),
            "match, lists": lambda: consume(matched()),
        }
    )
    rates(f"stock: {EVENTS:,} events, {expected:,} matches", taken, EVENTS)


def sql(bench: Bench) -> None:
    """Stock beside Spark's own join on the symbol: plain, and with equal filters united by hand."""
    n = 1_000_000
    (events, expected), index = bench.events("stock", n), bench.index("stock")
    filters = pq.read_table(bench.subscriptions("stock"))["filter"]
    found = bounds_of(bench.subscriptions("stock"), ("price", "volume", "change"))
    found = found.append_column("symbol", constant(filters, r"symbol = '(?P<v>\w+)'"))
    bounds = bench.spark.createDataFrame(found).persist()
    columns = [c for c in bounds.columns if c != "id"]
    united = bounds.groupBy(*columns).agg(F.collect_list("id").alias("ids")).persist()
    inside = " AND ".join(f"(e.{a} > s.{a}_above AND e.{a} < s.{a}_below)" for a in ("price", "volume", "change"))
    condition = F.expr(f"e.symbol = s.symbol AND {inside}")

    def joined(filters: DataFrame) -> DataFrame:
        return events.alias("e").join(F.broadcast(filters).alias("s"), condition)

    def exploded() -> DataFrame:
        return joined(united).select("e.*", F.explode("s.ids").alias("subscription"))

    def matched() -> DataFrame:
        return events.transform(ws.match, index)

    for name, rows in (("match", matched()), ("join", joined(bounds)), ("join, united", exploded())):
        check(rows.count(), expected, name)
    taken = bench.compare(
        {
            "join on symbol, residual filter": lambda: consume(joined(bounds).select("e.*", "s.id")),
            "the same, equal filters united": lambda: consume(exploded()),
            "match, pairs": lambda: consume(matched()),
            "match, lists": lambda: consume(events.transform(ws.match, index, output="lists")),
        }
    )
    rates(f"stock: {n:,} events, {expected:,} matches", taken, n)


def bounds_of(subscriptions: Path, names: Iterable[str]) -> pa.Table:
    """Filters of ranges as columns: their ids, and what each attribute must be above and below."""
    rows = pq.read_table(subscriptions)
    found = {"id": rows["id"]}
    for name in names:
        for side, sign, far in (("above", ">", -np.inf), ("below", "<", np.inf)):
            value = constant(rows["filter"], rf"{name} {sign} (?P<v>[-.0-9e]+)")
            found[f"{name}_{side}"] = pc.fill_null(value.cast(pa.float64()), far)
    return pa.table(found)


def constant(filters: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    """The group `v` of a pattern, NULL where a filter has no such thing."""
    return pc.struct_field(pc.extract_regex(filters, pattern), "v")


def ranges(bench: Bench) -> None:
    """Range beside a broadcast nested-loop join, which gets few events because it takes long."""
    few, many = 400, 50_000
    (some, expected_few), (events, expected) = bench.events("range", few), bench.events("range", many)
    index = bench.index("range")
    names = [a.name for a in bench.schema("range")]
    bounds = bench.spark.createDataFrame(bounds_of(bench.subscriptions("range"), names)).repartition(2 * bench.cores)
    bounds = bounds.persist()
    inside = " AND ".join(f"e.{a} > s.{a}_above AND e.{a} < s.{a}_below" for a in names)

    def joined() -> DataFrame:
        return bounds.alias("s").join(F.broadcast(some).alias("e"), F.expr(inside)).select("e.*", "s.id")

    def matched() -> DataFrame:
        return events.transform(ws.match, index)

    check(joined().count(), expected_few, "join")
    check(matched().count(), expected, "match")
    taken = bench.compare({"nested-loop join": lambda: consume(joined()), "match, pairs": lambda: consume(matched())})
    per_event = {"nested-loop join": taken["nested-loop join"] / few, "match, pairs": taken["match, pairs"] / many}
    rates(f"range, per event ({few:,} events joined, {many:,} matched)", per_event, 1)


def routed(bench: Bench) -> None:
    """Event-space over 8 servers beside broadcast, and what its summaries keep from being sent."""
    n = 2_000_000
    events, expected = bench.events("stock", n)
    whole, spread = bench.index("stock"), bench.index("stock", "event-space")
    numbers = ws.Numbers()
    check(events.transform(ws.match, spread, numbers=numbers).count(), expected, "event-space")
    check(events.transform(ws.match, whole).count(), expected, "broadcast")
    # Counted, not consumed: writing eight rows per event costs more than finding them, and the same for both.
    taken = bench.compare(
        {
            "broadcast, pairs counted": lambda: events.transform(ws.match, whole).count(),
            "event-space, pairs counted": lambda: events.transform(ws.match, spread).count(),
        }
    )
    rates(f"stock: {n:,} events, {expected:,} matches", taken, n)
    sent, dropped = numbers.get()["sent"], numbers.get()["dropped"]
    rows = [("sent to a server", f"{sent / n:.4f}"), ("dropped by the summaries", f"{dropped / n:.4f}")]
    table("traffic, per event", rows)


# -- building ---------------------------------------------------------------------------------------------------------


def build(bench: Bench) -> None:
    """The stock index from texts: one process, and Spark's tasks."""
    schema, path = bench.schema("stock"), bench.work / "built"
    rows = bench.spark.read.parquet(str(bench.subscriptions("stock")))
    path.mkdir(parents=True, exist_ok=True)

    def single() -> None:
        bench.engine("stock").save(path / "single")

    def spread(strategy: str) -> None:
        built = ws.build_index(rows, schema, str(path / strategy), strategy=strategy, servers=SERVERS)
        check(built.manifest.subscriptions, 1_480_000, strategy)

    taken = {}
    try:
        taken = bench.compare(
            {
                "one process": single,
                "Spark, broadcast": lambda: spread("broadcast"),
                f"Spark, event-space, {SERVERS} servers": lambda: spread("event-space"),
            }
        )
    finally:
        shutil.rmtree(path, ignore_errors=True)
    rates("stock: 1,480,000 subscriptions from texts", taken, 1_480_000)


def large(bench: Bench) -> None:
    """Ten million subscriptions, drawn like stock's, and the memory that building them takes."""
    n, part_size = 10_000_000, 1_000_000
    folder = bench.work / "stock-10m"
    workload = make_workload("stock", 0.01)
    for part in range(n // part_size):
        file = folder / f"{part}.parquet"
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            texts = workload.filter_texts(draw_filters("stock", part_size, part))
            ids = np.arange(part * part_size, (part + 1) * part_size)
            pq.write_table(pa.table({"id": ids, "filter": texts}), file)
    rows, found = bench.spark.read.parquet(str(folder)), []
    for strategy in bench.only or ("broadcast", "event-space"):
        path = bench.work / f"index-10m-{strategy}"
        shutil.rmtree(path, ignore_errors=True)
        with PeakMemory() as memory:
            begin = time.perf_counter()
            built = ws.build_index(rows, bench.schema("stock"), str(path), strategy=strategy, servers=SERVERS)
            seconds = time.perf_counter() - begin
        check(built.manifest.subscriptions, n, strategy)
        size = sum(layer.nbytes for layers in built.manifest.servers for layer in layers)
        found.append((strategy, f"{seconds:.0f} s", f"{memory.peak / 1e9:.1f} GB", f"{size / n:.1f}"))
    table(f"{n:,} subscriptions", [("", "time", "peak memory", "bytes each"), *found])


class PeakMemory(threading.Thread):
    """The most memory that this process and its descendants held together: shared pages count once."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak, self._stopped = 0, threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(0.5):
            self.peak = max(self.peak, sum(memory_of(pid).get("Pss", 0) for pid in family()))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.join()


def family() -> list[int]:
    """This process and its descendants."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def memory_of(pid: int, containing: str | None = None) -> Counter[str]:
    """Bytes of a process by kind, of all its mappings or of those of files whose path contains something."""
    found: Counter[str] = Counter()
    counted = containing is None
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/{'smaps_rollup' if counted else 'smaps'}").read_text().splitlines():
            name, _, rest = line.partition(" ")
            if not name.endswith(":"):
                counted = containing is None or containing in line
            elif counted and line.endswith(" kB"):
                found[name[:-1]] += 1024 * int(rest.split()[0])
    return found


def delta(bench: Bench) -> None:
    """10,000 changes while a stream runs: how long until a batch was matched with them."""
    n = 10_000
    for strategy in ("broadcast", "event-space"):
        index = bench.index("stock", strategy)
        taken = []
        with Trickle(bench) as source:
            query = ws.stream(source.events(), index, ws.Foreach(lambda m, _: consume(m)), source.fresh("delta"))
            for round_ in range(1, bench.rounds + 2):
                source.send(query)
                upserts = [(round_ * n + i, "upsert", i, "symbol = 'NEW' AND price > 1") for i in range(n)]
                changes = bench.spark.createDataFrame(upserts, "sequence bigint, op string, id bigint, filter string")
                begin = time.perf_counter()
                version = ws.apply_changes(changes, index).manifest.version
                applied = time.perf_counter()
                report = source.send(query, symbol="NEW")
                taken.append((applied - begin, time.perf_counter() - begin))
                check(report.version, version, "version")
                check(report.matches, n, "delta")
            query.stop()
        rows = [(f"round {i}", f"{a:.2f} s", f"{b:.2f} s") for i, (a, b) in enumerate(taken)]
        table(f"{n:,} changes over 1,480,000 subscriptions, {strategy}", [("", "committed", "matched"), *rows])


# -- streams ----------------------------------------------------------------------------------------------------------


class Trickle:
    """A stream of one event per batch, from files."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.folder = bench, bench.work / "trickle"
        self.sent = 0

    def __enter__(self) -> Self:
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "in").mkdir(parents=True)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def fresh(self, name: str) -> str:
        return str(self.folder / name)

    def events(self) -> DataFrame:
        reader = self.bench.spark.readStream.schema("symbol string, price double, volume bigint, change double")
        return reader.option("maxFilesPerTrigger", 1).parquet(str(self.folder / "in"))

    def send(self, query: Any, symbol: str = "S00000") -> Any:
        """One more event; the report of its batch, if the query makes reports."""
        self.sent += 1
        event = pa.table({"symbol": [symbol], "price": [20.0], "volume": [1000], "change": [0.5]})
        pq.write_table(event, self.folder / f"{self.sent}.parquet")
        (self.folder / f"{self.sent}.parquet").rename(self.folder / "in" / f"{self.sent:06d}.parquet")
        query.processAllAvailable()
        return query.reports[-1] if isinstance(query, ws.MatchQuery) else None


def batches(bench: Bench) -> None:
    """Micro-batches of one event: matched and written by hand, and by `stream`; the second turn of each counts."""
    index, n = bench.index("stock"), 30
    manifest = index.read()
    found = {}
    for name in ("by hand", "stream") * 2:
        with Trickle(bench) as source:
            out, checkpoint = source.fresh("out"), source.fresh("checkpoint")
            if name == "stream":
                query = ws.stream(source.events(), index, ws.Parquet(out), checkpoint)
            else:

                def write(events: DataFrame, batch: int, out: str = out) -> None:
                    events.transform(ws.match, index, version=manifest).write.parquet(f"{out}/batch_id={batch}")

                query = source.events().writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()
            for _ in range(n):
                source.send(query)
            progress = [json.loads(p.json) for p in getattr(query, "query", query).recentProgress]
            spent = [p["durationMs"] for p in progress if p["numInputRows"]][n // 3 :]
            own = [f"{median(r.overhead_ms for r in query.reports):.1f} ms"] if name == "stream" else [""]
            query.stop()
        cells = [f"{median(s[k] for s in spent)} ms" for k in ("addBatch", "triggerExecution")]
        found[name] = (name, *cells, *own)
    table("micro-batches of one event, p50", [("", "in the batch", "whole", "overhead_ms"), *found.values()])


def memory(bench: Bench) -> None:
    """Memory of workers that have the stock index mapped, by their number."""
    found, index = [], bench.index("stock")
    bench.spark.stop()  # the workers that built it keep memory that matching does not need
    for cores in (1, 2, 4):
        bench = replace(bench, cores=cores)
        events, expected = bench.events("stock", 1_000_000)
        check(events.transform(ws.match, index).count(), expected, "match")
        mapped = {pid: memory_of(pid, index.url) for pid in family()}
        workers = [pid for pid, memory in mapped.items() if memory["Rss"] and pid != os.getpid()]
        for kind in ("Rss", "Pss"):
            sizes = [mapped[pid][kind] for pid in workers]
            found.append((f"{len(workers)} workers, index, {kind}", mb(sum(sizes) / len(sizes)), mb(sum(sizes))))
        own = [memory_of(pid)["Private_Dirty"] for pid in workers]
        found.append((f"{len(workers)} workers, memory of their own", mb(sum(own) / len(own)), mb(sum(own))))
        bench.spark.stop()
    table("mapped index: shared pages count in every Rss, once in all Pss", [("", "each", "together"), *found])


def mb(size: float) -> str:
    return f"{size / 1e6:.0f} MB"


def rules_table(n: int) -> pa.Table:
    """Rules with a severity and an owner."""
    rng = np.random.default_rng(1)
    symbols, prices = rng.integers(0, 5_000, n), rng.integers(1, 100_000, n)
    owners, levels = rng.integers(0, 500, n), rng.integers(0, 4, n)
    return pa.table(
        {
            "rule_id": np.arange(n),
            "condition": [f"symbol = 'S{s}' AND price < {p / 100}" for s, p in zip(symbols, prices, strict=True)],
            "severity": levels,
            "owner": [f"team-{o}" for o in owners],
        }
    )


def edit_rules(rules: pa.Table) -> pa.Table:
    """1,000 changes: 400 other owners, 300 other conditions, 150 rules less and 150 more."""
    rows, last = rules.slice(0, 850).to_pylist(), len(rules)
    for row in rows[:400]:
        row["owner"] += "-new"
    for row in rows[400:700]:
        row["condition"] += " AND price > 0"
    more = [{**row, "rule_id": last + number} for number, row in enumerate(rows[700:])]
    return pa.concat_tables([pa.Table.from_pylist(rows[:700] + more, rules.schema), rules.slice(850)])


def sync(bench: Bench) -> None:
    """A table of a million rules of which 1,000 differ: how long until a version has them, and a second look."""
    n, spark = 1_000_000, bench.spark
    tables = [bench.work / "rules-0", bench.work / "rules-1"]
    if not tables[1].exists():
        first = rules_table(n)
        for folder, rows in zip(tables, (first, edit_rules(first)), strict=True):
            folder.mkdir(parents=True)
            for part in range(FILES):
                pq.write_table(rows.slice(part * n // FILES, n // FILES), folder / f"{part}.parquet")
    shutil.rmtree(bench.work / "index-sync", ignore_errors=True)
    schema = {"symbol": "string", "price": "double"}
    old, new = (spark.read.parquet(str(folder)) for folder in tables)
    begin = time.perf_counter()
    index = ws.Index.build(old, bench.work / "index-sync", schema=schema, id="rule_id", filter="condition")
    lines: list[tuple[object, ...]] = [("build", f"{time.perf_counter() - begin:.2f} s", "")]
    for round_ in range(bench.rounds):
        for rows in (new, old):
            for what in ("sync", "again"):
                begin = time.perf_counter()
                done = index.sync(rows)
                lines.append((f"{what} {round_}", f"{time.perf_counter() - begin:.2f} s", done))
    table(f"{n:,} rules, 1,000 changes", lines)


def columns(bench: Bench) -> None:
    """What rule columns cost beside ids, and beside a join with the table."""
    path, spark = bench.work / "index-columns", bench.spark
    shutil.rmtree(path, ignore_errors=True)
    rows = spark.read.parquet(str(bench.subscriptions("stock"))).selectExpr("id", "filter")
    rows = rows.selectExpr("*", "int(id % 4) AS severity", "concat('team-', id % 500) AS owner").persist()
    index = ws.Index.build(rows, path, schema=bench.schema("stock"))
    events, expected = bench.events("stock", EVENTS // 5)
    check(index.match(events, columns="*").count(), expected, "columns")
    people = rows.drop("filter")
    ways: dict[str, Callable[[], object]] = {
        "pairs": lambda: consume(index.match(events)),
        "pairs, severity and owner": lambda: consume(index.match(events, columns=["severity", "owner"])),
        "pairs, joined with the table": lambda: consume(ws.match(events, index, subscribers=people)),
        "lists": lambda: consume(index.match(events, output="lists")),
        "lists, severity and owner": lambda: consume(
            index.match(events, output="lists", columns=["severity", "owner"])
        ),
    }
    rates(f"rule columns, {expected:,} matches", bench.compare(ways), EVENTS // 5)


COMMANDS: dict[str, Callable[[Bench], None]] = {
    "lists": lists,
    "sql": sql,
    "range": ranges,
    "routed": routed,
    "build": build,
    "large": large,
    "delta": delta,
    "sync": sync,
    "columns": columns,
    "batches": batches,
    "memory": memory,
}


def main() -> None:
    """Run one command and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--work", type=Path, default=Path("benchmark-data"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=(), help="strategies, for `large`")
    asked = parser.parse_args()
    COMMANDS[asked.command](Bench(asked.work.resolve(), asked.rounds, asked.cores, tuple(asked.only)))


if __name__ == "__main__":
    main()
