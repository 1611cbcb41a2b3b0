"""A few subscriptions and events, and what a single engine finds among them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from tests.examples import scaled

from wherecast.engine.engine import Engine

STRATEGIES = ("broadcast", "event-space", "filter-set")
#: Those whose streams run through Spark Connect; what a stream does with each runs in a session of its own (test_spark_stream.py).
STREAMED = ("broadcast", "event-space") if scaled(1) > 1 else ("event-space",)
SCHEMA = {"symbol": "string", "price": "double", "volume": "long"}
SUBSCRIPTIONS = [
    (1, "symbol = 'A' AND price < 10"),
    (2, "symbol IN ('A', 'B')"),
    (3, "price BETWEEN 5 AND 15"),
    (4, "symbol = 'C' OR volume > 900"),
    (5, "symbol IS NULL"),
    (6, "symbol LIKE '%A%' AND price > volume"),
]
EVENTS = pa.table(
    {
        "symbol": ["A", "A", "B", "C", None, "D", "BAC"],
        "price": [7.0, 20.0, 7.5, 1.0, 6.0, 100.0, 50.0],
        "volume": [1, 2, 3, 1000, 5, 6, 7],
        "note": list("abcdefg"),
    }
)


def engine_pairs(schema: Any, rows: list[tuple[Any, Any]], events: pa.Table, key: str) -> Counter[tuple[Any, Any]]:
    engine = Engine(schema)
    engine.subscribe_many(rows)
    keys = events[key].to_pylist()
    event_rows, ids = engine.match_batch(events).pairs()
    return Counter((keys[r], i) for r, i in zip(event_rows.tolist(), ids.tolist(), strict=True))
