"""RAPIDMatch against the tree it is made of: figures 3 to 6 of the paper, and the adaptive matcher beside them.

    python benchmarks/rapidmatch.py [--full] [--events N] [--c N]

Subscriptions and events are those of section 6 (`wherecast.workloads.rapid`). Before anything is timed, the matches of the
first events are compared with brute force. Times are the fastest of three rounds over all events, on one core; a node
is one test of one property in trees that store every node. The adaptive matcher is given the same boxes and sample.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from wherecast.index.boxes import Boxes, EventCodes
from wherecast.matchers.adaptive import AdaptiveMatcher
from wherecast.matchers.rapid_binary import STAR, BinaryIndex, pack_events, pack_subscriptions
from wherecast.workloads.rapid import BinaryWorkload, draw_exponential, draw_light

SIZES = (10_000, 20_000, 50_000, 100_000, 200_000)
HEAD = "{:<16} {:>9} {:>6} | {:>7} {:>7} {:>6} | {:>8} {:>8} {:>6} | {:>7} {:>7} | {:>8} | {:>7} {:>6} {:>8}"
ROW = (
    "{:<16} {:>9,} {:>6.2f} | {:>7.1f} {:>7.1f} {:>6.2f} | {:>8,.0f} {:>8,.0f} {:>6.2f} | {:>7.1f} {:>7.1f} | {:>8.1f} | "
    "{:>7.1f} {:>6.2f} {:>8.1f}"
)


def boxes_of(w: BinaryWorkload) -> tuple[Boxes, EventCodes]:
    """The workload in code space: NULL is 0, the property's 0 is 1 and its 1 is 2."""
    n, k = w.subscriptions.shape
    owner, attr = np.nonzero(w.subscriptions != STAR)
    code = w.subscriptions[owner, attr].astype(np.int32) + 1
    ptr, ids = np.searchsorted(owner, np.arange(n + 1)), np.arange(n, dtype=np.int32)
    boxes = Boxes(ids, ptr, attr.astype(np.int16), code, code, np.full(n, -1, np.int32), n, np.full(k, 3, np.int32))
    return boxes, EventCodes(w.events.astype(np.int32) + 1, np.zeros(1, np.int64), np.zeros(0, np.int32))


def best(run: Callable[[], Any], n: int) -> float:
    """Microseconds an event, of the fastest of three rounds."""
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return min(taken) / n * 1e6


def compare(label: str, w: BinaryWorkload, c: int) -> None:
    """Check and time the three matchers on one workload, and print a line."""
    k, n_events = w.subscriptions.shape[1], len(w.events)
    rows, bits = pack_subscriptions(w.subscriptions), pack_events(w.events)
    start = time.perf_counter()
    rapid = BinaryIndex.build(rows, k, c)
    build_s = time.perf_counter() - start
    plain = BinaryIndex.build(rows, k, -1)
    boxes, codes = boxes_of(w)
    adaptive = AdaptiveMatcher.build(boxes, codes)
    truth = w._replace(events=w.events[:50]).workload(label).truth()
    for matcher, events in ((rapid, bits), (plain, bits), (adaptive, codes)):
        counts = np.diff(matcher.match(events)[0])
        assert np.array_equal(counts[:50], truth.counts), f"{label}: wrong matches"
    mine, theirs = rapid.tally(bits), plain.tally(bits)
    times = best(lambda: rapid.match(bits), n_events), best(lambda: plain.match(bits), n_events)
    other = best(lambda: adaptive.match(codes), n_events)
    matches = max(mine.matches, 1) / n_events
    print(
        ROW.format(
            label, len(rows), w.events.sum(axis=1).mean(), *times, times[1] / times[0], mine.nodes / n_events,
            theirs.nodes / n_events, theirs.nodes / max(mine.nodes, 1), mine.levels_skipped / n_events, matches, other,
            build_s, sum(a.nbytes for a in rapid.arrays().values()) / 1e9, 1e3 * times[0] / matches,
        ),
        flush=True,
    )  # fmt: skip


def show_outputs(title: str, w: BinaryWorkload, c: int) -> None:
    """Time per match by number of matches: events in five groups of equal size, fewest matches first."""
    rows, k = pack_subscriptions(w.subscriptions), w.subscriptions.shape[1]
    indexes = [BinaryIndex.build(rows, k, c), BinaryIndex.build(rows, k, -1)]
    counts = np.diff(indexes[0].match(pack_events(w.events))[0])
    print(f"\n{title}: nanoseconds a match, by matches an event\nmatches   rapid    tree  ratio")
    for group in np.array_split(np.argsort(counts, kind="stable"), 5):
        bits = pack_events(w.events[group])
        taken = [1e3 * best(lambda i=i, b=bits: i.match(b), len(group)) / counts[group].mean() for i in indexes]
        print(f"{counts[group].mean():>7.0f} {taken[0]:>7.0f} {taken[1]:>7.0f} {taken[1] / taken[0]:>6.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--full", action="store_true", help="also 1,000,000 subscriptions")
    parser.add_argument("--events", type=int, default=1_000)
    parser.add_argument("--c", type=int, default=10, help="ones up to which an event is light")
    chosen = parser.parse_args()
    sizes = (*SIZES, 1_000_000) if chosen.full else SIZES
    n_events, c = chosen.events, chosen.c
    w = draw_light(100)
    BinaryIndex.build(pack_subscriptions(w.subscriptions), 100, 2).match(pack_events(w.events))  # compiles
    print(HEAD.format("", "N", "ones", "rapid", "tree", "ratio", "rapid", "tree", "ratio", "levels", "matches",
                      "adaptive", "rapid", "rapid", "rapid"))  # fmt: skip
    print(
        HEAD.format("", "", "", "us", "us", "", "nodes", "nodes", "", "skipped", "", "us", "build s", "GB", "ns/match")
    )
    for n in sizes:
        compare("zipf a=2", draw_light(n, n_events=n_events), c)
    for n in sizes:
        compare("exponential .1", draw_exponential(n, n_events=n_events), c)
    for a in (1.0, 1.5, 2.0, 2.5, 3.0, 4.0):
        compare(f"zipf a={a:g}", draw_light(100_000, a=a, n_events=n_events), c)
    for p in (0.01, 0.02, 0.05, 0.1, 0.15, 0.2):
        compare(f"exponential {p:g}", draw_exponential(100_000, p=p, n_events=n_events), c)
    for ones in (10, 20, 50):
        compare(f"zipf c={ones}", draw_light(100_000, c=ones, n_events=n_events), c)
    show_outputs("zipf a=2", draw_light(100_000, n_events=n_events), c)
    show_outputs("exponential p=0.05", draw_exponential(100_000, p=0.05, n_events=n_events), c)


if __name__ == "__main__":
    main()
