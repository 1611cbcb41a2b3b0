"""What filters on quotes ask for: prices above or below the usual one of a symbol, in steps of 0.1 %."""

from __future__ import annotations

import numpy as np

from wherecast.bench.workloads.form import ABOVE, BELOW, EQUAL, Conjunctions
from wherecast.kernels.arrays import Floats, Longs

#: Distance between the prices that filters of one symbol ask for, as a logarithm.
PRICE_STEP = 0.001


def draw_usual_prices(n_symbols: int, rng: np.random.Generator) -> Floats:
    """The usual price of each symbol."""
    prices: Floats = np.exp(rng.normal(3.3, 1.0, n_symbols))
    return prices


def ask_for_prices(symbol: Longs, number: Longs, usual: Floats) -> Conjunctions:
    """`symbol = S AND price > (or <) P`: for each subscription, its symbol and the number of the filter among the symbol's.

    Even numbers ask for prices above the usual one and odd ones for prices below, the further away the higher they are.
    """
    n = symbol.size
    op = np.where(number % 2 == 0, ABOVE, BELOW)
    steps = (number // 2 + 1) * np.where(op == ABOVE, 1, -1)
    bound = np.round(usual[symbol] * np.exp(PRICE_STEP * steps), 6)
    return Conjunctions(
        np.arange(0, 2 * n + 1, 2),
        np.tile([0, 1], n),
        np.stack([np.full(n, EQUAL), op], 1).ravel(),
        np.stack([symbol.astype(np.float64), bound], 1).ravel(),
    )
