"""The simulation of the Gryphon paper at one size, and the trees that its curves show.

The adaptive matcher stands beside them. It is shown a sample of other events than those it matches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from wherecast.bench.workloads.form import Workload
from wherecast.index.boxes import Boxes, EventCodes
from wherecast.papers.gryphon.matcher import TreeSettings
from wherecast.papers.gryphon.workload import Simulation, event_codes
from wherecast.papers.lab.experiment import Progress
from wherecast.papers.lab.plots import PALETTE
from wherecast.papers.lab.rows import Rows, choose, group, numbers

PAPER = "gryphon-matching-tree-1999"
MILLION = 1_000_000
SIMULATION = Simulation()
#: Each optimisation by itself, then all three.
TREES = {
    "plain": TreeSettings(collapse=False, factors=0),
    "collapsed": TreeSettings(factors=0),
    "successors": TreeSettings(successors=True, factors=0),
    "3 factors": TreeSettings(factors=3),
    "all three": TreeSettings(successors=True, factors=3),
}
COLORS = dict(zip((*TREES, "adaptive"), PALETTE, strict=False))
_SAMPLE = 200


@dataclass(frozen=True, slots=True)
class TreeCase:
    """Subscriptions and events, as numbers and as codes."""

    workload: Workload
    boxes: Boxes
    events: EventCodes
    sample: EventCodes

    @classmethod
    def draw(cls, simulation: Simulation, n: int, n_events: int, seed: int) -> TreeCase:
        """One seed of a simulation."""
        drawn = simulation.workload(n, n_events + _SAMPLE, seed)
        codes = [event_codes(part) for part in (drawn.events[:n_events], drawn.events[n_events:])]
        return cls(replace(drawn, events=drawn.events[:n_events]), simulation.boxes(drawn.predicates), *codes)


@dataclass(frozen=True, slots=True)
class TreeCurveSettings:
    """The paper's simulation at several sizes. The plain tree keeps twenty nodes for each subscription."""

    simulation: Simulation = SIMULATION
    sizes: tuple[int, ...] = (1_000, 3_000, 10_000, 25_000, 50_000, 100_000)
    most_plain: int = 100_000
    n_events: int = 2_000
    seeds: int = 3
    rounds: int = 3

    def cases(self, name: str, progress: Progress) -> Iterator[tuple[int, int, dict[str, TreeSettings], TreeCase]]:
        """Size, seed and the trees that are grown, of every case."""
        for n in self.sizes:
            grown = {tree: how for tree, how in TREES.items() if how.collapse or n <= self.most_plain}
            for seed in range(self.seeds):
                progress(f"{name}: {n:,} of {self.sizes[-1]:,} subscriptions, seed {seed + 1} of {self.seeds}")
                yield n, seed, grown, TreeCase.draw(self.simulation, n, self.n_events, seed)


def fit_power(rows: Rows, column: str) -> float:
    """The power of the number of subscriptions with which the medians of a column grow: the log-log slope."""
    found = [(float(n), np.median(numbers(own, column))) for n, own in group(rows, "subscriptions")]
    sizes, medians = np.log(np.array(found)).T
    return float(np.polyfit(sizes, medians, 1)[0])


def medians(rows: Rows, matcher: str, column: str) -> dict[int, float]:
    """Medians over seeds of one column of one matcher, by number of subscriptions."""
    own = choose(rows, matcher=matcher)
    return {int(n): float(np.median(numbers(found, column))) for n, found in group(own, "subscriptions")}
