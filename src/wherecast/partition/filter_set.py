"""Filter-set partitioning: filters that the same events match live on the same server.

Theory of operation
-------------------
Naively, filters are dealt out at random and every event goes to every server, or each server says exactly what it wants
and the dispatcher becomes a matcher. Filter-set partitioning (EDN, section III.C) stands between. Every filter is a box on the partition's
`Axes`. A greedy top-down cut (`kernels.covers`) makes as many parts of equal weight as there are servers, chosen so
that the bounding boxes of the parts hold few events; the cut goes on below each server, and the boxes of some level
are its `Cover`, `boxes_per_server` of them. The dispatcher sends an event to every server with a box that holds it
(`BoxMaps`). A filter lives on exactly one server.

Filters by equality on an unordered attribute and filters by ranges are told apart before anything is cut: the first
cut of all is between the two, at the mark nearest to where they meet.

A new filter goes where the boxes grow least in expected traffic, but to no server that it would bring above `1 + slack` of
the mean load. Covers only grow that way; removing a filter lowers the load and leaves the cover as it is, until `rebuild` draws the
covers again around the filters that remain. The partition remembers on which server each filter lives, by its digest.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from wherecast.errors import PlanError
from wherecast.index.boxes import EventCodes
from wherecast.kernels.arrays import Floats, Ints, Longs
from wherecast.kernels.covers import cut_boxes, settle_filters
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.filters.filters import Filters, take_filters
from wherecast.partition.axes import RANGE, Axes, Items
from wherecast.partition.balance import imbalance
from wherecast.partition.cover import BoxMaps, Cover
from wherecast.partition.protocol import Placement, Routes

BOXES_PER_SERVER = 10
#: How far above the mean a server's load may be brought by a new filter.
SLACK = 0.1
#: Events drawn to estimate traffic.
_DRAWN_EVENTS = 4096


class Slots(NamedTuple):
    """The boxes of every server; `boxes_per_server` slots each, the first of which are in use."""

    lo: Ints  # (servers, slots, axes); above the last cell where not in use
    hi: Ints  # (servers, slots, axes); -1 where not in use
    kinds: Longs  # (servers, slots)
    counts: Longs  # (servers,) slots in use

    @classmethod
    def of(cls, covers: list[Cover], axes: Axes, boxes_per_server: int) -> Slots:
        shape = len(covers), boxes_per_server
        lo = np.tile(axes.widths, (*shape, 1))
        hi, kinds = np.full_like(lo, -1), np.zeros(shape, np.int64)
        for server, cover in enumerate(covers):
            n = len(cover)
            lo[server, :n], hi[server, :n], kinds[server, :n] = cover.lo, cover.hi, cover.kinds
        return cls(lo, hi, kinds, np.array([len(c) for c in covers], np.int64))

    def check(self, axes: Axes) -> None:
        """Refuse boxes that are not on the axes."""
        fits = self.lo.shape == self.hi.shape == (*self.kinds.shape, len(axes)) and self.counts.size == len(self.kinds)
        if fits:
            used = np.arange(self.kinds.shape[1]) < self.counts[:, None]
            lo, hi = self.lo[used], self.hi[used]
            fits = bool(np.all(lo >= 0) and np.all(lo <= hi) and np.all(hi < axes.widths))
        if not fits or np.any(self.counts < 0) or np.any(self.counts > self.kinds.shape[1]):
            raise PlanError("the boxes of this filter-set partition do not fit its axes; plan anew")

    def equals(self, other: Slots) -> bool:
        """Whether the boxes are the same."""
        same_boxes = np.array_equal(self.lo, other.lo) and np.array_equal(self.hi, other.hi)
        return same_boxes and np.array_equal(self.counts, other.counts)  # without axes only the counts tell

    def copy(self) -> Slots:
        return Slots(self.lo.copy(), self.hi.copy(), self.kinds.copy(), self.counts.copy())


class FilterSet:
    """Filters spread over servers by likeness; implements `Partition`."""

    strategy: ClassVar[str] = "filter-set"

    def __init__(self, axes: Axes, slots: Slots, loads: Floats, homes: dict[bytes, int], slack: float = SLACK) -> None:
        self.axes = axes
        self.n_servers, self.boxes_per_server = slots.kinds.shape
        self.slack = slack
        self._slots = slots
        self._loads = loads  # subscriptions by server
        self._homes = homes  # digest of a filter -> its server
        self._maps: BoxMaps | None = None  # made of the slots when it is first asked for

    @classmethod
    def build(
        cls,
        filters: Filters,
        weights: Longs,
        schema: Schema,
        n_servers: int,
        sample: EventBatch | None = None,
        *,
        boxes_per_server: int = BOXES_PER_SERVER,
        slack: float = SLACK,
    ) -> Self:
        """Spread filters over servers.

        Args:
            filters: What there is to spread; later ones are inserted.
            weights: Subscriptions per filter.
            schema: The schema of the filters.
            n_servers: At least one.
            sample: Events as they are expected; without them, all cells between constants count as equally likely.
            boxes_per_server: Precision of the summaries.
            slack: How far above the mean load a later filter may bring a server.
        """
        axes = Axes.choose(filters, weights, schema, sample)
        servers = _cut_servers(axes, filters, weights, n_servers)
        return cls.of_placement(axes, filters, weights, servers, n_servers, boxes_per_server, slack)

    @classmethod
    def of_placement(
        cls,
        axes: Axes,
        filters: Filters,
        weights: Longs,
        servers: Ints,
        n_servers: int,
        boxes_per_server: int = BOXES_PER_SERVER,
        slack: float = SLACK,
    ) -> Self:
        """The partition that has filter f on servers[f], equal filters on one server."""
        items = axes.cover(filters)
        at = servers[items.owner]
        order = np.argsort(at, kind="stable")
        bounds = np.searchsorted(at[order], np.arange(n_servers + 1))
        parts = [order[first:end] for first, end in pairwise(bounds.tolist())]
        covers = [
            Cover.around(axes, Items(items.owner[part], items.lo[part], items.hi[part]), boxes_per_server)
            for part in parts
        ]
        homes = dict(zip(filters.each_digest(), servers.tolist(), strict=True))
        loads = np.bincount(servers, weights, n_servers).astype(np.float64)
        return cls(axes, Slots.of(covers, axes, boxes_per_server), loads, homes, slack)

    # -- filters --------------------------------------------------------------------------------------------------

    def place(self, filters: Filters) -> Placement:
        """The server of each filter, or the one that it would go to if it came now, after those before it."""
        return _placement(self._settle(filters, np.zeros(filters.n_filters, np.int64))[0])

    def insert(self, filters: Filters, weights: Longs) -> Placement:
        """Take in filters; known ones only add to the load of their server."""
        servers, slots, loads = self._settle(filters, weights)
        if not slots.equals(self._slots):
            self._slots, self._maps = slots, None
        self._loads = loads
        self._homes.update(zip(filters.each_digest(), servers.tolist(), strict=True))
        return _placement(servers)

    def remove(self, filters: Filters, weights: Longs) -> None:
        """Lower the load; covers shrink, and filters without subscriptions are forgotten, at the next `rebuild`."""
        self._loads = np.maximum(self._loads - np.bincount(self._servers_of(filters), weights, self.n_servers), 0.0)

    def rebuild(self, filters: Filters, weights: Longs, sample: EventBatch | None = None) -> None:
        """Draw the covers anew around these filters, which are all that are left; they stay where they are.

        With a sample of the events that come now, the axes are chosen anew too.
        """
        axes = self.axes if sample is None else Axes.choose(filters, weights, self.axes.schema, sample)
        servers = self._servers_of(filters)
        fresh = self.of_placement(axes, filters, weights, servers, self.n_servers, self.boxes_per_server, self.slack)
        self.axes, self._slots, self._maps = axes, fresh._slots, None  # noqa: SLF001
        self._loads, self._homes = fresh._loads, fresh._homes  # noqa: SLF001

    def _settle(self, filters: Filters, weights: Longs) -> tuple[Ints, Slots, Floats]:
        """Servers of filters, and the slots and loads once they are there."""
        distinct, number = _distinct(filters)
        servers = np.array([self._homes.get(filters.digest(f), -1) for f in distinct.tolist()], np.int32)
        weight = np.bincount(number, weights, distinct.size).astype(np.float64)
        new = np.flatnonzero(servers < 0)
        slots, loads = self._slots.copy(), self._loads.copy()
        np.add.at(loads, servers[servers >= 0], weight[servers >= 0])
        items = self.axes.cover(take_filters(filters, distinct[new]))
        item_ptr = np.searchsorted(items.owner, np.arange(new.size + 1))
        servers[new] = _settle_new(self.axes, item_ptr, items, weight[new], slots, loads, self.slack)
        return servers[number], slots, loads

    def _servers_of(self, filters: Filters) -> Ints:
        try:
            return np.array([self._homes[digest] for digest in filters.each_digest()], np.int32)
        except KeyError:
            missing = next(f for f, digest in enumerate(filters.each_digest()) if digest not in self._homes)
            raise PlanError(f"filter {missing} of the batch is not in this partition; insert it first") from None

    # -- events ---------------------------------------------------------------------------------------------------

    @property
    def sends_to_one(self) -> bool:
        return bool(self.n_servers == 1)

    def route(self, events: EventBatch) -> Routes:
        """Every server with a box that holds the event."""
        return self.maps().route(self.axes.encode(events))

    def maps(self) -> BoxMaps:
        """The dispatcher's table."""
        maps = self._maps
        if maps is None:
            slots = self._slots
            used = np.arange(self.boxes_per_server) < slots.counts[:, None]
            servers = np.repeat(np.arange(self.n_servers, dtype=np.int32), slots.counts)
            maps = self._maps = BoxMaps(self.axes, slots.lo[used], slots.hi[used], servers)
        return maps

    def cover(self, server: int) -> Cover:
        """The summary of one server."""
        n = int(self._slots.counts[server])
        lo, hi, kinds, _ = self._slots
        return Cover(self.axes, lo[server, :n], hi[server, :n], kinds[server, :n])

    def expected_traffic(self) -> float:
        """Servers per event, for events drawn from the shares of the cells as if attributes were independent."""
        rng = np.random.default_rng(0)
        codes = np.zeros((_DRAWN_EVENTS, len(self.axes.schema)), np.int32)
        for attr, chances in zip(self.axes.attributes, self.axes.chances, strict=True):
            codes[:, attr] = rng.choice(chances.size, _DRAWN_EVENTS, p=chances / chances.sum())
        drawn = EventCodes(codes, np.zeros(1, np.int64), np.zeros(0, np.int32))
        return self.maps().route(drawn).servers.size / _DRAWN_EVENTS

    # -- state ----------------------------------------------------------------------------------------------------

    def loads(self) -> Floats:
        """Subscriptions per server."""
        return self._loads.copy()

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The whole state, to be saved."""
        digests = np.frombuffer(b"".join(self._homes), np.uint8).reshape(-1, 16)
        homes = np.fromiter(self._homes.values(), np.int32, len(self._homes))
        out = {f"axes.{name}": array for name, array in self.axes.arrays().items()}
        out |= {f"slots.{name}": array for name, array in self._slots._asdict().items()}
        return out | {"loads": self._loads, "digests": digests, "homes": homes, "slack": np.array([self.slack])}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]], schema: Schema) -> Self:
        """The partition whose `arrays()` these are; checked, because kernels follow what they say."""
        axes = Axes.from_arrays({n[5:]: a for n, a in arrays.items() if n.startswith("axes.")}, schema)
        slots = Slots(*(arrays[f"slots.{name}"] for name in Slots._fields))
        digests = [digest.tobytes() for digest in arrays["digests"]]
        homes = dict(zip(digests, arrays["homes"].tolist(), strict=True))
        slots.check(axes)
        if len(arrays["loads"]) != len(slots.counts) or not set(homes.values()) <= set(range(len(slots.counts))):
            raise PlanError("the arrays of this filter-set partition name servers that it does not have; plan anew")
        return cls(axes, slots, arrays["loads"], homes, float(arrays["slack"][0]))

    def stats(self) -> dict[str, Any]:
        """Figures; loads are subscriptions, traffic is expected servers per event."""
        loads, counts = self._loads, self._slots.counts
        return {
            "strategy": self.strategy,
            "servers": self.n_servers,
            "filters": len(self._homes),
            "subscriptions": int(loads.sum()),
            "replication": 1.0,
            "imbalance": imbalance(loads),
            "axes": [self.axes.schema.attributes[a].name for a in self.axes.attributes],
            "boxes": int(counts.sum()),
            "summary_bytes": int(counts.sum()) * len(self.axes) * 8,
            "table_bytes": self.maps().nbytes,
            "servers_per_event": self.expected_traffic(),
        }

    def explain(self) -> str:
        """What it does and what that costs, for a person."""
        stats = self.stats()
        per_event = stats["servers_per_event"]
        return (
            f"filter-set: {stats['filters']:,} filters ({stats['subscriptions']:,} subscriptions) on {self.n_servers} servers,"
            f" each filter on one; largest load {stats['imbalance']:.2f} times the smallest\n"
            f"routed by boxes on {', '.join(stats['axes']) or 'no attribute'}: {stats['boxes']} boxes,"
            f" {stats['summary_bytes']:,} bytes of summaries, {stats['table_bytes']:,} at the dispatcher\n"
            f"an event goes to {per_event:.2f} of {self.n_servers} servers,"
            f" {100 * (1 - per_event / self.n_servers):.0f} % less traffic than to all"
        )


def _distinct(filters: Filters) -> tuple[Longs, Longs]:
    """The first filter of each digest, and for each filter the place of its digest among them."""
    first: dict[bytes, int] = {}
    number = np.fromiter((first.setdefault(d, len(first)) for d in filters.each_digest()), np.int64, filters.n_filters)
    return np.unique(number, return_index=True)[1], number


def _placement(servers: Ints) -> Placement:
    return Placement(np.arange(servers.size + 1), servers)


def _settle_new(
    axes: Axes, item_ptr: Longs, items: Items, weights: Floats, slots: Slots, loads: Floats, slack: float
) -> Ints:
    """Servers for new filters; slots and loads take them in."""
    servers = np.empty(weights.size, np.int32)
    fresh = np.arange(slots.kinds.shape[1]) >= slots.counts[:, None]
    settle_filters(
        item_ptr, items.lo, items.hi, weights, slots.lo, slots.hi, slots.counts, loads, slack, axes.shares,
        axes.share_ptr, servers,
    )  # fmt: skip
    slots.kinds[fresh] = axes.kinds(slots.lo[fresh], slots.hi[fresh])
    return servers


def _cut_servers(axes: Axes, filters: Filters, weights: Longs, n_servers: int) -> Ints:
    """A server for each filter: first cut equality from range, then cut both by boxes."""
    distinct, number = _distinct(filters)
    items = axes.cover(filters)
    lo, hi = items.hulls(filters.n_filters, axes.widths)
    ranged = np.zeros(filters.n_filters, bool)
    ranged[items.owner[axes.kinds(items.lo, items.hi) == RANGE]] = True
    lo, hi, ranged = lo[distinct], hi[distinct], ranged[distinct]
    # Nobody subscribes to a filter of weight zero, but it has to be somewhere.
    load = np.maximum(np.bincount(number, weights, distinct.size), 1e-6)
    shares = load / max(load.sum(), 1e-6) * n_servers
    order = np.argsort(ranged, kind="stable")
    middle = np.cumsum(shares[order]) - shares[order] / 2
    mark = round(float(shares[~ranged].sum()))
    servers = np.zeros(distinct.size, np.int32)
    for chosen, n, first in ((order[middle < mark], mark, 0), (order[middle >= mark], n_servers - mark, mark)):
        if chosen.size:
            part = np.zeros(chosen.size, np.int32)
            cut_boxes(lo[chosen], hi[chosen], load[chosen], n, axes.shares, axes.share_ptr, part)
            servers[chosen] = part + first
    return servers[number]
