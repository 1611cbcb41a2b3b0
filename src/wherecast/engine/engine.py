"""Engine: the public object. Register filters, match events, ask why.

Equal filters are stored once, by the digest of their canonical form; matching finds filters and fans out to the
subscriptions of each. Changes are collected and the index is built aside at the next match, then swapped in: a match
that is under way keeps the one it started with.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.engine.explain import Explanation, explain_filter
from wherecast.engine.matches import Matches, SubscriptionId
from wherecast.engine.segment import Segment
from wherecast.engine.subscriptions import read_subscriptions
from wherecast.errors import FilterError, SubscriptionError
from wherecast.index.build import build_index
from wherecast.language.compile import Compiler
from wherecast.language.concat import concat_filters, take_filters
from wherecast.language.events import EventBatch
from wherecast.language.filters import Filters
from wherecast.language.schema import Kind, Schema
from wherecast.language.sql import Limits
from wherecast.matchers.registry import find_matcher


class Quarantined(NamedTuple):
    """A subscription that was not registered, and why."""

    row: int
    id: object
    error: FilterError | SubscriptionError


class Registration(NamedTuple):
    """Outcome of `subscribe_many`: how many are registered, and which rows are not."""

    registered: int
    quarantined: list[Quarantined]


class _Stored(NamedTuple):
    batch: Filters
    index: int


class _Snapshot(NamedTuple):
    filters: Filters
    numbers: dict[bytes, int]
    segment: Segment


class Engine:
    """Standing filters over one schema."""

    def __init__(self, schema: Schema | Mapping[str, object], *, matcher: str = "scan", limits: Limits | None = None) -> None:
        self.schema = schema if isinstance(schema, Schema) else Schema.of(schema)
        self.matcher = matcher
        self._matcher_class = find_matcher(matcher)
        self._compiler = Compiler(self.schema, limits)
        self._is_string = np.array([a.kind is Kind.STRING for a in self.schema])
        self._lock = threading.Lock()
        self._filters: dict[bytes, _Stored] = {}
        self._uses: dict[bytes, int] = {}
        self._subscriptions: dict[SubscriptionId, bytes] = {}
        self._snapshot: _Snapshot | None = None
        self._version = 0

    # -- registering ----------------------------------------------------------------------------------------------

    def subscribe(self, id: SubscriptionId, filter: str, *, replace: bool = False) -> None:
        """Register one filter. Raises FilterError or SubscriptionError; then nothing has changed."""
        _check_id(id)
        compiled = self._compiler.compile(filter)
        with self._lock:
            if id in self._subscriptions:
                if not replace:
                    raise SubscriptionError(f"subscription {id!r} exists already; pass replace=True to change its filter")
                self._remove(id)
            self._add(id, compiled, 0)
            self._changed()

    def subscribe_many(self, subscriptions: object, *, replace: bool = False) -> Registration:
        """Register many: an Arrow table or pandas frame with columns `id` and `filter`, a mapping, or (id, filter) pairs.

        Bad rows are quarantined with their error, the others are registered.
        """
        ids, texts = read_subscriptions(subscriptions)
        compiled = self._compiler.compile_many(texts)
        bad: list[Quarantined] = [Quarantined(row, ids[row], error) for row, error in compiled.errors]
        numbers = compiled.filter_of.tolist()
        with self._lock:
            for row, (id, number) in enumerate(zip(ids, numbers, strict=True)):
                if number < 0:
                    continue
                try:
                    _check_id(id)
                    if id in self._subscriptions:
                        if not replace:
                            raise SubscriptionError(f"subscription {id!r} exists already; pass replace=True")
                        self._remove(id)
                except SubscriptionError as error:
                    bad.append(Quarantined(row, id, error))
                    continue
                self._add(id, compiled.filters, number)
            self._changed()
        return Registration(len(ids) - len(bad), sorted(bad, key=lambda q: q.row))

    def unsubscribe(self, id: SubscriptionId) -> None:
        """Remove a subscription; others with an equal filter stay."""
        with self._lock:
            if id not in self._subscriptions:
                raise SubscriptionError(f"no subscription {id!r}")
            self._remove(id)
            self._changed()

    def _add(self, id: SubscriptionId, batch: Filters, index: int) -> None:
        digest = batch.digests[index]
        if digest not in self._filters:
            self._filters[digest] = _Stored(batch, index)
            self._uses[digest] = 0
        self._uses[digest] += 1
        self._subscriptions[id] = digest

    def _remove(self, id: SubscriptionId) -> None:
        digest = self._subscriptions.pop(id)
        self._uses[digest] -= 1
        if not self._uses[digest]:
            del self._filters[digest], self._uses[digest]

    def _changed(self) -> None:
        self._version += 1
        self._snapshot = None

    # -- matching -------------------------------------------------------------------------------------------------

    def match(self, event: Mapping[str, object]) -> list[SubscriptionId]:
        """Ids of the subscriptions that one event satisfies."""
        return self.match_batch([event]).to_lists()[0]

    def match_batch(self, events: object, *, on_error: str = "raise") -> Matches:
        """Match a batch: an Arrow record batch or table, a pandas frame, or a sequence of mappings.

        An event with a value of the wrong type raises EventError naming row and attribute, or, with
        `on_error="skip"`, is left out and listed in the result's `errors`.
        """
        snapshot = self._current()
        needed = set(snapshot.segment.index.codebook.used) | snapshot.segment.index.residuals.attributes
        return snapshot.segment.match(EventBatch.read(self.schema, events, on_error=on_error, needed=needed))

    def count(self, events: object, *, on_error: str = "raise") -> npt.NDArray[np.int64]:
        """Number of subscriptions that each event of a batch satisfies."""
        return self.match_batch(events, on_error=on_error).counts()

    def explain(self, event: Mapping[str, object], id: SubscriptionId) -> Explanation:
        """Why an event does or does not satisfy a subscription: each clause, each predicate."""
        snapshot = self._current()
        digest = self._subscriptions.get(id)
        if digest is None:
            raise SubscriptionError(f"no subscription {id!r}")
        events = EventBatch.read(self.schema, [event])
        return explain_filter(snapshot.segment.index, snapshot.filters, snapshot.numbers[digest], events)

    def _current(self) -> _Snapshot:
        snapshot = self._snapshot
        if snapshot is None:
            with self._lock:
                snapshot = self._snapshot = self._snapshot or self._build()
        return snapshot

    def _build(self) -> _Snapshot:
        parts: dict[int, tuple[Filters, list[int]]] = {}
        for stored in self._filters.values():
            parts.setdefault(id(stored.batch), (stored.batch, []))[1].append(stored.index)
        filters = concat_filters([take_filters(b, np.array(i, np.int64)) for b, i in parts.values()], self._is_string)
        numbers = {digest: i for i, digest in enumerate(filters.digests)}
        index = build_index(filters, self.schema)
        ptr, ids = self._fan_out(numbers)
        return _Snapshot(filters, numbers, Segment(index, self._matcher_class.build(index.boxes), ptr, ids))

    def _fan_out(self, numbers: dict[bytes, int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
        owner = np.fromiter((numbers[d] for d in self._subscriptions.values()), np.int64, len(self._subscriptions))
        order = np.argsort(owner, kind="stable")
        ids = np.fromiter(self._subscriptions, object, len(self._subscriptions))[order]
        if ids.size and all(type(i) is int and -(2**63) <= i < 2**63 for i in ids):
            ids = ids.astype(np.int64)
        return np.searchsorted(owner[order], np.arange(len(numbers) + 1)).astype(np.int64), ids

    # -- looking --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __contains__(self, id: object) -> bool:
        return id in self._subscriptions

    def __iter__(self) -> Iterable[SubscriptionId]:
        return iter(list(self._subscriptions))

    def stats(self) -> dict[str, Any]:
        """Sizes, and what the matcher says of itself."""
        snapshot = self._current()
        boxes = snapshot.segment.index.boxes
        return {
            "subscriptions": len(self._subscriptions),
            "filters": len(self._filters),
            "clauses": boxes.n_clauses,
            "residuals": int(snapshot.segment.index.residuals.rows.size),
            "version": self._version,
            "codes": {self.schema.attributes[a].name: int(boxes.widths[a]) for a in snapshot.segment.index.codebook.used},
            **snapshot.segment.matcher.stats(),
        }


def _check_id(id: object) -> None:
    if not isinstance(id, (str, int)) or isinstance(id, bool):
        raise SubscriptionError(f"a subscription id is a string or an integer, found {type(id).__name__}")
