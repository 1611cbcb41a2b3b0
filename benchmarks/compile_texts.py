"""How fast filter texts compile: texts per second in batches, microseconds for a single one.

    python benchmarks/compile_texts.py [--texts N] [--rounds N]

First come kinds whose texts differ in their constants only, as a million subscriptions do; then sets whose shapes hardly
repeat (`bench.workloads.texts`). Those are compiled by a new compiler each time, which has seen none of the shapes. The best of
several rounds is printed: on a busy machine the mean says more about the others.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

from wherecast.bench.workloads.texts import TEXT_SETS
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.language.syntax.skeletons import cut_text

SCHEMA = Schema.of({"symbol": "string", "price": "double", "open": "double", "volume": "integer", "venue": "string"})


def conjunction(draw: random.Random, i: int) -> str:
    """A keyed box, the most usual filter."""
    price = f"{draw.randrange(1000)}.{draw.randrange(10)}"
    return f"symbol = 'S{draw.randrange(100_000):05d}' AND price < {price} AND volume > {i}"


def disjunction(draw: random.Random, i: int) -> str:
    """Two boxes."""
    return f"symbol = 'S{draw.randrange(100_000):05d}' AND price < {draw.randrange(1000)} OR volume > {i}"


def in_list(draw: random.Random, i: int) -> str:
    """A list of two to nine values."""
    values = ", ".join(f"'S{draw.randrange(100_000):05d}'" for _ in range(draw.randint(2, 9)))
    return f"symbol IN ({values}) AND volume > {i}"


def residual(draw: random.Random, i: int) -> str:
    """A box and a comparison of two attributes."""
    return f"symbol = 'S{draw.randrange(100_000):05d}' AND price > open + {draw.randrange(100)} AND volume > {i}"


KINDS: dict[str, Callable[[random.Random, int], str]] = {
    "conjunctions": conjunction,
    "OR": disjunction,
    "IN lists": in_list,
    "residuals": residual,
}


def best(rounds: int, run: Callable[[], object]) -> float:
    """Seconds of processor time of the fastest round."""
    taken = []
    for _ in range(rounds):
        start = time.process_time()
        run()
        taken.append(time.process_time() - start)
    return min(taken)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--texts", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for name, make in KINDS.items():
        draw = random.Random(7)
        texts = [make(draw, i) for i in range(options.texts)]
        compiler = Compiler(SCHEMA)
        compiled = compiler.compile_many(texts[:1_000])
        assert not compiled.errors
        batch = best(options.rounds, lambda c=compiler, t=texts: c.compile_many(t))  # type: ignore[misc]
        some = texts[:200]
        single = best(options.rounds, lambda c=compiler, t=some: [c.compile(x) for x in t])  # type: ignore[misc]
        print(f"{name:14}{len(texts) / batch:>10,.0f} texts/s{single / len(some) * 1e6:>8.0f} us for one")
    for name, make_set in TEXT_SETS.items():
        found, texts = make_set(options.texts)
        schema, shapes = Schema.of(found), len({cut_text(text)[0] for text in texts})
        Compiler(schema).compile_many(texts[:1_000])
        batch = best(options.rounds, lambda s=schema, t=texts: Compiler(s).compile_many(t))  # type: ignore[misc]
        print(f"{name:14}{len(texts) / batch:>10,.0f} texts/s of {shapes:,} shapes")


if __name__ == "__main__":
    main()
