"""Filters to be spread over servers, the events that are then counted, and who needs which of them.

The paper says nothing of the range subscriptions that it spread (section III.C). Ours are three workloads: `places`,
rectangles of a map, as in its figure 6; `range`, boxes that leave some of six attributes open; and `stock`, where equality comes
with ranges. Half of the events are the sample that partitions are built with, the other half is counted.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from wherecast.bench.workloads.form import Workload
from wherecast.bench.workloads.reference import SOURCES, make_workload
from wherecast.index.build import code_filters
from wherecast.kernels.arrays import Ints, Longs
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.filters import Filters
from wherecast.matchers.adaptive import AdaptiveMatcher
from wherecast.papers.edn.places import make_places
from wherecast.partition.filter_set import FilterSet
from wherecast.partition.plan import weigh
from wherecast.partition.protocol import Routes

#: Events that are counted, and as many before them for the sample.
N_EVENTS = 10_000
#: Of which so many are the sample: what `wherecast partition plan` would take.
_SAMPLE = 4096
PLACES = 300_000


class Spread(NamedTuple):
    """Filters with their subscriptions, events to build with, events to count."""

    schema: Schema
    filters: Filters
    weights: Longs  # (filters,) subscriptions
    sample: EventBatch
    events: EventBatch
    matched_events: Longs  # (matches,) of the events that are counted
    matched_filters: Ints  # (matches,)

    def build(self, n_servers: int) -> FilterSet:
        """Spread the filters by likeness."""
        return FilterSet.build(self.filters, self.weights, self.schema, n_servers, self.sample)

    def needed(self, servers: Ints, n_servers: int) -> Routes:
        """What exact routing sends, for filter f on servers[f]."""
        pairs = np.unique(self.matched_events * n_servers + servers[self.matched_filters])
        return Routes(pairs // n_servers, (pairs % n_servers).astype(np.int32))


@lru_cache(maxsize=1)
def prepare(name: str, scale: float) -> Spread:
    """Compile the filters of a workload, draw its events and match them."""
    workload = _draw(name, scale)
    schema = Schema.of(workload.schema)
    compiled = Compiler(schema).compile_many(workload.filter_texts())
    batch = EventBatch.read(schema, workload.event_batch())
    sample, events = batch.slice(0, N_EVENTS).sample(_SAMPLE), batch.slice(N_EVENTS, 2 * N_EVENTS)
    index = code_filters(compiled.filters, schema)
    ptr, clauses = AdaptiveMatcher.build(index.boxes).match(index.codebook.encode(events))
    event_ids = np.repeat(np.arange(ptr.size - 1), np.diff(ptr))
    return Spread(schema, compiled.filters, weigh(compiled), sample, events, event_ids, index.boxes.filter_ids[clauses])


def _draw(name: str, scale: float) -> Workload:
    """The workload with as many events as are needed: those of a reference workload are fewer."""
    if name == "places":
        return make_places(int(PLACES * scale), 2 * N_EVENTS)
    workload = make_workload(name, scale)
    source = SOURCES[name](np.random.default_rng(SOURCES[name].seed))  # the same market, other quotes
    parts = -(-2 * N_EVENTS // len(workload.events))
    events = np.concatenate([source.events(np.random.default_rng([7, part])) for part in range(parts)])
    return replace(workload, events=events)
