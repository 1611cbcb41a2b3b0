"""What runs inside Spark's Python workers to route and match events: Arrow batches in, Arrow batches out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.engine.engine import Engine
from wherecast.engine.matches import Matches
from wherecast.errors import EventError
from wherecast.language.events import EventBatch
from wherecast.spark.index import Index
from wherecast.spark.manifest import Manifest
from wherecast.spark.names import CANDIDATES, ERROR, IDS, SERVER, SERVERS, WHY, Path

#: Matches held at a time, about: larger batches of events are cut so that what they match fits in memory.
_MATCHES = 4_000_000
_FIRST_PIECE = 2_000
#: Events of a piece whose candidates are counted, to stand for all: counting takes as long as matching.
_TALLIED = 50

Errors = dict[int, str]


@dataclass(slots=True)
class Pace:
    """How many events are matched at a time; it follows what they match."""

    events: int = _FIRST_PIECE


@dataclass(frozen=True, slots=True)
class MatchTask:
    """How one version of an index is asked. Sent to tasks, so it holds names and numbers only.

    The manifest goes along: a task must not look one up by its number, which a new index at the same place has again.
    """

    url: str
    manifest: Manifest
    counts: bool
    explain: bool
    tally: bool
    """Whether candidates are counted."""
    strict: bool
    """An event that does not fit the schema fails the task; otherwise it carries its error."""
    columns: tuple[tuple[str, Path], ...]
    """Where attributes are (see `names`); those that are not there are NULL."""

    def match_here(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Events against the one server of a broadcast index."""
        engine, pace = Index(self.url).serve(self.manifest, 0), Pace()
        for batch in batches:
            good, refused = self._set_apart(batch)
            if refused.num_rows:
                yield self._nothing(refused)
            for piece, matches in self._match(engine, good, pace):
                yield self._answer(engine, piece, matches)

    def route(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Events with the servers they go to."""
        plan = Index(self.url).plan(self.manifest)
        assert plan is not None
        for batch in batches:
            good, refused = self._set_apart(batch)
            if refused.num_rows:
                nowhere = _empty_lists(refused.num_rows, pa.int32())
                yield _extend(_own_columns(refused), {SERVERS: nowhere, ERROR: refused.column(ERROR)})
            events = EventBatch.read(plan.schema, self._attributes(good), on_error="raise" if self.strict else "skip")
            routes = plan.route(events)
            counts = np.bincount(events.rows[routes.event_ids], minlength=good.num_rows)
            servers = pa.ListArray.from_arrays(pa.array(_offsets(counts)), pa.array(routes.servers, pa.int32()))
            yield _extend(good, {SERVERS: servers, ERROR: _error_column(_errors(events.errors), good.num_rows)})

    def match_served(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Routed events against the server they were sent to."""
        pace = Pace()
        for batch in batches:
            servers = batch.column(SERVER)
            for server in servers.unique().to_pylist():
                chosen = pc.is_null(servers) if server is None else pc.equal(servers, server)
                mine = batch.filter(chosen)
                if server is None:  # nobody's: nothing matches, only errors are carried on
                    yield self._nothing(mine)
                    continue
                engine = Index(self.url).serve(self.manifest, server)
                for piece, matches in self._match(engine, mine, pace):
                    yield self._answer(engine, piece, matches)

    def without(self, missing: set[str]) -> MatchTask:
        """The task for events that lack some columns."""
        return replace(self, columns=tuple(c for c in self.columns if c[1][0] not in missing)) if missing else self

    def _attributes(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The attributes of events under their own names; nothing is copied."""
        if not self.columns:
            return batch
        arrays = []
        for _, (column, *fields) in self.columns:
            array = batch.column(column)
            for field in fields:
                array = pc.struct_field(array, [array.type.get_field_index(field)])
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, [name for name, _ in self.columns])

    def _set_apart(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Events to match, and those that came with an error, which match nothing and keep it."""
        if ERROR not in batch.schema.names:
            return batch, batch.slice(0, 0)
        refused = batch.filter(pc.is_valid(batch.column(ERROR)))
        if self.strict and refused.num_rows:
            raise EventError(str(refused.column(ERROR)[0]))
        return _own_columns(batch.filter(pc.is_null(batch.column(ERROR)))), refused

    def _match(self, engine: Engine, batch: pa.RecordBatch, pace: Pace) -> Iterator[tuple[pa.RecordBatch, Matches]]:
        """Pieces of a batch with their matches, cut so that not too many matches are held at a time."""
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, pace.events)
            matches = engine.match_batch(self._attributes(piece), on_error="raise" if self.strict else "skip")
            per_event = max(matches.total() / max(piece.num_rows, 1), 0.01)
            yield piece, matches
            start += piece.num_rows
            pace.events = max(1, int(_MATCHES / per_event))

    def _answer(self, engine: Engine, batch: pa.RecordBatch, matches: Matches) -> pa.RecordBatch:
        """The events of a batch with what they match."""
        counts = np.zeros(batch.num_rows, np.int64)  # some may have been left out of matching
        counts[matches.rows] = matches.counts()
        columns: dict[str, Any] = {}
        if self.counts:
            columns[IDS] = pa.array(counts)
        else:
            ids = matches.to_list_array().flatten().cast(self._id_type)  # an engine without ids knows no type of them
            columns[IDS] = pa.ListArray.from_arrays(pa.array(_offsets(counts)), ids)
        if self.explain:
            columns[WHY] = _explanations(engine, self._attributes(batch), columns[IDS])
        if self.tally:
            total = np.zeros(batch.num_rows, np.int64)
            sample = self._attributes(batch.slice(0, _TALLIED))
            total[:1] = round(engine.candidates(sample) * batch.num_rows)
            columns[CANDIDATES] = pa.array(total)
        columns[ERROR] = _error_column(_errors(matches.errors), batch.num_rows)
        return _extend(_own_columns(batch), columns)

    @property
    def _id_type(self) -> pa.DataType:
        return pa.int64() if self.manifest.id_type == "bigint" else pa.string()

    def _nothing(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        n = batch.num_rows
        none = pa.array(np.zeros(n, np.int64)) if self.counts else _empty_lists(n, self._id_type)
        columns: dict[str, Any] = {IDS: none}
        if self.explain:
            columns[WHY] = _empty_lists(n, pa.string())
        if self.tally:
            columns[CANDIDATES] = pa.array(np.zeros(n, np.int64))
        return _extend(_own_columns(batch), {**columns, ERROR: batch.column(ERROR)})


def _explanations(engine: Engine, batch: pa.RecordBatch, lists: pa.ListArray) -> pa.ListArray:
    events = batch.to_pylist()
    texts = [str(engine.explain(events[row], id)) for row, ids in enumerate(lists.to_pylist()) for id in ids]
    return pa.ListArray.from_arrays(lists.offsets, pa.array(texts, pa.string()))


def _empty_lists(n: int, kind: pa.DataType) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(np.zeros(n + 1, np.int32)), pa.array([], kind))


def _own_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([n for n in batch.schema.names if n not in (SERVER, SERVERS, ERROR)])


def _extend(batch: pa.RecordBatch, columns: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, *columns.values()], [*batch.schema.names, *columns])


def _errors(errors: list[EventError]) -> Errors:
    return {e.row: str(e) for e in errors if e.row is not None}


def _error_column(errors: Errors, n: int) -> pa.Array:
    return pa.array([errors.get(i) for i in range(n)], pa.string()) if errors else pa.nulls(n, pa.string())


def _offsets(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    offsets = np.zeros(counts.size + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return offsets
