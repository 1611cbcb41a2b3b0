"""Six reference workloads, seeded: the same name and scale give the same subscriptions and events everywhere.

| name    | what it is                                                                  | subscriptions at scale 1 |
|---------|-----------------------------------------------------------------------------|--------------------------|
| topss   | 10 integer attributes 1..10, 1-5 predicates of = <> < >; dense: 17.6 % match | 1,000,000                |
| stock   | symbol = X plus 1-2 ranges on price, volume, change; Zipf symbols           | 1,480,000 (290,000 distinct filters) |
| light   | 100 binary properties, 10 % of them tested; events with few ones            | 200,000                  |
| gryphon | 30 attributes of 5 values, equality, popularity 0.98 * 0.85^i               | 100,000                  |
| range   | 6 float attributes, 2-4 two-sided ranges, widths 0.5..200 of 1000           | 500,000                  |
| geo     | boxes around cities (Zipf), some with a category, a highest price, hours    | 200,000                  |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from wherecast.bench.workloads.form import ABOVE, BELOW, EQUAL, Conjunctions, Workload, WorkloadError
from wherecast.kernels.arrays import Floats, Longs


class Source(ABC):
    """Where a workload's filters and events are drawn from. Made with the generator that then draws the filters."""

    seed: ClassVar[int]
    size: ClassVar[int]  # subscriptions at scale 1
    fields: ClassVar[tuple[tuple[str, str], ...]]  # attribute and type

    def __init__(self, rng: np.random.Generator) -> None:  # noqa: B027 - most have nothing to prepare
        pass

    @abstractmethod
    def filters(self, rng: np.random.Generator, n: int) -> Conjunctions:
        """Draw n filters."""

    @abstractmethod
    def events(self, rng: np.random.Generator) -> Floats:
        """Draw the events."""


class Topss(Source):
    """Integers, dense."""

    seed, size = 1, 1_000_000
    fields = tuple((f"a{i}", "long") for i in range(10))

    def filters(self, rng: np.random.Generator, n: int) -> Conjunctions:
        """One to five predicates over distinct attributes."""
        owner, attr = pick_attributes(rng, len(self.fields), rng.integers(1, 6, n))
        op = rng.integers(0, 4, owner.size)
        return Conjunctions.of(n, owner, attr, op, rng.integers(1, 11, owner.size).astype(float))

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

    def filters(self, rng: np.random.Generator, n: int) -> Conjunctions:
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
        return Conjunctions.of(n, *(np.concatenate(column) for column in zip(*parts, strict=True)))

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

    def filters(self, rng: np.random.Generator, n: int) -> Conjunctions:
        """Each property tested with chance 0.1, for 0 or 1 alike."""
        draw = rng.random((n, 100))
        draw[~(draw < 0.1).any(1), 0] = 0.01
        owner, attr = np.nonzero(draw < 0.1)
        value = (draw[owner, attr] >= 0.05).astype(float)
        return Conjunctions.of(n, owner, attr, np.zeros(owner.size, int), value)

    def events(self, rng: np.random.Generator) -> Floats:
        """One to nineteen properties set, t of them with chance proportional to t^-2."""
        ones = np.arange(1, 20)
        weights = ones**-2.0
        events = np.zeros((2000, 100))
        for i, k in enumerate(rng.choice(ones, 2000, p=weights / weights.sum())):
            events[i, rng.choice(100, k, replace=False)] = 1
        return events


@dataclass(frozen=True, slots=True)
class PopularAttributes:
    """Equality tests, most of them on the first attributes; values by Zipf's law."""

    attributes: int = 30
    values: int = 5
    popularity: float = 0.98  # chance that a subscription tests the first attribute
    falloff: float = 0.85  # and of each further one, relative to the one before
    exponent: float = 1.0  # of Zipf's law

    def predicates(self, rng: np.random.Generator, n: int) -> Conjunctions:
        """Draw n subscriptions, each with at least one test."""
        tested = rng.random((n, self.attributes)) < self.popularity * self.falloff ** np.arange(self.attributes)
        tested[~tested.any(1), 0] = True
        owner, attr = np.nonzero(tested)
        values = np.arange(1, self.values + 1)
        chance = values**-self.exponent
        value = rng.choice(values, owner.size, p=chance / chance.sum()).astype(float)
        return Conjunctions.of(n, owner, attr, np.full(owner.size, EQUAL), value)

    def events(self, rng: np.random.Generator, n: int) -> Floats:
        """Draw n events."""
        return rng.integers(1, self.values + 1, (n, self.attributes)).astype(float)


class Gryphon(Source):
    """Equality over few values, some attributes far more popular than others."""

    seed, size = 4, 100_000
    fields = tuple((f"a{i}", "long") for i in range(30))

    def filters(self, rng: np.random.Generator, n: int) -> Conjunctions:
        """Attribute i tested with chance 0.98 * 0.85^i, values by Zipf."""
        return PopularAttributes().predicates(rng, n)

    def events(self, rng: np.random.Generator) -> Floats:
        """Uniform."""
        return PopularAttributes().events(rng, 2000)


