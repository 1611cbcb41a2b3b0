"""A small stock-quote workload: a schema, subscriptions to quotes, and quotes.

Popularity is skewed, as it is in life: the symbol of rank r is asked for and traded in proportion to 1 / r. Prices walk at random
around a level of their own for each symbol. The same seed gives the same workload.
"""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa

SYMBOLS = 2_000
EXCHANGES = ("NYSE", "NASDAQ", "LSE", "XETRA")
OPENING = dt.datetime(2024, 1, 2, 14, 30, tzinfo=dt.UTC)

SCHEMA: dict[str, object] = {
    "symbol": "string",
    "exchange": {"type": "string", "values": list(EXCHANGES)},
    "price": {"type": "double", "min": 0},
    "change": "double",
    "volume": {"type": "integer", "min": 0},
    "halted": "boolean",
    "time": "timestamp",
}


class StockMarket:
    """Symbols with their popularity, price level and exchange."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        letters = np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
        codes = self._random.choice(26**4, SYMBOLS, replace=False)
        self.symbols = ["".join(letters[(c // 26 ** np.arange(4)) % 26]) for c in codes]
        weights = 1 / np.arange(1, SYMBOLS + 1)
        self._popularity = weights / weights.sum()
        self._levels = np.round(np.exp(self._random.normal(4, 1, SYMBOLS)) + 1, 2)
        self._exchange_of = self._random.integers(0, len(EXCHANGES), SYMBOLS)

    def subscriptions(self, count: int) -> pa.Table:
        """Subscriptions `s0`, `s1`, ...: six kinds of sentences about popular symbols."""
        kinds = (self._below, self._above, self._moves, self._prefix, self._exchange, self._swing)
        chosen = self._random.choice(len(kinds), count, p=(0.4, 0.3, 0.15, 0.05, 0.05, 0.05))
        which = self._pick(count)
        filters = [kinds[k](int(s)) for k, s in zip(chosen, which, strict=True)]
        return pa.table({"id": [f"s{i}" for i in range(count)], "filter": filters})

    def quotes(self, count: int) -> pa.Table:
        """Quotes in order of time."""
        which = self._pick(count)
        change = np.round(self._random.normal(0, 2.5, count), 2)
        price = np.round(self._levels[which] * (1 + change / 100) * self._random.normal(1, 0.03, count), 2)
        volume = np.round(np.exp(self._random.normal(7, 1.5, count))).astype(np.int64)
        seconds = np.sort(self._random.uniform(0, 6.5 * 3600, count))
        start = np.datetime64(OPENING.replace(tzinfo=None), "us")
        time = start + (seconds * 1e6).astype("timedelta64[us]")
        return pa.table(
            {
                "symbol": [self.symbols[s] for s in which],
                "exchange": [EXCHANGES[self._exchange_of[s]] for s in which],
                "price": np.maximum(price, 0.01),
                "change": change,
                "volume": volume,
                "halted": pa.array(self._random.random(count) < 0.01),
                "time": pa.array(time, pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
            }
        )

    def _pick(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return self._random.choice(SYMBOLS, count, p=self._popularity)

    # The sentences

    def _near(self, symbol: int, low: float, high: float) -> str:
        return f"{self._levels[symbol] * self._random.uniform(low, high):.2f}"

    def _below(self, symbol: int) -> str:
        return f"symbol = '{self.symbols[symbol]}' AND price < {self._near(symbol, 0.8, 1.0)}"

    def _above(self, symbol: int) -> str:
        volume = int(self._random.integers(1, 50)) * 100
        return f"symbol = '{self.symbols[symbol]}' AND price > {self._near(symbol, 1.0, 1.2)} AND volume >= {volume}"

    def _moves(self, symbol: int) -> str:
        listed = ", ".join(f"'{self.symbols[s]}'" for s in sorted({symbol, *self._pick(3).tolist()}))
        drop = self._random.integers(2, 9)
        return f"symbol IN ({listed}) AND (change <= -{drop} OR change >= {drop}) AND NOT halted"

    def _prefix(self, symbol: int) -> str:
        price = int(self._levels[symbol])
        return f"symbol LIKE '{self.symbols[symbol][:2]}%' AND price BETWEEN {price} AND {price + 10}"

    def _exchange(self, symbol: int) -> str:
        volume = int(self._random.integers(20, 80)) * 1000
        return f"exchange = '{EXCHANGES[self._exchange_of[symbol]]}' AND volume > {volume}"

    def _swing(self, symbol: int) -> str:
        return f"symbol = '{self.symbols[symbol]}' AND abs(change) * price > {self._near(symbol, 3, 8)}"
