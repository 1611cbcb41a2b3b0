"""Quotes and filters over stored values, and what an engine finds in batches of any size."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from wherecast import Engine

SCHEMA = {"symbol": "string", "price": "double", "volume": "long"}


def draw_events(n: int, seed: int = 3) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    symbols = [None if rng.random() < 0.1 else f"S{rng.integers(60)}" for _ in range(n)]
    prices = pa.array(rng.uniform(0, 100, n), mask=rng.random(n) < 0.1)
    volumes = pa.array(rng.integers(0, 1000, n), mask=rng.random(n) < 0.1)
    return pa.RecordBatch.from_arrays([pa.array(symbols), prices, volumes], names=list(SCHEMA))


def gated(n: int = 2_000) -> list[str]:
    """Filters that all ask for a symbol, so that the adaptive matcher has a gate."""
    rng = np.random.default_rng(1)
    return [f"symbol = 'S{rng.integers(40)}' AND price < {rng.integers(100)}" for _ in range(n)]


def mixed(n: int = 2_000) -> list[str]:
    rng = np.random.default_rng(2)
    forms = [
        "volume = {0}",
        "price BETWEEN {1} AND {1} + 1",
        "symbol = 'S{1}' AND volume <> {0}",
        "price IS NULL AND volume = {0}",
    ]
    return [forms[rng.integers(4)].format(rng.integers(1000), rng.integers(60)) for _ in range(n)]


def found(engine: Engine, events: pa.RecordBatch, size: int) -> list[list[object]]:
    lists: list[list[object]] = []
    for at in range(0, len(events), size):
        matches = engine.match_batch(events.slice(at, size))
        ids, ends = matches.subscription_ids().tolist(), np.cumsum(matches.counts()).tolist()
        lists += [sorted(ids[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
    return lists