class Range(Source):
    """Two-sided ranges of very different widths."""

    seed, size = 5, 500_000
    fields = tuple((f"x{i}", "double") for i in range(6))

    def filters(self, rng: np.random.Generator, n: int) -> Conjunctions:
        """Two to four ranges over distinct attributes."""
        owner, attr = pick_attributes(rng, 6, rng.integers(2, 5, n))
        width = np.exp(rng.uniform(np.log(0.5), np.log(200), owner.size))
        low = np.round(rng.random(owner.size) * (1000 - width), 3)
        bounds = np.stack([low, np.round(low + width, 3)], 1).ravel()
        op = np.tile([ABOVE, BELOW], owner.size)
        return Conjunctions.of(n, np.repeat(owner, 2), np.repeat(attr, 2), op, bounds)

    def events(self, rng: np.random.Generator) -> Floats:
        """Uniform."""
        return np.round(rng.random((5000, 6)) * 1000, 3).clip(0, 999.999)


class Geo(Source):
    """Offers near a place; both those who ask and what is offered crowd in the large cities."""

    seed, size = 6, 200_000
    fields = (("lat", "double"), ("lon", "double"), ("category", "string"), ("price", "double"), ("hour", "long"))
    cities, spread = 1_000, 0.15  # degrees around the middle of a city

    def __init__(self, rng: np.random.Generator) -> None:
        self.middle = np.stack([rng.uniform(-60, 70, self.cities), rng.uniform(-180, 180, self.cities)], 1)
        popularity = 1 / np.arange(1, self.cities + 1.0)
        self.popularity = popularity / popularity.sum()

    def _places(self, rng: np.random.Generator, n: int) -> Floats:
        city = rng.choice(self.cities, n, p=self.popularity)
        return self.middle[city] + rng.normal(0, self.spread, (n, 2))

    def filters(self, rng: np.random.Generator, n: int) -> Conjunctions:
        """A box of 0.01 to 0.2 degrees; 60 % name one of 50 categories, 40 % a highest price, 30 % hours of the day."""
        middle = self._places(rng, n)
        half = np.exp(rng.uniform(np.log(0.005), np.log(0.1), (n, 2)))
        hour = rng.integers(0, 20, n)
        highest = np.round(np.exp(rng.normal(3.5, 1.0, n)), 2)
        everybody = np.ones(n, bool)
        category, price, hours = (rng.random(n) < share for share in (0.6, 0.4, 0.3))
        tests = [
            (everybody, 0, ABOVE, np.round(middle[:, 0] - half[:, 0], 4)),
            (everybody, 0, BELOW, np.round(middle[:, 0] + half[:, 0], 4)),
            (everybody, 1, ABOVE, np.round(middle[:, 1] - half[:, 1], 4)),
            (everybody, 1, BELOW, np.round(middle[:, 1] + half[:, 1], 4)),
            (category, 2, EQUAL, np.minimum(rng.zipf(1.3, n), 50)),
            (price, 3, BELOW, highest),
            (hours, 4, ABOVE, hour - 1),
            (hours, 4, BELOW, hour + rng.integers(2, 8, n)),
        ]
        parts = [(np.flatnonzero(some), attr, op, value) for some, attr, op, value in tests]
        owner, attr, op, value = (
            np.concatenate(c)
            for c in zip(*((o, np.full(o.size, a), np.full(o.size, p), v[o]) for o, a, p, v in parts), strict=True)
        )
        return Conjunctions.of(n, owner, attr, op, value.astype(float))

    def events(self, rng: np.random.Generator) -> Floats:
        """Offers in the same cities."""
        n = 5_000
        price = np.round(np.exp(rng.normal(3.0, 1.0, n)), 2)
        category, hour = np.minimum(rng.zipf(1.3, n), 50), rng.integers(0, 24, n)
        return np.column_stack([np.round(self._places(rng, n), 5), category, price, hour]).astype(float)


def pick_attributes(rng: np.random.Generator, n_attributes: int, k: Longs) -> tuple[Longs, Longs]:
    """k[i] distinct attributes for each of k.size subscriptions, as rows."""
    order = np.argsort(rng.random((k.size, n_attributes)), axis=1)
    return np.repeat(np.arange(k.size), k), order[np.arange(n_attributes)[None, :] < k[:, None]]


SOURCES: dict[str, type[Source]] = {
    "topss": Topss,
    "stock": Stock,
    "light": Light,
    "gryphon": Gryphon,
    "range": Range,
    "geo": Geo,
}


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


def draw_filters(name: str, n: int, part: int) -> Conjunctions:
    """More filters of the same distribution; each `part` is another draw."""
    source_class = _find_source(name)
    source = source_class(np.random.default_rng(source_class.seed))
    return source.filters(np.random.default_rng([source_class.seed, part]), n)


def _find_source(name: str) -> type[Source]:
    if name not in SOURCES:
        raise WorkloadError(f"no workload {name!r}; there are: {', '.join(SOURCES)}")
    return SOURCES[name]
