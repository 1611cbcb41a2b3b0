"""Wherecast itself: batches, and one event at a time as most peers take them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from benchmarks.peers.peer import Measured, Peer, Tally, time_passes
from benchmarks.peers.workloads import PeerWorkload

from wherecast import Engine


def load(workload: PeerWorkload) -> tuple[Engine, Any, float]:
    """An engine planned for the events, the events as Arrow, and the seconds that loading took; kernels are compiled before."""
    table = workload.table()

    def build(texts: list[str]) -> Engine:
        engine = Engine(workload.schema)
        refused = engine.subscribe_many(enumerate(texts)).quarantined
        if refused:
            raise SystemExit(f"{workload.name}: {refused[0]}")
        engine.plan(table)
        return engine

    build(workload.texts[:200]).match_batch(table)
    start = time.perf_counter()
    engine = build(workload.texts)
    return engine, table, time.perf_counter() - start


def tally(engine: Engine, events: Any, n_filters: int) -> Tally:
    """Matches of each filter."""
    ids = np.asarray(engine.match_batch(events).to_arrow()["subscription"])
    return np.bincount(ids, minlength=n_filters)


class Batches(Peer):
    """Arrow in, ids out."""

    name = "Wherecast"
    form = "`Engine.match_batch` on an Arrow table of 1,000 events, ids out"

    def measure(self, workload: PeerWorkload, budget_s: float) -> Measured:
        engine, table, load_s = load(workload)
        us, n = time_passes(
            lambda n: engine.match_batch(table.slice(0, n)).subscription_ids(), table.num_rows, budget_s, whole=True
        )
        return Measured(load_s, us, n, table.num_rows, tally(engine, table, len(workload.filters)))


class Singles(Peer):
    """One mapping in, a list of ids out."""

    name = "Wherecast, one by one"
    form = "`Engine.match` on one dict, a list of ids out"

    def measure(self, workload: PeerWorkload, budget_s: float) -> Measured:
        engine, _, load_s = load(workload)
        engine.match(workload.events[0])
        us, n = time_passes(
            lambda n: [engine.match(event) for event in workload.events[:n]], len(workload.events), budget_s
        )
        ids = [int(id) for event in workload.events for id in engine.match(event)]
        return Measured(load_s, us, n, len(workload.events), np.bincount(ids, minlength=len(workload.filters)))
