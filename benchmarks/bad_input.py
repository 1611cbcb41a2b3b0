"""How long texts that were made to hurt keep the compiler busy: milliseconds of processor time for each, the slowest last.

    python -m benchmarks.bad_input [--most-ms N]

The tests count calls, which are the same on every machine and miss what a regular expression does inside one call. Here seconds
are measured; the exit code is 1 if a text takes longer than allowed.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import suppress

from tests.property.monsters import MONSTERS, SCHEMA

from wherecast.errors import FilterError
from wherecast.language.filters.compile import Compiler


def measure_ms(text: str, rounds: int = 3) -> float:
    """The best of several rounds: others may use the machine."""
    best = float("inf")
    for _ in range(rounds):
        compiler = Compiler(SCHEMA)
        begin = time.process_time()
        with suppress(FilterError):
            compiler.compile(text)
        best = min(best, time.process_time() - begin)
    return best * 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--most-ms", type=float, default=1_000.0, help="more is a failure")
    given = parser.parse_args()
    Compiler(SCHEMA).compile("a = 1")
    taken_ms = {name: measure_ms(text) for name, (text, _) in MONSTERS.items()}
    for name, ms in sorted(taken_ms.items(), key=lambda entry: entry[1]):
        print(f"{ms:8.1f} ms  {name}")
    return int(max(taken_ms.values()) > given.most_ms)


if __name__ == "__main__":
    sys.exit(main())
