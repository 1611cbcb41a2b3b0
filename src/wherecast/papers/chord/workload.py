"""Random filters for the overlay: equality on few popular symbols, narrow ranges of price and volume.

A filter tests one, two or all three attributes, so that every kind of list of the overlay gets its share: those of single
values, and those of ranges on a line with known ends. The schema of `papers.chord.churn` has these attributes with their bounds.
"""

from __future__ import annotations

import numpy as np

from wherecast.bench.workloads.form import ABOVE, BELOW, EQUAL, CatalogueEntry, Conjunctions, FilterSource, Workload
from wherecast.bench.workloads.reference import pick_attributes
from wherecast.kernels.arrays import Floats

MOST_SYMBOL, MOST_PRICE, MOST_VOLUME = 40, 1000.0, 100_000


FIELDS = (("symbol", "string"), ("price", "double"), ("volume", "long"))


def draw_filters(rng: np.random.Generator, n: int) -> Conjunctions:
    """Draw n filters."""
    owner, attr = pick_attributes(rng, 3, rng.integers(1, 4, n))
    by_symbol, by_price, by_volume = (owner[attr == a] for a in range(3))
    price = np.round(rng.uniform(0, MOST_PRICE - 20, by_price.size), 2)
    volume = rng.integers(0, MOST_VOLUME - 5000, by_volume.size)
    parts = [
        (by_symbol, 0, EQUAL, _draw_symbols(rng, by_symbol.size)),
        (by_price, 1, ABOVE, price),
        (by_price, 1, BELOW, np.round(price + rng.uniform(0.01, 20, by_price.size), 2)),
        (by_volume, 2, ABOVE, volume),
        (by_volume, 2, BELOW, volume + rng.integers(2, 5000, by_volume.size)),
    ]
    owners, values = np.concatenate([p[0] for p in parts]), np.concatenate([p[3] for p in parts])
    attrs, ops = (np.repeat([p[i] for p in parts], [p[0].size for p in parts]) for i in (1, 2))
    return Conjunctions.of(n, owners, attrs, ops, values.astype(np.float64))


def draw_events(rng: np.random.Generator, n: int) -> Floats:
    """Draw n events; prices and volumes are uniform."""
    price = np.round(rng.uniform(0, MOST_PRICE, n), 2)
    return np.stack([_draw_symbols(rng, n), price, rng.integers(0, MOST_VOLUME + 1, n).astype(np.float64)], 1)


def make_overlay(n: int, events: int = 2000, seed: int = 7) -> Workload:
    """The workload with n filters."""
    rng = np.random.default_rng(seed)
    attributes, types = zip(*FIELDS, strict=True)
    return Workload("overlay", attributes, types, draw_filters(rng, n), draw_events(rng, events))


def _draw_symbols(rng: np.random.Generator, n: int) -> Floats:
    return np.minimum(np.floor(rng.exponential(1 / 0.3, n)), MOST_SYMBOL)


def _open_filters(seed: int) -> FilterSource:  # noqa: ARG001 - it has nothing to prepare
    return FilterSource(FIELDS, draw_filters)


#: For the catalogue.
ENTRIES = (
    CatalogueEntry(
        "overlay",
        "random filters for the overlay: symbol, narrow ranges of price and volume",
        100_000,
        make_overlay,
        {"events": 2000, "seed": 7},
        _open_filters,
    ),
)
