"""What the lab leaves out of TOPSS: single changes of a loaded counting matcher, and bulk load of filter texts.

    python benchmarks/topss.py [changes] [texts] [--full]

- changes: load from boxes, then insertions, updates and removals one at a time;
- texts: compiling, coding and loading, through the engine.

Without a name both are run, on 100,000 subscriptions of W4, with `--full` on 1,000,000. What a matcher finds is
compared with brute force first. One thread.
"""

from __future__ import annotations

import argparse

import numpy as np

from wherecast.bench.measure import timed
from wherecast.engine.engine import Engine
from wherecast.papers.lab.timing import Subject, check_matches
from wherecast.papers.topss.experiments.cases import W4, MatchingCase
from wherecast.papers.topss.matcher import (
    CountingBitMatcher,
    CountingByteMatcher,
    CountingMatcher,
    CountingTableMatcher,
)

MATCHERS = (CountingMatcher, CountingTableMatcher, CountingBitMatcher, CountingByteMatcher)
#: Of each kind.
CHANGES = 300
N_EVENTS = 50


def measure_changes(n: int) -> None:
    """Print seconds to load each matcher, and microseconds for a single change of it."""
    print("\n| subscriptions | matcher | load s | insert us | update us | remove us |\n|---|---|---|---|---|---|")
    case, further = MatchingCase.draw(W4, n, N_EVENTS), W4.make(2 * CHANGES, 1).predicates
    single = [W4.code_predicates(further.take(np.array([i]))) for i in range(2 * CHANGES)]
    for matcher in MATCHERS:
        live, load_s = timed(lambda matcher=matcher: matcher.build(case.boxes))
        check_matches(Subject.of(matcher.name, live, case.events), case.workload.truth())
        times = " | ".join(f"{1e6 * seconds / CHANGES:.0f}" for seconds in time_changes(live, single))
        print(f"| {n:,} | {matcher.name} | {load_s:.2f} | {times} |", flush=True)


def time_changes(live: CountingMatcher, single: list) -> list[float]:
    """Seconds for all insertions, for all updates and for all removals; ids to insert under are freed before."""
    chosen = np.random.default_rng(0).permutation(live.n_clauses).astype(np.int32)[: 2 * CHANGES]
    freed, changed = np.split(chosen.reshape(-1, 1), 2)
    live.remove(freed.ravel())
    kinds = (
        lambda: [live.insert(one) for one in single[:CHANGES]],
        lambda: [live.update(id, one) for id, one in zip(changed, single[CHANGES:], strict=True)],
        lambda: [live.remove(id) for id in changed],
    )
    return [timed(kind)[1] for kind in kinds]


def measure_texts(n: int) -> None:
    """Print seconds from filter texts to a first match, which does what was put off."""
    print("\n| subscriptions | matcher | s |\n|---|---|---|")
    workload = W4.make(n, N_EVENTS)
    texts, events, truth = workload.filter_texts(), workload.event_batch(), workload.truth()
    for matcher in MATCHERS[:3]:
        engine = Engine(workload.schema, matcher=matcher.name)

        def load(engine: Engine = engine) -> None:
            engine.subscribe_many(zip(range(n), texts, strict=True))
            engine.match_batch(events.slice(0, 1))

        taken = timed(load)[1]
        assert np.array_equal(engine.match_batch(events).counts(), truth.counts)
        print(f"| {n:,} | {matcher.name} | {taken:.2f} |", flush=True)


def warm_up() -> None:
    """Compile every kernel that is timed."""
    case = MatchingCase.draw(W4, 3 * CHANGES, N_EVENTS)
    one = W4.code_predicates(case.workload.predicates.take(np.array([0])))
    for matcher in MATCHERS:
        live = matcher.build(case.boxes)
        live.match(case.events)
        time_changes(live, [one] * 2 * CHANGES)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    runs = {"changes": measure_changes, "texts": measure_texts}
    parser.add_argument("parts", nargs="*", metavar="part", help="changes or texts; both without one")
    parser.add_argument("--full", action="store_true", help="1,000,000 subscriptions")
    options = parser.parse_args()
    unknown = set(options.parts) - runs.keys()
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are: {', '.join(runs)}")
    warm_up()
    for part in options.parts or runs:
        runs[part](1_000_000 if options.full else 100_000)


if __name__ == "__main__":
    main()
