"""The dispatcher's table of boxes: from a batch of events to the servers whose boxes hold them.

Bitmaps per axis and cell (`kernels.covers`) in place of the paper's R-tree (section III.C): docs/decisions/0012 has the
comparison.
"""

from __future__ import annotations

import numpy as np

from wherecast.index.boxes import EventCodes
from wherecast.kernels.arrays import Ints
from wherecast.kernels.covers import fill_maps, route_events
from wherecast.partition.axes import Axes
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
