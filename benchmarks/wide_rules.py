"""Text rules over many optional attributes: time to load, microseconds per event, against DuckDB and the automata alone.

    python benchmarks/wide_rules.py [--rules N] [--attributes N] [--events N] [--seed N] [--rounds N] [--no-database]

A rule speaks of three of the attributes, with 10 to 20 literals: nested ORs of LIKE and ILIKE, an ILIKE that many texts meet, and a
NOT over an OR. An event has 40 of the attributes, each with a text of six words. The same run measures

- loading the rules, the first time in a process, when Numba sets itself up and reads kernels from its cache, and then again;
- the engine, from an Arrow table to subscription ids;
- the engine on single events, from a dict of the 40 attributes to a list of ids;
- the automata's pass alone: finding all literals of all rules in all texts, as the engine does it;
- DuckDB, evaluating every rule on every event, less the time it takes to plan the query.

Matches are compared with DuckDB's before anything is printed. The median of several rounds is printed, in processor time
of one thread: on a busy machine the clock says more about the others. Ratios within one run are what counts.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

from wherecast import Engine
from wherecast.index.literals import LiteralCodes
from wherecast.index.strings import lay_out
from wherecast.language.filters.columns import ANYWHERE, AT_START

WORDS = [f"w{number:04d}" for number in range(4_000)]
#: Attributes of a rule, attributes that an event has, and words of its texts.
OF_RULE, PRESENT, WORDS_OF_TEXT = 3, 40, 6


class Test(NamedTuple):
    """`attribute LIKE pattern`, or ILIKE; the literal has its mark (see `language.columns`)."""

    attribute: str
    folds: bool
    literal: str

    def __str__(self) -> str:
        mark, text = self.literal[0], self.literal[1:]
        pattern = f"{text}%" if mark == AT_START else f"%{text}%"
        return f"{self.attribute} {'ILIKE' if self.folds else 'LIKE'} '{pattern}'"


def make_rule(draw: random.Random, attributes: list[str]) -> tuple[str, list[Test]]:
    """A rule as text, and its tests."""
    a, b, c = draw.sample(attributes, OF_RULE)
    many = [
        Test(draw.choice((a, b, c)), draw.random() < 0.5, ANYWHERE + draw.choice(WORDS))
        for _ in range(draw.randint(5, 12))
    ]
    half = len(many) // 2
    others = [
        Test(draw.choice((a, b, c)), draw.random() < 0.5, ANYWHERE + draw.choice(WORDS))
        for _ in range(draw.randint(2, 5))
    ]
    common = Test(a, True, ANYWHERE + draw.choice(WORDS)[:3])
    barred = [Test(b, False, ANYWHERE + draw.choice(WORDS)), Test(c, False, AT_START + draw.choice(WORDS))]
    nested = f"({join(many[:half])} OR ({common} AND ({join(many[half:])})))"
    text = f"({nested} OR {join(others)}) AND {common} AND NOT ({join(barred)})"
    return text, [*many, *others, common, *barred]


def join(tests: list[Test]) -> str:
    return " OR ".join(map(str, tests))


def make_events(draw: random.Random, attributes: list[str], n: int) -> pa.Table:
    def text() -> str:
        return " ".join(draw.choices(WORDS, k=WORDS_OF_TEXT))

    events = [{name: text() for name in draw.sample(attributes, min(PRESENT, len(attributes)))} for _ in range(n)]
    return pa.Table.from_pylist(events, pa.schema([(name, pa.string()) for name in attributes]))


def median(rounds: int, run: Callable[[], object]) -> float:
    """Seconds of processor time."""
    taken = []
    for _ in range(rounds):
        start = time.thread_time()
        run()
        taken.append(time.thread_time() - start)
    return statistics.median(taken)


def load(attributes: list[str], rules: dict[int, str]) -> tuple[Engine, float]:
    """An engine with the rules, and the seconds of processor time that it took."""
    engine = Engine(dict.fromkeys(attributes, "string"))
    start = time.process_time()
    engine.subscribe_many(rules)
    return engine, time.process_time() - start


def automata_pass(tests: list[Test], events: pa.Table) -> Callable[[], object]:
    """Finds all literals in all texts, column by column."""
    literals: dict[tuple[str, bool], set[str]] = defaultdict(set)
    for test in tests:
        literals[test.attribute, test.folds].add(test.literal)
    columns = {name: events[name].combine_chunks() for name in events.column_names}
    automata = [(columns[name], folds, LiteralCodes.of(sorted(found))) for (name, folds), found in literals.items()]
    return lambda: [codes.encode_texts(lay_out(values), fold=folds) for values, folds, codes in automata]


def database_pass(rules: list[str], events: pa.Table) -> tuple[int, float]:
    """Matches of all rules, and the seconds that evaluating them takes: one query on all events, less the same on none."""
    counts = ", ".join(f"count(*) FILTER (WHERE {rule})" for rule in rules)
    taken, found = [], 0
    with duckdb.connect(config={"threads": 1}) as database:
        for table in (events, events.slice(0, 0)):
            database.register("source", table)
            database.execute("CREATE OR REPLACE TABLE events AS SELECT * FROM source").fetchall()
            start = time.process_time()
            (row,) = database.execute(f"SELECT {counts} FROM events").fetchall()
            taken.append(time.process_time() - start)
            found = found or sum(row)
    return found, taken[0] - taken[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rules", type=int, default=3_000)
    parser.add_argument("--attributes", type=int, default=300)
    parser.add_argument("--events", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-database", action="store_true", help="leave DuckDB out; it takes the longest")
    given = parser.parse_args()

    draw = random.Random(given.seed)
    attributes = [f"f{number}" for number in range(given.attributes)]
    made = [make_rule(draw, attributes) for _ in range(given.rules)]
    events = make_events(draw, attributes, given.events)
    rules = {number: rule for number, (rule, _) in enumerate(made)}
    (engine, first), *again = [load(attributes, rules) for _ in range(1 + given.rounds)]
    engine.plan(events)

    found = int(np.sum(engine.match_batch(events).counts()))
    matching = median(given.rounds, lambda: engine.match_batch(events).subscription_ids()) / given.events
    searching = median(given.rounds, automata_pass([t for _, tests in made for t in tests], events)) / given.events
    singles = [{k: v for k, v in row.items() if v is not None} for row in events.slice(0, 200).to_pylist()]
    alone = median(given.rounds, lambda: [engine.match(event) for event in singles]) / len(singles)
    facts = engine.stats()["segments"][0]
    print(f"{given.rules:,} rules on {given.attributes} attributes, {given.events:,} events, {found:,} matches")
    later = statistics.median(seconds for _, seconds in again)
    print(
        f"    loaded in {later / given.rules * 1e6:,.0f} us per rule, the first time in {first / given.rules * 1e6:,.0f}"
    )
    print(f"    {facts['clauses']:,} clauses, {facts['candidates_per_event']:,.1f} candidates per event")
    print(f"    engine   {matching * 1e6:10,.1f} us per event")
    print(f"    alone    {alone * 1e6:10,.1f} us per event, {alone / matching:.1f} times that")
    print(f"    automata {searching * 1e6:10,.1f} us per event; the engine takes {matching / searching:.1f} times that")
    if not given.no_database:
        expected, seconds = database_pass([rule for rule, _ in made], events)
        if found != expected:
            raise SystemExit(f"the engine found {found} matches, DuckDB {expected}")
        evaluating = seconds / given.events
        print(f"    DuckDB   {evaluating * 1e6:10,.1f} us per event, {evaluating / matching:.0f} times the engine's")


if __name__ == "__main__":
    main()
