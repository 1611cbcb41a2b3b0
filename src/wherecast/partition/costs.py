"""What a partition costs per event, in microseconds of machine time: the figure by which plans are chosen.

Theory of operation
-------------------
All servers are there, busy or not, and the busiest one decides how many events pass: its time counts for each of them. A
dispatcher reads every event and sends it to some servers; under broadcast there is none, events are matched where they
are. And every copy of a subscription has to be registered, anew with every change, which is spread over the events in
between:

    servers x max over servers of reach x (RECEIVE + min(MATCH x sqrt(held), MEET x met))
        + RECEIVE + SEND x servers per event + HOLD x copies

`reach` is the share of events that a server receives, `held` the subscriptions it has; matching grows about as the root of
the set. But filters that compare for equality are filed under the value: an event meets those of its own value only, `met` of
them, wherever they are. To spread such filters by that value saves no matching; it saves copies. The constants are orders of magnitude,
measured on one 2.4 GHz core: they say which strategy to take, not how long it will take.

Where no sample of events is at hand, costs are estimated with events made of the constants that filters compare with
(`probe_events`). For each attribute one value per event is drawn from the distinct constants, all alike, and each attribute for itself: the
uniform event rate that the Event Distribution Network assumes (section III.A).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.kernels.arrays import Floats, Longs
from wherecast.language.events.arrow import canonical_type, declared_type
from wherecast.language.events.convert import from_positions
from wherecast.language.events.events import EventBatch
from wherecast.language.events.keys import KEY_MAX, KEY_MIN
from wherecast.language.events.schema import Attribute, Schema
from wherecast.language.filters.filters import Filters
from wherecast.partition.balance import imbalance
from wherecast.partition.protocol import Partition, Placement, Routes

#: One event to one server: through Python and back (2.4 us, measured with 4 columns), written to a shuffle and read from it (estimated).
#: `benchmarks/streams.py routed` compares routed with broadcast on Spark.
SEND_US = 4.0
#: Reading an event, whatever is held.
RECEIVE_US = 1.0
#: Matching, by the root of the subscriptions held: 2 us at ten thousand, 20 us at a million, midway between the workloads.
MATCH_US = 0.02
#: Comparing an event with a filter of its own value; the 13 distinct filters per symbol in `stock` take 0.14 to 0.6 us.
MEET_US = 0.03
#: Compiling and indexing a subscription takes about 5 us; it is done anew every million events.
HOLD_US = 5e-6


class Cost(NamedTuple):
    """What a strategy is expected to cost."""

    strategy: str
    us_per_event: float
    servers_per_event: float
    dropped: float  # share of events
    replication: float  # copies per subscription
    most_held: int  # subscriptions on the fullest server
    imbalance: float  # largest load / smallest


def estimate_cost(partition: Partition, filters: Filters, weights: Longs, events: EventBatch) -> Cost:
    """What a partition costs on events like these."""
    routes = partition.route(events)
    n_events = max(len(events), 1)
    reach = np.bincount(routes.servers, minlength=partition.n_servers) / n_events
    placement = partition.place(filters)
    held = held_subscriptions(placement, weights, partition.n_servers)
    sent = None if partition.strategy == "broadcast" else routes.servers.size / n_events
    return Cost(
        partition.strategy,
        cost_us(reach, held, sent, met_clauses(placement, filters, reach, dealt=partition.strategy == "broadcast")),
        routes.servers.size / n_events,
        dropped_share(routes, len(events)),
        float(held.sum() / max(weights.sum(), 1)),
        int(held.max(initial=0)),
        imbalance(partition.loads()),
    )


def cost_us(reach: Floats, held: Floats, servers_per_event: float | None, met: Floats | float = np.inf) -> float:
    """The formula of this module; `reach`, `held` and `met` are by server, and without a dispatcher nothing is sent."""
    matching = np.minimum(MATCH_US * np.sqrt(held), MEET_US * np.asarray(met))
    busiest = float((reach * (RECEIVE_US + matching)).max())
    dispatch = 0.0 if servers_per_event is None else RECEIVE_US + SEND_US * servers_per_event
    return held.size * busiest + dispatch + HOLD_US * float(held.sum())


def held_subscriptions(placement: Placement, weights: Longs, n_servers: int) -> Floats:
    """Subscriptions on each server."""
    return np.bincount(placement.servers, np.repeat(weights, np.diff(placement.ptr)), n_servers).astype(np.float64)


def met_clauses(placement: Placement, filters: Filters, reach: Floats, *, dealt: bool) -> Floats:
    """Clauses that an event meets on a server that it reaches, if events have each constant of an attribute alike often.

    A clause counts by its rarest equality or IN. One without any is met by every event. Unless events are dealt out, whatever they have, an
    event reaches the servers of its values, so those that meet a clause are among those that reach its server.
    """
    n_rows = np.diff(filters.row_ptr)
    is_last = filters.attr >= 0  # of its constraint, see `Filters`
    column = np.where(is_last, filters.attr, ~filters.attr)
    share = np.ones(column.size)
    for attr in np.unique(column):
        points = (column == attr) & (filters.lo == filters.hi) & ~filters.null
        share[points] = 1 / max(np.unique(filters.lo[points]).size, 1)
    by_constraint = np.bincount(np.cumsum(is_last) - is_last, share, int(is_last.sum()))
    clause = np.repeat(np.arange(n_rows.size), n_rows)[is_last]
    chance = np.ones(n_rows.size)
    np.minimum.at(chance, clause, by_constraint)
    by_filter = np.add.reduceat(np.append(chance, 0.0), filters.clause_ptr[:-1]) * (np.diff(filters.clause_ptr) > 0)
    met = np.bincount(placement.servers, np.repeat(by_filter, np.diff(placement.ptr)), reach.size).astype(np.float64)
    return met if dealt else met / np.maximum(reach, 1e-9)


def dropped_share(routes: Routes, n_events: int) -> float:
    """The share of events that are sent nowhere."""
    return 1.0 - np.unique(routes.event_ids).size / n_events if n_events else 0.0


def choose_policy(routed: int, unrouted: int, n_servers: int) -> Literal["replicate", "residual"]:
    """Where filters without signatures cost less: on every server, or on one of their own that sees all events.

    Both are numbers of subscriptions; the routed ones are taken to be spread evenly, and wanted by every event. A server that
    sees all events slows all of them down, so only a set too large to copy is worth it: some ten million subscriptions.
    """
    if not unrouted or n_servers < 2:
        return "replicate"
    owners = n_servers - 1
    replicated = cost_us(np.full(n_servers, 1 / n_servers), np.full(n_servers, routed / n_servers + unrouted), 1.0)
    residual = cost_us(
        np.append(np.full(owners, 1 / owners), 1.0), np.append(np.full(owners, routed / owners), unrouted), 2.0
    )
    return "replicate" if replicated <= residual else "residual"


PROBES = 4096


def probe_events(filters: Filters, schema: Schema) -> EventBatch:
    """Events as likely to hit a constant as any other."""
    rng = np.random.default_rng(0)
    column = np.where(filters.attr < 0, ~filters.attr, filters.attr)
    arrays = []
    for attr, attribute in enumerate(schema.attributes):
        rows = (column == attr) & ~filters.null
        ends = np.concatenate([filters.lo[rows], filters.hi[rows]])
        ends = np.unique(ends[(ends != KEY_MIN) & (ends != KEY_MAX)])
        drawn = rng.choice(ends, PROBES) if ends.size else ends
        arrays.append(_values(drawn, attribute, filters.strings))
    return EventBatch.read(schema, pa.table(arrays, [a.name for a in schema.attributes]))


def _values(keys: npt.NDArray[np.int64], attribute: Attribute, strings: list[str]) -> pa.Array:
    """Values of an attribute, from their positions (see `language.filters.filters`); NULLs if there are none."""
    if not keys.size:
        return pa.nulls(PROBES, canonical_type(attribute))
    values = from_positions(attribute, keys, strings)
    each = pa.array(np.arange(PROBES + 1, dtype=np.int32))
    if attribute.value is not None:
        return pa.MapArray.from_arrays(each, values, pa.nulls(PROBES, declared_type(attribute.value)))
    if attribute.is_array:
        return pa.ListArray.from_arrays(each, values)
    return values
