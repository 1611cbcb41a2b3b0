"""A very large index through Spark on one machine: built, opened by two workers, matched, changed and compacted.

    python benchmarks/hundred_million.py --subscriptions 100000000 --work DIR [--servers 1] [--cores 2] [--events 100000]

Subscriptions are drawn like those of stock, a million to a file, once for a work folder; the same symbols are asked for however many there
are, so that matches per event grow with the subscriptions. What 20 events match is found by brute force while drawing, and compared
before and after each step. With `--servers 1` every worker maps the whole index (`broadcast`), with more it is spread (`event-space`).
Each line has the seconds of a step and the most memory that driver, JVM and Python workers had in it: shared pages count once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from wherecast import spark as ws
from wherecast.bench.workloads.reference import draw_filters, make_workload
from wherecast.bench.workloads.truth import find_truth
from wherecast.partition.plan import Strategy

PART, CHECKED, CHANGES = 1_000_000, 20, 10_000

T = TypeVar("T")


# -- subscriptions ----------------------------------------------------------------------------------------------------


def draw(n: int, folder: Path) -> None:
    """Files of a million subscriptions each, and what the checked events match in each file; what is there already is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    workload = make_workload("stock", 0.01)
    for part in range(-(-n // PART)):
        file, size = folder / f"{part:04d}.parquet", min(PART, n - part * PART)
        if file.exists() and pq.read_metadata(file).num_rows == size:
            continue
        drawn = draw_filters("stock", size, part)
        truth = find_truth(*drawn, workload.events[:CHECKED], part * PART)
        counts = json.dumps([truth.counts.tolist(), truth.id_sums.tolist()])
        (folder / f"_{part:04d}.json").write_text(counts)  # Spark leaves such names out
        ids = np.arange(part * PART, part * PART + size)
        pq.write_table(pa.table({"id": ids, "filter": workload.filter_column(drawn)}), file, compression="zstd")


def expected(n: int, folder: Path) -> dict[int, tuple[int, int]]:
    """By checked event: matches and the sum of their ids."""
    found = [json.loads((folder / f"_{part:04d}.json").read_text()) for part in range(-(-n // PART))]
    counts, sums = np.array(found, np.int64).sum(0)
    return {i: (int(c), int(s)) for i, (c, s) in enumerate(zip(counts, sums, strict=True)) if c}


# -- measuring --------------------------------------------------------------------------------------------------------


class Meter(threading.Thread):
    """Seconds and memory, step by step."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most: Counter[str] = Counter()
        self.start()

    def run(self) -> None:
        while True:
            now: Counter[str] = Counter()
            for pid, parent in family().items():
                role = (
                    "driver" if pid == os.getpid() else "JVM" if parent == os.getpid() and is_java(pid) else "workers"
                )
                now[role] += private_and_shared(pid)
            now["all"] = sum(now.values())
            self.most |= now
            time.sleep(0.5)

    @contextmanager
    def step(self, name: str) -> Iterator[list[str]]:
        """A step; what the caller adds to the list is printed behind it."""
        self.most, begin, notes = Counter(), time.perf_counter(), list[str]()
        yield notes
        seconds = time.perf_counter() - begin
        most = "".join(f"{role} {self.most[role] / 1e9:.2f}  " for role in ("all", "driver", "JVM", "workers"))
        print(f"{name:<28}{seconds:>8.1f} s   GB: {most} {' '.join(notes)}", flush=True)


def family() -> dict[int, int]:
    """This process and its descendants, with their parents."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {os.getpid(): 0}
    for _ in range(6):  # generations
        found |= {child: parent for child, parent in parents.items() if parent in found}
    return found


def is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    except OSError:
        return False


def private_and_shared(pid: int) -> int:
    """Memory of a process; of pages that several map each has its share."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


# -- steps ------------------------------------------------------------------------------------------------------------


def check(spark: SparkSession, index: ws.Index, truth: dict[int, tuple[int, int]], added: int, gone: int) -> None:
    """Stop if the checked events do not match what they should; ids below `gone` are removed, `added` are new."""
    batch = make_workload("stock", 0.01).event_batch().slice(0, CHECKED)
    events = spark.createDataFrame(pa.table(batch).append_column("event", pa.array(range(CHECKED), pa.int64())))
    rows = events.transform(ws.match, index).groupBy("event").agg(F.count("*"), F.sum("subscription"))
    found = {int(event): (int(n), int(total)) for event, n, total in rows.collect()}
    if not gone and found != truth:
        raise SystemExit(f"the index finds {found}, brute force {truth}")
    if gone and sum(n for n, _ in found.values()) > sum(n for n, _ in truth.values()):
        raise SystemExit("removed subscriptions are still found")
    new = spark.createDataFrame([("NEW", 5.0, 1, 0.0)], "symbol string, price double, volume bigint, change double")
    seen = new.transform(ws.match, index).count()
    if seen != added:
        raise SystemExit(f"{seen} of the {added} new subscriptions are found")


def match(spark: SparkSession, index: ws.Index, work: Path, n: int, cores: int) -> tuple[float, int]:
    """Seconds to match n events to lists of ids, and the number of ids."""
    source, path = pa.table(make_workload("stock", 0.01).event_batch()), work / f"events-{n}"
    if not path.exists():
        path.mkdir()
        drawn = np.random.default_rng(0).integers(0, len(source), n)
        for part, rows in enumerate(np.array_split(drawn, 4 * cores)):
            pq.write_table(source.take(rows), path / f"{part}.parquet")
    events = spark.read.parquet(str(path))
    begin = time.perf_counter()
    ids = events.transform(ws.match, index, output="lists").agg(F.sum(F.size("subscriptions"))).first()
    assert ids is not None
    return time.perf_counter() - begin, int(ids[0])


def changes(spark: SparkSession, n: int) -> DataFrame:
    """As many new subscriptions as removed ones."""
    more = spark.range(CHANGES).selectExpr(
        "id + 1 AS sequence",
        "'upsert' AS op",
        f"id + {n} AS id",
        "concat('symbol = \"NEW\" AND volume < ', id + 2) AS filter",
    )
    less = spark.range(CHANGES).selectExpr(
        f"id + 1 + {CHANGES} AS sequence", "'delete' AS op", "id", "CAST(NULL AS string) AS filter"
    )
    return more.unionAll(less)


def main() -> None:
    """All steps, a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subscriptions", type=int, default=1_000_000)
    parser.add_argument("--work", type=Path, default=Path("benchmark-data"))
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--driver-memory", default="3g", help="of the JVM, which holds no subscriptions")
    asked = parser.parse_args()
    n, work = asked.subscriptions, asked.work.resolve()
    rows_at, path, scratch = work / f"stock-{n}", work / f"index-{n}-{asked.servers}", work / "spark"
    strategy: Strategy = "broadcast" if asked.servers == 1 else "event-space"
    meter = Meter()
    with meter.step("draw"):
        draw(n, rows_at)
    truth = expected(n, rows_at)
    shutil.rmtree(path, ignore_errors=True)
    settings = {
        "spark.driver.memory": asked.driver_memory,
        "spark.local.dir": str(scratch),
        "spark.network.timeout": "3600s",  # a busy machine is not a lost executor
        "spark.executor.heartbeatInterval": "60s",
        "spark.sql.shuffle.partitions": max(2 * asked.cores, n // PART),
    }

    def session() -> SparkSession:
        return ws.create_session("hundred-million", f"local[{asked.cores}]", **settings)

    def timed(name: str, work_: Callable[[], T]) -> T:
        with meter.step(name) as notes:
            done = work_()
            if isinstance(done, tuple):
                seconds, ids = done
                notes += [f"{asked.events / seconds:,.0f} events/s, {ids / seconds:,.0f} ids/s"]
        return done

    rows = session().read.parquet(str(rows_at))
    schema = make_workload("stock", 0.01).schema
    with meter.step("build") as notes:
        built = ws.build_index(rows, schema, str(path), strategy=strategy, servers=asked.servers)
        size = sum(layer.nbytes for layers in built.manifest.servers for layer in layers)
        notes += [f"{built.manifest.subscriptions:,} subscriptions, {size / 1e9:.2f} GB, {size / n:.1f} bytes each"]
        notes += [f"manifest {len(built.manifest.to_bytes()):,} bytes"]
    session().stop()  # matching starts with new workers, as a stream does
    index = ws.Index(str(path))
    timed("open and check", lambda: check(session(), index, truth, 0, 0))
    for turn in ("match, first", "match", "match again"):
        timed(turn, lambda: match(session(), index, work, asked.events, asked.cores))
    with meter.step(f"{2 * CHANGES:,} changes"):
        ws.apply_changes(changes(session(), n), index)
    timed("check with changes", lambda: check(session(), index, truth, CHANGES, CHANGES))
    timed("match with changes", lambda: match(session(), index, work, asked.events, asked.cores))
    session().stop()
    with meter.step("compact"):
        ws.compact(session(), index)
    session().stop()
    timed("check when compacted", lambda: check(session(), index, truth, CHANGES, CHANGES))
    timed("match when compacted", lambda: match(session(), index, work, asked.events, asked.cores))
    session().stop()
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
