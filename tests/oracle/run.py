"""Random filters with every function, against Spark SQL, pair by pair.

    python -m tests.oracle.run --pairs 200000 --seed 1

Prints how many pairs were compared, how many filters Spark or Wherecast refused, and every difference with the first event
that shows it. In ANSI mode Spark stops a query where a value cannot be computed; Wherecast has NULL there. Such filters
cannot be compared, and are counted.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from tests.oracle.ask import ask_spark, holds
from tests.oracle.texts import SCHEMA, TextMaker, make_events
from tests.spark_settings import INTERPRETED, SETTINGS, start_jvms_quickly

from wherecast import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Filters that are evaluated in one job.
BATCH = 100
_EXCLUDED = "spark.sql.optimizer.excludedRules"
_REORDERING = "org.apache.spark.sql.catalyst.optimizer.ReorderAssociativeOperator"


class Report(NamedTuple):
    """What a run compared, and what differs."""

    pairs: int
    counts: Counter[str]  # filters: compared, refused, stopped
    differences: list[str]


def compare(spark: SparkSession, filters: int, events: int, seed: int) -> Report:
    """Random filters on random events; each filter alone, and all of them in one engine."""
    rng = random.Random(seed)
    table = make_events(rng, events)
    maker = TextMaker(rng)
    engine = Engine(SCHEMA)
    texts = [maker.condition() for _ in range(filters)]
    refused = {q.id for q in engine.subscribe_many(enumerate(texts)).quarantined}
    matches = engine.match_batch(table, on_error="skip")  # a text may grow too long
    found = {int(row): set(ids) for row, ids in zip(matches.rows, matches, strict=True)}
    accepted = [i for i in range(filters) if i not in refused]
    counts: Counter[str] = Counter(refused=len(refused))
    differences: list[str] = []
    for first in range(0, len(accepted), BATCH):
        numbers = accepted[first : first + BATCH]
        for number, theirs in zip(numbers, ask_spark(spark, table, [holds(texts[n]) for n in numbers]), strict=True):
            counts["compared" if isinstance(theirs, list) else "stopped"] += 1
            if not isinstance(theirs, list):
                continue
            ours = [number in found[row] if row in found else theirs[row] for row in range(events)]
            if ours != theirs and ours != _ask_compiled(spark, table, texts[number]):
                differences.append(_describe(texts[number], table, ours, theirs))
    return Report(counts["compared"] * events, counts, differences)


def _ask_compiled(spark: SparkSession, table: pa.Table, text: str) -> object:
    """The answer of compiled code, which is what users get: the interpreter differs from it here and there.

    Sums are added as they are written: see the differences in docs/language.md.
    """
    before = {name: spark.conf.get(name) for name in INTERPRETED}
    for name in INTERPRETED:
        spark.conf.unset(name)
    spark.conf.set(_EXCLUDED, _REORDERING)
    (answer,) = ask_spark(spark, table, [holds(text)])
    spark.conf.unset(_EXCLUDED)
    for name, value in before.items():
        spark.conf.set(name, value)
    return answer


def _describe(text: str, table: pa.Table, ours: list[bool], theirs: list[bool]) -> str:
    row = next(i for i, (o, t) in enumerate(zip(ours, theirs, strict=True)) if o != t)
    event = {k: v for k, v in table.slice(row, 1).to_pylist()[0].items() if k in text}
    return f"{text}\n  event: {event}\n  Wherecast: {ours[row]}, Spark: {theirs[row]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200_000)
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    from wherecast.spark.session import create_session

    # Interpreted, a filter takes a fiftieth of the time. A difference is asked again of compiled code.
    start_jvms_quickly()
    spark = create_session("oracle", "local[1]", **SETTINGS)
    pairs, counts, differences, seed = 0, Counter[str](), list[str](), options.seed
    while pairs < options.pairs:
        report = compare(spark, 200, options.events, seed)
        pairs, counts, differences, seed = (
            pairs + report.pairs,
            counts + report.counts,
            differences + report.differences,
            seed + 1,
        )
        print(f"seed {seed - 1}: {pairs:,} pairs, {dict(counts)}, {len(differences)} differences", flush=True)
        for text in report.differences:
            print(text, flush=True)
    spark.stop()
    sys.exit(bool(differences))


if __name__ == "__main__":
    main()
