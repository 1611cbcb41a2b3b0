"""The simulation of the Gryphon paper, of any size and setting.

Subscriptions are conjunctions of equality tests. The first attribute is tested by most of them, every further one by
fewer, by a constant factor; the values asked for follow Zipf's law. Events are uniform. The workload `gryphon` of
`reference` is this with its defaults.

`boxes` and `event_codes` go to code space directly, for sets too large for filter texts: value v has code v, NULL has
0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wherecast.bench.workloads.form import CatalogueEntry, Conjunctions, FilterSource, Workload
from wherecast.bench.workloads.reference import PopularAttributes
from wherecast.index.boxes import Boxes, EventCodes
from wherecast.kernels.arrays import Floats, Longs


class Simulation(PopularAttributes):
    """What subscriptions and events are drawn from, and what they are in code space."""

    def workload(self, subscriptions: int, events: int = 2000, seed: int = 4) -> Workload:
        """Subscriptions and events of one seed; the events depend on the number of subscriptions too."""
        rng = np.random.default_rng(seed)
        predicates = self.predicates(rng, subscriptions)
        names = tuple(f"a{i}" for i in range(self.attributes))
        return Workload("gryphon", names, ("long",) * self.attributes, predicates, self.events(rng, events))

    def boxes(self, predicates: Conjunctions) -> Boxes:
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


_SIMULATION = {"attributes": 30, "values": 5, "popularity": 0.98, "falloff": 0.85, "exponent": 1.0}


def _make_simulation(n: int, events: int, seed: int, **shape: Any) -> Workload:
    return Simulation(**shape).workload(n, events, seed)


def _open_simulation(seed: int, **shape: Any) -> FilterSource:  # noqa: ARG001 - it has nothing to prepare
    simulation = Simulation(**shape)
    return FilterSource(tuple((f"a{i}", "long") for i in range(simulation.attributes)), simulation.predicates)


#: For the catalogue.
ENTRIES = (
    CatalogueEntry(
        "gryphon-simulation",
        "the Gryphon simulation with other settings",
        100_000,
        _make_simulation,
        {**_SIMULATION, "events": 2000, "seed": 4},
        _open_simulation,
    ),
)
