"""How much traffic filter-set partitioning saves, and what routing an event costs.

    python benchmarks/filter_set.py [--scale S] [--workload range|stock|places] [--servers N ...] [--boxes N ...]

First table: servers per event for filters dealt out at random (same number each, summaries of 10 boxes), for filter-set with some numbers of
boxes, and what exact routing would send for the same placement. Half of the events are the sample that the partition
is built with, the other half is counted. Second table: microseconds per event at the dispatcher, coding of the
events included, beside a look-up of the same batch's first attribute in a plain Python dictionary.

`places` are filters of one shape: rectangles of a map around 300 towns, large and small.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from wherecast.index.build import build_index
from wherecast.language.compile import Compiler
from wherecast.language.events import EventBatch
from wherecast.language.filters import Filters
from wherecast.language.schema import Schema
from wherecast.matchers.adaptive import AdaptiveMatcher
from wherecast.partition.filter_set import FilterSet
from wherecast.partition.hierarchy import Hierarchy
from wherecast.partition.protocol import Routes
from wherecast.workloads.form import ABOVE, BELOW, Predicates, Workload
from wherecast.workloads.reference import SOURCES, make_workload

BATCH = 10_000


class Case(NamedTuple):
    """Compiled filters with their subscriptions, events to build with and events to count."""

    schema: Schema
    filters: Filters
    weights: np.ndarray
    sample: EventBatch
    events: EventBatch


def make_case(name: str, scale: float) -> Case:
    """Filters and 20,000 events of a workload."""
    workload = make_places(scale) if name == "places" else make_workload(name, scale)
    if name != "places":
        source = SOURCES[name](np.random.default_rng(SOURCES[name].seed))  # the same market, other quotes
        drawn = [
            source.events(np.random.default_rng([7, part])) for part in range(2 * BATCH // len(workload.events) + 1)
        ]
        workload = Workload(name, workload.attributes, workload.types, workload.predicates, np.concatenate(drawn))
    schema = Schema.of(workload.schema)
    compiled = Compiler(schema).compile_many(workload.filter_texts())
    weights = np.bincount(compiled.filter_of, minlength=compiled.filters.n_filters)
    batch = EventBatch.read(schema, workload.event_batch())
    return Case(schema, compiled.filters, weights, batch.slice(0, BATCH).sample(4096), batch.slice(BATCH, 2 * BATCH))


def make_places(scale: float) -> Workload:
    """Rectangles around towns; events half in the towns, half anywhere."""
    rng = np.random.default_rng(6)
    n, events = int(300_000 * scale), 2 * BATCH
    towns = rng.random((300, 2)) * 1000
    popularity = 1 / np.arange(1, 301.0)
    town = rng.choice(300, n, p=popularity / popularity.sum())
    middle, half = towns[town] + rng.normal(0, 4, (n, 2)), np.exp(rng.uniform(np.log(0.1), np.log(10), (n, 2)))
    value = np.round(np.stack([middle - half, middle + half], 2).reshape(-1), 3)
    attr = np.tile([0, 0, 1, 1], n)
    predicates = Predicates.of(n, np.repeat(np.arange(n), 4), attr, np.tile([ABOVE, BELOW], 2 * n), value)
    points = rng.random((events, 2)) * 1000
    near = rng.random(events) < 0.5
    points[near] = towns[rng.integers(0, 300, near.sum())] + rng.normal(0, 6, (near.sum(), 2))
    return Workload("places", ("x", "y"), ("double", "double"), predicates, np.round(points, 3))


class Matched(NamedTuple):
    """Which filters each event satisfies."""

    event_ids: np.ndarray
    filter_ids: np.ndarray


def match(case: Case) -> Matched:
    """Match the events by the engine's matcher."""
    index = build_index(case.filters, case.schema)
    ptr, clauses = AdaptiveMatcher.build(index.boxes).match(index.codebook.encode(case.events))
    return Matched(np.repeat(np.arange(ptr.size - 1), np.diff(ptr)), index.boxes.filter_ids[clauses])


