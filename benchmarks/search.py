"""Look for sets of filters on which the engine is slow, compared with throw-away prototypes.

    python benchmarks/search.py --minutes 10 --seed 1     # draw sets, go on from the worst, print the ten worst as rows
    python benchmarks/search.py --cases                   # measure the rows of search_cases.toml again

A set is drawn from a few parameters (`Shape`). The engine takes events as Arrow and gives ids. The prototypes start from
numbers and count: `cells.py`, the tree of `floor.py` (sets without <>; where filters have several clauses, each filter counts once per event) and the
scan matcher. All must find the same matches;
what is compared is CPU time, in five turns of 2 ms, medians. A ratio is the engine's time in units of the best prototype's; `first_ratio` is that of the first
batch of each turn, which finds the caches full of the others' data.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numba as nb
import numpy as np
import pyarrow as pa
from cells import Clauses, build_cells, search_cells
from floor import FAR, TreeBuilder, search_tree

from wherecast import Engine
from wherecast.engine.segment import Members, build_segment
from wherecast.index.packed import unpack_boxes
from wherecast.language.events.keys import KEY_MAX, KEY_MIN
from wherecast.language.filters.filters import Filters
from wherecast.matchers.registry import find_matcher

CASES = Path(__file__).with_name("search_cases.toml")
EVENTS, ROUNDS, KEPT = 2_000, 5, 10
#: Batches of events, and seconds for which a contestant is given them in each turn; at least one.
BATCHES, TURN = 8, 0.002
#: Sets beyond this ratio are what the search looks for.
BAD = 2.0


class Shape(NamedTuple):
    """What a set is drawn from."""

    seed: int = 1
    subscriptions: int = 10_000
    attributes: int = 10
    popularity: float = 0.0  # exponent of Zipf's law: how much more often the first attributes are used, and there
    presence: float = 1.0  # share of its attributes that an event has
    values: int = 100  # of an attribute
    skew: float = 0.0  # exponent of Zipf's law, of values
    terms: int = 3  # of a clause
    clauses: int = 1  # of a filter: OR
    ranges: float = 0.3  # share of the terms that are ranges
    width: float = 0.1  # of the widest range, as a share of the values
    unequal: float = 0.0  # share of the clauses with a <> as well
    correlation: float = 0.0  # chance that a value is the one that all attributes of its event or clause share


#: Values that the search draws from, field by field.
CHOICES: dict[str, list[float]] = {
    "subscriptions": [3_000, 10_000, 40_000],
    "attributes": [1, 2, 4, 10, 30, 100, 200],
    "popularity": [0, 0.5, 1],
    "presence": [0.05, 0.2, 0.5, 1],
    "values": [2, 5, 20, 100, 1_000, 20_000],
    "skew": [0, 0.7, 1.2],
    "terms": [1, 2, 3, 5, 8],
    "clauses": [1, 1, 2, 4],
    "ranges": [0, 0.3, 0.7, 1],
    "width": [0.01, 0.1, 0.5],
    "unequal": [0, 0, 0.3, 1],
    "correlation": [0, 0, 0.5, 0.9],
}


class Set(NamedTuple):
    """A set as numbers."""

    clauses: Clauses
    batches: list[np.ndarray]  # each (events, attributes) int32; -1: NULL


def draw_set(shape: Shape) -> Set:
    """The clauses and events of a shape; the same shape gives the same set."""
    rng, k = np.random.default_rng(shape.seed), shape.attributes
    n = shape.subscriptions * shape.clauses
    weight = np.arange(1, k + 1) ** -shape.popularity
    order = np.argsort(-(np.log(weight) + rng.gumbel(size=(n, k))), axis=1).astype(np.int32)
    terms = min(shape.terms, k)
    attr = order[:, :terms]
    value = draw_values(rng, shape, (n, terms))
    is_range = rng.random(attr.shape) < shape.ranges
    length = np.exp(rng.uniform(0, np.log(max(shape.width * shape.values, 1.01)), attr.shape)).astype(np.int64)
    lo = np.where(is_range, np.maximum(value - length // 2, 0), value)
    hi = np.where(is_range, np.minimum(lo + length, shape.values - 1), value)
    denied = (rng.random(n) < shape.unequal) & (k > terms)
    not_attr = np.where(denied, order[:, min(terms, k - 1)], -1).astype(np.int32)
    owner = np.repeat(np.arange(shape.subscriptions), shape.clauses)
    clauses = Clauses(
        owner, attr, lo.astype(np.int32), hi.astype(np.int32), not_attr, draw_values(rng, shape, (n, 1))[:, 0]
    )
    others = np.random.default_rng((shape.seed, 1))
    return Set(clauses, [draw_points(draw, shape, weight) for draw in (rng, *[others] * (BATCHES - 1))])


def draw_points(rng: np.random.Generator, shape: Shape, weight: np.ndarray) -> np.ndarray:
    """The events of a batch; -1 is NULL."""
    points = draw_values(rng, shape, (EVENTS, shape.attributes)).astype(np.int32)
    points[rng.random(points.shape) >= np.minimum(shape.presence * weight / weight.mean(), 1)] = -1
    return points


def draw_values(rng: np.random.Generator, shape: Shape, size: tuple[int, int]) -> np.ndarray:
    """Values by Zipf's law; with some correlation, one value for most of a row."""
    chance = np.arange(1, shape.values + 1) ** -shape.skew
    cumulated = np.cumsum(chance / chance.sum())
    draw = rng.random(size)
    shared = np.repeat(rng.random((size[0], 1)), size[1], axis=1)
    chosen = np.where(rng.random(size) < shape.correlation, shared, draw)
    return np.minimum(np.searchsorted(cumulated, chosen), shape.values - 1)


