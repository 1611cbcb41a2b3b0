"""Parts: compiled subscriptions on their way from the tasks that compile texts to the tasks that build servers.

Rows are sent to tasks by their filter, so that each distinct text is compiled once, by one task. What it makes of some rows
is a *part*: the filters, and who has them. A part goes on as bytes, whole or split by server, and a server is built of the
parts it gets; texts are never looked at again. The driver sees the filters of parts only, and only to make a plan.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from wherecast.engine.segment import Members
from wherecast.engine.subscriptions import read_subscriptions
from wherecast.kernels.arrays import Longs
from wherecast.language.compile import Compiler
from wherecast.language.filters import Filters, concat_filters, take_filters
from wherecast.language.schema import Schema
from wherecast.partition.plan import Plan
from wherecast.spark.manifest import SavedPlan
from wherecast.spark.plans import open_plan
from wherecast.spark.subscriptions import QUARANTINE, find_faults, quarantine, reason_of

#: A row is a part for a server, or a subscription that did not compile.
PARTS = "server int, filters binary, members binary, id string, filter string, reason string"
_NAMES = ["server", "filters", "members", "id", "filter", "reason"]
#: Rows of a part, about: what a task holds as text at a time, and far less than Spark takes as one value.
_PART_ROWS = 1_000_000


class Part(NamedTuple):
    """Compiled subscriptions for a server."""

    server: int
    members: Members


@dataclass(frozen=True, slots=True)
class CompileTask:
    """Subscriptions in, parts for server 0 out."""

    schema: Schema
    case_sensitive: bool = False
    """Whether the names in filters must be written as in the schema."""

    def compile(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Parts of some rows, and the rows that are refused."""
        compiler = Compiler(self.schema, case_sensitive=self.case_sensitive)
        for rows in _gather(batches):
            incoming = read_subscriptions(rows)
            compiled = compiler.compile_many(incoming.texts)
            filter_of, faults = compiled.filter_of[incoming.text_of], find_faults(rows)
            refused = {row: reason_of(error) for row, error in incoming.refused(compiled).items()} | faults
            bad = np.array(sorted(refused), np.int64)
            good = np.delete(np.arange(filter_of.size), bad)
            if good.size:
                ids = rows["id"].take(pa.array(good))
                yield part_row(
                    Part(0, Members(compiled.filters, filter_of[good], id_values(ids), incoming.priorities[good]))
                )
            if bad.size:
                reasons = [refused[row] for row in bad.tolist()]
                left_out = rows.take(pa.array(bad))
                yield _refused_rows(quarantine(left_out["id"].to_pylist(), left_out["filter"].to_pylist(), reasons))


@dataclass(frozen=True, slots=True)
class PlaceTask:
    """Parts in, parts for each server of a plan out."""

    url: str
    plan: SavedPlan

    def place(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The parts split by server; refused rows go along."""
        plan = open_plan(self.url, self.plan)
        for parts, refused in map(read_parts, batches):
            if len(refused):
                yield _refused_rows(refused)
            for part in parts:
                yield from map(part_row, split_members(part.members, plan))


def split_members(members: Members, plan: Plan) -> Iterator[Part]:
    """What each server gets."""
    ptr, servers = plan.place(members.filters)
    owner = np.repeat(np.arange(ptr.size - 1), np.diff(ptr))
    ids = np.asarray(members.ids)
    for server in np.unique(servers).tolist():
        chosen = np.unique(owner[servers == server])
        number = np.full(ptr.size - 1, -1, np.int64)
        number[chosen] = np.arange(chosen.size)
        mine = np.flatnonzero(number[members.filter_of] >= 0)
        filters, filter_of = take_filters(members.filters, chosen), number[members.filter_of[mine]]
        yield Part(server, Members(filters, filter_of, ids[mine], members.priorities[mine]))


def filters_and_weights(column: Iterable[bytes], schema: Schema) -> tuple[Filters, Longs]:
    """All filters of some parts, and how many subscriptions each has."""
    found = [pickle.loads(data) for data in column]  # noqa: S301 - from our own tasks
    filters = concat_filters([filters for filters, _ in found], schema)
    return filters, np.concatenate([np.zeros(0, np.int64), *(weights for _, weights in found)])


def part_row(part: Part) -> pa.RecordBatch:
    """A part as a row. Its filters stand apart from the rest, for who wants only these."""
    filters, *who = part.members
    weights = np.bincount(part.members.filter_of, minlength=filters.n_filters)
    values = [pickle.dumps((filters, weights), 5), pickle.dumps(who, 5)]
    columns = [pa.array([part.server], pa.int32()), *(pa.array([v], pa.binary()) for v in values)]
    return pa.RecordBatch.from_arrays([*columns, *(pa.nulls(1, pa.string()) for _ in QUARANTINE)], _NAMES)


def read_parts(batch: pa.RecordBatch) -> tuple[list[Part], pa.Table]:
    """The parts of a batch, and the refused rows that go along."""
    parts = []
    columns = [batch.column(name) for name in ("server", "filters", "members")]
    for server, filters, members in zip(*columns, strict=True):
        if members.is_valid:
            compiled, _ = pickle.loads(filters.as_buffer())  # noqa: S301 - from our own tasks
            who = pickle.loads(members.as_buffer())  # noqa: S301
            parts.append(Part(server.as_py(), Members(compiled, *who)))
    refused = pa.Table.from_batches([batch]).filter(batch.column("members").is_null())
    return parts, refused.select(QUARANTINE.names)


def _gather(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of about `_PART_ROWS` rows."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(b.num_rows for b in held) >= _PART_ROWS:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def id_values(ids: pa.ChunkedArray) -> np.ndarray:
    """Ids as an engine takes them."""
    return ids.to_numpy() if pa.types.is_integer(ids.type) else np.array(ids.to_pylist(), object)


def _refused_rows(refused: pa.Table) -> pa.RecordBatch:
    n = len(refused)
    parts = [pa.nulls(n, pa.int32()), pa.nulls(n, pa.binary()), pa.nulls(n, pa.binary())]
    return pa.RecordBatch.from_arrays([*parts, *(column.combine_chunks() for column in refused.columns)], _NAMES)