def exact_routes(matched: Matched, servers: np.ndarray, n_servers: int) -> Routes:
    """What exact routing sends, for filter f on servers[f]."""
    pairs = np.unique(matched.event_ids * n_servers + servers[matched.filter_ids])
    return Routes(pairs // n_servers, (pairs % n_servers).astype(np.int32))


def best(run: Callable[[], object], rounds: int = 9) -> float:
    """Seconds of the fastest round."""
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return min(taken)


def print_traffic(case: Case, all_servers: list[int], all_boxes: list[int]) -> None:
    """The first table."""
    matched = match(case)
    n_events = len(case.events)
    print(
        f"{'servers':>7}{'boxes':>7}{'build s':>9}{'max/min':>9}{'bytes':>9}"
        f"{'random':>9}{'filter-set':>12}{'exact':>8}{'cut':>8}{'false +':>9}"
    )
    for n in all_servers:
        dealt = np.random.default_rng(0).permutation(case.filters.n_filters).astype(np.int32) % n
        for boxes in all_boxes:
            start = time.perf_counter()
            made = FilterSet.build(case.filters, case.weights, case.schema, n, case.sample, boxes_per_server=boxes)
            seconds = time.perf_counter() - start
            random = FilterSet.of_placement(made.axes, case.filters, case.weights, dealt, n, boxes)
            sent, sent_random = (p.route(case.events).servers.size / n_events for p in (made, random))
            needed = exact_routes(matched, made.place(case.filters).servers, n).servers.size / n_events
            stats = made.stats()
            print(
                f"{n:>7}{boxes:>7}{seconds:>9.2f}{stats['imbalance']:>9.3f}{stats['summary_bytes']:>9,}"
                f"{sent_random:>9.2f}{sent:>12.2f}{needed:>8.2f}{1 - sent / sent_random:>8.1%}"
                f"{(sent - needed) / (n - needed):>9.1%}"
            )


def print_dispatch(case: Case) -> None:
    """The second table: 50 servers, 10 boxes each."""
    made = FilterSet.build(case.filters, case.weights, case.schema, 50, case.sample, boxes_per_server=10)
    codes = made.axes.encode(case.events)
    values = case.events.array(0).to_pylist()
    table = {value: i % 50 for i, value in enumerate(dict.fromkeys(values[::2]))}
    us = {
        "route, coding included": best(lambda: made.route(case.events)),
        "route, events coded": best(lambda: made.maps().route(codes)),
        "dictionary look-up": best(lambda: [table.get(value) for value in values]),
    }
    n = len(case.events)
    print(
        f"\n50 servers, {made.stats()['boxes']} boxes, {made.maps().nbytes:,} bytes at the dispatcher, batch of {n:,}:"
    )
    for name, seconds in us.items():
        print(f"  {name:<24}{seconds / n * 1e6:>8.3f} us/event")
    new = Compiler(case.schema).compile_many([f"NOT ({case.schema.attributes[0].name} IS NULL)"]).filters
    print(f"  {'placing a filter':<24}{best(lambda: made.place(new)) * 1e6:>8.0f} us, alone")


def print_tree(case: Case) -> None:
    """Traffic per level of a tree of 50 servers, 5 regions and an edge."""
    made = FilterSet.build(case.filters, case.weights, case.schema, 50, case.sample, boxes_per_server=32)
    needed = exact_routes(match(case), made.place(case.filters).servers, 50)
    tree = Hierarchy([made.cover(s) for s in range(50)], [10], [32, 16])
    print("\n" + tree.simulate(case.events, needed).describe())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--workload", choices=("range", "stock", "places"), action="append")
    parser.add_argument("--servers", type=int, nargs="+", default=[4, 10, 25, 50])
    parser.add_argument("--boxes", type=int, nargs="+", default=[1, 10, 32])
    options = parser.parse_args()
    for name in options.workload or ("range", "stock", "places"):
        case = make_case(name, options.scale)
        FilterSet.build(case.filters, case.weights, case.schema, 2).place(case.filters)  # compiles the kernels
        print(f"\n{name}: {case.filters.n_filters:,} filters, {case.weights.sum():,} subscriptions")
        print_traffic(case, options.servers, options.boxes)
        print_dispatch(case)
        print_tree(case)


if __name__ == "__main__":
    main()
