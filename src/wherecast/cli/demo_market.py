"""The workload of the demo: many symbols are traded, a part of them is watched, and popularity is skewed.

A symbol of rank r is watched in proportion to 1 / (r + 10) and traded in proportion to 1 / (r + 40): the busy ones are watched
most, and about a third of all quotes is for symbols that nobody watches. Prices drift around their level from one file of
quotes to the next, so that alerts come and go. The same seed gives the same workload.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from wherecast.kernels.arrays import Floats, Longs

TRADED, WATCHED = 20_000, 3_000
OPENING = np.datetime64("2024-01-02T14:30:00", "us")
CHANNELS = ("mail", "phone", "desk")

SCHEMA: dict[str, object] = {
    "symbol": "string",
    "price": {"type": "double", "min": 0},
    "change": "double",
    "volume": {"type": "integer", "min": 0},
    "time": "timestamp",
}


@dataclass(slots=True)
class ChangeLog:
    """Upserts and deletes, numbered on from the last."""

    market: AlertMarket
    subscriptions: int
    """Ids below this exist, or did."""
    sequence: int = 0

    def write(self, count: int) -> pa.Table:
        """Half of the changes replace a filter, a quarter are new subscriptions, a quarter delete one."""
        random = self.market.random
        kinds = random.choice(3, count, p=(0.5, 0.25, 0.25))
        ids = random.integers(min(1, self.subscriptions - 1), self.subscriptions, count)  # 0 is edited by hand
        new = int((kinds == 1).sum())
        ids[kinds == 1] = self.subscriptions + np.arange(new)
        self.subscriptions += new
        filters = self.market.filters(count)
        sequence = self.sequence + 1 + np.arange(count)
        self.sequence += count
        return pa.table(
            {
                "sequence": sequence,
                "op": ["delete" if kind == 2 else "upsert" for kind in kinds],
                "id": ids,
                "filter": [None if kind == 2 else text for kind, text in zip(kinds, filters, strict=True)],
                **self.market.owners(count, self.subscriptions),
            }
        )

    def edit(self, id: int, text: str, subscriber: str) -> pa.Table:
        """One rule, changed by somebody."""
        self.sequence += 1
        row = {"sequence": self.sequence, "op": "upsert", "id": id, "filter": text, "subscriber": subscriber}
        return pa.Table.from_pylist([{**row, "channel": CHANNELS[0]}])


class AlertMarket:
    """Symbols with their price levels, alerts on them, and quotes of them."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        letters = np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
        codes = self.random.choice(26**4, TRADED, replace=False)
        self.symbols: list[str] = letters[codes[:, None] // 26 ** np.arange(4) % 26].view("U4").ravel().tolist()
        self._levels = np.exp(self.random.normal(4, 1, TRADED)) + 1
        self._drift = self.random.normal(0, 0.04, TRADED)
        self._seconds = 0.0

    def subscriptions(self, count: int) -> pa.Table:
        """`id`, `filter`, and whom to tell: columns `subscriber` and `channel`."""
        return pa.table({"id": np.arange(count), "filter": self.filters(count), **self.owners(count, count)})

    def owners(self, count: int, subscriptions: int) -> dict[str, list[str]]:
        """Whom to tell, and how; a person has three of the subscriptions."""
        people = self.random.integers(0, max(subscriptions // 3, 1), count)
        channels = self.random.choice(len(CHANNELS), count)
        return {"subscriber": [f"user-{n}" for n in people], "channel": [CHANNELS[c] for c in channels]}

    def filters(self, count: int) -> list[str]:
        """Alerts of four kinds, each on one symbol or a few."""
        kinds = (self._below, self._above, self._moves, self._turnover)
        chosen = self.random.choice(len(kinds), count, p=(0.45, 0.3, 0.15, 0.1))
        return [kinds[k](int(s)) for k, s in zip(chosen, self._pick(count, WATCHED, 10), strict=True)]

    def quotes(self, count: int) -> pa.Table:
        """The next quotes, in order of time."""
        self._drift = 0.8 * self._drift + 0.6 * self.random.normal(0, 0.04, TRADED)
        which = self._pick(count, TRADED, 40)
        price = np.round(self._levels[which] * np.exp(self._drift[which] + self.random.normal(0, 0.02, count)), 2)
        seconds = self._seconds + np.sort(self.random.uniform(0, 60, count))
        self._seconds += 60
        time = OPENING + (seconds * 1e6).astype("timedelta64[us]")
        return pa.table(
            {
                "symbol": [self.symbols[s] for s in which],
                "price": np.maximum(price, 0.01),
                "change": np.round(100 * (price / self._levels[which] - 1), 2),
                "volume": np.round(np.exp(self.random.normal(7, 1.5, count))).astype(np.int64),
                "time": pa.array(time, pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
            }
        )

    def _pick(self, count: int, among: int, flat: int) -> Longs:
        return _chances(among, flat).searchsorted(self.random.random(count), side="right")

    def _near(self, symbol: int, low: float, high: float) -> str:
        return f"{self._levels[symbol] * self.random.uniform(low, high):.2f}"

    def _below(self, symbol: int) -> str:
        return f"symbol = '{self.symbols[symbol]}' AND price < {self._near(symbol, 0.8, 0.95)}"

    def _above(self, symbol: int) -> str:
        volume = int(self.random.integers(1, 50)) * 100
        return f"symbol = '{self.symbols[symbol]}' AND price > {self._near(symbol, 1.05, 1.2)} AND volume >= {volume}"

    def _moves(self, symbol: int) -> str:
        listed = ", ".join(f"'{self.symbols[s]}'" for s in sorted({symbol, *self._pick(2, WATCHED, 10).tolist()}))
        drop = self.random.integers(6, 15)
        return f"symbol IN ({listed}) AND (change <= -{drop} OR change >= {drop})"

    def _turnover(self, symbol: int) -> str:
        return f"symbol = '{self.symbols[symbol]}' AND price * volume > {self._near(symbol, 10_000, 100_000)}"


@cache
def _chances(among: int, flat: int) -> Floats:
    """Of each symbol, the chance that it or one before it is picked: the first are picked most."""
    summed: Floats = np.cumsum(1 / (np.arange(among) + flat))
    summed /= summed[-1]
    return summed
