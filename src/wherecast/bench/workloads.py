"""Five reference workloads, seeded: the same name and scale give the same subscriptions and events everywhere.

| name    | what it is                                                                  | subscriptions at scale 1 |
|---------|-----------------------------------------------------------------------------|--------------------------|
| topss   | 10 integer attributes 1..10, 1-5 predicates of = <> < >; dense: 17.6 % match | 1,000,000                |
| stock   | symbol = X plus 1-2 ranges on price, volume, change; Zipf symbols           | 1,480,000 (290,000 distinct filters) |
| light   | 100 binary properties, 10 % of them tested; events with few ones            | 200,000                  |
| gryphon | 30 attributes of 5 values, equality, popularity 0.98 * 0.85^i               | 100,000                  |
| range   | 6 float attributes, 2-4 two-sided ranges, widths 0.5..200 of 1000           | 500,000                  |

A workload is numbers first (`Predicates`, events as floats): prototypes and baselines start from those. Filter texts and
Arrow batches, which the engine starts from, are made of them on demand.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.bench.truth import CHECKED_EVENTS, Truth, find_truth
from wherecast.errors import WherecastError

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]

EQUAL, UNEQUAL, BELOW, ABOVE = range(4)
OPERATORS = ("=", "<>", "<", ">")


class WorkloadError(WherecastError):
    """A workload that does not exist, or a scale that leaves nothing of it."""


class Predicates(NamedTuple):
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

    def take(self, chosen: Longs) -> Predicates:
        """Some of the subscriptions, in the order given."""
        sizes = np.diff(self.ptr)[chosen]
        ptr = np.concatenate(([0], np.cumsum(sizes)))
        rows = np.arange(ptr[-1]) + np.repeat(self.ptr[chosen] - ptr[:-1], sizes)
        return Predicates(ptr, self.attr[rows], self.op[rows], self.value[rows])

    @classmethod
    def of(cls, n: int, owner: Longs, attr: Longs, op: Longs, value: Floats) -> Predicates:
        """From rows in any order; the rows of one subscription keep theirs."""
        order = np.argsort(owner, kind="stable")
        ptr = np.searchsorted(owner[order], np.arange(n + 1))
        return cls(ptr, attr[order], op[order], value[order])

    @classmethod
    def join(cls, parts: list[Predicates]) -> Predicates:
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
    predicates: Predicates
    events: Floats  # (events, attributes)

    def __len__(self) -> int:
        """Number of subscriptions."""
        return len(self.predicates)

    @property
    def schema(self) -> dict[str, object]:
        """Attribute -> type."""
        return dict(zip(self.attributes, self.types, strict=True))

    def filter_texts(self, predicates: Predicates | None = None) -> list[str]:
        """The filters as SQL: this workload's, or those of more predicates over its schema."""
        ptr, attr, op, value = predicates or self.predicates
        show = {"string": lambda v: f"'{_symbol(v)}'", "long": lambda v: str(int(v)), "double": repr}
        heads = [[f"{a} {o} " for o in OPERATORS] for a in self.attributes]
        shows = [show[t] for t in self.types]
        rows = zip(attr.tolist(), op.tolist(), value.tolist(), strict=True)
        texts = [heads[a][o] + shows[a](v) for a, o, v in rows]
        ends = ptr.tolist()
        return [" AND ".join(texts[start:end]) for start, end in pairwise(ends)]

    def subscription_table(self) -> pa.Table:
        """Columns `id` and `filter`."""
        return pa.table({"id": np.arange(len(self)), "filter": self.filter_texts()})

    def event_batch(self) -> pa.RecordBatch:
        """The events as Arrow, one column per attribute."""
        columns = [_column(self.events[:, j], t) for j, t in enumerate(self.types)]
        return pa.RecordBatch.from_arrays(columns, list(self.attributes))

    def truth(self) -> Truth:
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


def _column(values: Floats, type_name: str) -> pa.Array:
    if type_name == "string":
        return pa.array([_symbol(v) for v in values.tolist()], pa.string())
    return pa.array(values.astype(np.int64)) if type_name == "long" else pa.array(np.ascontiguousarray(values))


# -- the five ---------------------------------------------------------------------------------------------------------


