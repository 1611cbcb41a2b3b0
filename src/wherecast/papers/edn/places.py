"""Rectangles of a map: filters of one shape, large and small, around towns of which few are popular.

It is what filter-set partitioning was thought for (Event Distribution Network, section III.C: every subscription is a
rectangle, every event a point). Half of the events are in the towns, half anywhere.
"""

from __future__ import annotations

import numpy as np

from wherecast.bench.workloads.form import ABOVE, BELOW, CatalogueEntry, Conjunctions, FilterSource, Workload
from wherecast.kernels.arrays import Floats

SIDE = 1000.0
N_TOWNS = 300


class Places:
    """The map: towns, and rectangles and points near them. Made with the generator that places the towns."""

    fields = (("x", "double"), ("y", "double"))

    def __init__(self, rng: np.random.Generator) -> None:
        self.towns = rng.random((N_TOWNS, 2)) * SIDE

    def filters(self, rng: np.random.Generator, n: int) -> Conjunctions:
        """Draw n rectangles; towns by Zipf's law, sides of 0.2 to 20."""
        popularity = 1 / np.arange(1, N_TOWNS + 1.0)
        town = rng.choice(N_TOWNS, n, p=popularity / popularity.sum())
        middle = self.towns[town] + rng.normal(0, 4, (n, 2))
        half = np.exp(rng.uniform(np.log(0.1), np.log(10), (n, 2)))
        value = np.round(np.stack([middle - half, middle + half], 2).ravel(), 3)
        return Conjunctions(np.arange(0, 4 * n + 1, 4), np.tile([0, 0, 1, 1], n), np.tile([ABOVE, BELOW], 2 * n), value)

    def events(self, rng: np.random.Generator, n: int) -> Floats:
        """Draw n points."""
        points = rng.random((n, 2)) * SIDE
        near = np.flatnonzero(rng.random(n) < 0.5)
        points[near] = self.towns[rng.integers(0, N_TOWNS, near.size)] + rng.normal(0, 6, (near.size, 2))
        return np.round(points, 3)


def make_places(n: int, events: int = 20_000, seed: int = 6) -> Workload:
    """The workload with n rectangles."""
    rng = np.random.default_rng(seed)
    places = Places(rng)
    return Workload("places", ("x", "y"), ("double", "double"), places.filters(rng, n), places.events(rng, events))


def _open_places(seed: int) -> FilterSource:
    return FilterSource(Places.fields, Places(np.random.default_rng(seed)).filters)


#: For the catalogue.
ENTRIES = (
    CatalogueEntry(
        "places", "rectangles of a map around towns", 300_000, make_places, {"events": 20_000, "seed": 6}, _open_places
    ),
)
