"""The stock-quote subscriptions of the Event Distribution Network paper, made up to its figures.

The data were never published. What the paper says of them (section III.B): about 1.48 million subscriptions, 0.29 million
distinct filters, 21,741 symbols; popularity over rank falls with slope -1.07 in the middle, flatter at the head, steeper
at the tail; events come from 43,734 symbols, the others less popular than these. What had to be assumed:

- *Popularity.* Rank r of n symbols is drawn with chance proportional to (r + bend)^-slope - (n + 1 + bend)^-slope. `bend`
  flattens the head; the second term brings the tail down to nothing where the symbols end. A bend of 13 comes closest to
  the paper's figure 5 (docs/papers/edn.md has the table), and the first symbol then has 1.4 % of the subscriptions.
- *Filters.* Every symbol has at least one filter; any further subscription brings a new filter with the same chance.
- *Prices.* Half of the filters of a symbol ask for prices above the usual one and half below, in steps of 0.1 %.
- *Growth.* The "scaled up" distribution is the same law for 43,734 symbols, in the same order.

Symbols are numbered by rank, from 0. Everything is drawn from the generator passed in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa

from wherecast.bench.workloads.form import Conjunctions, Workload, WorkloadError
from wherecast.kernels.arrays import Floats, Longs
from wherecast.papers.edn.prices import ask_for_prices, draw_usual_prices

#: What new subscriptions may follow.
CONTINUATIONS = ("actual", "anticipated", "perturb100", "permute7", "uniform")


@dataclass(frozen=True, slots=True)
class Market:
    """Size and shape of the subscription set; the defaults are the paper's."""

    subscriptions: int = 1_480_000
    filters: int = 290_000
    asked: int = 21_741  # symbols that somebody subscribed to
    symbols: int = 43_734  # symbols of events
    slope: float = 1.07
    bend: float = 13.0

    def scaled(self, scale: float) -> Self:
        """The same market with this share of everything that is counted, symbols too."""
        sizes = {name: int(getattr(self, name) * scale) for name in ("subscriptions", "filters", "asked", "symbols")}
        if sizes["asked"] < 1:
            raise WorkloadError(f"the market at scale {scale:g} has no symbols; use a larger scale")
        return replace(self, **sizes)

    def popularity(self, n_symbols: int) -> Floats:
        """The chance of each of so many symbols to be the one of a subscription."""
        rank = np.arange(1, n_symbols + 1)
        chances: Floats = (rank + self.bend) ** -self.slope - (n_symbols + 1 + self.bend) ** -self.slope
        chances /= chances.sum()
        return chances


PAPER_MARKET = Market()


class Counts(NamedTuple):
    """How many subscriptions and distinct filters each symbol has."""

    subscriptions: Longs  # (symbols,)
    filters: Longs  # (symbols,) 1 <= filters <= subscriptions where somebody subscribed, else both 0


def count_subscriptions(market: Market, rng: np.random.Generator) -> Counts:
    """Draw the existing subscriptions, as counts."""
    more = rng.multinomial(market.subscriptions - market.asked, market.popularity(market.asked))
    new_filters = rng.multivariate_hypergeometric(more, market.filters - market.asked, method="marginals")
    unasked = (0, market.symbols - market.asked)
    return Counts(np.pad(1 + more, unasked), np.pad(1 + new_filters, unasked))


def continuation(name: str, market: Market, rng: np.random.Generator) -> Floats:
    """The chance of each symbol to be the one of a new subscription.

    `actual` is as before; `anticipated` the same law over all symbols; `perturb100` changes every chance of it by up to
    100 % either way; `permute7` cuts the ranks into 7 chunks and shuffles each; `uniform` treats all symbols alike.
    """
    anticipated = market.popularity(market.symbols)
    match name:
        case "actual":
            return np.pad(market.popularity(market.asked), (0, market.symbols - market.asked))
        case "anticipated":
            return anticipated
        case "perturb100":
            anticipated *= rng.uniform(0, 2, market.symbols)
            anticipated /= anticipated.sum()
            return anticipated
        case "permute7":
            return np.concatenate([rng.permutation(chunk) for chunk in np.array_split(anticipated, 7)])
        case "uniform":
            return np.full(market.symbols, 1 / market.symbols)
    raise WorkloadError(f"no continuation {name!r}; there are: {', '.join(CONTINUATIONS)}")


def make_market(market: Market, seed: int, n_events: int = 20_000) -> Workload:
    """The subscriptions themselves, in random order, and events that fall on every symbol as often as on any other."""
    rng = np.random.default_rng(seed)
    counts = count_subscriptions(market, rng)
    price = draw_usual_prices(market.symbols, rng)
    predicates = _draw_filters(counts, price, rng)
    symbol = rng.integers(0, market.symbols, n_events)
    quoted = np.round(price[symbol] * np.exp(rng.normal(0, 0.05, n_events)), 6)
    events = np.stack([symbol.astype(np.float64), quoted], 1)
    return Workload("edn", ("symbol", "price"), ("string", "double"), predicates, events)


def every_symbol(market: Market) -> pa.RecordBatch:
    """One event per symbol, in the order of their numbers."""
    nobody = Conjunctions(np.zeros(1, np.int64), *(np.zeros(0, np.int64),) * 2, np.zeros(0))
    symbols = np.arange(market.symbols, dtype=np.float64)[:, None]
    return Workload("edn", ("symbol",), ("string",), nobody, symbols).event_batch()


def _draw_filters(counts: Counts, price: Floats, rng: np.random.Generator) -> Conjunctions:
    """Every distinct filter once, then repeats of the same symbol's, shuffled: `symbol = S AND price > (or <) P`."""
    first = np.cumsum(counts.filters) - counts.filters  # the first filter of each symbol
    symbol = np.repeat(np.arange(price.size), counts.filters)
    within = np.arange(symbol.size) - first[symbol]
    again = np.repeat(np.arange(price.size), counts.subscriptions - counts.filters)
    repeated = first[again] + rng.integers(0, counts.filters[again])
    chosen = rng.permutation(np.concatenate([np.arange(symbol.size), repeated]))
    return ask_for_prices(symbol[chosen], within[chosen], price)
