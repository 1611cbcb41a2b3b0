"""What the lab leaves out of Gryphon: the default and the general tree, the time to build trees, and changes of them.

    python benchmarks/gryphon.py [--full]

The paper's simulation with 1,000 to 100,000 subscriptions, with `--full` also with a million. The collapsed tree stands
beside the others, as in the lab. What each tree finds is compared with brute force before it is timed. Times are the
best of three rounds over 2,000 events, in one thread; visits and edges are per event. Then some subscriptions are
removed from the default tree and inserted again.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from wherecast.bench.measure import timed
from wherecast.papers.gryphon.bound import bound_visits
from wherecast.papers.gryphon.experiments.trees import MILLION, SIMULATION, TREES, TreeCase, TreeCurveSettings
from wherecast.papers.gryphon.matcher import GeneralTreeMatcher, TreeMatcher
from wherecast.papers.lab.timing import Subject, time_subjects

CHOSEN = {
    "plain": TREES["plain"],
    "collapsed": TREES["collapsed"],
    "tree-general": GeneralTreeMatcher.settings,
    "tree": TreeMatcher.settings,
}
#: Calls per measurement of changes.
CALLS = 10
N_EVENTS, SEED, ROUNDS = 2_000, 4, 3


def measure(n: int) -> None:
    """Print a line for each tree, and what changes of the default one take."""
    case = TreeCase.draw(SIMULATION, n, N_EVENTS, SEED)
    bound = bound_visits(n, SIMULATION.attributes, SIMULATION.values)
    grown = {name: how for name, how in CHOSEN.items() if how.collapse or n < MILLION}
    built = {name: timed(lambda how=how: TreeMatcher.build(case.boxes, settings=how)) for name, how in grown.items()}
    subjects = [Subject.of(name, tree, case.events) for name, (tree, _) in built.items()]
    truth = case.workload.truth()
    timings = time_subjects(subjects, N_EVENTS, truth, rounds=ROUNDS)
    matches = truth.matches / truth.counts.size
    print(
        f"\n{n:,} subscriptions, {matches:.1f} matches per event (of the first {truth.counts.size}), bound {bound:,.0f} visits"
    )
    print(f"{'':14}{'us/event':>10}{'visits':>10}{'edges':>10}{'nodes':>12}{'MB':>10}{'build s':>10}")
    for name, (tree, build_s) in built.items():
        facts, visits = tree.stats(), tree.tally(case.events)
        line = f"{name:14}{timings[name].best_us_per_event:10.2f}{visits.nodes:10.0f}{visits.edges:10.0f}"
        print(f"{line}{facts['nodes']:12,}{facts['bytes'] / 1e6:10.1f}{build_s:10.2f}", flush=True)
    for batch in (1, 100):
        removal, insertion = (1e6 * seconds for seconds in time_changes(case, built["tree"][0], batch))
        print(f"tree, {batch} a call: {removal:.1f} us per removal, {insertion:.1f} us per insertion", flush=True)


def time_changes(case: TreeCase, tree: TreeMatcher, batch: int) -> tuple[float, float]:
    """Seconds per removal and per insertion, in calls of `batch` subscriptions. The tree is then as it was."""
    removing = inserting = 0.0
    for call in range(CALLS):
        chosen = np.arange(call * batch, (call + 1) * batch, dtype=np.int32) % len(case.workload)
        boxes = SIMULATION.boxes(case.workload.predicates.take(chosen))
        start = time.perf_counter()
        tree.remove(chosen)
        between = time.perf_counter()
        ids = tree.insert(boxes)
        inserting += time.perf_counter() - between
        removing += between - start
        assert np.array_equal(np.sort(ids), np.sort(chosen))
    return removing / CALLS / batch, inserting / CALLS / batch


def warm_up() -> None:
    """Compile every kernel that is timed."""
    case = TreeCase.draw(SIMULATION, 1_000, 10, SEED)
    for how in CHOSEN.values():
        tree = TreeMatcher.build(case.boxes, settings=how)
        tree.match(case.events)
        time_changes(case, tree, 1)


def main() -> None:
    """Print one table per number of subscriptions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="a million subscriptions as well")
    sizes = TreeCurveSettings().sizes + (MILLION,) * parser.parse_args().full
    warm_up()
    for n in sizes:
        measure(n)


if __name__ == "__main__":
    main()
