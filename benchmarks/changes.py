"""Many changes in a row: what they leave behind, beside an engine built anew.

    python benchmarks/changes.py [--loaded 1480000] [--changes 10000000] [--work DIR]

Stock's subscriptions are loaded. Then, again and again, a subscription is removed and another is registered, one by one, as clients do.
Ten times on the way, memory and match time are printed, and in the end once more after as many events as the engine waits for before it merges
what changes have left. In the end the subscriptions that stand now are loaded anew: by another process, whose memory is compared, and by this one, where both
engines match the same events in turns. (Match times of two processes differ by a third on a machine that others use, with the same index.) The ratios are
those of "many changes" to "built anew".
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from wherecast.bench.workloads.reference import draw_filters, make_workload
from wherecast.engine.engine import Engine
from wherecast.engine.log import EVENTS_PER_BUILD
from wherecast.engine.memory import give_back

ROUNDS = 7


def resident() -> float:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def settled() -> float:
    """Bytes of this process, rid of what making the texts has left: free memory that an engine would use again."""
    gc.collect()
    give_back()
    return resident()


def measure(engine: Engine, events: pa.RecordBatch, before: float) -> dict[str, float]:
    """Memory of an engine, and CPU time to match events, ids out."""
    engine.match_batch(events).subscription_ids()
    gc.collect()
    taken = []
    for _ in range(ROUNDS):
        begin = time.thread_time()
        found = engine.match_batch(events).subscription_ids()
        taken.append(time.thread_time() - begin)
    return {
        "us": median(taken) / len(events) * 1e6,
        "best": min(taken) / len(events) * 1e6,
        "ids": len(found),
        "bytes": float(engine.stats()["bytes"]),
        "resident": resident() - before,
        "segments": len(engine.stats()["segments"]),
    }


def measure_in_turns(engines: list[Engine], events: pa.RecordBatch) -> list[float]:
    """CPU microseconds per event of several engines, ids out."""
    taken: list[list[float]] = [[] for _ in engines]
    for _ in range(3 * ROUNDS):
        for engine, times in zip(engines, taken, strict=True):
            begin = time.thread_time()
            engine.match_batch(events).subscription_ids()
            times.append((time.thread_time() - begin) / len(events) * 1e6)
    return [median(times) for times in taken]


def show(name: str, found: dict[str, float]) -> None:
    print(
        f"{name:<22}{found['us']:>8.3f} us/event (best {found['best']:.3f}){found['ids']:>12,.0f} ids"
        f"{found['bytes'] / 1e6:>10,.1f} MB index{found['resident'] / 1e6:>10,.0f} MB resident"
        f"{found['segments']:>4} segments",
        flush=True,
    )


def fresh(file: Path) -> None:
    """Load what stands and print the measurements."""
    workload = make_workload("stock", 0.01)
    events, table = workload.event_batch(), pq.read_table(file)
    before = settled()
    engine = Engine(workload.schema)
    engine.subscribe_many(table)
    engine.plan(events)
    print(json.dumps(measure(engine, events, before)))


def main() -> None:
    """Load, change, compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--loaded", type=int, default=1_480_000)
    parser.add_argument("--changes", type=int, default=10_000_000)
    parser.add_argument("--work", type=Path, default=Path("benchmark-data"))
    parser.add_argument("--fresh", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.fresh:
        fresh(asked.fresh)
        return
    asked.work.mkdir(parents=True, exist_ok=True)
    workload, draw = make_workload("stock", 0.01), random.Random(5)
    events = workload.event_batch()
    texts = workload.filter_texts(draw_filters("stock", asked.loaded, 0))
    others = workload.filter_texts(draw_filters("stock", min(asked.loaded, 500_000), 1))
    standing = list(range(asked.loaded))  # ids
    text_of = np.arange(asked.loaded)  # by place in `standing`; those of `others` come after
    before = settled()
    engine = Engine(workload.schema)
    engine.subscribe_many(list(enumerate(texts)))
    engine.plan(events)
    show("loaded", measure(engine, events, before))
    begin, spent = time.perf_counter(), time.process_time()
    for change in range(0, asked.changes, 2):
        place = draw.randrange(asked.loaded)
        other = draw.randrange(len(others))
        engine.unsubscribe(standing[place])
        standing[place] = asked.loaded + change
        text_of[place] = asked.loaded + other
        engine.subscribe(standing[place], others[other])
        if (change + 2) % max(asked.changes // 10, 2) == 0:
            show(f"{change + 2:,} changes", measure(engine, events, before))
    seconds, used = time.perf_counter() - begin, time.process_time() - spent
    print(f"{asked.changes / seconds:,.0f} changes/s, {used / asked.changes * 1e6:.0f} us of CPU each, with merges")
    show("right after", measure(engine, events, before))
    for _ in range(0, EVENTS_PER_BUILD * asked.loaded, len(events)):
        engine.match_batch(events)
    while any(thread.name == "wherecast-merge" for thread in threading.enumerate()):
        time.sleep(0.1)
    mine = measure(engine, events, before)
    file = asked.work / "standing.parquet"
    now = [texts[t] if t < asked.loaded else others[t - asked.loaded] for t in text_of.tolist()]
    pq.write_table(pa.table({"id": standing, "filter": now}), file)
    done = subprocess.run([sys.executable, __file__, "--fresh", str(file)], check=True, capture_output=True, text=True)
    anew = json.loads(done.stdout)
    show("many changes", mine)
    show("built anew", anew)
    assert mine["ids"] == anew["ids"], "they do not match the same"
    other = Engine(workload.schema)
    other.subscribe_many(pq.read_table(file))
    other.plan(events)
    changed_us, anew_us = measure_in_turns([engine, other], events)
    print(f"in turns: {changed_us:.3f} and {anew_us:.3f} us/event")
    print(f"ratios: match time {changed_us / anew_us:.2f}, "
          f"index {mine['bytes'] / anew['bytes']:.2f}, resident {mine['resident'] / anew['resident']:.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
