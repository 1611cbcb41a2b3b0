"""The lists of one node: which clause holds where, by version.

Theory of operation
-------------------
A list maps a subscription clause to *pieces*: offsets, a version, and what holds there. Laying a piece over others
keeps, at every offset, the one with the highest version. That makes entries join in any order, any number of times, with the same
result: a lost message is sent again, a copy is compared and completed, a late arrival does no harm. A deleted clause
leaves a piece that says "nothing", or an old copy could bring it back; such graves are cleared after a while and do
not count in digests, so two nodes may clear them at different times.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

from wherecast.overlay.messages import Entry, Piece, Record, Span
from wherecast.overlay.placement import METADATA, RingPlacement

#: Offsets `first` .. `last`, as (first, last).
Extent = tuple[int, int]


class Lists:
    """List entries and metadata of one node."""

    def __init__(self, placement: RingPlacement) -> None:
        self._placement = placement
        self._lists: dict[int, dict[int, tuple[Piece, ...]]] = {}
        self._version = 0  # of the content, for the digests
        self._digests: dict[tuple[int, int], tuple[int, int]] = {}
        self._graves: dict[tuple[int, int], int] = {}  # (list, clause) to the rounds it has been all graves

    def put(self, entry: Entry) -> None:
        """Lay the pieces of an entry over what is there."""
        clauses = self._lists.setdefault(entry.list, {})
        before = clauses.get(entry.subscription, ())
        after = before
        for piece in entry.pieces:
            after = lay(after, piece)
        if after != before:
            clauses[entry.subscription] = after
            self._version += 1
            if all(piece.value is None for piece in after):
                self._graves[entry.list, entry.subscription] = 0

    def query(self, list: int, key: int | bytes) -> tuple[int, ...]:
        """The clauses of a list that hold a key."""
        offset = self._placement.offset_of(list, key)
        found = []
        for subscription, pieces in self._lists.get(list, {}).items():
            for piece in pieces:
                if piece.first <= offset <= piece.last:
                    if piece.value is not None and any(_is_in(key, span) for span in piece.value):
                        found.append(subscription)
                    break
        return tuple(found)

    def held(self, list: int, subscription: int, offset: int) -> Piece | None:
        """What is known about a clause at an offset of a list."""
        pieces = self._lists.get(list, {}).get(subscription, ())
        return next((piece for piece in pieces if piece.first <= offset <= piece.last), None)

    def record(self, subscription: int) -> Record | None:
        """The metadata of a clause."""
        for piece in self._lists.get(METADATA, {}).get(subscription, ()):
            if isinstance(piece.value, Record):
                return piece.value
        return None

    # -- what lies in a part of the ring ---------------------------------------------------------------------------

    def entries(self, start: int, end: int) -> tuple[Entry, ...]:
        """Everything in (start, end], pieces cut to it."""
        return tuple(self._within(start, end))

    def _within(self, start: int, end: int) -> Iterator[Entry]:
        for list, clauses in self._lists.items():
            extents = self._extents(list, start, end)
            for subscription, pieces in clauses.items():
                cut = tuple(clip(pieces, extents))
                if cut:
                    yield Entry(list, subscription, cut)

    def digest(self, start: int, end: int) -> int:
        """A number that two nodes with the same living entries in (start, end] share."""
        version, digest = self._digests.get((start, end), (-1, 0))
        if version != self._version:
            digest = 0
            for entry in self._within(start, end):
                living = tuple(p for p in entry.pieces if p.value is not None)
                if living:  # a sum, so that the order of arrival does not matter
                    digest = (digest + _fingerprint(entry._replace(pieces=living))) & 0xFFFFFFFFFFFFFFFF
            if len(self._digests) > 64:
                self._digests.clear()
            self._digests[start, end] = (self._version, digest)
        return digest

    def _extents(self, list: int, start: int, end: int) -> list[Extent]:
        """The offsets of a list that lie in (start, end]: one extent, or two where its line ends there."""
        placement = self._placement
        size, shift = 1 << placement.settings.bits, placement.shift(list)
        first, last = (start + 1 - placement.base(list)) % size, (end - placement.base(list)) % size
        spans = [(first, last)] if first <= last else [(0, last), (first, size - 1)]
        return [(a << shift, ((b + 1) << shift) - 1) for a, b in spans]

    # -- clearing ---------------------------------------------------------------------------------------------------

    def keep(self, zones: Iterable[tuple[int, int]]) -> None:
        """Forget what lies in none of these parts of the ring."""
        zones = tuple(zones)
        for list, clauses in self._lists.items():
            extents = [extent for zone in zones for extent in self._extents(list, *zone)]
            gone = [s for s, pieces in clauses.items() if not any(_touches(p, extents) for p in pieces)]
            for subscription in gone:
                del clauses[subscription]
                self._version += 1

    def clear_graves(self, rounds: int) -> None:
        """Count a round; forget clauses that have been deleted for this many."""
        for place, age in tuple(self._graves.items()):
            pieces = self._lists.get(place[0], {}).get(place[1], ())
            if any(piece.value is not None for piece in pieces):
                del self._graves[place]
            elif age >= rounds:
                del self._graves[place]
                self._lists[place[0]].pop(place[1], None)
            else:
                self._graves[place] = age + 1

    def __len__(self) -> int:
        """How many clauses its lists hold, each once per list; graves are not counted."""
        return sum(
            any(piece.value is not None for piece in pieces)
            for clauses in self._lists.values()
            for pieces in clauses.values()
        )


def lay(pieces: tuple[Piece, ...], new: Piece) -> tuple[Piece, ...]:
    """Lay one piece over others: at every offset the highest version stays."""
    if not pieces:
        return (new,)
    kept: list[Piece] = []
    rest: list[Extent] = [(new.first, new.last)]
    for old in pieces:
        if old.version >= new.version:
            kept.append(old)
            rest = [part for extent in rest for part in without(extent, old.first, old.last)]
        else:
            remains = without((old.first, old.last), new.first, new.last)
            kept += [Piece(a, b, old.version, old.value) for a, b in remains]
    kept += [Piece(a, b, new.version, new.value) for a, b in rest]
    return _joined(sorted(kept, key=_first_of))


def clip(pieces: Iterable[Piece], extents: list[Extent]) -> Iterator[Piece]:
    """The parts of pieces that lie in extents."""
    for piece in pieces:
        for first, last in extents:
            if piece.first <= last and first <= piece.last:
                yield Piece(max(piece.first, first), min(piece.last, last), piece.version, piece.value)


def _first_of(piece: Piece) -> int:
    return piece.first


def without(extent: Extent, first: int, last: int) -> list[Extent]:
    """What is left of an extent without first .. last."""
    start, end = extent
    return [(a, b) for a, b in ((start, min(end, first - 1)), (max(start, last + 1), end)) if a <= b]


def _joined(pieces: list[Piece]) -> tuple[Piece, ...]:
    out: list[Piece] = []
    for piece in pieces:
        last = out[-1] if out else None
        if last and last.last + 1 == piece.first and last.version == piece.version and last.value == piece.value:
            out[-1] = last._replace(last=piece.last)
        else:
            out.append(piece)
    return tuple(out)


def _touches(piece: Piece, extents: list[Extent]) -> bool:
    return any(piece.first <= last and first <= piece.last for first, last in extents)


def _is_in(key: int | bytes, span: object) -> bool:
    return isinstance(span, Span) and span.holds(key)


def _fingerprint(entry: Entry) -> int:
    """Of what an entry says, not of the process that says it: Python's own hash of texts differs between processes."""
    text = repr(entry).encode()
    return zlib.crc32(text) << 32 | zlib.adler32(text)
