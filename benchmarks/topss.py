"""The experiments of TOPSS on the counting matchers: table 1, table 2, and figures 2 to 4, in numbers.

    python benchmarks/topss.py [match] [predicates] [changes] [texts] [--full] [--rounds N]

- match: time of an event, load from boxes, memory and operations on W4, for lists, bits and bytes (table 1, figures 3, 4);
- predicates: the first stage alone on W0 to W3, ordered lists against tables (figure 2);
- changes: single insertions, updates and removals in a loaded matcher;
- texts: bulk load of filter texts through the engine (table 2).

Without a name all are run; `--full` goes on to 5,000,000 subscriptions. Before anything is timed, counts and sums of ids of
the first events must equal brute force. Times are the best of several rounds, one thread, events in batches of the paper's
size.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from wherecast.engine.engine import Engine
from wherecast.errors import MatcherError
from wherecast.index.boxes import Boxes, EventCodes
from wherecast.matchers.counting import (
    CountingBitMatcher,
    CountingByteMatcher,
    CountingMatcher,
    CountingTableMatcher,
)
from wherecast.matchers.registry import MATCHERS
from wherecast.workloads.form import Workload
from wherecast.workloads.topss import SPECIFICATIONS

W4 = SPECIFICATIONS["W4"]


def best(rounds: int, run: Callable[[], object]) -> float:
    """Seconds of the fastest round."""
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return min(taken)


def warm_up() -> None:
    """Compile every kernel, so that no load is charged with it."""
    workload = W4.make(100, 10)
    boxes, events = W4.code_predicates(workload.predicates), W4.code_events(workload.events)
    for matcher in (CountingMatcher, CountingBitMatcher, CountingByteMatcher, CountingTableMatcher):
        live = matcher.build(boxes)
        live.tally(events)
        live.update(np.arange(3, dtype=np.int32), W4.code_predicates(workload.predicates.take(np.arange(3))))
        live.match(events)
        live.remove(np.arange(3, dtype=np.int32))


def check(matcher: CountingMatcher, workload: Workload, events: EventCodes) -> None:
    """Compare with brute force."""
    truth = workload.truth()
    ptr, ids = matcher.match(events._replace(codes=events.codes[: truth.counts.size]))
    sums = np.concatenate(([0], np.cumsum(ids, dtype=np.int64)))[ptr]
    if not (np.array_equal(np.diff(ptr), truth.counts) and np.array_equal(np.diff(sums), truth.id_sums)):
        raise SystemExit(
            f"{matcher.name} on {workload.name} with {len(workload)} subscriptions does not match brute force"
        )


def measure_match(sizes: list[int], rounds: int) -> None:
    """Table 1 and figures 3 and 4."""
    print(
        "\n| subscriptions | association | ms/event | load s | MB | of it for deletion | updates/event | read/event |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for n in sizes:
        workload = W4.make(n, 50)
        boxes, events = W4.code_predicates(workload.predicates), W4.code_events(workload.events)
        batch = events._replace(codes=events.codes[: W4.events_at_once])
        for matcher in (CountingMatcher, CountingBitMatcher, CountingByteMatcher):
            try:
                print(_match_row(matcher, n, boxes, batch, workload, events, rounds), flush=True)
            except MatcherError as error:
                print(f"| {n:,} | {matcher.name} | refused: {error} |", flush=True)


def _match_row(
    matcher: type[CountingMatcher], n: int, boxes: Boxes, batch: EventCodes, workload: Workload, events: EventCodes,
    rounds: int,
) -> str:  # fmt: skip
    start = time.perf_counter()
    live = matcher.build(boxes)
    load_s = time.perf_counter() - start
    check(live, workload, events)
    event_ms = 1e3 * best(rounds, lambda: live.match(batch)) / batch.n_events
    facts = live.stats(batch)
    deletion = facts["parts"].get("deletion", 0) / 1e6
    costs = f"{facts['updates_per_event']:,.0f} | {facts['entries_per_event']:,.0f}"
    return f"| {n:,} | {matcher.name} | {event_ms:.3f} | {load_s:.2f} | {facts['bytes'] / 1e6:.1f} | {deletion:.1f} | {costs} |"


def measure_predicates(sizes: list[int], rounds: int) -> None:
    """Figure 2: the predicate bit vectors of a batch, and nothing more."""
    print(
        "\n| workload | predicates | lists us/event | tables us/event | lists MB | tables MB |\n|---|---|---|---|---|---|"
    )
    for name in ("W0", "W1", "W2", "W3"):
        spec = SPECIFICATIONS[name]
        for n in sizes:
            workload = spec.make(n, spec.events_at_once)
            boxes, events = spec.code_predicates(workload.predicates), spec.code_events(workload.events)
            both = [matcher.build(boxes) for matcher in (CountingMatcher, CountingTableMatcher)]
            for live in both:
                check(live, workload, events)
            times = [1e6 * best(rounds, lambda live=live, e=events: live.mark(e)) / events.n_events for live in both]
            sizes_mb = [live.stats()["parts"]["index"] / 1e6 for live in both]
            figures = f"{times[0]:.0f} | {times[1]:.0f} | {sizes_mb[0]:.2f} | {sizes_mb[1]:.2f}"
            print(f"| {name} | {both[0].stats()['predicates']:,} | {figures} |", flush=True)


def measure_changes(n: int, changes: int = 300) -> None:
    """Single insertions, updates and removals."""
    print("\n| subscriptions | matcher | insert us | update us | remove us |\n|---|---|---|---|---|")
    workload = W4.make(n + 2 * changes, 50)
    parts = [workload.predicates.take(np.arange(n))]
    parts += [workload.predicates.take(np.array([n + i])) for i in range(2 * changes)]
    base, *single = (W4.code_predicates(part) for part in parts)
    rng = np.random.default_rng(0)
    for matcher in (CountingMatcher, CountingTableMatcher, CountingBitMatcher, CountingByteMatcher):
        live = matcher.build(base)
        chosen = rng.permutation(n).astype(np.int32)[: 2 * changes].reshape(2, -1, 1)
        live.remove(chosen[0].ravel())
        times = [
            1e6 * best(1, run) / changes
            for run in (
                lambda live=live: [live.insert(one) for one in single[:changes]],
                lambda live=live, c=chosen: [
                    live.update(i, one) for i, one in zip(c[1], single[changes:], strict=True)
                ],
                lambda live=live, c=chosen: [live.remove(i) for i in c[1]],
            )
        ]
        print(f"| {n:,} | {matcher.name} | {times[0]:.0f} | {times[1]:.0f} | {times[2]:.0f} |", flush=True)


def measure_texts(n: int) -> None:
    """Table 2 from filter texts: compiling, coding and loading."""
    print("\n| subscriptions | matcher | s |\n|---|---|---|")
    workload = W4.make(n, 50)
    texts = workload.filter_texts()
    for matcher in (CountingMatcher, CountingTableMatcher, CountingBitMatcher):
        if matcher.name not in MATCHERS:
            raise SystemExit(f"{matcher.name} is not in the registry")
        engine = Engine(workload.schema, matcher=matcher.name)
        start = time.perf_counter()
        engine.subscribe_many(zip(range(n), texts, strict=True))
        engine.match_batch(workload.event_batch().slice(0, 1))  # what was put off is done by the first match
        print(f"| {n:,} | {matcher.name} | {time.perf_counter() - start:.2f} |", flush=True)
        counts = engine.match_batch(workload.event_batch()).counts()
        assert np.array_equal(counts, workload.truth().counts)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help="match, predicates, changes or texts; all without one")
    parser.add_argument("--full", action="store_true", help="go on to 5,000,000 subscriptions")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    runs = {
        "match": lambda: measure_match([10_000, 100_000, 1_000_000] + [5_000_000] * options.full, options.rounds),
        "predicates": lambda: measure_predicates([100, 1_000, 10_000, 100_000], options.rounds),
        "changes": lambda: measure_changes(1_000_000 if options.full else 100_000),
        "texts": lambda: measure_texts(1_000_000 if options.full else 100_000),
    }
    unknown = set(options.parts) - runs.keys()
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are: {', '.join(runs)}")
    warm_up()
    for name in options.parts or runs:
        print(f"\n{name}")
        runs[name]()


if __name__ == "__main__":
    main()
