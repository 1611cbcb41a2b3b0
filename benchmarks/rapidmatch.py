"""What the lab leaves out of RAPIDMatch: how its advantage over the tree depends on the tail of the events' ones.

    python benchmarks/rapidmatch.py [--events N]

100,000 subscriptions, k = 100, c = 10, Zipf with a = 2. First the model's own limit on ones is varied, then events with
exactly so many ones are taken by themselves. Matchers, checks and counts are the lab's; times are medians of three
rounds.
"""

from __future__ import annotations

import argparse

import numpy as np

from wherecast.bench.measure import timed
from wherecast.papers.rapidmatch.binary import BinaryIndex, Values, pack_subscriptions
from wherecast.papers.rapidmatch.experiments.contenders import C, Contenders, K
from wherecast.papers.rapidmatch.workload import draw_light

N = 100_000
#: Events have at most one less; the last is no limit.
LIMITS = (10, 20, 50, K)
ONES = (1, 2, 5, 10, 11)
ROUNDS = 3
_LINE = "{:<22}{:>7.2f}{:>9.1f}{:>9.1f}{:>7.2f}{:>10,.0f}{:>10,.0f}{:>7.2f}"


def show(label: str, contenders: Contenders, events: Values) -> None:
    """Print a line: times, nodes, and how many times the tree's are those of RAPIDMatch."""
    rapid, tree = contenders.measure(events, ROUNDS)[:2]
    figures = []
    for column in ("us_per_event", "visits_per_event"):
        ours, theirs = float(rapid[column]), float(tree[column])
        figures += [ours, theirs, theirs / ours]
    print(_LINE.format(label, rapid["ones_per_event"], *figures), flush=True)


def main() -> None:
    """Print two tables and the time to build."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000)
    n_events = parser.parse_args().events
    drawn = {limit: draw_light(N, c=limit, k=K, n_events=n_events) for limit in LIMITS}
    # Subscriptions are drawn before the events: they are the same for every limit.
    subscriptions, anything = drawn[K]
    contenders = Contenders(subscriptions, anything)
    print(f"{'':22}{'ones':>7}{'rapid us':>9}{'tree us':>9}{'ratio':>7}{'nodes':>10}{'nodes':>10}{'ratio':>7}")
    for limit, (_, events) in drawn.items():
        show(f"at most {limit - 1} ones", contenders, events)
    rng = np.random.default_rng(0)
    for ones in ONES:
        places = np.argsort(rng.random((n_events, K)), axis=1)
        show(f"exactly {ones}", contenders, (places < ones).astype(np.int8))
    rows = pack_subscriptions(subscriptions)
    build_s = timed(lambda: BinaryIndex.build(rows, K, C))[1]
    print(f"build: {build_s:.1f} s")


if __name__ == "__main__":
    main()
