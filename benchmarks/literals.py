"""How fast literals are found in texts: time and bytes to build, microseconds per text.

    python benchmarks/literals.py [--literals N ...] [--texts N] [--rounds N]

Literals are 10 to 20 random characters; a text has about 110, and a share of it is literals. The median of several rounds
is printed, in processor time: on a busy machine the clock says more about the others.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable

import pyarrow as pa

from wherecast.index.literals import LiteralCodes
from wherecast.language.filters.columns import ANYWHERE

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789\\.-_ "


def word(draw: random.Random, least: int, most: int) -> str:
    """Random characters, the first ones of the alphabet more often."""
    return "".join(ALPHABET[int(len(ALPHABET) * draw.random() ** 1.7)] for _ in range(draw.randint(least, most)))


def text(draw: random.Random, literals: list[str], share: float) -> str:
    """Words and, as their share says, literals."""
    parts: list[str] = []
    while sum(map(len, parts)) < 100:
        parts.append(draw.choice(literals) if draw.random() < share else word(draw, 5, 20))
    return " ".join(parts)


def median(rounds: int, run: Callable[[], object]) -> float:
    """Seconds of processor time."""
    taken = []
    for _ in range(rounds):
        start = time.thread_time()
        run()
        taken.append(time.thread_time() - start)
    return statistics.median(taken)


def measure(n_literals: int, n_texts: int, rounds: int) -> None:
    """Print the figures for one number of literals."""
    draw = random.Random(1)
    words = sorted({word(draw, 10, 20) for _ in range(n_literals)})
    literals = [ANYWHERE + w for w in words]
    codes = LiteralCodes.of(literals)
    build = median(3, lambda: LiteralCodes.of(literals))
    check = median(3, lambda: LiteralCodes.from_arrays(codes.arrays()))
    print(f"{n_literals:>9,} literals: built in {build:.3f} s, opened in {check:.3f} s, {codes.nbytes:,} bytes")
    for share in (0.0, 0.3, 1.0):
        texts = [text(draw, words, share) for _ in range(n_texts)]
        column = pa.array(texts)
        found = codes.encode(column)[1].size / n_texts - 1
        batch = median(rounds, lambda column=column: codes.encode(column)) / n_texts  # type: ignore[misc]
        print(f"    literals {share:4.0%} of the text, {found:4.1f} found: {batch * 1e6:6.2f} us per text")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--literals", type=int, nargs="+", default=[3_000, 100_000])
    parser.add_argument("--texts", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=11)
    given = parser.parse_args()
    for n in given.literals:
        measure(n, given.texts, given.rounds)


if __name__ == "__main__":
    main()
