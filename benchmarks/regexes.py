"""Regular expressions without literals: microseconds per event, run together against one by one.

    python benchmarks/regexes.py [--rules N] [--events N] [--seed N]

The rules are like `a RLIKE '^[0-9]{3}-[a-f]+$'`. One by one they are slow, so that way is measured on a tenth of the events; matches of
these are compared. Processor time.
"""

from __future__ import annotations

import argparse
import random
import time

from wherecast import Engine
from wherecast.index import expressions

CLASSES = ("[0-9]", "[a-f]", "[A-Z]", "[x-z]", "[g-m]")
PIECES = ("0123456789", "abcdef", "XYZ")


def make_pattern(draw: random.Random) -> str:
    parts = [f"{draw.choice(CLASSES)}{{{draw.randint(1, 4)}}}-" for _ in range(draw.randint(1, 3))]
    return f"^{''.join(parts)}{draw.choice(CLASSES)}+$"


def make_text(draw: random.Random) -> str:
    return "-".join("".join(draw.choices(draw.choice(PIECES), k=draw.randint(1, 4))) for _ in range(draw.randint(2, 4)))


def measure(patterns: list[str], events: list[dict[str, str]]) -> tuple[float, list[list[int]]]:
    """Microseconds per event, and the rules that each event matches."""
    engine = Engine({"a": "string"})
    engine.subscribe_many({number: f"a RLIKE '{pattern}'" for number, pattern in enumerate(patterns)})
    engine.match_batch(events[:1])
    start = time.process_time()
    found = [sorted(ids) for ids in engine.match_batch(events).to_lists()]
    return (time.process_time() - start) / len(events) * 1e6, found  # type: ignore[return-value]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rules", type=int, default=2_000)
    parser.add_argument("--events", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    patterns = sorted({make_pattern(draw) for _ in range(2 * given.rules)})[: given.rules]
    events = [{"a": make_text(draw)} for _ in range(given.events)]
    together, found = measure(patterns, events)
    expressions.FEW_TEXT_USES = len(patterns) + 1
    alone, expected = measure(patterns, events[: max(given.events // 10, 1)])
    if found[: len(expected)] != expected:
        raise SystemExit("run together they match other events than one by one")
    print(f"{len(patterns):,} rules, {len(events):,} events, {sum(map(len, found)):,} matches")
    print(f"    together   {together:12,.1f} us per event")
    print(f"    one by one {alone:12,.1f} us per event, {alone / together:,.0f} times that")


if __name__ == "__main__":
    main()
