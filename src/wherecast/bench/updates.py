"""Changes while matching, and single events: the figures of a live engine.

The subscriptions of the workload are loaded. Then, in this order:

1. the engine is saved and opened as a second one, which stays as it is;
2. a share of new subscriptions (5 %) arrives one by one, each call timed;
3. a batch is matched by both engines in turns: `delta_ratio` is the time of the changed one over that of the other;
4. the new ones leave one by one, each call timed;
5. one thread adds and removes subscriptions as fast as it can while another matches batches, for some seconds.

Before step 1, at step 3 and at the end the answers are checked against brute force.
"""

from __future__ import annotations

import tempfile
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from wherecast.bench.cases import Case
from wherecast.bench.contestants import EngineRun, check_engine
from wherecast.bench.measure import Contestant, check_count, collector_off, time_calls, time_in_turns
from wherecast.bench.results import Figure
from wherecast.bench.workloads.form import Workload
from wherecast.bench.workloads.reference import draw_filters
from wherecast.bench.workloads.truth import CHECKED_EVENTS, GroundTruth, find_truth
from wherecast.engine.engine import Engine

if TYPE_CHECKING:
    import pyarrow as pa

#: Events per call of the thread that matches while another one changes subscriptions.
BATCH = 1000
#: Subscriptions that the other one adds before it removes them again.
WAVE = 1000


def measure_updates(
    case: Case, workload: Workload, engine: Engine, events: pa.RecordBatch, truth: GroundTruth, *, rounds: int
) -> dict[str, Figure]:
    """Change a loaded engine and measure; at the end it holds what it held before."""
    n = len(workload)
    fresh = draw_filters(workload.name, max(int(n * case.delta), 20), part=1)
    pairs = list(zip(range(n, n + len(fresh)), workload.filter_texts(fresh), strict=True))
    both = _add(truth, find_truth(*fresh, workload.events[:CHECKED_EVENTS], first_id=n))
    with tempfile.TemporaryDirectory() as folder:
        engine.save(folder)
        unchanged = Engine.open(folder)
        arriving = time_calls(partial(engine.subscribe, key, text) for key, text in pairs)
        engine.merge()  # what is due; a delta of this size stays one
        check_engine(engine, events, both)
        runs = [Contestant("before", EngineRun(unchanged, events)), Contestant("after", EngineRun(engine, events))]
        timings = time_in_turns(runs, events.num_rows, rounds=rounds)
        del unchanged, runs  # they have mapped what is in the folder
    before, after = timings["before"], timings["after"]
    segments = len(engine.stats()["segments"])
    leaving = time_calls(partial(engine.unsubscribe, key) for key, _ in pairs)
    churn = _churn(engine, pairs, events, case.seconds)
    check_engine(engine, events, truth)
    return {
        "us_per_event": before.us_per_event,
        "delta_us_per_event": after.us_per_event,
        "delta_ratio": after.us_per_event / before.us_per_event,
        "delta_segments": segments,
        "subscribe_p50_us": arriving.p50_us,
        "subscribe_p99_us": arriving.p99_us,
        "unsubscribe_p50_us": leaving.p50_us,
        "unsubscribe_p99_us": leaving.p99_us,
        **churn,
    }


def _add(one: GroundTruth, other: GroundTruth) -> GroundTruth:
    return GroundTruth(one.counts + other.counts, one.id_sums + other.id_sums)


class _Reader(threading.Thread):
    """Matches batches until told to stop; keeps what went wrong."""

    def __init__(self, engine: Engine, events: pa.RecordBatch) -> None:
        super().__init__(name="bench-reader", daemon=True)
        self.engine, self.events = engine, events
        self.stopping = threading.Event()
        self.matched = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        """Match batch after batch."""
        start, n = 0, self.events.num_rows
        try:
            while not self.stopping.is_set():
                batch = self.events.slice(start, BATCH)
                self.engine.count(batch)
                self.matched += batch.num_rows
                start = start + BATCH if start + BATCH < n else 0
        except BaseException as error:  # noqa: BLE001 - raised again where the thread is joined
            self.error = error


def _churn(engine: Engine, pairs: list[tuple[int, str]], events: pa.RecordBatch, seconds: float) -> dict[str, Figure]:
    """Add and remove in waves while a reader matches."""
    wave = max(min(len(pairs) // 10, WAVE), 1)
    reader = _Reader(engine, events)
    changes, at = 0, 0
    with collector_off():
        reader.start()
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            for key, text in pairs[at : at + wave]:
                engine.subscribe(key, text)
            for key, _ in pairs[at : at + wave]:
                engine.unsubscribe(key)
            changes += 2 * len(pairs[at : at + wave])
            at = at + wave if at + wave < len(pairs) else 0
        taken = time.perf_counter() - start
        reader.stopping.set()
        reader.join()
    if reader.error is not None:
        raise reader.error
    return {
        "changes_per_s": changes / taken,
        "us_per_change": taken / changes * 1e6,
        "changes": changes,
        "meanwhile_us_per_event": taken / reader.matched * 1e6 if reader.matched else None,
    }


def measure_latency(case: Case, engine: Engine, events: pa.RecordBatch, expected: int) -> dict[str, Figure]:
    """Percentiles of `engine.match` on one event at a time, given as a dict."""
    rows = events.slice(0, case.events).to_pylist()
    found = sum(len(engine.match(row)) for row in rows[:CHECKED_EVENTS])
    check_count(f"{case.name}, one event at a time", found, expected, min(CHECKED_EVENTS, len(rows)))
    for row in rows[:1000]:
        engine.match(row)
    latency = time_calls(partial(engine.match, row) for row in rows)
    mean = float(np.mean(engine.count(events.slice(0, len(rows)))))
    return {"p50_us": latency.p50_us, "p99_us": latency.p99_us, "events": latency.calls, "matches_per_event": mean}
