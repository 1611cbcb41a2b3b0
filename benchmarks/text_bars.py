"""The bars of text search in one run: 20,000 detection rules against a prototype, in turns, and sets of negated tests.

    python benchmarks/text_bars.py REAL.PY [--rounds N] [--negated N] [--no-database]

REAL.PY is the file with the reference workload `rules` and its prototype: a function `rules(folder, scale)` that writes the
workload there and calls `report(..., run)`. The prototype counts matches; the engine goes from an Arrow table to subscription ids. Measured
are, in processor time of one thread, as the median of the rounds, contestants in turns:

- the engine on the rules as they are, with every LIKE as ILIKE, with lower() on both sides, with `RLIKE '.*x.*y'` for every fifth rule;
- a single event from a dict to a list of ids: the median;
- loading the rules, saving and opening a snapshot;
- filters that are negated text tests only, and negated tests beside an equality, against DuckDB evaluating every filter, and
  against a floor: the automata's pass and one write of each match.

`benchmarks/wide_rules.py` has the bars of many optional attributes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from wide_rules import database_pass

from wherecast import Engine
from wherecast.index.literals import LiteralCodes

#: Words of the texts of negated tests, and events there.
WORDS = [f"w{number:05d}" for number in range(20_000)]
NEGATED_EVENTS = 100


def load_rules(path: Path, folder: Path) -> tuple[Callable[[int], int], list[str], pa.Table, dict[str, str]]:
    """The prototype, ready to run on so many events; the rules, the events and the schema."""
    spec = importlib.util.spec_from_file_location("reference_workloads", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is not a Python file")
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: list[Callable[[int], int]] = []
    module.report = lambda *given: found.append(given[-1])
    module.rules(folder, 1.0)
    written = folder / "rules"
    rules = pq.read_table(written / "subscriptions.parquet")["filter"].to_pylist()
    return found[0], rules, pq.read_table(written / "events.parquet"), json.loads((written / "schema.json").read_text())


def with_lower(rule: str) -> str:
    """Every LIKE on the text in lower case; the patterns are in lower case already."""
    return re.sub(r"(\w+) LIKE '([^']*)'", lambda m: f"lower({m[1]}) LIKE '{m[2].lower()}'", rule)


def with_regex(number: int, rule: str) -> str:
    """A regular expression of two words in place of every fifth rule."""
    words = re.findall(r"w\d+", rule)
    return rule if number % 5 or not words else f"cmd RLIKE '.*{words[0]}.*{words[-1]}'"


VARIANTS: dict[str, Callable[[int, str], str]] = {
    "as they are": lambda _, rule: rule,
    "all ILIKE": lambda _, rule: rule.replace(" LIKE ", " ILIKE "),
    "all lower()": lambda _, rule: with_lower(rule),
    "fifth RLIKE": with_regex,
}


def in_turns(rounds: int, runs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds of processor time of each, the median."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds + 1):  # the first one warms up
        for name, run in runs.items():
            start = time.thread_time()
            run()
            taken[name].append(time.thread_time() - start)
    return {name: statistics.median(each[1:]) for name, each in taken.items()}


def make_engine(schema: dict[str, str], rules: list[str], events: pa.Table) -> tuple[Engine, float]:
    """An engine planned for the events, and microseconds per rule to load it."""
    engine = Engine(schema)
    start = time.thread_time()
    refused = engine.subscribe_many(enumerate(rules)).quarantined
    if refused:
        raise SystemExit(f"{len(refused):,} rules are refused: {refused[0]}")
    load = (time.thread_time() - start) / len(rules) * 1e6
    engine.plan(events)
    return engine, load


def matching(engine: Engine, events: pa.Table) -> Callable[[], object]:
    return lambda: engine.match_batch(events).subscription_ids()


def measure_rules(given: argparse.Namespace, folder: Path) -> None:
    prototype, rules, events, schema = load_rules(given.real, folder)
    make_engine(schema, rules[:1000], events)  # loads the kernels
    engines = {n: make_engine(schema, [v(i, r) for i, r in enumerate(rules)], events) for n, v in VARIANTS.items()}
    runs: dict[str, Callable[[], object]] = {"prototype": lambda: prototype(events.num_rows)}
    found = in_turns(given.rounds, runs | {n: matching(engine, events) for n, (engine, _) in engines.items()})
    per_event = {name: seconds / events.num_rows * 1e6 for name, seconds in found.items()}
    engine = engines["as they are"][0]
    if int(np.sum(engine.match_batch(events).counts())) != prototype(events.num_rows):
        raise SystemExit("the engine and the prototype find different numbers of matches")
    print(f"{len(rules):,} rules, {events.num_rows:,} events; us per event")
    base = per_event["as they are"]
    for name, value in per_event.items():
        times = f"{value / per_event['prototype']:5.2f} x prototype, {value / base:5.2f} x the rules as they are"
        load = "" if name == "prototype" else f", loaded in {engines[name][1]:.1f} us per rule"
        print(f"    {name:12} {value:8.2f}  {times}{load}")
    singles = events.slice(0, 1000).to_pylist()
    alone = [timed(engine, event) for event in singles * 2][len(singles) :]
    p50 = statistics.median(alone) * 1e6
    print(f"    {'match(dict)':12} {p50:8.2f}  p50, {p50 / base:5.2f} x the rules as they are")
    engine.save(folder / "saved")
    start = time.perf_counter()
    Engine.open(folder / "saved")
    print(f"    opening a snapshot takes {time.perf_counter() - start:.3f} s")


def timed(engine: Engine, event: dict[str, object]) -> float:
    start = time.perf_counter()
    engine.match(event)
    return time.perf_counter() - start


def negated(draw: random.Random, n: int, operator: str = "LIKE") -> str:
    return " AND ".join(f"NOT {draw.choice(('cmd', 'image'))} {operator} '%{draw.choice(WORDS)}%'" for _ in range(n))


NEGATED: dict[str, Callable[[random.Random], str]] = {
    "one NOT LIKE": lambda draw: negated(draw, 1),
    "two NOT LIKE": lambda draw: negated(draw, 2),
    "one NOT ILIKE": lambda draw: negated(draw, 1, "ILIKE"),
    "= and 3 to 6": lambda draw: f"event_id = {draw.randint(1, 50)} AND {negated(draw, draw.randint(3, 6))}",
}


def floor_pass(rules: list[str], events: pa.Table, matches: int) -> Callable[[], object]:
    """All literals of all rules in all texts, and an id for each match."""
    literals = {
        name: {f"*{w}" for r in rules for w in re.findall(rf"{name} I?LIKE '%(\w+)%'", r)} for name in ("cmd", "image")
    }
    automata = [(events[name].combine_chunks(), LiteralCodes.of(sorted(found))) for name, found in literals.items()]
    ids = np.arange(matches)
    return lambda: ([codes.encode(texts) for texts, codes in automata], ids.copy())


def measure_negated(given: argparse.Namespace) -> None:
    draw = random.Random(5)
    events = pa.table(
        {
            "event_id": [draw.randint(1, 50) for _ in range(NEGATED_EVENTS)],
            "cmd": [" ".join(draw.choices(WORDS, k=12)) for _ in range(NEGATED_EVENTS)],
            "image": [" ".join(draw.choices(WORDS, k=3)) for _ in range(NEGATED_EVENTS)],
        }
    )
    print(f"{given.negated:,} filters of negated tests, {NEGATED_EVENTS} events; us per event")
    for name, make in NEGATED.items():
        rules = [make(draw) for _ in range(given.negated)]
        engine, load = make_engine({"event_id": "long", "cmd": "string", "image": "string"}, rules, events)
        matches = int(np.sum(engine.match_batch(events).counts()))
        found = in_turns(
            given.rounds, {"engine": matching(engine, events), "floor": floor_pass(rules, events, matches)}
        )
        own, least = (found[key] / NEGATED_EVENTS * 1e6 for key in ("engine", "floor"))
        line = f"    {name:14} {own:9.1f}  {matches / NEGATED_EVENTS:8.0f} matches, floor {least:7.1f}, load {load:.1f} us per filter"
        if not given.no_database:
            expected, seconds = database_pass(rules, events)
            if expected != matches:
                raise SystemExit(f"the engine found {matches} matches, DuckDB {expected}")
            line += f", DuckDB {seconds / NEGATED_EVENTS * 1e6:9.1f}"
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("real", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--negated", type=int, default=20_000)
    parser.add_argument("--no-database", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure_rules(given, Path(folder))
    measure_negated(given)


if __name__ == "__main__":
    main()
