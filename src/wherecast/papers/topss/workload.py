"""The workloads W0 to W4 of TOPSS (section 5.1), seeded, with any number of subscriptions.

| name | attributes | predicates of a subscription | domain of values                    | events at once |
|------|------------|------------------------------|-------------------------------------|----------------|
| W0   | 120        | 1 to 20                      | 1 .. 250                            | 100            |
| W1   | 120        | 1 to 20                      | 250 .. 10,000                       | 100            |
| W2   | 120        | 1 to 20                      | 10,000 .. 100,000                   | 100            |
| W3   | 120        | 1 to 20                      | a third of the attributes from each | 100            |
| W4   | 10         | 1 to 5                       | 1 .. 10                             | 10             |

The paper says that values are uniform and that an event has all attributes. It does not say, and is taken here to be:

- the operators: =, <>, < and >, as in its database queries, equally likely. W4 then has 400 distinct predicates, and
  5,000,000 subscriptions x 400 bits are 250 MB: the paper's own figure is 248 MB;
- the attributes of a subscription: distinct. The number of predicates: uniform in its range;
- the mixture W3: by attribute, as the paper gives bounds "of predicate i";
- the type: integers of a fixed range. Strings and enumerations order and compare like them, code by code.

W4 with a million subscriptions is the reference workload `topss`, subscription by subscription.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wherecast.bench.workloads.form import ABOVE, EQUAL, UNEQUAL, CatalogueEntry, Conjunctions, Workload
from wherecast.bench.workloads.reference import pick_attributes
from wherecast.index.boxes import FAR, FIRST_CODE, Boxes, EventCodes
from wherecast.kernels.arrays import Longs

_SEED = 1


@dataclass(frozen=True, slots=True)
class Specification:
    """A workload of the paper but for its size."""

    name: str
    domains: tuple[tuple[int, int], ...]  # lowest and highest value of each attribute
    most_predicates: int
    events_at_once: int

    def make(self, n: int, n_events: int = 2000) -> Workload:
        """The workload with n subscriptions."""
        rng = np.random.default_rng(_SEED)
        low, high = self.bounds()
        owner, attr = pick_attributes(rng, low.size, rng.integers(1, self.most_predicates + 1, n))
        op = rng.integers(0, 4, owner.size)
        value = rng.integers(low[attr], high[attr] + 1).astype(float)
        events = rng.integers(low, high + 1, (n_events, low.size)).astype(float)
        names = tuple(f"a{i}" for i in range(low.size))
        return Workload(self.name, names, ("long",) * low.size, Conjunctions.of(n, owner, attr, op, value), events)

    def bounds(self) -> tuple[Longs, Longs]:
        """Lowest and highest value of each attribute."""
        low, high = np.array(self.domains, np.int64).T
        return low, high

    # Codes without texts. NULL is 0, what lies below the domain 1, its values follow, what lies above is the last. The
    # places outside keep `a < low` and `a > high` what they are: predicates that no event satisfies.

    def code_predicates(self, predicates: Conjunctions) -> Boxes:
        """The subscriptions as boxes, one clause each, without going through texts."""
        low, high = self.bounds()
        order = np.argsort(predicates.owners() * low.size + predicates.attr)
        attr, op = predicates.attr[order].astype(np.int16), predicates.op[order]
        code = (predicates.value[order].astype(np.int64) - low[attr] + FIRST_CODE + 1).astype(np.int32)
        rows = np.where(op == UNEQUAL, 2, 1)
        ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(rows)))
        row_attr = np.repeat(attr, rows)
        row_attr[ends[:-1][op == UNEQUAL]] = ~attr[op == UNEQUAL]
        lo = np.repeat(np.where(op == EQUAL, code, np.where(op == ABOVE, code + 1, FIRST_CODE)).astype(np.int32), rows)
        hi = np.repeat(np.where(op == EQUAL, code, np.where(op == ABOVE, FAR, code - 1)).astype(np.int32), rows)
        second = ends[:-1][op == UNEQUAL] + 1
        lo[second], hi[second] = code[op == UNEQUAL] + 1, FAR
        n = len(predicates)
        ids, none = np.arange(n, dtype=np.int32), np.full(n, -1, np.int32)
        return Boxes(ids, ends[predicates.ptr], row_attr, lo, hi, none, n, (high - low + 4).astype(np.int32))

    def code_events(self, events: npt.NDArray[np.float64]) -> EventCodes:
        """The events in the codes of `code_predicates`."""
        low, _ = self.bounds()
        codes = (events - low).astype(np.int32) + np.int32(FIRST_CODE + 1)
        return EventCodes(codes, np.zeros(1, np.int64), np.zeros(0, np.int32))


_SMALL, _MEDIUM, _BIG = (1, 250), (250, 10_000), (10_000, 100_000)

SPECIFICATIONS = {
    s.name: s
    for s in (
        Specification("W0", (_SMALL,) * 120, 20, 100),
        Specification("W1", (_MEDIUM,) * 120, 20, 100),
        Specification("W2", (_BIG,) * 120, 20, 100),
        Specification("W3", (_SMALL, _MEDIUM, _BIG) * 40, 20, 100),
        Specification("W4", ((1, 10),) * 10, 5, 10),
    )
}


def _entry(number: int, summary: str, size: int) -> CatalogueEntry:
    specification = SPECIFICATIONS[f"W{number}"]

    def make(n: int, events: int) -> Workload:
        return specification.make(n, events)

    return CatalogueEntry(f"topss-w{number}", f"TOPSS W{number}: {summary}", size, make, {"events": 2000})


#: For the catalogue.
ENTRIES = (
    _entry(0, "120 integers of 1..250, 1-20 predicates", 100_000),
    _entry(1, "120 integers of 250..10,000, 1-20 predicates", 100_000),
    _entry(2, "120 integers of 10,000..100,000, 1-20 predicates", 100_000),
    _entry(3, "W0, W1 and W2 mixed by attribute", 100_000),
    _entry(4, "10 integers of 1..10, 1-5 predicates", 1_000_000),
)
