"""A cover: few boxes that hold every event that some filters may match.

It is the summary of a server under filter-set partitioning (EDN, section III.C): bounding boxes of one level of its tree.
How many there are is the precision. A cover may hold events that nothing matches, never the other way round, so it may be
merged with others and made coarser without asking the filters again; only to shrink it takes the filters.

Equality and range are kept apart, as the paper asks: a box is drawn around items of one kind (`Axes.kinds`) unless
there are fewer boxes than kinds.

The dispatcher has a table of all boxes (`BoxMaps`): from a batch of events to the servers whose boxes hold them. It is
bitmaps per axis and cell (`kernels.covers`) in place of the paper's R-tree (section III.C): docs/decisions/0012 has the
comparison.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from wherecast.index.boxes import EventCodes
from wherecast.kernels.arrays import Ints, Longs
from wherecast.kernels.covers import cut_boxes, fill_maps, join_boxes, route_events
from wherecast.language.events.events import EventBatch
from wherecast.partition.axes import Axes, Items
from wherecast.partition.protocol import Routes


class BoxMaps:
    """Boxes of several servers, ready to route. Never changes: new boxes mean a new table."""

    def __init__(self, axes: Axes, lo: Ints, hi: Ints, servers: Ints) -> None:
        """Box b, cells lo[b]..hi[b], belongs to server servers[b]; servers ascend."""
        self._servers = np.ascontiguousarray(servers)
        self.n_servers = int(servers.max(initial=-1)) + 1
        n_words = -(-servers.size // 64)
        self._live = np.zeros(n_words, np.uint64)
        fill_maps(np.zeros(servers.size, np.int32), np.zeros(servers.size, np.int32), _ONE_ROW, n_words, self._live)
        telling = [a for a in range(len(axes)) if lo[:, a].any() or np.any(hi[:, a] < axes.widths[a] - 1)]
        self._attributes = np.array([axes.attributes[a] for a in telling], np.int32)
        self._row_ptr = np.concatenate(([0], np.cumsum(axes.widths[telling]))).astype(np.int64)
        self._rows = np.zeros(int(self._row_ptr[-1]), np.int32)
        first_word, maps = 0, []
        for a, begin in zip(telling, self._row_ptr.tolist(), strict=False):
            width = int(axes.widths[a])
            starts = np.zeros(width + 1, np.int32)  # cells at which some box begins, or has just ended
            starts[lo[:, a]] = 1
            starts[hi[:, a] + 1] = 1
            starts[0] = 0
            rows = np.cumsum(starts[:width], dtype=np.int32) * np.int32(n_words)
            found = np.zeros(int(rows[-1]) + n_words, np.uint64)
            fill_maps(lo[:, a].copy(), hi[:, a].copy(), rows, n_words, found)
            self._rows[begin : begin + width] = rows + first_word
            first_word += found.size
            maps.append(found)
        self._maps = np.concatenate([np.zeros(0, np.uint64), *maps])

    @property
    def nbytes(self) -> int:
        return self._maps.nbytes + self._rows.nbytes + self._servers.nbytes

    def route(self, events: EventCodes) -> Routes:
        """Pairs of event and server, in one kernel call."""
        most = events.n_events * self.n_servers  # pages that no pair reaches are never touched
        event_ids, servers = np.empty(most, np.int64), np.empty(most, np.int32)
        n = route_events(
            *events,
            self._attributes,
            self._row_ptr,
            self._rows,
            self._maps,
            self._live,
            self._servers,
            event_ids,
            servers,
        )
        return Routes(event_ids[:n], servers[:n])


_ONE_ROW = np.zeros(1, np.int32)


#: A cover is joined from this many boxes of each kind, drawn around items that are alike, and from no fewer than _FINER times
#: as many as are wanted. The tree cuts at equal weight, which a cover does not need: joining makes up for that.
_FINE, _FINER = 512, 4


class Cover:
    """Boxes on the axes of a partition; never changes."""

    __slots__ = ("_maps", "axes", "hi", "kinds", "lo")

    def __init__(self, axes: Axes, lo: Ints, hi: Ints, kinds: Longs) -> None:
        self.axes = axes
        self.lo = lo  # (boxes, axes) cells lo .. hi
        self.hi = hi
        self.kinds = kinds  # (boxes,) the kind of the items inside
        self._maps: BoxMaps | None = None  # made when it is first asked for

    @classmethod
    def around(cls, axes: Axes, items: Items, n_boxes: int) -> Cover:
        """The cover of items in at most n boxes."""
        kinds = axes.kinds(items.lo, items.hi)
        parts = [cls.empty(axes)]
        for kind in np.unique(kinds).tolist():
            chosen = np.flatnonzero(kinds == kind)
            lo, hi = _draw_boxes(axes, items.lo[chosen], items.hi[chosen], max(_FINE, _FINER * n_boxes))
            parts.append(cls(axes, lo, hi, np.full(len(lo), kind)))
        return parts[0].merge(parts[1:]).coarsen(n_boxes)

    @classmethod
    def empty(cls, axes: Axes) -> Cover:
        none = np.zeros((0, len(axes)), np.int32)
        return cls(axes, none, none, np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.lo)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cover) and np.array_equal(self.lo, other.lo) and np.array_equal(self.hi, other.hi)

    __hash__ = None  # type: ignore[assignment]  # arrays inside

    @property
    def nbytes(self) -> int:
        """Bytes of a route update: the ends of the boxes."""
        return self.lo.nbytes + self.hi.nbytes

    def admits(self, events: EventBatch) -> npt.NDArray[np.bool_]:
        """Which events may match something here."""
        if self._maps is None:
            self._maps = BoxMaps(self.axes, self.lo, self.hi, np.zeros(len(self), np.int32))
        mask = np.zeros(len(events), np.bool_)
        mask[self._maps.route(self.axes.encode(events)).event_ids] = True
        return mask

    def merge(self, others: Sequence[Cover]) -> Cover:
        """A cover of all that these covers hold, box by box; they have the same axes."""
        every = [self, *others]
        return Cover(
            self.axes,
            np.concatenate([c.lo for c in every]),
            np.concatenate([c.hi for c in every]),
            np.concatenate([c.kinds for c in every]),
        )

    def coarsen(self, precision: int) -> Cover:
        """At most this many boxes that hold the same events, and as few others as a greedy search finds."""
        lo, hi, kinds, n = self.lo.copy(), self.hi.copy(), self.kinds.copy(), len(self)
        for mixed in (False, True):
            if not mixed or n > precision:
                n = join_boxes(lo[:n], hi[:n], kinds[:n], precision, mixed, self.axes.shares, self.axes.share_ptr)
        return Cover(self.axes, lo[:n].copy(), hi[:n].copy(), kinds[:n].copy())


def _draw_boxes(axes: Axes, lo: Ints, hi: Ints, n: int) -> tuple[Ints, Ints]:
    """About n bounding boxes of items that are alike."""
    part = np.zeros(len(lo), np.int32)
    cut_boxes(lo, hi, np.ones(len(lo)), min(n, len(lo)), axes.shares, axes.share_ptr, part)
    order = np.argsort(part, kind="stable")
    _, owner = np.unique(part[order], return_inverse=True)
    return Items(owner, lo[order], hi[order]).hulls(int(owner[-1]) + 1, axes.widths)