def compile_clauses(clauses: Clauses) -> Filters:
    """The filters as the compiler makes them; from texts, a search would spend its time there."""
    owner, attr, low, high, not_attr, not_value = clauses
    n, terms = attr.shape
    denied = np.flatnonzero(not_attr >= 0)
    clause = np.concatenate([np.repeat(np.arange(n), terms), denied, denied])
    column = np.concatenate([attr.ravel(), not_attr[denied], not_attr[denied]]).astype(np.int16)
    open_low, open_high = np.full(denied.size, KEY_MIN), np.full(denied.size, KEY_MAX)
    lo = np.concatenate([low.ravel(), open_low, not_value[denied] + 1]).astype(np.int64)
    hi = np.concatenate([high.ravel(), not_value[denied] - 1, open_high]).astype(np.int64)
    goes_on = (np.arange(clause.size) >= n * terms) & (np.arange(clause.size) < n * terms + denied.size)
    order = np.lexsort((lo, column, clause))
    filters = np.searchsorted(owner, np.arange(owner[-1] + 2))
    rows = np.searchsorted(clause[order], np.arange(n + 1))
    none = np.full(n, -1, np.int32)
    marked = np.where(goes_on, ~column, column)[order]
    return Filters(filters, rows, marked, np.zeros(clause.size, bool), lo[order], hi[order], none, none, [], [], b"")


def load_engine(schema: dict[str, str], filters: Filters) -> Engine:
    """An engine with these filters; ids are 0, 1, 2, ..."""
    engine, n = Engine(schema), filters.n_filters
    members = Members(filters, np.arange(n), np.arange(n), np.zeros(n, np.float32))
    segment = build_segment([members], engine.schema, find_matcher("adaptive"))
    engine._segments.state = engine._segments.state._replace(version=1, segments=(segment,), size=n)  # noqa: SLF001
    return engine


def measure(shape: Shape) -> dict[str, object]:
    """CPU microseconds per event of each contestant, the ratio, and what the plan says."""
    clauses, batches = draw_set(shape)
    names = [f"a{a}" for a in range(shape.attributes)]
    tables = [
        pa.table({name: pa.array(points[:, a].astype(np.int64), mask=points[:, a] < 0) for a, name in enumerate(names)})
        for points in batches
    ]
    engine = load_engine(dict.fromkeys(names, "long"), compile_clauses(clauses))
    engine.plan(tables[0])
    contestants = dict(make_contestants(shape, clauses, batches, engine, tables))
    for batch in range(BATCHES):
        counts = {name: run(batch) for name, run in contestants.items()}
        if len(set(counts.values())) != 1:
            sys.exit(f"the contestants do not agree on {shape}: {counts}")
    medians, first = take_turns(contestants)
    medians["scan"] = first["scan"] = round(time_scan(engine, tables[0]), 2)
    plan = engine.stats()["segments"][0]
    return {
        "ratio": compare(medians),
        "first_ratio": compare(first),
        **medians,
        "matches": round(counts["engine"] / EVENTS, 2),
        "candidates": round(plan["candidates_per_event"], 1),
        "checked": round(plan["checked_per_event"], 1),
    }


def take_turns(contestants: dict[str, Callable[[int], int]]) -> tuple[dict[str, float], dict[str, float]]:
    """Microseconds per event of each: medians of its turns' medians, and of the first call of each turn.

    Batches come one after the other, so in each turn a contestant is given batches until TURN has passed. With one a turn, the caches would be full of
    the others' data; with the same one again and again, processors would learn by heart which way each branch goes.
    """
    times: dict[str, list[float]] = {name: [] for name in contestants}
    first: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(ROUNDS):
        for name, run in contestants.items():
            taken: list[float] = []
            while sum(taken) < TURN:
                begin = time.thread_time()
                run((turn + len(taken)) % BATCHES)
                taken.append(time.thread_time() - begin)
            times[name].append(statistics.median(taken))
            first[name].append(taken[0])
    per_event = (
        {name: statistics.median(taken) / EVENTS * 1e6 for name, taken in found.items()} for found in (times, first)
    )
    medians, firsts = ({name: round(us, 4) for name, us in found.items()} for found in per_event)
    return medians, firsts


