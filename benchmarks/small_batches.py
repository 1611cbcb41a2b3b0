"""Batches of 100 events against one batch of all of them, per event, from Arrow to subscription ids.

    python benchmarks/small_batches.py [WORKLOAD ...] [--scale 1.0] [--size 100] [--rounds 5] [--snapshots FOLDER]

Workloads are those of `wherecast bench`, by default stock. Small batches are slices of the large one, in
the order of its events; both are measured in turns, medians in processor time of one thread. With `--snapshots`,
engines are kept in that folder for the next run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from wherecast import Engine
from wherecast.bench.workloads.catalogue import make_workload


def load_engine(name: str, scale: float, folder: Path | None) -> tuple[Engine, pa.RecordBatch]:
    """An engine planned for the events, and these."""
    workload = make_workload(name, scale)
    events = workload.event_batch()
    snapshot = folder / f"{name}-{scale}" if folder is not None else None
    if snapshot is not None and snapshot.is_dir():
        engine = Engine.open(snapshot)
    else:
        engine = Engine(workload.schema)
        engine.subscribe_many(workload.subscription_table())
        if snapshot is not None:
            engine.save(snapshot)
    engine.plan(events.slice(0, 1_000))
    return engine, events


def timed(run: Callable[[], object]) -> float:
    start = time.thread_time()
    run()
    return time.thread_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=["stock"])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--snapshots", type=Path)
    given = parser.parse_args()
    for name in given.workloads:
        engine, events = load_engine(name, given.scale, given.snapshots)
        parts = [events.slice(at, given.size) for at in range(0, events.num_rows - given.size + 1, given.size)]
        contestants: dict[str, Callable[[], object]] = {
            "whole": lambda engine=engine, events=events: engine.match_batch(events).subscription_ids(),  # type: ignore[misc]
            "parts": lambda engine=engine, parts=parts: [engine.match_batch(p).subscription_ids() for p in parts],  # type: ignore[misc]
        }
        taken: dict[str, list[float]] = {kind: [] for kind in contestants}
        for number in range(given.rounds + 1):
            for kind, run in contestants.items():
                seconds = timed(run)
                if number:  # the first round warms up
                    taken[kind].append(seconds)
        whole, small = (statistics.median(taken[kind]) / events.num_rows * 1e6 for kind in ("whole", "parts"))
        print(
            f"{name:8} {events.num_rows:7,} events at once {whole:8.2f} us per event, by {given.size}: {small:8.2f}, "
            f"{small / whole:.2f} times that ({(small - whole) * given.size:,.0f} us more per batch)",
            flush=True,
        )


if __name__ == "__main__":
    main()
