"""Subscriptions to stock quotes, one independent of the other: the market of `edn` and what may follow it, at any size.

`edn.make_market` has the paper's numbers of subscriptions, filters and symbols exactly, and so must be drawn as a whole. Here a
subscription is a draw of its own: of a symbol, by the popularity that the market has or that a continuation says, then of
one of the filters of this symbol, all alike. A new subscription may also bring the next filter that the symbol does
not have yet; the paper does not say how many do.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from wherecast.bench.workloads.form import CatalogueEntry, Conjunctions, FilterSource, Workload
from wherecast.kernels.arrays import Floats
from wherecast.papers.edn.prices import ask_for_prices, draw_usual_prices
from wherecast.papers.edn.workload import (
    CONTINUATIONS,
    PAPER_MARKET,
    Market,
    continuation,
    count_subscriptions,
    make_market,
)


class Quotes:
    """A market with its subscriptions, and what further ones follow: a continuation, or for None the subscriptions that are there."""

    fields = (("symbol", "string"), ("price", "double"))

    def __init__(self, market: Market, follows: str | None = None, seed: int = 5) -> None:
        self.market = market
        rng = np.random.default_rng(seed)  # then as `make_market` does: the same subscriptions, the same prices
        counts = count_subscriptions(market, rng)
        self.usual = draw_usual_prices(market.symbols, rng)
        if follows is None:
            self.chances: Floats = counts.subscriptions / counts.subscriptions.sum()
            self._choices = counts.filters
        else:
            self.chances = continuation(follows, market, rng)
            self._choices = counts.filters + 1
        possible = np.flatnonzero(self.chances)
        self._possible, self._ends = possible, np.cumsum(self.chances[possible])

    def filters(self, rng: np.random.Generator, n: int) -> Conjunctions:
        """Draw n subscriptions."""
        drawn = np.searchsorted(self._ends, rng.random(n) * self._ends[-1], side="right")
        symbol = self._possible[drawn]
        return ask_for_prices(symbol, rng.integers(0, self._choices[symbol]), self.usual)

    def events(self, rng: np.random.Generator, n: int) -> Floats:
        """Draw n quotes near the usual price, every symbol as often as any other."""
        symbol = rng.integers(0, self.market.symbols, n)
        quoted = np.round(self.usual[symbol] * np.exp(rng.normal(0, 0.05, n)), 6)
        return np.stack([symbol.astype(np.float64), quoted], 1)


def make_continuation(follows: str, market: Market, n: int, n_events: int = 20_000, seed: int = 5) -> Workload:
    """Draw n new subscriptions to a market, without those that it has."""
    quotes = Quotes(market, follows, seed)
    rng = np.random.default_rng([seed, 0])
    attributes, types = zip(*quotes.fields, strict=True)
    return Workload(f"edn-{follows}", attributes, types, quotes.filters(rng, n), quotes.events(rng, n_events))


def market_of(n: int, slope: float = PAPER_MARKET.slope, bend: float = PAPER_MARKET.bend) -> Market:
    """The paper's market at the scale at which it has n subscriptions."""
    market = replace(PAPER_MARKET, slope=slope, bend=bend).scaled(n / PAPER_MARKET.subscriptions)
    return replace(market, subscriptions=n)


_MARKET = {"slope": PAPER_MARKET.slope, "bend": PAPER_MARKET.bend, "events": 20_000, "seed": 5}


def _make_market(n: int, slope: float, bend: float, events: int, seed: int) -> Workload:
    return make_market(market_of(n, slope, bend), seed, events)


def _make_continuation(follows: str, n: int, slope: float, bend: float, events: int, seed: int) -> Workload:
    return make_continuation(follows, market_of(n, slope, bend), n, events, seed)


def _open_quotes(follows: str | None, slope: float, bend: float, seed: int) -> FilterSource:
    """Always of the paper's market: more subscriptions are then of the same symbols."""
    return FilterSource(Quotes.fields, Quotes(replace(PAPER_MARKET, slope=slope, bend=bend), follows, seed).filters)


def _continuation(follows: str) -> CatalogueEntry:
    summary = f"new subscriptions to the market of edn, popularity {follows}"
    make, source = partial(_make_continuation, follows), partial(_open_quotes, follows)
    return CatalogueEntry(f"edn-{follows}", summary, PAPER_MARKET.subscriptions, make, _MARKET, source)


#: For the catalogue.
ENTRIES = (
    CatalogueEntry(
        "edn",
        "stock quotes: symbol = S AND price > (or <) P; 290,000 distinct filters",
        PAPER_MARKET.subscriptions,
        _make_market,
        _MARKET,
        partial(_open_quotes, None),
    ),
    *(_continuation(name) for name in CONTINUATIONS),
)
