"""Match tasks: what Python does with events inside a Spark task.

Only the columns that filters use come to Python, and only what was found goes back: an answer for each event, in their order
(`versions.add_column`). Spark keeps the rows and puts the answers beside them. So what an event carries along costs nothing here.

Tasks get the address of the index and a manifest, nothing else; what they open they keep for the tasks that follow.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.engine.engine import Engine
from wherecast.engine.matches import Matches
from wherecast.errors import EventError
from wherecast.language.events.events import EventBatch
from wherecast.spark.columns import ERROR, ID, IDS, PREFIX, SERVER, SERVERS, TALLY, WHY, rule_field
from wherecast.spark.index import Index
from wherecast.spark.manifest import Manifest
from wherecast.spark.rules import RuleTable, arrow_form, columns_of

#: Matches held at a time, about: larger batches of events are cut so that what they match fits in memory.
_MATCHES = 4_000_000
#: Bytes of matches with their rule columns, likewise.
_BYTES = 256_000_000
_FIRST_PIECE = 2_000
#: Events of a piece whose candidates are counted, to stand for all: counting takes as long as matching.
_TALLIED = 50

Errors = dict[int, str]


@dataclass(slots=True)
class Pace:
    """How many events are matched at a time; it follows what they match."""

    events: int = _FIRST_PIECE


class Served(NamedTuple):
    """What a task has open of a server."""

    engine: Engine
    rules: RuleTable | None
    """None: no rule columns are asked for."""


@dataclass(frozen=True, slots=True)
class MatchTask:
    """How one version of an index is asked. Sent to tasks, so it holds names and numbers only.

    The manifest goes along: a task must not look one up by its number, which a new index at the same place has again.

    Events come as batches with a column for each attribute that they have, and maybe `ERROR` (why an event is known to be bad)
    and `SERVER` (where it was sent).
    """

    url: str
    manifest: Manifest
    counts: bool
    explain: bool
    tally: bool
    """Whether the first answer of a piece says what was counted in it: once in Python is cheaper than row by row in Spark."""
    strict: bool
    """An event that does not fit the schema fails the task; otherwise it carries its error."""
    rules: tuple[str, ...] = ()
    """Rule columns that go along with ids."""

    @property
    def is_plain(self) -> bool:
        """Whether an answer is what was found and nothing else: no error can be told, and nobody counts."""
        return self.strict and not self.tally

    @property
    def is_wide(self) -> bool:
        """Whether a match is a struct of its id and more."""
        return self.explain or bool(self.rules)

    def match(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Array]:
        """What events match on the server that they were sent to, or on the one of a broadcast index."""
        pace = Pace()
        for batch in batches:
            start = 0
            while start < batch.num_rows:
                piece = batch.slice(start, pace.events)
                start += piece.num_rows
                yield self._match(piece, pace)

    def route(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Array]:
        """The servers that events go to: one or NULL, where none goes to several, else a list."""
        plan = Index(self.url).plan(self.manifest)
        assert plan is not None
        for batch in batches:
            good, known = self._set_apart(batch)
            events = EventBatch.read(plan.schema, _attributes(good), on_error="raise" if self.strict else "skip")
            routes = plan.route(events)
            rows = events.rows[routes.event_ids]
            sent = np.bincount(rows, minlength=good.num_rows)
            if plan.sends_to_one:
                server = np.full(good.num_rows, -1, np.int32)
                server[rows] = routes.servers
                servers = pa.array(server, mask=server < 0)
            else:
                servers = make_lists(_offsets(sent), pa.array(routes.servers, pa.int32()))
            errors = _errors(events.errors)
            found = {SERVERS: servers, ERROR: _error_column(errors, good.num_rows)}
            dropped = int(np.count_nonzero(sent == 0)) - len(errors)
            counted = Counter({**_traffic(found, known), "sent": rows.size, "dropped": dropped})
            yield self._answer(found, known, counted)

    def _match(self, batch: pa.RecordBatch, pace: Pace) -> pa.Array:
        """The answers to a batch; the pace becomes what suits events like these."""
        good, known = self._set_apart(batch)
        counted: Counter[str] = Counter()
        if SERVER in good.schema.names:
            found = self._match_served(good, counted)
        else:
            found = self._find(self._open(0), good, counted)
            counted.update(_traffic(found, known))  # of events that were sent here, routing has told it
        total = (pc.sum(found[IDS]).as_py() if self.counts else len(found[IDS].flatten())) or 0
        share = max(total / _MATCHES, found[IDS].nbytes / _BYTES) / max(batch.num_rows, 1)
        pace.events = max(1, int(1 / max(share, 0.01 / _MATCHES)))
        counted["matches"] += total
        return self._answer(found, known, counted)

    def _answer(self, found: dict[str, pa.Array], known: pa.Array | None, counted: Counter[str]) -> pa.Array:
        """What is found of events as one column, with the errors that came with them, and what was counted."""
        if self.is_plain:
            return next(iter(found.values()))
        spread = found if known is None else _beside(found, known)
        if self.tally:
            n = len(spread[ERROR])
            told = pa.array([json.dumps(counted)] * min(n, 1), pa.string())
            spread = {**spread, TALLY: pa.concat_arrays([told, pa.nulls(n - len(told), pa.string())])}
        return pa.StructArray.from_arrays(list(spread.values()), list(spread))

    def _match_served(self, batch: pa.RecordBatch, counted: Counter[str]) -> dict[str, pa.Array]:
        """What events match on their servers. One that was sent to none matches nothing."""
        column = batch.column(SERVER)
        numbers = column.fill_null(-1).to_numpy()
        parts, rows = [], []
        for server in np.unique(numbers).tolist():
            mine = np.flatnonzero(numbers == server)
            some = batch if mine.size == batch.num_rows else batch.take(pa.array(mine))
            parts.append(self._nothing(some.num_rows) if server < 0 else self._find(self._open(server), some, counted))
            rows.append(mine)
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return self._nothing(0)
        back = pa.array(np.argsort(np.concatenate(rows), kind="stable"))
        return {name: pa.concat_arrays([part[name] for part in parts]).take(back) for name in parts[0]}

    def _open(self, server: int) -> Served:
        index = Index(self.url)
        rules = index.serve_rules(self.manifest, server) if self.rules else None
        return Served(index.serve(self.manifest, server), rules)

    def _set_apart(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array | None]:
        """Events to match, and the errors of all that came, where some came with one: those match nothing and keep it."""
        if ERROR not in batch.schema.names:
            return batch, None
        errors = batch.column(ERROR)
        names = [name for name in batch.schema.names if name != ERROR]
        if errors.null_count == batch.num_rows:
            return batch.select(names), None
        if self.strict:
            raise EventError(str(errors.drop_null()[0]))
        return batch.select(names).filter(pc.is_null(errors)), errors

    def _find(self, server: Served, batch: pa.RecordBatch, counted: Counter[str]) -> dict[str, pa.Array]:
        """What events match, and what is wrong with them; their candidates are counted."""
        events = _attributes(batch)
        matches = server.engine.match_batch(events, on_error="raise" if self.strict else "skip")
        counts = np.zeros(batch.num_rows, np.int64)  # some may have been left out of matching
        counts[matches.rows] = matches.counts()
        found: dict[str, pa.Array] = {
            IDS: pa.array(counts) if self.counts else self._lists(server, events, matches, counts)
        }
        if self.tally:
            counted["candidates"] += round(server.engine.candidates(events.slice(0, _TALLIED)) * batch.num_rows)
        found[ERROR] = _error_column(_errors(matches.errors), batch.num_rows)
        return found

    def _lists(
        self, server: Served, events: pa.RecordBatch, matches: Matches, counts: npt.NDArray[np.int64]
    ) -> pa.ListArray:
        """A list of matches for each event."""
        places = None if server.rules is None else matches.places()
        ids = matches.to_list_array().flatten() if places is None else server.engine.ids_at(places)
        ids = ids.cast(self._id_type)  # an engine without ids knows no type of them
        offsets = _offsets(counts)
        lists = make_lists(offsets, ids)
        if not self.is_wide:
            return lists
        parts = {ID: ids}
        if self.explain:
            parts[WHY] = _explanations(server.engine, events, lists)
        if server.rules is not None and places is not None:
            taken = server.rules.take(places, list(self.rules)).combine_chunks()
            for number, column in enumerate(taken.columns):
                parts[rule_field(number)] = column.chunk(0) if column.num_chunks else pa.array([], column.type)
        structs = pa.StructArray.from_arrays(list(parts.values()), list(parts))
        return make_lists(offsets, structs)

    @property
    def _id_type(self) -> pa.DataType:
        return pa.int64() if self.manifest.id_type == "bigint" else pa.string()

    def _found_type(self) -> pa.DataType:
        """What a match is."""
        if not self.is_wide:
            return self._id_type
        form = arrow_form(columns_of(self.manifest))
        why = [(WHY, pa.string())] if self.explain else []
        return pa.struct(
            [(ID, self._id_type), *why, *((rule_field(n), form.field(c).type) for n, c in enumerate(self.rules))]
        )

    def _nothing(self, n: int) -> dict[str, pa.Array]:
        none = pa.array(np.zeros(n, np.int64)) if self.counts else _empty_lists(n, self._found_type())
        return {IDS: none, ERROR: pa.nulls(n, pa.string())}


def _attributes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of a batch that are attributes; where there are none, something with as many rows."""
    return batch.select([n for n in batch.schema.names if not n.startswith(PREFIX)] or batch.schema.names)


