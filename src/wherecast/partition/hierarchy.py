"""A tree of dispatchers: edge, regions, servers, and the summaries that travel up it.

Theory of operation
-------------------
Events enter at the edge and flow down; what servers want flows up as *route updates* (EDN, section II). A server sends its
summary to the dispatcher above it; that one merges what its children sent into one summary and sends it on. On every link the
summary may be made coarser: a dispatcher near the edge has more servers below it and holds less about each. A merged or
coarsened cover is a cover still, so an event that a server needs passes every link on its way.

An update ends where it changes nothing: a dispatcher whose own summary stays the same tells nobody. The coarser the levels, the
earlier that is.

Any kind of `RouteUpdate` will do, as long as one tree holds one kind. `simulate` sends events down the tree and counts them per link,
beside what flooding and exact routing would send.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from wherecast.kernels.arrays import Bools, Longs
from wherecast.language.events.events import EventBatch
from wherecast.partition.protocol import Routes


class RouteUpdate(Protocol):
    """What a server or a dispatcher tells the one above it: a summary that covers the filters below. It never changes.

    Two that are equal (`==`) admit the same events; a kind without `==` only costs updates that change nothing.
    """

    @property
    def nbytes(self) -> int:
        """Its size as it is sent."""

    def admits(self, events: EventBatch) -> Bools:
        """Which events may match something below, (events,): never False for one that does."""

    def merge(self, others: Sequence[Self]) -> Self:
        """A summary that admits what any of these admits."""

    def coarsen(self, precision: int) -> Self:
        """A summary of at most this precision (boxes, bits: whatever the kind counts in) that admits as much or more."""


def false_positive_rate(summary: RouteUpdate, events: EventBatch, matched: Bools) -> float:
    """Share of the events without a match (`matched` has those with one) that the summary admits all the same."""
    return float(summary.admits(events)[~matched].mean()) if not matched.all() else 0.0


class LinkTraffic(NamedTuple):
    """Events per link, one link above every node but the edge; the levels of servers first."""

    level: Longs  # (links,) of the lower end: 0 is a server
    node: Longs  # (links,) number of the lower end within its level
    sent: Longs  # (links,) events that the summaries let pass
    flooded: Longs  # (links,) all events
    needed: Longs  # (links,) events that match something below: exact routing
    nbytes: Longs  # (links,) of the summary at the upper end

    def totals(self, level: int | None = None) -> dict[str, int]:
        """Sums over all links, or over those of a level."""
        chosen = np.ones(self.level.size, bool) if level is None else self.level == level
        sums = {name: int(getattr(self, name)[chosen].sum()) for name in ("sent", "flooded", "needed", "nbytes")}
        return {"links": int(chosen.sum()), **sums}

    def describe(self) -> str:
        """A table by level, for a person."""
        lines = [
            f"{'links above':<12}{'links':>6}{'flooding':>12}{'summaries':>12}{'exact':>12}{'saved':>8}{'bytes':>10}"
        ]
        for level in [*np.unique(self.level).tolist(), None]:
            name = "all" if level is None else "servers" if level == 0 else f"level {level}"
            t = self.totals(level)
            saved = 1 - t["sent"] / max(t["flooded"], 1)
            lines.append(
                f"{name:<12}{t['links']:>6}{t['flooded']:>12,}{t['sent']:>12,}{t['needed']:>12,}{saved:>8.1%}{t['nbytes']:>10,}"
            )
        return "\n".join(lines)


class Hierarchy:
    """Servers below dispatchers below an edge.

    Args:
        summaries: One per server, all of a kind.
        fanouts: How many neighbouring nodes of each level share a dispatcher, from the servers up. Whatever is
            left at the top shares the edge.
        precision: What the summaries that each level sends up are coarsened to, from the servers up; None leaves them as
            they are. One more than there are fanouts.
    """

    def __init__(self, summaries: Sequence[Any], fanouts: Sequence[int], precision: Sequence[int | None]) -> None:
        if len(precision) != len(fanouts) + 1:
            raise ValueError(
                f"{len(fanouts)} fanouts make {len(fanouts) + 1} levels of links, but there are {len(precision)} precisions"
            )
        self.precision = tuple(precision)
        sizes = [len(summaries)]
        for fanout in fanouts:
            sizes.append(-(-sizes[-1] // fanout))
        #: by level of links: the node of the next level above each node
        self.parents = [np.arange(n) // fanout for n, fanout in zip(sizes, fanouts, strict=False)]
        self.parents.append(np.zeros(sizes[-1], np.int64))
        self._own = list(summaries)  # of the servers, before they are sent
        self._sent: list[list[RouteUpdate]] = []  # by level and node: what the node above holds of it
        for level, n in enumerate(sizes):
            self._sent.append([self._summarise(level, node) for node in range(n)])

    def _summarise(self, level: int, node: int) -> RouteUpdate:
        """What a node sends up: its own summary or that of its children, at the precision of its level."""
        if level == 0:
            found: RouteUpdate = self._own[node]
        else:
            below = [self._sent[level - 1][child] for child in np.flatnonzero(self.parents[level - 1] == node).tolist()]
            found = below[0].merge(below[1:])
        wanted = self.precision[level]
        return found if wanted is None else found.coarsen(wanted)

    def update(self, server: int, summary: Any) -> int:
        """Take a server's new summary; returns how many route updates went up before one changed nothing."""
        self._own[server] = summary
        node = server
        for level, parents in enumerate(self.parents):
            fresh = self._summarise(level, node)
            if fresh == self._sent[level][node]:
                return level
            self._sent[level][node] = fresh
            node = int(parents[node])
        return len(self.parents)

    def deliver(self, events: EventBatch) -> list[Bools]:
        """By level, servers first: which events arrive at each node, (nodes, events)."""
        arrived = [np.ones((1, len(events)), bool)]
        for parents, sent in zip(reversed(self.parents), reversed(self._sent), strict=True):
            admitted = [s.admits(events) for s in sent]
            arrived.append(arrived[-1][parents] & np.stack(admitted))
        return arrived[:0:-1]

    def simulate(self, events: EventBatch, needed: Routes) -> LinkTraffic:
        """Send events down the tree; `needed` are the pairs of event and server where something matches."""
        want = np.zeros((len(self.parents[0]), len(events)), bool)
        want[needed.servers, needed.event_ids] = True
        links = []
        for level, (arrived, sent) in enumerate(zip(self.deliver(events), self._sent, strict=True)):
            if level:
                want = np.logical_or.reduceat(want, np.unique(self.parents[level - 1], return_index=True)[1])
            n = len(sent)
            links.append(
                LinkTraffic(
                    np.full(n, level),
                    np.arange(n),
                    arrived.sum(1),
                    np.full(n, len(events)),
                    want.sum(1),
                    np.array([s.nbytes for s in sent]),
                )
            )
        return LinkTraffic(*(np.concatenate(columns) for columns in zip(*links, strict=True)))
