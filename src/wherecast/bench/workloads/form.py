"""What a workload is: subscriptions and events over one schema, as numbers first.

Prototypes and baselines start from the numbers (`Conjunctions`, events as floats); filter texts and Arrow batches, which
the engine starts from, are made of them on demand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from wherecast.bench.workloads.truth import CHECKED_EVENTS, GroundTruth, find_truth
from wherecast.errors import WherecastError
from wherecast.kernels.arrays import Floats, Longs
from wherecast.language.sequences import numbered

EQUAL, UNEQUAL, BELOW, ABOVE = range(4)
OPERATORS = ("=", "<>", "<", ">")


class WorkloadError(WherecastError):
    """A workload that does not exist, or a scale that leaves nothing of it."""


class Conjunctions(NamedTuple):
    """Conjunctions as flat rows: those of subscription s are rows `ptr[s]` .. `ptr[s + 1] - 1`, at least one."""

    ptr: Longs  # (subscriptions + 1,)
    attr: Longs  # (rows,) attribute
    op: Longs  # (rows,) index into OPERATORS
    value: Floats  # (rows,) the constant; a string is the number in its name

    def __len__(self) -> int:
        """Number of subscriptions."""
        return self.ptr.size - 1

    def owners(self) -> Longs:
        """The subscription of each row."""
        return np.repeat(np.arange(len(self)), np.diff(self.ptr))

    def take(self, chosen: Longs) -> Conjunctions:
        """Some of the subscriptions, in the order given."""
        sizes = np.diff(self.ptr)[chosen]
        ptr = np.concatenate(([0], np.cumsum(sizes)))
        rows = np.arange(ptr[-1]) + np.repeat(self.ptr[chosen] - ptr[:-1], sizes)
        return Conjunctions(ptr, self.attr[rows], self.op[rows], self.value[rows])

    @classmethod
    def of(cls, n: int, owner: Longs, attr: Longs, op: Longs, value: Floats) -> Conjunctions:
        """From rows in any order; the rows of one subscription keep theirs."""
        order = np.argsort(owner, kind="stable")
        ptr = np.searchsorted(owner[order], np.arange(n + 1))
        return cls(ptr, attr[order], op[order], value[order])

    @classmethod
    def join(cls, parts: list[Conjunctions]) -> Conjunctions:
        """All subscriptions of several parts."""
        ends = np.cumsum([0, *(p.ptr[-1] for p in parts)])
        ptr = np.concatenate([[0], *(p.ptr[1:] + end for p, end in zip(parts, ends, strict=False))])
        return cls(ptr, *(np.concatenate([p[i] for p in parts]) for i in (1, 2, 3)))


@dataclass(frozen=True, slots=True)
class Workload:
    """Subscriptions and events over one schema. Ids are 0, 1, 2, ..."""

    name: str
    attributes: tuple[str, ...]
    types: tuple[str, ...]
    predicates: Conjunctions
    events: Floats  # (events, attributes)

    def __len__(self) -> int:
        """Number of subscriptions."""
        return len(self.predicates)

    @property
    def schema(self) -> dict[str, object]:
        """Attribute -> type."""
        return dict(zip(self.attributes, self.types, strict=True))

    def filter_texts(self, predicates: Conjunctions | None = None) -> list[str]:
        """The filters as SQL: this workload's, or those of more predicates over its schema."""
        return self.filter_column(predicates).to_pylist()  # type: ignore[no-any-return]

    def filter_column(self, predicates: Conjunctions | None = None) -> pa.Array:
        """`filter_texts` as Arrow. Predicates repeat, so each is written once."""
        import pyarrow.compute as pc  # noqa: PLC0415 - 30 ms, and only here

        ptr, attr, op, value = predicates or self.predicates
        written, number, before = [], np.zeros(attr.size, np.int64), 0
        for a, (name, kind) in enumerate(zip(self.attributes, self.types, strict=True)):
            for o, sign in enumerate(OPERATORS):
                here = np.flatnonzero((attr == a) & (op == o))
                bits, of_row = numbered(value[here].view(np.int64))
                written += [f"{name} {sign} {_SHOWN[kind](v)}" for v in bits.view(np.float64).tolist()]
                number[here] = before + of_row
                before = len(written)
        rows = pa.array(written, pa.string()).take(pa.array(number))
        return pc.binary_join(pa.ListArray.from_arrays(pa.array(ptr, pa.int32()), rows), " AND ")

    def subscription_table(self) -> pa.Table:
        """Columns `id` and `filter`."""
        return pa.table({"id": np.arange(len(self)), "filter": self.filter_column()})

    def event_batch(self) -> pa.RecordBatch:
        """The events as Arrow, one column per attribute."""
        columns = [_column(self.events[:, j], t) for j, t in enumerate(self.types)]
        return pa.RecordBatch.from_arrays(columns, list(self.attributes))

    def truth(self) -> GroundTruth:
        """What the first events match, by brute force."""
        return find_truth(*self.predicates, self.events[:CHECKED_EVENTS])

    def write(self, folder: Path) -> None:
        """The workload as files: subscriptions.parquet, events.parquet, schema.json, arrays.npz, truth.json."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - 30 ms, and only here

        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(self.subscription_table(), folder / "subscriptions.parquet")
        pq.write_table(pa.Table.from_batches([self.event_batch()]), folder / "events.parquet")
        (folder / "schema.json").write_text(json.dumps(self.schema, indent=1))
        ptr, attr, op, value = self.predicates
        owners = self.predicates.owners()
        np.savez(folder / "arrays.npz", sid=owners, attr=attr, op=op, val=value, ptr=ptr, events=self.events)
        truth = self.truth()
        (folder / "truth.json").write_text(
            json.dumps({"counts": truth.counts.tolist(), "id_sums": truth.id_sums.tolist()})
        )


def _symbol(number: float) -> str:
    return f"S{int(number):05d}"


#: How a value is written, by type.
_SHOWN: dict[str, Callable[[float], str]] = {
    "string": lambda v: f"'{_symbol(v)}'",
    "long": lambda v: str(int(v)),
    "double": repr,
}


def _column(values: Floats, type_name: str) -> pa.Array:
    if type_name == "string":
        return pa.array([_symbol(v) for v in values.tolist()], pa.string())
    return pa.array(values.astype(np.int64)) if type_name == "long" else pa.array(np.ascontiguousarray(values))


class FilterSource(NamedTuple):
    """What filters of a workload are drawn from, any number of them and a part at a time."""

    fields: tuple[tuple[str, str], ...]  # attribute and type
    draw: Callable[[np.random.Generator, int], Conjunctions]  # so many filters


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A workload of the catalogue."""

    name: str
    summary: str
    size: int  # subscriptions at scale 1
    make: Callable[..., Workload]  # of a number of subscriptions and the parameters
    parameters: Mapping[str, int | float] = field(default_factory=dict)  # with their defaults
    source: Callable[..., FilterSource] | None = None  # of the parameters but `events`; None: only drawn as a whole
