"""How long a database takes to match: both formulations of TOPSS, 1,000 to 1,000,000 subscriptions of its workload.

    python benchmarks/database.py [--sizes N ...] [--formulations NAME ...] [--events N] [--postgres URL]

The matches of the first 50 events are checked before anything is timed. "alone" is one event per statement, as in the
paper's table 1; "batch" is per event with all events in one call. The best of several calls is printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from wherecast.bench.measure import timed
from wherecast.bench.workloads.reference import SOURCES, make_workload
from wherecast.index.boxes import EventCodes
from wherecast.index.build import code_filters
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.filters import take_filters
from wherecast.papers.lab.timing import Subject, check_matches
from wherecast.papers.topss.database import DatabaseMatcher, GroupingMatcher, SequentialMatcher

FORMULATIONS: dict[str, type[DatabaseMatcher]] = {m.name: m for m in (GroupingMatcher, SequentialMatcher)}
#: Seconds that one figure may take; at least one call is made.
BUDGET = 3.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--formulations", nargs="+", choices=FORMULATIONS, default=list(FORMULATIONS))
    parser.add_argument("--events", type=int, default=128, help="in the batch")
    parser.add_argument("--postgres", metavar="URL", help="measure PostgreSQL at this URL instead of DuckDB")
    options = parser.parse_args()
    print(f"{'subscriptions':>13} {'matcher':<20}{'load s':>9}{'MB':>8}{'alone ms':>11}{'batch ms':>11}")
    for size in options.sizes:
        workload = make_workload("topss", size / SOURCES["topss"].size)
        schema = Schema.of(workload.schema)
        filters, filter_of, _ = Compiler(schema).compile_many(workload.filter_texts())
        index = code_filters(take_filters(filters, filter_of), schema)  # equal filters apart, as in the paper
        events = index.codebook.encode(EventBatch.read(schema, workload.event_batch()))
        for name in options.formulations:
            matcher, load = timed(partial(FORMULATIONS[name].build, index.boxes, url=options.postgres))
            check_matches(Subject.of(name, matcher, events), workload.truth())
            alone = best(partial(matcher.match, some(events, 1)))
            batch = best(partial(matcher.match, some(events, options.events))) / options.events
            size_mb = matcher.stats()["bytes"] / 1e6
            print(
                f"{size:>13,} {name:<20}{load:>9.2f}{size_mb:>8.1f}{alone * 1e3:>11.2f}{batch * 1e3:>11.3f}", flush=True
            )


def some(events: EventCodes, n: int) -> EventCodes:
    """The first events."""
    return events._replace(codes=events.codes[:n])


def best(run: Callable[[], object]) -> float:
    """Seconds of the fastest call."""
    taken: list[float] = []
    while not taken or (len(taken) < 5 and sum(taken) < BUDGET):
        taken.append(timed(run)[1])
    return min(taken)


if __name__ == "__main__":
    main()
