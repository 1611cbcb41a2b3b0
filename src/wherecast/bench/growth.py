"""Growth curves: time per event against the number of subscriptions, at fixed matches per event.

Theory of operation
-------------------
Naively one would load more and more of a workload; then matches grow with the subscriptions, and writing them out hides
how the search grows. So the smallest set stays as it is, and whatever is added to it is drawn from the same distribution
but matches none of the events that are timed. Every size then finds exactly the same matches, and what grows is the work
of telling that the others do not match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from wherecast.bench.cases import Case
from wherecast.bench.contestants import EngineRun, build_engine
from wherecast.bench.measure import Contestant, check_count, time_in_turns
from wherecast.bench.results import Figure, Point, Result
from wherecast.bench.workloads.form import Conjunctions, Workload, WorkloadError
from wherecast.bench.workloads.reference import SOURCES, draw_filters, make_workload
from wherecast.bench.workloads.truth import CHECKED_EVENTS, match_none

#: Filters drawn at a time.
DRAW = 50_000


def smallest_workload(case: Case) -> Workload:
    """The workload that the smallest set is."""
    if case.workload not in SOURCES:
        raise WorkloadError(f"no workload {case.workload!r}; there are: {', '.join(SOURCES)}")
    # Half a subscription more, so that rounding cannot take one away.
    return make_workload(case.workload, (min(case.sizes) + 0.5) / SOURCES[case.workload].size)


def measure_growth(case: Case, *, rounds: int, say: Callable[[str], None]) -> Result:
    """The curve of one case."""
    workload = smallest_workload(case)
    events = workload.event_batch().slice(0, case.events)
    checked = min(CHECKED_EVENTS, events.num_rows)
    expected = workload.truth().matches if case.expected < 0 else case.expected
    points = []
    for subscriptions in _growing_tables(workload, sorted(case.sizes), events.num_rows):
        n = subscriptions.num_rows
        say(f"{case.name}: {n:,} subscriptions")
        engine, build_s = build_engine(workload.schema, case.matcher, subscriptions, events)
        run = EngineRun(engine, events, case.output, case.threads, case.batch)
        check_count(f"{case.name} with {n} subscriptions", run(checked), expected, checked)
        timing = time_in_turns([Contestant("engine", run)], events.num_rows, rounds=rounds, budget_s=case.budget_s)[
            "engine"
        ]
        size = engine.stats()["bytes"] / n
        points.append(Point(n, timing.us_per_event, timing.matches_per_event, build_s, size))
    figures: dict[str, Figure] = {"growth_exponent": growth_exponent(points), "events": events.num_rows}
    return Result(case, max(case.sizes), figures, tuple(points))


def _growing_tables(workload: Workload, sizes: Sequence[int], n_events: int) -> Iterator[pa.Table]:
    """Subscriptions of each size, each a superset of the one before."""
    draws = _silent_filters(workload, n_events)
    texts = workload.filter_texts()
    chunks, total = [pa.array(texts, pa.string())], len(texts)
    spare: list[str] = []
    for size in sizes:
        while total < size:
            spare = spare or workload.filter_texts(next(draws))
            chunk, spare = spare[: size - total], spare[size - total :]
            chunks.append(pa.array(chunk, pa.string()))
            total += len(chunk)
        yield pa.table({"id": pa.array(np.arange(total)), "filter": pa.chunked_array(chunks)})


def _silent_filters(workload: Workload, n_events: int) -> Iterator[Conjunctions]:
    """Filters of the workload's distribution that match none of the events."""
    part = 1
    while True:
        drawn = draw_filters(workload.name, DRAW, part)
        yield drawn.take(np.flatnonzero(match_none(*drawn, workload.events[:n_events])))
        part += 1


def growth_exponent(points: Sequence[Point]) -> float | None:
    """The b of time = a * subscriptions^b, fitted on logarithms: 1 is linear, 0 is constant."""
    if len(points) < 2:
        return None
    n, us = np.log([p.subscriptions for p in points]), np.log([p.us_per_event for p in points])
    return float(np.polyfit(n, us, 1)[0])


def plot_growth(results: Sequence[Result], paths: Sequence[Path]) -> None:
    """The curves on logarithmic axes, beside a line of linear growth; the suffix of a path says the format."""
    try:
        from matplotlib.figure import Figure as Canvas  # in the extra `lab`
    except ImportError:
        raise WorkloadError("plots need matplotlib; install wherecast[lab]") from None
    canvas = Canvas(figsize=(7, 4.5), layout="constrained")
    axes = canvas.subplots()
    for result in results:
        n, us = [p.subscriptions for p in result.points], [p.us_per_event for p in result.points]
        exponent = result.figures["growth_exponent"]
        grows = "" if exponent is None else f", exponent {exponent:.2f}"
        label = f"{result.case.workload}: {result.points[0].matches_per_event:.1f} matches per event{grows}"
        axes.plot(n, us, marker="o", label=label)
        axes.plot(n, [us[0] * x / n[0] for x in n], color="0.8", linestyle="--", zorder=0)
    axes.plot([], [], color="0.8", linestyle="--", label="linear growth")
    axes.set(xscale="log", yscale="log", xlabel="subscriptions", ylabel="microseconds per event")
    axes.set_title("Time per event at fixed matches per event")
    axes.grid(which="both", alpha=0.3)
    axes.legend()
    for path in paths:
        canvas.savefig(path, dpi=150)