class Source(ABC):
    """Where a workload's filters and events are drawn from. Made with the generator that then draws the filters."""

    seed: ClassVar[int]
    size: ClassVar[int]  # subscriptions at scale 1
    fields: ClassVar[tuple[tuple[str, str], ...]]  # attribute and type

    def __init__(self, rng: np.random.Generator) -> None:  # noqa: B027 - most have nothing to prepare
        pass

    @abstractmethod
    def filters(self, rng: np.random.Generator, n: int) -> Predicates:
        """Draw n filters."""

    @abstractmethod
    def events(self, rng: np.random.Generator) -> Floats:
        """Draw the events."""


class Topss(Source):
    """Integers, dense."""

    seed, size = 1, 1_000_000
    fields = tuple((f"a{i}", "long") for i in range(10))

    def filters(self, rng: np.random.Generator, n: int) -> Predicates:
        """One to five predicates over distinct attributes."""
        owner, attr = _pick_attributes(rng, len(self.fields), rng.integers(1, 6, n))
        op = rng.integers(0, 4, owner.size)
        return Predicates.of(n, owner, attr, op, rng.integers(1, 11, owner.size).astype(float))

    def events(self, rng: np.random.Generator) -> Floats:
        """Uniform."""
        return rng.integers(1, 11, (2000, 10)).astype(float)


class Stock(Source):
    """Quotes of a market whose symbols have each a usual price and volume; half of them nobody asks for."""

    seed, size = 2, 1_480_000
    fields = (("symbol", "string"), ("price", "double"), ("volume", "long"), ("change", "double"))
    symbols, asked = 43_734, 21_741

    def __init__(self, rng: np.random.Generator) -> None:
        self.price = np.round(np.exp(rng.normal(3.3, 1.0, self.symbols)), 2).clip(1.0)
        self.volume = np.exp(rng.normal(11, 1.5, self.symbols)).astype(np.int64) + 100

    def filters(self, rng: np.random.Generator, n: int) -> Predicates:
        """Every distinct filter once, then repeats, shuffled."""
        distinct = n * 29 // 148
        popularity = np.arange(1, self.asked + 1.0) ** -1.07
        symbol = rng.choice(self.asked, distinct, p=popularity / popularity.sum())
        kind = rng.integers(0, 6, distinct)
        tested = [np.isin(kind, kinds) for kinds in ([0, 3, 4], [2, 4, 5], [1, 3, 5])]
        price_op, change_op = rng.integers(2, 4, distinct), rng.integers(2, 4, distinct)
        op = [price_op, np.full(distinct, ABOVE), change_op]
        value = [
            np.round(self.price[symbol] * np.exp(rng.normal(0, 0.12, distinct)), 2).clip(0.01),
            np.floor(self.volume[symbol] * np.exp(rng.normal(0.5, 0.7, distinct))),
            np.round(rng.exponential(2.0, distinct) + 0.1, 2) * np.where(change_op == BELOW, -1, 1),
        ]
        which = np.concatenate([np.arange(distinct), rng.integers(0, distinct, n - distinct)])
        rng.shuffle(which)
        parts = [(np.arange(n), np.zeros(n, int), np.zeros(n, int), symbol[which].astype(float))]
        for j in range(3):
            rows = np.flatnonzero(tested[j][which])
            parts.append((rows, np.full(rows.size, j + 1), op[j][which[rows]], value[j][which[rows]]))
        return Predicates.of(n, *(np.concatenate(column) for column in zip(*parts, strict=True)))

    def events(self, rng: np.random.Generator) -> Floats:
        """Quotes near the usual price and volume, every symbol as often as any other."""
        symbol = rng.integers(0, self.symbols, 20_000)
        price = np.round(self.price[symbol] * np.exp(rng.normal(0, 0.08, symbol.size)), 2).clip(0.01)
        volume = np.floor(self.volume[symbol] * np.exp(rng.normal(0, 0.8, symbol.size)))
        change = np.round((price / self.price[symbol] - 1) * 100, 2)
        return np.stack([symbol, price, volume, change], 1).astype(float)