def _traffic(found: dict[str, pa.Array], known: pa.Array | None) -> dict[str, int]:
    """How many events there are, and how many of them have an error: one that is found, or a known one that they came with."""
    errors = len(found[ERROR]) - found[ERROR].null_count
    if known is None:
        return {"events": len(found[ERROR]), "errors": errors}
    return {"events": len(known), "errors": errors + len(known) - known.null_count}


def _beside(found: dict[str, pa.Array], known: pa.Array) -> dict[str, pa.Array]:
    """Answers to the events without a known error, and in between, for those with one, that error and nothing else."""
    good = np.flatnonzero(known.is_null().to_numpy(zero_copy_only=False))
    place = np.full(len(known), -1)
    place[good] = np.arange(good.size)
    rows = pa.array(place, mask=place < 0)
    spread: dict[str, pa.Array] = {}
    for name, column in found.items():
        taken = column.take(rows)
        if name == ERROR:
            taken = pc.coalesce(known, taken)
        elif isinstance(column, pa.ListArray):
            taken = pc.coalesce(taken, _empty_lists(1, column.type.value_type)[0])
        elif name != SERVERS:
            taken = taken.fill_null(0)
        spread[name] = taken
    return spread


def _explanations(engine: Engine, batch: pa.RecordBatch, lists: pa.ListArray) -> pa.Array:
    events = batch.to_pylist()
    texts = [str(engine.explain(events[row], id)) for row, ids in enumerate(lists.to_pylist()) for id in ids]
    return pa.array(texts, pa.string())


def make_lists(offsets: npt.NDArray[np.int32], values: pa.Array) -> pa.ListArray:
    """Lists that hold no NULL and say so: otherwise Spark looks at every element for one, a tenth of a batch."""
    kind = pa.list_(pa.field("element", values.type, nullable=False))
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=kind)


def _empty_lists(n: int, kind: pa.DataType) -> pa.ListArray:
    return make_lists(np.zeros(n + 1, np.int32), pa.array([], kind))


def _errors(errors: list[EventError]) -> Errors:
    return {e.row: str(e) for e in errors if e.row is not None}


def _error_column(errors: Errors, n: int) -> pa.Array:
    return pa.array([errors.get(i) for i in range(n)], pa.string()) if errors else pa.nulls(n, pa.string())


def _offsets(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    offsets = np.zeros(counts.size + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return offsets
