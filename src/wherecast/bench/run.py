"""The runner: declared cases in, results out; nothing is timed before its answers are checked.

Measured are the time per event of a loaded engine, sizes, and the ratios to baselines that run in the same minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from wherecast.bench.cases import Case
from wherecast.bench.contestants import (
    Baselines,
    EngineRun,
    build_engine,
    candidates_per_event,
    check_engine,
    open_seconds,
)
from wherecast.bench.growth import measure_growth
from wherecast.bench.measure import Contestant, Timing, check_count, time_in_turns
from wherecast.bench.results import Figure, Result
from wherecast.bench.updates import measure_latency, measure_updates
from wherecast.bench.workloads.catalogue import make_workload
from wherecast.bench.workloads.truth import CHECKED_EVENTS
from wherecast.engine.engine import Engine
from wherecast.errors import MatcherError, SubscriptionError
from wherecast.language.events.schema import Schema


@dataclass(frozen=True, slots=True)
class LoadedEngine:
    """An engine with its subscriptions, and what loading it took."""

    engine: Engine
    build_s: float
    open_s: float | None
    disk_bytes: int | None

    def figures(self) -> dict[str, Figure]:
        """Sizes and times that do not depend on how events are matched."""
        n = max(len(self.engine), 1)
        return {
            "build_s": self.build_s,
            "open_s": self.open_s,
            "bytes_per_subscription": self.engine.stats()["bytes"] / n,
            "disk_bytes_per_subscription": None if self.disk_bytes is None else self.disk_bytes / n,
            "candidates_per_event": candidates_per_event(self.engine),
        }


def load_engine(
    schema: Schema | dict[str, object], matcher: str | None, subscriptions: Any, events: Any
) -> LoadedEngine:
    """Build an engine from filter texts, save it and open it again."""
    engine, build_s = build_engine(schema, matcher, subscriptions, events)
    return LoadedEngine(engine, build_s, *open_seconds(engine))


def time_figures(timing: Timing) -> dict[str, Figure]:
    """A timing by the names of the JSON line."""
    return {
        "events": timing.events,
        "us_per_event": timing.us_per_event,
        "best_us_per_event": timing.best_us_per_event,
        "matches_per_event": timing.matches_per_event,
        "ns_per_match": timing.us_per_event * 1000 / timing.matches_per_event if timing.matches else None,
    }


def compare(
    run: EngineRun, n_events: int, baselines: Sequence[Contestant], build_s: float, *, rounds: int, budget_s: float
) -> dict[str, Figure]:
    """Figures of the engine, and of each baseline with the ratio engine / baseline."""
    timings = time_in_turns([Contestant("engine", run), *baselines], n_events, rounds=rounds, budget_s=budget_s)
    figures = time_figures(timings["engine"])
    for baseline in baselines:
        name, timing = baseline.name.replace("-", "_"), timings[baseline.name]
        figures[f"{name}_us_per_event"] = timing.us_per_event
        figures[f"{name}_ratio"] = timings["engine"].us_per_event / timing.us_per_event
        figures[f"{name}_best_ratio"] = timings["engine"].best_us_per_event / timing.best_us_per_event
        if baseline.build_s:
            figures[f"{name}_build_s"] = baseline.build_s
            figures[f"{name}_build_ratio"] = build_s / baseline.build_s
        if baseline.size_bytes is not None:
            figures[f"{name}_bytes_per_subscription"] = baseline.size_bytes / max(len(run.engine), 1)
    return figures


def measure_files(
    schema: Schema, subscriptions: Any, events: Any, matcher: str | None, output: str, threads: int, rounds: int
) -> dict[str, Figure]:
    """The figures of `wherecast bench match`: any subscriptions, any events."""
    loaded = load_engine(schema, matcher, subscriptions, events)
    if not len(loaded.engine):
        raise SubscriptionError("none of the subscriptions could be registered; `wherecast match` says why")
    run = EngineRun(loaded.engine, events, output, threads)
    timing = time_in_turns([Contestant("engine", run)], len(events), rounds=rounds, budget_s=10.0)["engine"]
    sizes = loaded.figures()
    return {**time_figures(timing), **sizes, "subscriptions": len(loaded.engine)}


class Stage:
    """One workload at one size, with what cases on it share: tables, truth, engines, baselines."""

    def __init__(self, name: str, scale: float) -> None:
        self.key = (name, scale)
        self.workload = make_workload(name, scale)
        self.subscriptions = self.workload.subscription_table()
        self.events = self.workload.event_batch()
        self.truth = self.workload.truth()
        self.checked = min(CHECKED_EVENTS, self.events.num_rows)
        self._loaded: dict[str, LoadedEngine] = {}

    def expected(self, case: Case) -> int:
        """What the checked events must find: the declared number, or brute force at another size."""
        return self.truth.matches if case.expected < 0 else case.expected

    @cached_property
    def baselines(self) -> Baselines:
        """The baselines, made when first asked for."""
        return Baselines(self.workload, self.subscriptions, self.events, self.truth.matches)

    def load(self, matcher: str) -> LoadedEngine:
        """An engine with the subscriptions, checked event by event."""
        if matcher not in self._loaded:
            loaded = load_engine(self.workload.schema, matcher, self.subscriptions, self.events)
            check_engine(loaded.engine, self.events, self.truth)
            self._loaded[matcher] = loaded
        return self._loaded[matcher]


def run_cases(cases: Sequence[Case], *, rounds: int, say: Callable[[str], None]) -> Iterator[Result]:
    """Measure the cases one after the other. Raises WrongCountError at the first wrong answer."""
    stage: Stage | None = None
    for case in cases:
        if case.kind == "growth":
            stage = None
            yield measure_growth(case, rounds=rounds, say=say)
            continue
        if stage is None or stage.key != (case.workload, case.scale):
            stage = None  # let go of the old one first
            say(f"{case.workload}: generating at scale {case.scale:g}")
            stage = Stage(case.workload, case.scale)
        say(f"{case.name}: measuring")
        try:
            yield _measure(case, stage, rounds)
        except MatcherError as error:
            yield Result(case, len(stage.workload), skipped=str(error))


def _measure(case: Case, stage: Stage, rounds: int) -> Result:
    n, expected = len(stage.workload), stage.expected(case)
    if case.kind == "updates":
        engine, _ = build_engine(stage.workload.schema, case.matcher, stage.subscriptions, stage.events)
        check_engine(engine, stage.events, stage.truth)
        check_count(case.name, stage.truth.matches, expected, stage.checked)
        return Result(case, n, measure_updates(case, stage.workload, engine, stage.events, stage.truth, rounds=rounds))
    loaded = stage.load(case.matcher)
    if case.kind == "latency":
        return Result(case, n, measure_latency(case, loaded.engine, stage.events, expected))
    run = EngineRun(loaded.engine, stage.events, case.output, case.threads, case.batch)
    check_count(case.name, run(stage.checked), expected, stage.checked)
    single = Contestant("one-thread", EngineRun(loaded.engine, stage.events, case.output, 1, case.batch))
    baselines = [single if name == "one-thread" else stage.baselines.get(name) for name in case.baselines]
    n_events = min(case.events or stage.events.num_rows, stage.events.num_rows)
    timed = compare(run, n_events, baselines, loaded.build_s, rounds=rounds, budget_s=case.budget_s)
    return Result(case, n, {**timed, **loaded.figures()})
