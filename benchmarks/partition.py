"""Dispatcher cost: microseconds per event at 50 servers, beside a plain Python dictionary, in one run.

    python benchmarks/partition.py [--servers 50] [--batch 10000] [--rounds 51]

The set is the paper's in size: 21,741 symbols that somebody asks for, events over 43,734. Every way is asked for the same
pairs of event and server, and what it lets through is counted before a time is reported. Reading the events (Arrow column to
batch) is included; so is hashing the strings. The Python dictionary is given the symbols as a list of str for nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import pyarrow as pa

from wherecast.language.compile import Compiler
from wherecast.language.events import EventBatch
from wherecast.language.schema import Schema
from wherecast.partition.event_space import EventSpace
from wherecast.partition.filter_set import FilterSet
from wherecast.workloads.reference import make_workload

ASKED, SYMBOLS = 21_741, 43_734
SCHEMA = Schema.of({"symbol": "string", "price": "double"})


def time_us(work: Callable[[], object], rounds: int, events: int) -> float:
    """Median microseconds per event."""
    work()
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return median(times) / events * 1e6


def measure_equality(servers: int, batch: int, rounds: int) -> dict[str, float]:
    """Event-space by Bloom filter and by dictionary, and a Python dictionary of symbol to server."""
    rng = np.random.default_rng(1)
    compiled = Compiler(SCHEMA).compile_many([f"symbol = 'S{i:05d}'" for i in range(ASKED)])
    weights = np.ones(ASKED, np.int64)
    names = [f"S{i:05d}" for i in rng.integers(0, SYMBOLS, batch).tolist()]
    table = pa.table({"symbol": names, "price": rng.random(batch)})
    asked = np.array([int(name[1:]) < ASKED for name in names])
    figures: dict[str, float] = {}
    for summary in ("bloom", "dictionary"):
        partition = EventSpace.build(compiled.filters, weights, SCHEMA, servers, attributes=["symbol"], summary=summary)
        routes = partition.dispatcher().route(EventBatch.read(SCHEMA, table, needed=partition.attributes))
        reached = np.bincount(routes.event_ids, minlength=batch)
        assert reached.max() <= 1, "an event was sent twice"
        assert reached[asked].all(), "an event that somebody asks for was dropped"
        dispatcher = partition.dispatcher()
        figures[f"{summary}_us"] = time_us(
            lambda d=dispatcher: d.route(EventBatch.read(SCHEMA, table, needed=d.attributes)), rounds, batch
        )
        figures[f"{summary}_false_positives"] = float(reached[~asked].mean())
        figures[f"{summary}_bytes"] = partition.stats()["summary_bytes"]
        figures[f"{summary}_bytes_per_server"] = partition.stats()["summary_bytes_per_server"]
    owner = dict(zip((f"S{i:05d}" for i in range(ASKED)), (i % servers for i in range(ASKED)), strict=True))
    figures["python_dict_us"] = time_us(
        lambda: [(i, owner[name]) for i, name in enumerate(names) if name in owner], rounds, batch
    )
    return figures


def measure_ranges(servers: int, batch: int, rounds: int) -> dict[str, float]:
    """Filter-set with ten boxes per server, on the range workload."""
    workload = make_workload("range", 0.02)
    schema = Schema.of(workload.schema)
    compiled = Compiler(schema).compile_many(workload.filter_texts())
    weights = np.bincount(compiled.filter_of)
    rows = np.resize(np.arange(len(workload.events)), batch)
    table = pa.Table.from_batches([workload.event_batch()]).take(rows).combine_chunks()
    events = EventBatch.read(schema, table)
    partition = FilterSet.build(compiled.filters, weights, schema, servers, events)
    sent = partition.route(events).servers.size / batch
    return {
        "boxes_us": time_us(lambda: partition.route(EventBatch.read(schema, table)), rounds, batch),
        "boxes_servers_per_event": sent,
    }


def main() -> None:
    """Measure, and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, default=50)
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=51)
    asked = parser.parse_args()
    figures = measure_equality(asked.servers, asked.batch, asked.rounds)
    figures |= measure_ranges(asked.servers, asked.batch, asked.rounds)
    print(json.dumps({name: round(value, 5) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