class Light(Source):
    """Binary properties."""

    seed, size = 3, 200_000
    fields = tuple((f"p{i}", "long") for i in range(100))

    def filters(self, rng: np.random.Generator, n: int) -> Predicates:
        """Each property tested with chance 0.1, for 0 or 1 alike."""
        draw = rng.random((n, 100))
        draw[~(draw < 0.1).any(1), 0] = 0.01
        owner, attr = np.nonzero(draw < 0.1)
        value = (draw[owner, attr] >= 0.05).astype(float)
        return Predicates.of(n, owner, attr, np.zeros(owner.size, int), value)

    def events(self, rng: np.random.Generator) -> Floats:
        """One to nineteen properties set, t of them with chance proportional to t^-2."""
        ones = np.arange(1, 20)
        weights = ones**-2.0
        events = np.zeros((2000, 100))
        for i, k in enumerate(rng.choice(ones, 2000, p=weights / weights.sum())):
            events[i, rng.choice(100, k, replace=False)] = 1
        return events


class Gryphon(Source):
    """Equality over few values, some attributes far more popular than others."""

    seed, size = 4, 100_000
    fields = tuple((f"a{i}", "long") for i in range(30))

    def filters(self, rng: np.random.Generator, n: int) -> Predicates:
        """Attribute i tested with chance 0.98 * 0.85^i, values by Zipf."""
        tested = rng.random((n, 30)) < 0.98 * 0.85 ** np.arange(30)
        tested[~tested.any(1), 0] = True
        owner, attr = np.nonzero(tested)
        zipf = 1 / np.arange(1, 6.0)
        value = rng.choice(np.arange(1, 6), owner.size, p=zipf / zipf.sum()).astype(float)
        return Predicates.of(n, owner, attr, np.zeros(owner.size, int), value)

    def events(self, rng: np.random.Generator) -> Floats:
        """Uniform."""
        return rng.integers(1, 6, (2000, 30)).astype(float)


class Range(Source):
    """Two-sided ranges of very different widths."""

    seed, size = 5, 500_000
    fields = tuple((f"x{i}", "double") for i in range(6))

    def filters(self, rng: np.random.Generator, n: int) -> Predicates:
        """Two to four ranges over distinct attributes."""
        owner, attr = _pick_attributes(rng, 6, rng.integers(2, 5, n))
        width = np.exp(rng.uniform(np.log(0.5), np.log(200), owner.size))
        low = np.round(rng.random(owner.size) * (1000 - width), 3)
        bounds = np.stack([low, np.round(low + width, 3)], 1).ravel()
        op = np.tile([ABOVE, BELOW], owner.size)
        return Predicates.of(n, np.repeat(owner, 2), np.repeat(attr, 2), op, bounds)

    def events(self, rng: np.random.Generator) -> Floats:
        """Uniform."""
        return np.round(rng.random((5000, 6)) * 1000, 3).clip(0, 999.999)


def _pick_attributes(rng: np.random.Generator, n_attributes: int, k: Longs) -> tuple[Longs, Longs]:
    """k[i] distinct attributes for each of k.size subscriptions, as rows."""
    order = np.argsort(rng.random((k.size, n_attributes)), axis=1)
    return np.repeat(np.arange(k.size), k), order[np.arange(n_attributes)[None, :] < k[:, None]]


SOURCES: dict[str, type[Source]] = {"topss": Topss, "stock": Stock, "light": Light, "gryphon": Gryphon, "range": Range}


def make_workload(name: str, scale: float = 1.0) -> Workload:
    """The workload of this name with `scale` times its subscriptions; the events depend on the scale too."""
    source_class = _find_source(name)
    n = int(source_class.size * scale)
    if n < 10:
        raise WorkloadError(f"workload {name!r} at scale {scale:g} has {n} subscriptions; use a larger scale")
    rng = np.random.default_rng(source_class.seed)
    source = source_class(rng)
    predicates = source.filters(rng, n)
    attributes, types = zip(*source_class.fields, strict=True)
    return Workload(name, attributes, types, predicates, source.events(rng))


def draw_filters(name: str, n: int, part: int) -> Predicates:
    """More filters of the same distribution; each `part` is another draw."""
    source_class = _find_source(name)
    source = source_class(np.random.default_rng(source_class.seed))
    return source.filters(np.random.default_rng([source_class.seed, part]), n)


def _find_source(name: str) -> type[Source]:
    if name not in SOURCES:
        raise WorkloadError(f"no workload {name!r}; there are: {', '.join(SOURCES)}")
    return SOURCES[name]
