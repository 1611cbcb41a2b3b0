"""Stock alerts: 100,000 people name their conditions, quotes arrive in batches, everybody hears what concerns them.

python alerts.py                                # a few seconds
python alerts.py --alerts 1000000 --batches 20  # as many as you like
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator

import pyarrow as pa

from wherecast import Engine

SCHEMA = {"symbol": "string", "price": "double", "volume": "bigint", "change": "double"}
SYMBOLS = [f"{a}{b}{c}" for a in "ABCDEFGHIJ" for b in "KLMNOPQRST" for c in "UVWXYZ"]
QUOTES = 10_000


def price_of(symbol: str) -> float:
    """Where the price of a symbol begins."""
    return 10.0 + sum(ord(letter) * 7**place for place, letter in enumerate(symbol)) % 900


def make_alerts(count: int, seed: int = 1) -> Iterator[tuple[str, str]]:
    """What people ask for: a name and a condition each."""
    rng = random.Random(seed)
    for number in range(count):
        # Few symbols are asked for often.
        symbol = SYMBOLS[min(int(rng.paretovariate(0.6)) - 1, len(SYMBOLS) - 1)]
        start = price_of(symbol)
        condition = rng.choice(
            (
                f"symbol = '{symbol}' AND price < {start * rng.uniform(0.8, 0.99):.2f}",
                f"symbol = '{symbol}' AND price > {start * rng.uniform(1.01, 1.2):.2f} AND volume >= {rng.randrange(1, 9) * 10_000}",
                f"symbol IN ('{symbol}', '{rng.choice(SYMBOLS)}') AND abs(change) > {rng.randrange(3, 9)}",
                f"change < -{rng.randrange(8, 10)} AND price * volume > {rng.randrange(1, 9)}e7",
            )
        )
        yield f"person-{number}", condition


def make_quotes(count: int, seed: int) -> pa.Table:
    """A batch of quotes."""
    rng = random.Random(seed)
    symbols = rng.choices(SYMBOLS, k=count)
    changes = [rng.gauss(0, 3) for _ in range(count)]
    return pa.table(
        {
            "symbol": symbols,
            "price": [round(price_of(s) * (1 + c / 100), 2) for s, c in zip(symbols, changes, strict=True)],
            "volume": [rng.randrange(100_000) for _ in range(count)],
            "change": changes,
        }
    )


# --8<-- [start:main]
def main(alerts: int = 100_000, batches: int = 5) -> Engine:
    """Register the alerts, match the batches, change an alert, save and open."""
    engine = Engine(SCHEMA)
    outcome = engine.subscribe_many(make_alerts(alerts))
    print(f"{outcome.registered:,} alerts registered, {len(outcome.quarantined)} refused")
    for number in range(batches):
        quotes = make_quotes(QUOTES, seed=number)
        start = time.perf_counter()
        matches = engine.match_batch(quotes)
        told = matches.to_arrow()  # a row for each quote and person to tell
        took = (time.perf_counter() - start) * 1e6 / QUOTES
        print(f"batch {number}: {told.num_rows:,} messages for {QUOTES:,} quotes, {took:.1f} us per quote")

    # A change counts from the next match on.
    quote = {"symbol": "AKU", "price": price_of("AKU"), "volume": 500, "change": 0.0}
    engine.subscribe("ann", "symbol = 'AKU' AND price > 1")
    assert "ann" in engine.match(quote)
    engine.subscribe("ann", "symbol = 'AKU' AND price > 100000", replace=True)
    assert "ann" not in engine.match(quote)
    print("why ann is not told:", engine.explain(quote, "ann"), sep="\n")

    with tempfile.TemporaryDirectory() as folder:
        engine.save(folder)
        assert Engine.open(folder).match(quote) == engine.match(quote)
        print("saved and opened: the answers are the same")
    return engine


# --8<-- [end:main]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--alerts", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=5)
    main(**vars(parser.parse_args()))
