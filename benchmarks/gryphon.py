"""The simulation of the Gryphon paper: time, visits and space of the matching tree, with each of its optimisations.

    python benchmarks/gryphon.py            1,000 to 100,000 subscriptions
    python benchmarks/gryphon.py --full     and a million, without the trees that keep their `*` chains

What each tree finds is compared with brute force before it is timed. Times are the best of three over all events, in
one thread; `visits` and `edges` are per event; `bound` is the paper's on visits. Then some subscriptions are removed
from the default tree and inserted again.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from wherecast.errors import MatcherError
from wherecast.matchers.adaptive import AdaptiveMatcher
from wherecast.matchers.tree import Settings, TreeMatcher
from wherecast.matchers.tree_bound import bound_visits
from wherecast.workloads.gryphon import Simulation, event_codes

if TYPE_CHECKING:
    from collections.abc import Callable

    from wherecast.index.boxes import EventCodes
    from wherecast.workloads.form import Workload
    from wherecast.workloads.truth import Truth

SIZES = (1_000, 3_000, 10_000, 25_000, 50_000, 100_000)
MILLION = 1_000_000
#: Calls per measurement of changes.
CALLS = 10
TREES = {
    "plain": Settings(collapse=False, factors=0),
    "plain, successors": Settings(collapse=False, successors=True, factors=0),
    "plain, 3 factors": Settings(collapse=False, factors=3),
    "collapsed": Settings(factors=0),
    "collapsed, successors": Settings(successors=True, factors=0),
    "collapsed, 1 factor": Settings(factors=1),
    "collapsed, 2 factors": Settings(factors=2),
    "collapsed, 3 factors": Settings(factors=3),
    "all three, 3 factors": Settings(successors=True, factors=3),
    "general": Settings(general=True, factors=0),
    "the default": TreeMatcher.settings,
}


def check(matcher: Any, events: EventCodes, truth: Truth, ids: np.ndarray) -> None:
    """Stop if the matcher finds anything but the truth; `ids` are the subscriptions of the clauses."""
    ptr, found = matcher.match(events._replace(codes=events.codes[: truth.counts.size]))
    sums = np.concatenate([[0], np.cumsum(ids[found])])
    assert np.array_equal(np.diff(ptr), truth.counts)
    assert np.array_equal(np.diff(sums[ptr]), truth.id_sums)


def time_best(action: Callable[[], object]) -> float:
    """Seconds of the fastest of three runs."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def run(simulation: Simulation, size: int) -> None:
    """All trees, and the adaptive matcher, on one number of subscriptions."""
    workload = simulation.workload(size)
    boxes, events, truth = simulation.boxes(workload.predicates), event_codes(workload.events), workload.truth()
    bound, ids = bound_visits(size, simulation.attributes, simulation.values), np.arange(size)
    matches = truth.matches / truth.counts.size
    print(f"\n{size:,} subscriptions, {matches:.1f} matches per event, bound {bound:,.0f} visits")
    print(f"{'':24}{'us/event':>10}{'visits':>10}{'edges':>10}{'nodes':>12}{'MB':>10}{'build s':>10}")
    for name, settings in TREES.items():
        if size >= MILLION and not settings.collapse:
            continue
        start = time.perf_counter()
        try:
            tree = TreeMatcher.build(boxes, settings=settings)
        except MatcherError as refusal:
            print(f"{name:24}{refusal}")
            continue
        built = time.perf_counter() - start
        check(tree, events, truth, ids)
        show(name, time_best(lambda tree=tree: tree.match(events)) / events.n_events, tree.stats(events), built)
    start = time.perf_counter()
    adaptive = AdaptiveMatcher.build(boxes, events)
    built = time.perf_counter() - start
    check(adaptive, events, truth, ids)
    show("adaptive", time_best(lambda: adaptive.match(events)) / events.n_events, adaptive.stats(), built)
    for batch in (1, 100):
        removal, insertion = time_changes(simulation, workload, batch)
        print(
            f"the default, {batch} a call: {removal * 1e6:.1f} us per removal, {insertion * 1e6:.1f} us per insertion"
        )


def time_changes(simulation: Simulation, workload: Workload, batch: int) -> tuple[float, float]:
    """Seconds per removal and per insertion on a live tree, in calls of `batch` subscriptions."""
    tree = TreeMatcher.build(simulation.boxes(workload.predicates))
    removing = inserting = 0.0
    for round in range(CALLS):
        chosen = np.arange(round * batch, (round + 1) * batch) % len(workload)
        boxes = simulation.boxes(workload.predicates.take(chosen))
        start = time.perf_counter()
        tree.remove(chosen.astype(np.int32))
        between = time.perf_counter()
        ids = tree.insert(boxes)
        inserting += time.perf_counter() - between
        removing += between - start
        assert np.array_equal(np.sort(ids), np.sort(chosen))
    return removing / CALLS / batch, inserting / CALLS / batch


def show(name: str, seconds: float, facts: dict[str, Any], built: float) -> None:
    """One line of the table."""
    edges = facts.get("edges_per_event", float("nan"))
    line = f"{name:24}{seconds * 1e6:10.2f}{facts['nodes_per_event']:10.0f}{edges:10.0f}"
    print(f"{line}{facts['nodes']:12,}{facts['bytes'] / 1e6:10.1f}{built:10.2f}")


def compile_kernels(simulation: Simulation) -> None:
    """Call all that is timed once, on little."""
    workload = simulation.workload(1000, 10)
    for settings in TREES.values():
        TreeMatcher.build(simulation.boxes(workload.predicates), settings=settings).match(event_codes(workload.events))
    time_changes(simulation, workload, 1)


def main() -> None:
    """Print one table per number of subscriptions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="a million subscriptions as well")
    sizes = (*SIZES, MILLION) if parser.parse_args().full else SIZES
    simulation = Simulation()
    compile_kernels(simulation)
    for size in sizes:
        run(simulation, size)


if __name__ == "__main__":
    main()
