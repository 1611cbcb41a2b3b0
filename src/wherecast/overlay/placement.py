"""Filters to list entries, and events to the lists that can know about them.

Theory of operation
-------------------
Each attribute has two lists at every node: an *ordered* one, for what is placed by the order-preserving hash, and a
*hashed* one, for what is placed by SHA-1; and there is one list of metadata. A list has *offsets*, and each offset a
place on the ring: in ordered lists an offset is counted from the attribute's s0, in hashed lists it is the whole SHA-1
of the value, of which the ring sees the first m bits, so that values never collide however short ids are.

A constraint is a function from offsets to what holds there: nothing, everything, or (at the ends of a range that does
not end with a cell) some spans of keys. It is written as *runs* of equal value. Storing a constraint is
storing its runs; updating it is storing the runs of the difference; deleting is updating to nothing.

Filters come compiled, in value space (`language.filters.filters`). What this overlay cannot serve is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from wherecast.errors import FilterError
from wherecast.language.events.keys import KEY_MAX, KEY_MIN
from wherecast.language.events.schema import Attribute, Schema
from wherecast.language.events.values import Stored
from wherecast.language.filters.filters import AFTER, BEFORE, Filters
from wherecast.overlay.messages import Span, Values
from wherecast.overlay.positions import HASH_BITS, Key, Line, hashed_value, line_of, ring_key
from wherecast.overlay.settings import RingSettings

#: The list of metadata: its offsets are ring positions, and a record is at the c1 of its subscription.
METADATA = -1
ALL = (Span(None, None),)
#: Values that a range may have when it is stored value by value.
MAX_VALUES = 100_000
#: Neighbouring values that are stored one by one where there is no order to store them by.
MAX_LISTED = 1000


class Run(NamedTuple):
    """At the offsets `first` .. `last` of a list, these spans hold."""

    first: int
    last: int
    spans: tuple[Span, ...]


class Change(NamedTuple):
    """At these offsets, these spans hold from now on; None: nothing does."""

    first: int
    last: int
    spans: tuple[Span, ...] | None


#: A clause: list number to the runs there, in order.
ClauseRuns = dict[int, tuple[Run, ...]]


class RingPlacement:
    """The hash functions of a schema. `knots` bend the lines of attributes, by name (see `balance`)."""

    def __init__(
        self, schema: Schema, settings: RingSettings, knots: Mapping[str, Iterable[tuple[int, int]]] | None = None
    ) -> None:
        self.schema = schema
        self.settings = settings
        self._mask = (1 << settings.bits) - 1
        self._hash_shift = HASH_BITS - settings.bits
        bent = knots or {}
        self.lines: list[Line | None] = [
            None if a.is_array else line_of(a, settings.bits, settings.nodes, bent.get(a.name, ())) for a in schema
        ]

    # -- lists and the ring ----------------------------------------------------------------------------------------

    def base(self, list: int) -> int:
        """Where on the ring the offsets of a list begin."""
        if list == METADATA or list & 1:
            return 0
        line = self.lines[list >> 1]
        assert line is not None
        return line.base

    def shift(self, list: int) -> int:
        """How many of the low bits of an offset the ring does not see."""
        return self._hash_shift if list != METADATA and list & 1 else 0

    def position(self, list: int, offset: int) -> int:
        """Where on the ring an offset is."""
        return (self.base(list) + (offset >> self.shift(list))) & self._mask

    def last_offset(self, list: int, offset: int, node: int) -> int:
        """The last offset that the owner `node` of an offset owns with it, without coming round."""
        span = (node - self.position(list, offset)) & self._mask
        return min((((offset >> self.shift(list)) + span + 1) << self.shift(list)) - 1, self._end(list))

    def _end(self, list: int) -> int:
        return (1 << (self.settings.bits + self.shift(list))) - 1

    def next_offset(self, list: int, offset: int) -> int:
        """The first offset from this one on that a value can have: nodes between values are passed over."""
        line = None if list == METADATA or list & 1 else self.lines[list >> 1]
        return offset if line is None else line.next_offset(offset)

    # -- events -----------------------------------------------------------------------------------------------------

    def read(self, values: Mapping[int, Stored]) -> Values:
        """The keys of the scalar values of an event, by attribute."""
        return tuple((a, ring_key(v)) for a, v in sorted(values.items()) if not isinstance(v, list | dict))

    def lists_of(self, attribute: int, key: Key) -> list[tuple[int, int]]:
        """The (list, offset) where clauses that hold this value are."""
        line, is_string = self.lines[attribute], isinstance(key, bytes)
        found = []
        if line is not None and (is_string or self.settings.mode == "opchord"):
            found.append((2 * attribute, line.place(key)))
        if line is None or is_string or self.settings.mode == "chord":
            found.append((2 * attribute + 1, self._hashed(attribute, key)))
        return found

    def offset_of(self, list: int, key: Key) -> int:
        """The offset of a value in a list of its attribute."""
        line = self.lines[list >> 1]
        if list & 1:
            return self._hashed(list >> 1, key)
        assert line is not None
        return line.place(key)

    def _hashed(self, attribute: int, key: Key) -> int:
        line = self.lines[attribute]
        by_cell = line is not None and not isinstance(key, bytes)
        return hashed_value(self.schema.attributes[attribute], line.cell(key) if by_cell and line else key)

    # -- filters ----------------------------------------------------------------------------------------------------

    def clauses(self, filters: Filters, number: int = 0) -> list[ClauseRuns]:
        """The clauses of one filter as runs; FilterError if the overlay cannot serve it."""
        first, end = int(filters.clause_ptr[number]), int(filters.clause_ptr[number + 1])
        return [self._clause(filters, c) for c in range(first, end)]

    def _clause(self, filters: Filters, clause: int) -> ClauseRuns:
        if filters.program[clause] >= 0:
            raise _refusal("a part of it is not a comparison of an attribute with constants")
        first, end = int(filters.row_ptr[clause]), int(filters.row_ptr[clause + 1])
        if first == end:
            raise _refusal("it constrains no attribute, so no list can hold it")
        runs: ClauseRuns = {}
        spans: list[Span] = []
        for row in range(first, end):
            attr = int(filters.attr[row])
            index = attr if attr >= 0 else ~attr
            attribute = self.schema.attributes[self.schema.columns[index].attr]
            if index >= len(self.schema):
                raise _refusal(f"it looks for a text in {attribute.name!r}")
            if attribute.is_array:
                raise _refusal(f"{attribute.name!r} is an array")
            if filters.null[row]:
                raise _refusal(f"it accepts events without {attribute.name!r}, and lists are found by values")
            spans.append(_span(attribute, int(filters.lo[row]), int(filters.hi[row]), filters.strings))
            if attr >= 0:
                runs.update(self._constraint(index, spans))
                spans = []
        return runs

    def _constraint(self, attribute: int, spans: list[Span]) -> ClauseRuns:
        line = self.lines[attribute]
        if line is None or self.schema.attributes[attribute].is_text:
            listed = [(span, _listed(span)) for span in spans]
            ranges = [span for span, keys in listed if not keys]
            hashed = sorted(self._hashed(attribute, key) for _, keys in listed for key in keys)
            runs = {2 * attribute + 1: tuple(Run(h, h, ALL) for h in hashed)} if hashed else {}
            if ranges and line is None:
                name = self.schema.attributes[attribute].name
                raise _refusal(f"it asks for a range of {name!r}; give that attribute min and max in the schema")
            if ranges and line is not None:
                runs[2 * attribute] = _line_runs(line, ranges)
            return runs
        if self.settings.mode == "opchord":
            return {2 * attribute: _line_runs(line, spans)}
        return {2 * attribute + 1: self._by_value(attribute, line, spans)}

    def _by_value(self, attribute: int, line: Line, spans: list[Span]) -> tuple[Run, ...]:
        """A constraint stored value by value, stepping by the precision (figure 4 of the paper)."""
        cells = _runs(spans, line.cell, line.cells - 1, is_exact=line.is_exact)
        count = sum(run.last - run.first + 1 for run in cells)
        if count > MAX_VALUES:
            name = self.schema.attributes[attribute].name
            raise _refusal(f"{count} values of {name!r}, at most {MAX_VALUES} one by one; use mode 'opchord'")
        found = self.schema.attributes[attribute]
        offsets = ((hashed_value(found, c), run.spans) for run in cells for c in range(run.first, run.last + 1))
        return tuple(sorted(Run(offset, offset, held) for offset, held in offsets))


def _refusal(reason: str) -> FilterError:
    return FilterError("unsupported", f"the overlay cannot store this filter: {reason}")


def _span(attribute: Attribute, lo: int, hi: int, strings: list[str]) -> Span:
    """Positions of compiled filters as a half-open span of keys."""
    if not attribute.is_text:
        return Span(None if lo == KEY_MIN else lo, None if hi == KEY_MAX else hi + 1)
    low = None if lo == KEY_MIN else strings[lo >> 2].encode() + (b"\0" if lo & 3 == AFTER else b"")
    high = None if hi == KEY_MAX else strings[hi >> 2].encode() + (b"" if hi & 3 == BEFORE else b"\0")
    return Span(low, high)


def _listed(span: Span) -> Sequence[Key]:
    """The keys of a span that holds few: equality, and neighbours of an IN list. Nothing if it is a range."""
    low, high = span
    if isinstance(low, bytes):
        return [low] if low + b"\0" == high else []
    if low is None or not isinstance(high, int) or high - low > MAX_LISTED:
        return []
    return range(low, high)


def _line_runs(line: Line, spans: list[Span]) -> tuple[Run, ...]:
    return tuple(_runs(spans, line.place, line.offset(line.cells - 1), is_exact=line.is_exact))


def _runs(spans: list[Span], place: Callable[[Key], int], top: int, *, is_exact: bool) -> list[Run]:
    """The runs of ordered, disjoint spans, where `place` says where a key is and `top` is the last place."""
    out: list[Run] = []
    for span in spans:
        first = 0 if span.low is None else place(span.low)
        last = top if span.high is None else place(span.high if isinstance(span.high, bytes) else span.high - 1)
        for run in _span_runs(span, first, last, top, is_exact=is_exact):
            previous = out[-1] if out else None
            if previous and previous.last == run.first:  # two spans end and begin in one cell
                out[-1] = previous._replace(spans=previous.spans + run.spans)
            elif previous and previous.last + 1 == run.first and previous.spans == run.spans:
                out[-1] = previous._replace(last=run.last)
            else:
                out.append(run)
    return out


def _span_runs(span: Span, first: int, last: int, top: int, *, is_exact: bool) -> list[Run]:
    """One span: its ends hold the span itself unless they are whole cells, the middle holds everything.

    The outermost cells also stand for what lies outside the domain, so they are never whole by being one value.
    """

    def edge(offset: int, *, is_open: bool) -> tuple[Span, ...]:
        return ALL if is_open or (is_exact and 0 < offset < top) else (span,)

    if first == last:
        return [Run(first, first, edge(first, is_open=span == ALL[0]))]
    middle = [Run(first + 1, last - 1, ALL)] if first + 1 < last else []
    low = Run(first, first, edge(first, is_open=span.low is None))
    return [low, *middle, Run(last, last, edge(last, is_open=span.high is None))]


def difference(old: tuple[Run, ...], new: tuple[Run, ...]) -> list[list[Change]]:
    """What to store so that `old` becomes `new`, cut where nothing changes."""
    cuts = sorted({edge for run in (*old, *new) for edge in (run.first, run.last + 1)})
    before, after = _held(old, cuts), _held(new, cuts)
    out: list[list[Change]] = []
    for first, end, was, now in zip(cuts, cuts[1:], before, after, strict=False):
        if was == now:
            continue
        change = Change(first, end - 1, now)
        if out and out[-1][-1].last + 1 == first:
            last = out[-1][-1]
            if last.spans == now:
                out[-1][-1] = last._replace(last=end - 1)
            else:
                out[-1].append(change)
        else:
            out.append([change])
    return out


def _held(runs: tuple[Run, ...], cuts: list[int]) -> list[tuple[Span, ...] | None]:
    """What holds between each cut and the next."""
    out: list[tuple[Span, ...] | None] = []
    pending = iter(runs)
    run = next(pending, None)
    for cut in cuts:
        while run is not None and run.last < cut:
            run = next(pending, None)
        out.append(run.spans if run is not None and run.first <= cut else None)
    return out
