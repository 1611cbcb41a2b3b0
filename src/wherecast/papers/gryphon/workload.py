"""The simulation of the Gryphon paper, of any size and setting.

Subscriptions are conjunctions of equality tests. The first attribute is tested by most of them, every further one by
fewer, by a constant factor; the values asked for follow Zipf's law. Events are uniform. The workload `gryphon` of
`reference` is this with its defaults.

`boxes` and `event_codes` go to code space directly, for sets too large for filter texts: value v has code v, NULL has
0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wherecast.index.boxes import Boxes, EventCodes
from wherecast.workloads.form import EQUAL, Floats, Longs, Predicates, Workload


@dataclass(frozen=True, slots=True)
class Simulation:
    """What subscriptions and events are drawn from."""

    attributes: int = 30
    values: int = 5
    popularity: float = 0.98  # chance that a subscription tests the first attribute
    falloff: float = 0.85  # and of each further one, relative to the one before
    exponent: float = 1.0  # of Zipf's law

    def predicates(self, rng: np.random.Generator, n: int) -> Predicates:
        """Draw n subscriptions, each with at least one test."""
        tested = rng.random((n, self.attributes)) < self.popularity * self.falloff ** np.arange(self.attributes)
        tested[~tested.any(1), 0] = True
        owner, attr = np.nonzero(tested)
        values = np.arange(1, self.values + 1)
        chance = values**-self.exponent
        value = rng.choice(values, owner.size, p=chance / chance.sum()).astype(float)
        return Predicates.of(n, owner, attr, np.full(owner.size, EQUAL), value)

    def events(self, rng: np.random.Generator, n: int) -> Floats:
        """Draw n events."""
        return rng.integers(1, self.values + 1, (n, self.attributes)).astype(float)

    def workload(self, subscriptions: int, events: int = 2000, seed: int = 4) -> Workload:
        """Subscriptions and events of one seed; the events depend on the number of subscriptions too."""
        rng = np.random.default_rng(seed)
        predicates = self.predicates(rng, subscriptions)
        names = tuple(f"a{i}" for i in range(self.attributes))
        return Workload("gryphon", names, ("long",) * self.attributes, predicates, self.events(rng, events))

    def boxes(self, predicates: Predicates) -> Boxes:
        """Subscriptions as boxes, one clause each."""
        n, value = len(predicates), predicates.value.astype(np.int32)
        ids, none = np.arange(n, dtype=np.int32), np.full(n, -1, np.int32)
        widths = np.full(self.attributes, self.values + 1, np.int32)
        return Boxes(
            ids, predicates.ptr.astype(np.int64), predicates.attr.astype(np.int16), value, value, none, n, widths
        )


def event_codes(events: Floats) -> EventCodes:
    """Events of a simulation in the codes of its boxes."""
    no_lists: Longs = np.zeros(1, np.int64)
    return EventCodes(events.astype(np.int32), no_lists, np.zeros(0, np.int32))
