"""Entries of the event log: the events of one commit, as JSON lines, and who matched.

Matches are pairs (subscription number, row of the event), sorted by number. So a reader finds those of its few subscriptions
by bisection, and the differences between neighbours are small and compress well.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Longs = npt.NDArray[np.int64]


class LoggedEvents(NamedTuple):
    """The events of one commit. Event i has the position `position + i`."""

    position: int
    version: int  # of the subscriptions that were matched
    time_ms: int
    lines: list[bytes]  # JSON objects with id, time and data
    numbers: Longs  # subscription numbers, ascending
    rows: npt.NDArray[np.int32]  # the event of each

    @property
    def end(self) -> int:
        """The position after the last event."""
        return self.position + len(self.lines)

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.lines)) + 60 * len(self.lines) + self.numbers.nbytes + self.rows.nbytes

    def matches_of(self, wanted: Longs | None) -> dict[int, list[int]]:
        """Rows with the numbers among `wanted` (ascending) that matched them, in the order of the rows; None: all."""
        found: dict[int, list[int]] = {}
        pairs: Iterable[tuple[int, int]]
        if wanted is None:
            pairs = zip(self.rows.tolist(), self.numbers.tolist(), strict=True)
        else:
            first, end = np.searchsorted(self.numbers, wanted), np.searchsorted(self.numbers, wanted, "right")
            hit = np.flatnonzero(end > first).tolist()
            pairs = (
                (row, number)
                for i in hit
                for number, row in ((int(wanted[i]), r) for r in self.rows[first[i] : end[i]].tolist())
            )
        for row, number in pairs:
            found.setdefault(row, []).append(number)
        return dict(sorted(found.items()))


def sort_matches(numbers: Longs, rows: Longs) -> tuple[Longs, npt.NDArray[np.int32]]:
    """Pairs in the order of an entry."""
    order = np.argsort(numbers, kind="stable")
    return numbers[order], rows[order].astype(np.int32)


def pack_lines(entry: LoggedEvents) -> bytes:
    return _squeeze(b"\n".join(entry.lines))


def pack_matches(entry: LoggedEvents) -> bytes:
    steps = np.diff(entry.numbers, prepend=0)
    return _squeeze(steps.astype("<i8").tobytes() + entry.rows.astype("<i4").tobytes())


def unpack_entry(position: int, version: int, time_ms: int, lines: bytes, matches: bytes) -> LoggedEvents:
    """The entry of a row of the log."""
    content = _expand(matches)
    count = len(content) // 12
    numbers = np.cumsum(np.frombuffer(content, "<i8", count)).astype(np.int64)
    rows = np.frombuffer(content, "<i4", count, offset=8 * count).astype(np.int32)
    return LoggedEvents(position, version, time_ms, _expand(lines).split(b"\n"), numbers, rows)


def _squeeze(content: bytes) -> bytes:
    packed: bytes = pa.compress(content, codec="zstd", asbytes=True)
    return struct.pack("<q", len(content)) + packed


def _expand(packed: bytes) -> bytes:
    (size,) = struct.unpack_from("<q", packed)
    content: bytes = pa.decompress(packed[8:], decompressed_size=size, codec="zstd", asbytes=True)
    return content
