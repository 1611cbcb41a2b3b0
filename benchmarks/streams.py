"""Streams: the bars of the Spark pipeline, each a ratio within one run, on local[2].

    python benchmarks/streams.py prepare|batch|wide|routed|small|sizes|sync [--work DIR] [--events N] [--rounds N]

`prepare` makes workload and indexes, so that the rest can be short: on a machine that others use, seconds are what one gets.

- batch: lists to Parquet by `match`, as Spark writes them and without a dictionary of ids, and by tasks that write themselves, beside
  events passed through `mapInArrow` to Parquet; and by `stream`, both ways, in steady state: a micro-batch has as many events as the
  batch, so both are one job of the same size.
- wide: 50 columns of which filters use 4, beside all 50 passed through `mapInArrow`; nothing is kept.
- routed: pairs over 8 servers beside broadcast, counted.
- small: micro-batches of 1,000 events, beside Spark alone with the same sink, the no-op one and Parquet: as Spark comes, and with its
  checkpoint written as ours is.
- sizes: micro-batches of other sizes, to Parquet: what `maxFilesPerTrigger` and its like decide.
- sync: a million rules, 1,000 of them changed; then nothing.

Ways take turns; the first rounds warm the JVM up, and the median of the rest counts.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from wherecast import spark as ws
from wherecast.bench.workloads.reference import make_workload
from wherecast.spark.stream import Checkpoint

Writer = Literal["spark", "python"]
#: Seconds of each round, by the name of a way.
Taken = dict[str, list[float]]
WARM_UP = 2
SERVERS = 8
WIDE = 50
#: Files of a batch, and micro-batches of a stream.
FILES, STREAMED = 4, 3
SIZES = (1_000, 10_000, 100_000, 400_000, 1_000_000)
STRATEGIES = ("broadcast", "event-space")
#: What the guide recommends for lists and a large index: Parquet would try a dictionary of ids and throw it away.
PLAIN_IDS = {"parquet.enable.dictionary#subscriptions.list.element": "false"}


@dataclass(frozen=True, slots=True)
class Bars:
    """A session and a work folder."""

    work: Path
    n: int
    rounds: int

    @property
    def spark(self) -> SparkSession:
        settings = {"spark.sql.shuffle.partitions": 4, "spark.driver.memory": "3g"}
        return ws.create_session("bars", "local[2]", **settings)

    def prepare(self) -> None:
        """The workload, an index for each strategy, and events in files of equal size."""
        if not (self.work / "stock" / "truth.json").exists():
            make_workload("stock").write(self.work / "stock")
        rows = self.spark.read.parquet(str(self.work / "stock" / "subscriptions.parquet"))
        for strategy in STRATEGIES:
            path = self.work / f"index-stock-{strategy}"
            if not ws.Index(str(path)).versions():
                ws.build_index(rows, self.work / "stock" / "schema.json", str(path), strategy=strategy, servers=SERVERS)

    def index(self, strategy: str = "broadcast") -> ws.Index:
        return ws.Index(str(self.work / f"index-stock-{strategy}"))

    def write(self, folder: str, n: int, files: int) -> Path:
        """So many events in so many files; they are made anew."""
        path = self.work / folder
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        source = pq.read_table(self.work / "stock" / "events.parquet")
        source = pa.concat_tables([source] * (1 + n // len(source))).slice(0, n).combine_chunks()
        for number in range(files):
            pq.write_table(source.slice(number * n // files, n // files), path / f"{number:05d}.parquet")
        return path

    def compare(self, ways: dict[str, Callable[[], object]]) -> Taken:
        """Seconds of each way, taking turns."""
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(WARM_UP + self.rounds):
            for name, work in ways.items():
                begin = time.perf_counter()
                work()
                taken[name].append(time.perf_counter() - begin)
                print(f"{name}: {taken[name][-1]:.2f} s", file=sys.stderr, flush=True)
        return {name: times[WARM_UP:] for name, times in taken.items()}


def passed(events: DataFrame) -> DataFrame:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    return events.mapInArrow(run, events.schema)


def consume(rows: DataFrame) -> None:
    """Compute every column of every row and keep nothing."""
    rows.write.format("noop").mode("overwrite").save()


def show(taken: Taken, n: int, goals: dict[tuple[str, str], float]) -> None:
    """Medians count; the best rounds beside them say more where others use the machine."""
    for name, times in taken.items():
        print(f"{name:<32}{median(times):8.2f} s{n / median(times):12,.0f} events/s, best {min(times):.2f} s")
    for (one, other), goal in goals.items():
        ratio = median(taken[other]) / median(taken[one])
        best, verdict = min(taken[other]) / min(taken[one]), "met" if ratio >= goal else "missed"
        print(f"{one} / {other}: {ratio:.2f}, by the best rounds {best:.2f} (bar {goal}: {verdict})", flush=True)


def batch(bars: Bars) -> None:
    """Pass-through, batch and stream, all to Parquet."""
    out, source = bars.work / "out", bars.write("in", bars.n, FILES)
    more = bars.write("in-stream", STREAMED * bars.n, STREAMED * FILES)
    events, index = bars.spark.read.parquet(str(source)), bars.index()

    def save(rows: DataFrame, **options: str) -> None:
        rows.write.mode("overwrite").options(**options).parquet(str(out))

    def write() -> None:
        shutil.rmtree(bars.work / "written", ignore_errors=True)
        index.write(events, ws.Parquet(str(bars.work / "written"), written_by="python"), output="lists")

    def stream(written_by: Writer) -> None:
        for folder in ("sunk", "checkpoint"):
            shutil.rmtree(bars.work / folder, ignore_errors=True)
        reader = bars.spark.readStream.schema(events.schema).option("maxFilesPerTrigger", FILES)
        query = index.stream(
            reader.parquet(str(more)),
            ws.Parquet(str(bars.work / "sunk"), written_by=written_by),
            str(bars.work / "checkpoint"),
            output="lists",
            trigger={"availableNow": True},
        )
        query.awaitTermination()
        steps[written_by].append([json.loads(p.json)["durationMs"] for p in query.query.recentProgress][1:])

    steps: dict[Writer, list[list[dict[str, int]]]] = {"spark": [], "python": []}
    ways = {
        "pass through": lambda: save(passed(events)),
        "batch": lambda: save(index.match(events, output="lists")),
        "batch, no dictionary": lambda: save(index.match(events, output="lists"), **PLAIN_IDS),
        "batch, written by Python": write,
        "stream": lambda: stream("spark"),
        "stream, written by Python": lambda: stream("python"),
    }
    taken = bars.compare(ways)
    # In steady state: the batches after the first, from trigger to commit.
    steady = {way: [step for run in runs[WARM_UP:] for step in run if step] for way, runs in steps.items()}
    taken["stream"] = [step["triggerExecution"] / 1e3 for step in steady["spark"]]
    taken["stream, written by Python"] = [step["triggerExecution"] / 1e3 for step in steady["python"]]
    goals = {(way, "pass through"): 0.85 for way in ways if way.startswith("batch")}
    show(taken, bars.n, {**goals, **{(way, "batch"): 0.85 for way in ways if way.startswith("stream")}})
    for name in ("addBatch", "walCommit", "commitOffsets", "queryPlanning", "latestOffset"):
        print(f"  {name}: {' and '.join(f'{median(s.get(name, 0) for s in runs):.0f}' for runs in steady.values())} ms")


def wide(bars: Bars) -> None:
    """Events with 46 columns that no filter uses."""
    source = bars.spark.read.parquet(str(bars.write("in", bars.n, 2)))
    more = [F.concat(F.lit(f"c{i}-"), F.col("symbol")).alias(f"s{i}") for i in range((WIDE - 4) // 2)]
    more += [(F.col("price") + i).alias(f"d{i}") for i in range(WIDE - 4 - len(more))]
    folder = bars.work / "wide"
    source.select("*", *more).write.mode("overwrite").parquet(str(folder))
    events, index = bars.spark.read.parquet(str(folder)), bars.index()
    few = ["symbol", "price", "subscriptions"]
    taken = bars.compare(
        {
            "all 50 passed through": lambda: consume(passed(events)),
            "match": lambda: consume(index.match(events, output="lists")),
            "match, 3 columns wanted": lambda: consume(index.match(events, output="lists").select(*few)),
            "read alone": lambda: consume(events),
        }
    )
    through = "all 50 passed through"
    show(taken, bars.n, {("match", through): 3.0, ("match, 3 columns wanted", through): 3.0})


def routed(bars: Bars) -> None:
    """8 servers beside one."""
    events = bars.spark.read.parquet(str(bars.write("in", bars.n, 2)))
    ways = {name: (lambda name=name: events.transform(ws.match, bars.index(name)).count()) for name in STRATEGIES}
    show(bars.compare(ways), bars.n, {("event-space", "broadcast"): 0.5})


class Nowhere(ws.Sink):
    """What Spark's no-op sink is: every column is computed and nothing is kept."""

    def write(self, matches: DataFrame, batch: ws.Batch) -> None:  # noqa: ARG002
        consume(matches)


