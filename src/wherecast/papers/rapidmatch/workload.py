"""The workloads of RAPIDMatch (Kale, Hazan, Cao, Singh 2005, sections 4 and 6), seeded.

A subscription tests each of k binary properties for 0, for 1 or not at all, with chances "drawn around" 0.05, 0.05 and
0.9: for each property, the first two are drawn evenly from half to one and a half times their mean. Events follow one of
two models:

- the *light query model* (c, a), "Zipf": an event has t ones, 1 <= t < c, with chance proportional to t^-a, and all
  events with t ones are equally likely;
- the *exponential* model: every property is 1 with chance p.

The paper does not print c; with k = 100 and a = 2, c = 100 gives the "about 3" ones an event it speaks of.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.bench.workloads.form import CatalogueEntry, Conjunctions, Workload, WorkloadError
from wherecast.papers.rapidmatch.binary import STAR, Values


class BinaryWorkload(NamedTuple):
    """Subscriptions and events over k binary properties."""

    subscriptions: Values  # (subscriptions, k) of 0, 1 and STAR; each tests something
    events: Values  # (events, k) of 0 and 1

    def workload(self, name: str) -> Workload:
        """The same with properties as integer attributes, for any matcher."""
        n, k = self.subscriptions.shape
        owner, attr = np.nonzero(self.subscriptions != STAR)
        value = self.subscriptions[owner, attr].astype(np.float64)
        predicates = Conjunctions.of(n, owner, attr, np.zeros(owner.size, np.int64), value)
        names = tuple(f"p{i}" for i in range(k))
        return Workload(name, names, ("long",) * k, predicates, self.events.astype(np.float64))


def draw_light(
    n: int, *, a: float = 2.0, c: int | None = None, k: int = 100, n_events: int = 100, seed: int = 0
) -> BinaryWorkload:
    """Subscriptions, and events of the light query model with parameters (c, a); c is k unless given."""
    most = k if c is None else c
    if not 2 <= most <= k + 1:
        raise WorkloadError(f"light events have 1 to c - 1 ones of {k} properties; c = {most} is not in 2..{k + 1}")
    rng, subscriptions = _draw_subscriptions(n, k, seed)
    chances = np.arange(1, most, dtype=np.float64) ** -a
    ones = rng.choice(np.arange(1, most), n_events, p=chances / chances.sum())
    rank = np.argsort(np.argsort(rng.random((n_events, k)), axis=1), axis=1)
    return BinaryWorkload(subscriptions, (rank < ones[:, None]).astype(np.int8))


def draw_exponential(n: int, *, p: float = 0.1, k: int = 100, n_events: int = 100, seed: int = 0) -> BinaryWorkload:
    """Subscriptions, and events whose properties are 1 with chance p."""
    rng, subscriptions = _draw_subscriptions(n, k, seed)
    return BinaryWorkload(subscriptions, (rng.random((n_events, k)) < p).astype(np.int8))


def _draw_subscriptions(
    n: int, k: int, seed: int, mean: float = 0.05, block: int = 65_536
) -> tuple[np.random.Generator, npt.NDArray[np.int8]]:
    """Drawn in blocks: a million rows of floats would take eight times the memory of the result."""
    rng = np.random.default_rng(seed)
    zero, one = rng.uniform(mean / 2, 1.5 * mean, (2, k))
    values = np.full((n, k), STAR, np.int8)
    for first in range(0, n, block):
        part = values[first : first + block]
        draw = rng.random(part.shape, np.float32)
        part[draw < zero + one] = 1
        part[draw < zero] = 0
    empty = (values == STAR).all(axis=1)
    values[empty, 0] = 0
    return rng, values


def _make_light(n: int, a: float, c: int, k: int, events: int, seed: int) -> Workload:
    return draw_light(n, a=a, c=c, k=k, n_events=events, seed=seed).workload("rapidmatch-light")


def _make_exponential(n: int, p: float, k: int, events: int, seed: int) -> Workload:
    return draw_exponential(n, p=p, k=k, n_events=events, seed=seed).workload("rapidmatch-exponential")


#: For the catalogue.
ENTRIES = (
    CatalogueEntry(
        "rapidmatch-light",
        "RAPIDMatch: k binary properties; events of 1 to c - 1 ones, t with chance t^-a",
        100_000,
        _make_light,
        {"a": 2.0, "c": 100, "k": 100, "events": 2000, "seed": 0},
    ),
    CatalogueEntry(
        "rapidmatch-exponential",
        "RAPIDMatch: k binary properties, 1 in events with chance p",
        100_000,
        _make_exponential,
        {"p": 0.1, "k": 100, "events": 2000, "seed": 0},
    ),
)
