"""Work: how much text a residual reads of an event, known before any of it is read.

Theory of operation
-------------------
A residual is evaluated once per candidate event, and each of its text conditions reads a whole value: 300 ILIKEs on a
text of 1 MB read 300 MB. Stopping such an evaluation by the clock would give another answer on another machine, and
another one when a stream replays the event. So the work is computed instead: the bytes of each text, times how often
the residual reads it. An event beyond the limits is refused whole, before anything is evaluated for it.

Almost no batch comes near a limit, and the longest text of each attribute shows that at once. Only a batch that might
exceed one is computed pair by pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.language.events import EventBatch
from wherecast.language.expression import And, Attr, IsNull, IsTruth, Node, Not, Or
from wherecast.language.types import Type
from wherecast.language.limits import Limits
from wherecast.language.normalize import Rest

Int64s = npt.NDArray[np.int64]
#: By attribute: how often a residual reads its value.
Reads = Mapping[int, int]


class Overwork(NamedTuple):
    """An event that is refused because of the text that filters would read of it."""

    row: int  # within the batch
    filter: int | None  # the one that would read too much, if one alone would
    reason: str
    limit: str  # the field of `Limits`

    def message(self, limits: Limits, subscription: object) -> str:
        whose = "" if self.filter is None else f" (the filter of subscription {subscription!r})"
        most = _mib(getattr(limits, self.limit))
        return f"{self.reason}{whose}, at most {most}; shorten the text or raise Limits.{self.limit}"


_LOGIC = (And, Or, Not, IsNull, IsTruth)


def count_reads(rests: Iterable[Rest]) -> Reads:
    """How often evaluating some residuals reads each text attribute: once per operation above it, logic excepted."""
    reads: Counter[int] = Counter()
    stack: list[tuple[Node, int]] = [(rest.node, 0) for rest in rests]
    while stack:
        node, above = stack.pop()
        if isinstance(node, Attr):
            if Type.STRING in (node.type, node.element):
                reads[node.index] += above
        else:
            depth = above + (not isinstance(node, _LOGIC))
            stack.extend((child, depth) for child in node.children())
    return reads


def text_bytes(events: EventBatch, attr: int) -> Int64s:
    """Bytes of an attribute's text in each event; of an array, of all its elements together."""
    array = events.array(attr)
    if events.schema.attributes[attr].is_array:
        sizes = pc.binary_length(array.flatten()).fill_null(0).to_numpy(zero_copy_only=False)
        totals = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        return np.diff(totals[_list_ends(array)])
    return np.asarray(pc.binary_length(array).fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def _list_ends(array: pa.ListArray) -> Int64s:
    """Where each list begins and ends in `array.flatten()`, which leaves out what NULL lists and slices hide."""
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def find_overwork(
    events: EventBatch,
    event_ids: npt.NDArray[Any],
    filter_ids: npt.NDArray[Any],
    program: npt.NDArray[Any],
    reads: Mapping[int, Reads],
) -> list[Overwork]:
    """The events of which some filters would read more than the limits of the batch allow, in order.

    Pair i is event `event_ids[i]`, a residual of filter `filter_ids[i]`, and the program that evaluates it.
    """
    limits = events.limits
    sizes = {attr: text_bytes(events, attr) for attr in {a for read in reads.values() for a in read}}
    longest = {attr: int(size.max(initial=0)) for attr, size in sizes.items()}
    dearest = max((sum(n * longest[attr] for attr, n in read.items()) for read in reads.values()), default=0)
    pairs_of_event = int(np.bincount(event_ids).max(initial=0))
    if dearest * pairs_of_event <= limits.filter_work_bytes and max(longest.values(), default=0) <= limits.value_bytes:
        return []
    found: dict[int, Overwork] = {}
    for attr, size in sizes.items():
        for row in np.intersect1d(np.flatnonzero(size > limits.value_bytes), event_ids).tolist():
            name = events.schema.attributes[attr].name
            found[row] = Overwork(row, None, f"{name!r} has {_mib(size[row])} of text", "value_bytes")
    work = np.zeros(event_ids.size, np.int64)
    for number, read in reads.items():
        pairs = np.flatnonzero(program == number)
        for attr, times in read.items():
            work[pairs] += times * sizes[attr][event_ids[pairs]]
    keys, owner = np.unique((event_ids.astype(np.int64) << 32) | filter_ids, return_inverse=True)
    by_filter = np.bincount(owner, work, keys.size)
    for key in np.flatnonzero(by_filter > limits.filter_work_bytes).tolist():
        row = int(keys[key] >> 32)
        reason = f"one filter would read {_mib(by_filter[key])} of text"
        found.setdefault(row, Overwork(row, int(keys[key] & 0xFFFFFFFF), reason, "filter_work_bytes"))
    by_event = np.bincount(event_ids, work)
    for row in np.flatnonzero(by_event > limits.event_work_bytes).tolist():
        reason = f"all filters together would read {_mib(by_event[row])} of text"
        found.setdefault(row, Overwork(row, None, reason, "event_work_bytes"))
    return [found[row] for row in sorted(found)]


def _mib(size: float) -> str:
    return f"{size / (1 << 20):,.1f} MiB"
