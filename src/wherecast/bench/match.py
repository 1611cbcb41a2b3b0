"""Measuring a loaded engine: time per event, sizes, and the ratios to the baselines in the same minutes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wherecast.bench.contestants import EngineRun, build_engine, candidates_per_event, open_seconds
from wherecast.bench.measure import Contestant, Timing, time_in_turns
from wherecast.bench.results import Figure
from wherecast.engine.engine import Engine
from wherecast.errors import SubscriptionError
from wherecast.language.schema import Schema


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
