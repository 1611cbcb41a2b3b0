"""DuckDB as a baseline: subscriptions as a table of boxes, matching as a join. One thread.

Theory of operation
-------------------
The naive way is one query per event, `WHERE lo0 < ? AND hi0 > ? ...`: it spends most of its time on planning. A join of
events with subscriptions does all events in one query; how fast it is depends on how a box is written down. Measured
per workload, the fastest of the formulations that a database user could think of:

- few values per attribute (topss, light, gryphon): one bit per attribute and value, set where the subscription allows
  it. An event has one bit per attribute, and matches where `allowed & event = event` in every word. Three times faster
  than a join over bounds.
- an equality that every filter has (stock): a hash join on it, the bounds checked behind, equal filters stored once.
- ranges only (range): a hash join on the cell of the narrowest range (attribute, power of two, cell number), the bounds
  checked behind. Three times faster than the inequality join over bounds that DuckDB plans by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from wherecast.bench.connections import Columns, DuckDB
from wherecast.bench.workloads.form import ABOVE, BELOW, EQUAL, UNEQUAL, Conjunctions, Workload
from wherecast.kernels.arrays import Floats, Longs

#: Bits of a word; the sign bit stays free.
WORD = 63
UNBOUND = 1e300


def build_database(workload: Workload) -> Callable[[int], int]:
    """Load a workload; the result counts the matches of its first n events."""
    database = DuckDB()
    if workload.name in {"topss", "light", "gryphon"}:
        query = _load_bits(database, workload)
    elif workload.name == "stock":
        query = _load_keyed(database, workload)
    else:
        query = _load_cells(database, workload)

    def count(n: int) -> int:
        found = database.fetch(f"SELECT matches FROM ({query}) AS counts WHERE event < {n}")  # noqa: S608 - our own names
        return int(found["matches"].sum())

    return count


def _create(database: DuckDB, table: str, columns: Columns) -> None:
    database.run([f"CREATE TABLE {table} AS SELECT * FROM source"], source=columns)  # noqa: S608


# -- one bit per attribute and value ----------------------------------------------------------------------------------


def _load_bits(database: DuckDB, workload: Workload) -> str:
    values = np.unique(workload.events)
    allowed = _pack(_allowed(workload.predicates, values, len(workload.attributes)))
    present = _pack((workload.events[:, :, None] == values).reshape(len(workload.events), -1))
    words = range(allowed.shape[1])
    _create(database, "subscriptions", {f"w{i}": allowed[:, i] for i in words})
    _create(database, "events", {"event": np.arange(len(present)), **{f"e{i}": present[:, i] for i in words}})
    holds = " AND ".join(f"(w{i} & e{i}) = e{i}" for i in words)
    return f"SELECT event, count(*) AS matches FROM events, subscriptions WHERE {holds} GROUP BY event"  # noqa: S608


def _allowed(predicates: Conjunctions, values: Floats, n_attributes: int) -> npt.NDArray[np.bool_]:
    """(subscriptions, attributes * values): which values a subscription lets pass."""
    owner, x = predicates.owners(), predicates.value[:, None]
    op = predicates.op[:, None]
    ok = np.select(
        [op == EQUAL, op == UNEQUAL, op == BELOW],
        [values[None, :] == x, values[None, :] != x, values[None, :] < x],
        values[None, :] > x,
    )
    allowed = np.ones((len(predicates), n_attributes, values.size), bool)
    allowed[owner, predicates.attr] = ok  # at most one predicate per attribute
    return allowed.reshape(len(predicates), -1)


def _pack(bits: npt.NDArray[np.bool_]) -> Longs:
    """Rows of bits as words of 63."""
    columns = [bits[:, i : i + WORD] for i in range(0, bits.shape[1], WORD)]
    return np.stack([c @ (1 << np.arange(c.shape[1], dtype=np.int64)) for c in columns], axis=1)


# -- bounds -----------------------------------------------------------------------------------------------------------


def _bounds(predicates: Conjunctions, n_attributes: int) -> tuple[Floats, Floats]:
    """Exclusive bounds per subscription and attribute, from <, > and =; a value lies between its neighbours."""
    owner, attr, op, value = predicates.owners(), *predicates[1:]
    low = np.full((len(predicates), n_attributes), -UNBOUND)
    high = np.full((len(predicates), n_attributes), UNBOUND)
    low[owner[op == ABOVE], attr[op == ABOVE]] = value[op == ABOVE]
    high[owner[op == BELOW], attr[op == BELOW]] = value[op == BELOW]
    equal = op == EQUAL
    low[owner[equal], attr[equal]] = np.nextafter(value[equal], -np.inf)
    high[owner[equal], attr[equal]] = np.nextafter(value[equal], np.inf)
    return low, high


def _bound_columns(low: Floats, high: Floats, attributes: range) -> dict[str, npt.NDArray[Any]]:
    return {
        f"{side}{j}": np.ascontiguousarray(bound[:, j])
        for side, bound in (("lo", low), ("hi", high))
        for j in attributes
    }


def _within(attributes: range) -> str:
    return " AND ".join(f"x{j} > lo{j} AND x{j} < hi{j}" for j in attributes)


def _event_columns(workload: Workload) -> dict[str, npt.NDArray[Any]]:
    xs = {f"x{j}": np.ascontiguousarray(workload.events[:, j]) for j in range(len(workload.attributes))}
    return {"event": np.arange(len(workload.events)), **xs}


def _load_keyed(database: DuckDB, workload: Workload) -> str:
    """Equality on attribute 0, bounds on the others; equal filters once, with their number."""
    predicates, others = workload.predicates, range(1, len(workload.attributes))
    low, high = _bounds(predicates, len(workload.attributes))
    symbol = predicates.value[predicates.ptr[:-1]].astype(np.int64)
    filters, size = np.unique(np.column_stack([symbol, low[:, 1:], high[:, 1:]]), axis=0, return_counts=True)
    low[: len(filters), 1:], high[: len(filters), 1:] = filters[:, 1 : others.stop], filters[:, others.stop :]
    names = np.array([f"S{int(v):05d}" for v in filters[:, 0].tolist()])
    bounds = _bound_columns(low[: len(filters)], high[: len(filters)], others)
    _create(database, "subscriptions", {"symbol": names, "size": size, **bounds})
    _create(database, "events", {**_event_columns(workload), "symbol": workload.event_batch().column(0)})
    return (
        "SELECT event, sum(size)::BIGINT AS matches FROM events JOIN subscriptions USING (symbol) "  # noqa: S608
        f"WHERE {_within(others)} GROUP BY event"
    )


def _load_cells(database: DuckDB, workload: Workload) -> str:
    """Ranges: filed under the one or two cells of the narrowest, which are at least as wide as the range."""
    attributes = range(len(workload.attributes))
    low, high = _bounds(workload.predicates, len(attributes))
    every = np.arange(len(workload))
    narrow = (high - low).argmin(axis=1)
    first, last = low[every, narrow], high[every, narrow]
    level = np.ceil(np.log2(np.maximum(last - first, 1e-3))).astype(np.int64)
    cells = [np.floor(bound / 2.0**level).astype(np.int64) for bound in (first, last)]
    two = cells[0] != cells[1]
    rows, cell = np.concatenate([every, every[two]]), np.concatenate([cells[0], cells[1][two]])
    keys = {"attr": narrow[rows], "level": level[rows], "cell": cell}
    _create(database, "subscriptions", {**keys, **_bound_columns(low[rows], high[rows], attributes)})
    _create(database, "events", _event_columns(workload))
    _create(database, "levels", {"level": np.unique(level)})
    keyed = " UNION ALL ".join(
        f"SELECT *, {j}::BIGINT AS attr, floor(x{j} / pow(2.0, level))::BIGINT AS cell FROM events, levels"  # noqa: S608
        for j in attributes
    )
    return (
        f"SELECT event, count(*) AS matches FROM ({keyed}) JOIN subscriptions USING (attr, level, cell) "  # noqa: S608
        f"WHERE {_within(attributes)} GROUP BY event"
    )