def compare(medians: dict[str, float]) -> float:
    """The engine's time in units of the best prototype's."""
    return round(medians["engine"] / min(us for name, us in medians.items() if name != "engine"), 2)


def make_contestants(
    shape: Shape, clauses: Clauses, batches: list[np.ndarray], engine: Engine, tables: list[pa.Table]
) -> Iterator[tuple[str, Callable[[int], int]]]:
    """The engine and the prototypes; each answers how many matches it finds for a batch."""
    yield "engine", lambda batch: engine.match_batch(tables[batch]).subscription_ids().size
    cells = build_cells(clauses, batches[0], shape.values)
    yield "cells", lambda batch: int(search_cells(batches[batch], *cells, np.full(shape.subscriptions, -1)))
    if not (clauses.not_attr >= 0).any() and clauses.owner.size * shape.attributes < 10_000_000:
        n, k = clauses.owner.size, shape.attributes
        lo, hi, constrained = np.zeros((n, k), np.int32), np.full((n, k), FAR, np.int32), np.zeros((n, k), bool)
        rows = np.arange(n)[:, None]
        lo[rows, clauses.attr], hi[rows, clauses.attr], constrained[rows, clauses.attr] = clauses.lo, clauses.hi, True
        tree, out = TreeBuilder(lo, hi, constrained, batches[0][:1000]).finish(), np.empty(1 << 20, np.int32)
        if shape.clauses == 1:
            yield "tree", lambda batch: int(search_tree(*tree, batches[batch], out))
        else:
            told = np.full(shape.subscriptions, -1)
            yield "tree", lambda batch: int(count_owners(tree, batches[batch], out, clauses.owner, told))


@nb.njit
def count_owners(tree, points, out, owner, told):  # noqa: ANN001, ANN201
    """Number of (event, filter) pairs that the tree finds; `told` has an entry per filter and is left as it was."""
    found = 0
    for e in range(points.shape[0]):
        n = search_tree(*tree, points[e : e + 1], out)
        for i in range(n):
            if told[owner[out[i]]] != e:
                told[owner[out[i]]] = e
                found += 1
        for i in range(n):
            told[owner[out[i]]] = -1
    return found


def time_scan(engine: Engine, events: pa.Table) -> float:
    """The scan matcher on the same segment, on some of the events: it compares every event with every clause."""
    segment, few = engine._segments.state.segments[0], events.slice(0, 100)  # noqa: SLF001
    adaptive = segment.matcher
    segment._install(find_matcher("scan").build(unpack_boxes(segment.boxes)))  # noqa: SLF001
    engine.match_batch(few).subscription_ids()
    begin = time.thread_time()
    engine.match_batch(few).subscription_ids()
    taken = time.thread_time() - begin
    segment._install(adaptive)  # noqa: SLF001
    return taken / len(few) * 1e6


def draw_shape(rng: np.random.Generator, worst: list[tuple[float, Shape]]) -> Shape:
    """A shape at random or, every other time, one of the worst with two fields changed."""
    fields = {name: rng.choice(options) for name, options in CHOICES.items()}
    if worst and rng.random() < 0.5:
        kept = worst[rng.integers(len(worst))][1]._asdict()
        changed = rng.choice(list(CHOICES), 2, replace=False).tolist()
        fields = {name: fields[name] if name in changed else kept[name] for name in CHOICES}
    types = Shape()._asdict()
    return Shape(int(rng.integers(2**31)), **{name: type(types[name])(value) for name, value in fields.items()})


def search(minutes: float, seed: int) -> list[tuple[float, Shape]]:
    """Draw and measure until the time is up; the worst first."""
    rng, deadline = np.random.default_rng(seed), time.monotonic() + 60 * minutes
    worst: list[tuple[float, Shape]] = []
    while time.monotonic() < deadline:
        shape = draw_shape(rng, worst)
        found = measure(shape)
        sys.stdout.write(json.dumps({**found, **shape._asdict()}) + "\n")
        sys.stdout.flush()
        worst = sorted([*worst, (float(str(found["ratio"])), shape)], reverse=True)[:KEPT]
    return worst


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", action="store_true", help=f"measure the rows of {CASES.name}")
    given = parser.parse_args()
    if given.cases:
        rows = tomllib.loads(CASES.read_text())["case"]
        ratios = []
        for row in rows:
            found = measure(Shape(**row))
            ratios.append(float(str(found["ratio"])))
            sys.stdout.write(json.dumps({**found, **row}) + "\n")
        sys.exit(1 if max(ratios) > BAD else 0)
    worst = search(given.minutes, given.seed)
    sys.stdout.write(f"# the worst: ratios {[ratio for ratio, _ in worst]}\n")
    for _, shape in worst:
        sys.stdout.write("  { " + ", ".join(f"{name} = {value}" for name, value in shape._asdict().items()) + " },\n")


if __name__ == "__main__":
    main()