def small(bars: Bars) -> None:
    """Micro-batches of 1,000 events, by Spark alone and matched: to nowhere, and to Parquet.

    A stream lives long, and a JVM compiles for its first hundred batches: the second round counts, and of it the later half.
    """
    n = 60
    folder, index = bars.write("small", 1_000 * n, n), bars.index()
    schema = bars.spark.read.parquet(str(folder)).schema
    out, checkpoint = bars.work / "small-out", bars.work / "small-checkpoint"

    def matched(sink: ws.Sink) -> Callable[[DataFrame], StreamingQuery]:
        now = {"availableNow": True}
        return lambda events: index.stream(events, sink, str(checkpoint), output="lists", trigger=now).query

    def started(writer: DataStreamWriter) -> StreamingQuery:
        return Checkpoint(str(checkpoint)).start(writer.trigger(availableNow=True), bars.spark)

    def as_it_comes(writer: DataStreamWriter) -> StreamingQuery:
        return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()

    def save(events: DataFrame, batch: int) -> None:
        events.write.parquet(f"{out}/{batch}")

    ways: dict[str, Callable[[DataFrame], StreamingQuery]] = {
        "no-op as Spark comes": lambda events: as_it_comes(events.writeStream.format("noop")),
        "no-op": lambda events: started(events.writeStream.format("noop")),
        "matches to nowhere": matched(Nowhere()),
        "events to Parquet": lambda events: started(events.writeStream.foreachBatch(save)),
        "matches to Parquet": matched(ws.Parquet(str(out))),
    }
    found: dict[str, list[float]] = {}
    for _ in range(2):
        for name, start in ways.items():
            for used in (out, checkpoint):
                shutil.rmtree(used, ignore_errors=True)
            query = start(bars.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder)))
            query.awaitTermination()
            steps = [json.loads(p.json)["durationMs"] for p in query.recentProgress][n // 2 :]
            found[name] = [step["triggerExecution"] for step in steps]
            print(name, {k: median(s.get(k, 0) for s in steps) for k in steps[-1]}, file=sys.stderr, flush=True)
    pairs = (
        ("matches to nowhere", "no-op as Spark comes"),
        ("matches to nowhere", "no-op"),
        ("matches to Parquet", "events to Parquet"),
    )
    for name, other in pairs:
        ours, theirs = median(found[name]), median(found[other])
        print(f"{name}: {ours:.0f} ms, {other}: {theirs:.0f} ms, {ours - theirs:+.0f} ms (bar +100)", flush=True)
    extra = median(found["matches to Parquet"]) - median(found["no-op"])
    print(f"matches to Parquet beside no-op: {extra:+.0f} ms")


def sizes(bars: Bars) -> None:
    """Lists to Parquet, in micro-batches from 1,000 events to a million."""
    index, folders = bars.index(), {size: bars.write(f"sized-{size}", 6 * size, 6) for size in SIZES}
    schema = bars.spark.read.parquet(str(folders[SIZES[0]])).schema
    for round_ in range(2):
        for size, folder in folders.items():
            for used in ("sized-out", "sized-checkpoint"):
                shutil.rmtree(bars.work / used, ignore_errors=True)
            events = bars.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
            sink, now = ws.Parquet(str(bars.work / "sized-out")), {"availableNow": True}
            query = index.stream(events, sink, str(bars.work / "sized-checkpoint"), output="lists", trigger=now)
            query.awaitTermination()
            steps = [json.loads(p.json)["durationMs"]["triggerExecution"] for p in query.query.recentProgress]
            if round_:
                took = median(steps[2:]) / 1e3
                print(f"{size:>8,} events a batch: {took:5.2f} s, {size / took:10,.0f} events/s", flush=True)


def sync(bars: Bars) -> None:
    """A million rules with an owner, of which 1,000 change; each step once, in a session that has built the index."""
    spark, path = bars.spark, bars.work / "synced"
    shutil.rmtree(path, ignore_errors=True)
    rows = spark.read.parquet(str(bars.work / "stock" / "subscriptions.parquet")).where("id < 1000000")
    owned = rows.select("id", "filter", F.concat(F.lit("team "), F.col("id") % 100).alias("owner"))
    index = ws.Index.build(owned, path, schema=str(bars.work / "stock" / "schema.json"))
    changed = owned.withColumn(
        "owner", F.when(F.col("id") % 1000 == 7, F.lit("somebody else")).otherwise(F.col("owner"))
    )
    for name in ("1,000 changes", "no change"):
        begin = time.perf_counter()
        report = index.sync(changed)
        print(
            f"{name:<20}{time.perf_counter() - begin:6.1f} s (bar 20)  {report}, committed: {report.committed}",
            flush=True,
        )


COMMANDS: dict[str, Callable[[Bars], None]] = {
    "prepare": Bars.prepare,
    "batch": batch,
    "wide": wide,
    "routed": routed,
    "small": small,
    "sizes": sizes,
    "sync": sync,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--work", type=Path, default=Path("benchmark-data"))
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    if asked.command != "prepare" and not (asked.work / "stock" / "truth.json").exists():
        parser.error(f"there is no workload in {asked.work}; make it first: python benchmarks/streams.py prepare")
    COMMANDS[asked.command](Bars(asked.work.resolve(), asked.events, asked.rounds))


if __name__ == "__main__":
    main()
