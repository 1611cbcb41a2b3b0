"""Patterns over several events: events per second of one thread, and where the time goes.

    python benchmarks/patterns.py symbols|shared|users|heavy [--patterns N] [--batches N]

- `symbols`: each pattern is about one of 5,000 symbols: THEN of two and three steps, THEN NOT and COUNT.
- `shared`: patterns about a kind of event, kept per symbol: states of many (pattern, symbol).
- `users`: patterns about a kind of event, kept per user, of whom there are ten million; windows of a second, so states come and go.
- `heavy`: 100 patterns whose steps half of all events satisfy: what bounds it is the number of steps that an event satisfies.

Batches of 20,000 events, 10 microseconds apart, as a stream of 100,000 events/s has them. The first batches are not counted. `index_us` is the time of
matching the steps alone, on the same batches.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np
import pyarrow as pa

from wherecast import Engine, EventTime

BATCH, SYMBOLS, KINDS, USERS = 20_000, 5_000, 1_000, 10_000_000
SCHEMA = {
    "ts": "timestamp",
    "symbol": "string",
    "price": "double",
    "volume": "bigint",
    "kind": "string",
    "user": "bigint",
}
_WITHIN = "WITHIN INTERVAL 10 MINUTES PARTITION BY symbol"


def texts(case: str, n: int) -> list[str]:
    """Patterns of one case."""
    rng = np.random.default_rng(7)
    low, high = np.round(5 * rng.random(n), 2).tolist(), np.round(95 + 5 * rng.random(n), 2).tolist()
    found = []
    for i in range(n):
        if case == "heavy":
            found.append(f"PATTERN (price < {50 + low[i]} THEN price > {high[i] - 50} {_WITHIN})")
            continue
        of = f"symbol = 'S{i % SYMBOLS}'" if case == "symbols" else f"kind = 'K{i % KINDS}'"
        a, b, c = f"{of} AND price < {low[i]}", f"{of} AND price > {high[i]}", f"{of} AND volume > 990"
        within = "WITHIN INTERVAL 1 SECOND PARTITION BY user" if case == "users" else _WITHIN
        forms = (
            f"PATTERN ({a} THEN {b} {within})",
            f"PATTERN ({a} THEN {b} {within})",
            f"PATTERN ({a} THEN {b} THEN {c} {within})",
            f"PATTERN ({a} THEN NOT {b} {within})",
            f"COUNT({a}) >= 3 {within}",
        )
        found.append(forms[i // max(SYMBOLS, KINDS) % len(forms)])
    return found


def batches(n: int) -> list[pa.Table]:
    """Events, 10 microseconds apart."""
    rng = np.random.default_rng(8)
    made = []
    for number in range(n):
        ts = 1_800_000_000_000_000 + 10 * (number * BATCH + np.arange(BATCH))
        made.append(
            pa.table(
                {
                    "ts": pa.array(ts, pa.timestamp("us", "UTC")),
                    "symbol": np.char.add("S", rng.integers(0, SYMBOLS, BATCH).astype(str)),
                    "price": np.round(100 * rng.random(BATCH), 2),
                    "volume": rng.integers(0, 1000, BATCH),
                    "kind": np.char.add("K", rng.integers(0, KINDS, BATCH).astype(str)),
                    "user": rng.integers(0, USERS, BATCH),
                }
            )
        )
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=("symbols", "shared", "users", "heavy"))
    parser.add_argument("--patterns", type=int)
    parser.add_argument("--batches", type=int, default=24)
    given = parser.parse_args()
    n = given.patterns or (100 if given.case == "heavy" else 100_000)
    engine = Engine(SCHEMA, event_time=EventTime("ts"))
    start = time.thread_time()
    outcome = engine.subscribe_many(enumerate(texts(given.case, n)))
    loaded = time.thread_time() - start
    assert not outcome.quarantined, outcome.quarantined[0]
    stream = batches(given.batches)
    steps = engine._patterns.sequences.steps  # noqa: SLF001 - what the index alone takes
    steps.plan(stream[0])
    whole, index, found, hits = [], [], 0, 0
    for batch in stream:
        start = time.thread_time()
        found += len(engine.advance(batch))
        whole.append((time.thread_time() - start) / BATCH * 1e6)
        start = time.thread_time()
        hits += steps.match_batch(batch).subscription_ids().size
        index.append((time.thread_time() - start) / BATCH * 1e6)
    warm = len(stream) // 4
    middle, matching = statistics.median(whole[warm:]), statistics.median(index[warm:])
    counts = engine.stats()["patterns"]
    print(
        json.dumps(
            {
                "case": given.case,
                "patterns": len(engine),
                "filters": counts["filters"],
                "load_s": round(loaded, 1),
                "us": round(middle, 2),
                "worst_us": round(max(whole[warm:]), 2),
                "index_us": round(matching, 2),
                "events_s": round(1e6 / middle),
                "steps_per_event": round(hits / (BATCH * len(stream)), 2),
                "ns_per_step": round((middle - matching) * 1000 * BATCH * len(stream) / max(hits, 1)),
                "found": found,
                "states": counts["states"],
                "keys": counts["keys"],
                "state_mb": round(counts["bytes"] / 1e6, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
