"""How good a plan is, measured on events."""

from __future__ import annotations

import time
from statistics import median
from typing import NamedTuple

import numpy as np

from wherecast.engine.matches import Matches, SegmentMatches
from wherecast.engine.segment import Members, build_segment
from wherecast.kernels.arrays import Longs
from wherecast.language.events.events import EventBatch
from wherecast.language.filters.filters import Filters
from wherecast.language.sequences import take_ranges
from wherecast.matchers.adaptive import AdaptiveMatcher
from wherecast.partition.balance import imbalance
from wherecast.partition.costs import dropped_share, held_subscriptions
from wherecast.partition.event_space import EventSpace
from wherecast.partition.plan import Plan
from wherecast.partition.protocol import Routes

#: Events that a dispatcher is given at a time, and how often it is timed.
BATCH, ROUNDS = 10_000, 5
#: Events matched at a time, to find out which deliveries were needed.
MATCHED = 1000


class Evaluation(NamedTuple):
    """Figures of a plan on a batch of events."""

    strategy: str
    servers: int
    events: int
    imbalance: float  # largest expected load / smallest
    traffic_imbalance: float  # most events on one server / fewest, as measured
    dropped: float  # share of events sent nowhere
    servers_per_event: float
    false_positives: float | None  # share of deliveries that an exact summary would not make; None: not known
    unmatched: float | None  # share of deliveries that find no match; None: not known without the subscriptions
    replication: float  # copies per subscription
    summary_bytes: int  # at the dispatcher
    us_per_event: float  # of dispatch, in batches of 10,000


def evaluate(plan: Plan, events: EventBatch, subscriptions: tuple[Filters, Longs] | None = None) -> Evaluation:
    """Measure a plan.

    `subscriptions` are all filters and their weights; with them it is known which deliveries find a match. Event-space
    routes by signatures, so an exact summary of its own would still deliver all events with a signature that some filter
    has. Broadcast has no summary, and no deliveries that one would spare.
    """
    routes = plan.route(events)
    stats = plan.stats()
    replication = float(stats["replication"])
    unmatched = None
    if subscriptions is not None:
        filters, weights = subscriptions
        held = held_subscriptions(plan.place(filters), weights, plan.n_servers)
        replication = float(held.sum() / max(weights.sum(), 1))
        pairs = routes.event_ids * plan.n_servers + routes.servers
        needed = np.intersect1d(pairs, needed_pairs(plan, events, filters)).size
        unmatched = 1.0 - needed / pairs.size if pairs.size else 0.0
    received = np.bincount(routes.servers, minlength=plan.n_servers)
    return Evaluation(
        strategy=plan.strategy,
        servers=plan.n_servers,
        events=len(events),
        imbalance=imbalance(plan.partition.loads()),
        traffic_imbalance=imbalance(received.astype(np.float64)),
        dropped=dropped_share(routes, len(events)),
        servers_per_event=routes.servers.size / max(len(events), 1),
        false_positives=_false_positives(plan, events, routes, unmatched),
        unmatched=unmatched,
        replication=replication,
        summary_bytes=int(stats["summary_bytes"]),
        us_per_event=_time_dispatch(plan, events),
    )


def needed_pairs(plan: Plan, events: EventBatch, filters: Filters) -> Longs:
    """The deliveries that would find a match, as event x servers + server, ascending."""
    numbers = np.arange(filters.n_filters)
    members = Members(filters, numbers, numbers, np.zeros(numbers.size, np.float32))
    segment = build_segment([members], plan.schema, AdaptiveMatcher)
    placement = plan.place(filters)
    parts = []
    for start in range(0, len(events), MATCHED):  # a filter may match every event: bound the pairs held at a time
        some = events.slice(start, min(start + MATCHED, len(events)))
        found = Matches([SegmentMatches(segment, *segment.match(some))], np.arange(len(some)) + start, [], 0)
        event_ids, filter_ids = found.pairs()
        places, ptr = take_ranges(placement.ptr, filter_ids)
        parts.append(np.unique(np.repeat(event_ids, np.diff(ptr)) * plan.n_servers + placement.servers[places]))
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _false_positives(plan: Plan, events: EventBatch, routes: Routes, unmatched: float | None) -> float | None:
    if isinstance(plan.partition, EventSpace):
        in_vain = plan.partition.in_vain(events, routes)
        return float(np.count_nonzero(in_vain) / max(in_vain.size, 1))
    return 0.0 if plan.strategy == "broadcast" else unmatched


def _time_dispatch(plan: Plan, events: EventBatch) -> float:
    """Microseconds per event; the median of some rounds over the same batch, already read."""
    batch = events.slice(0, min(BATCH, len(events)))
    if not len(batch):
        return 0.0
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        plan.route(batch)
        times.append(time.perf_counter() - begin)
    return median(times) / len(batch) * 1e6
