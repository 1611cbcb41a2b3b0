"""Who is measured: the engine with any matcher, and the prototypes it has to beat."""

from __future__ import annotations

import importlib.util
import inspect
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wherecast.bench.cases import declared_folder
from wherecast.bench.measure import Contestant, WrongCountError, check_count, timed
from wherecast.bench.workloads.form import Workload
from wherecast.bench.workloads.truth import GroundTruth
from wherecast.engine.engine import Engine
from wherecast.errors import MatcherError
from wherecast.language.events.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

#: Subscriptions and events that make every kernel compile before a build is timed.
_FIRST_FEW = 200
#: Events that an engine is planned for.
_SAMPLE = 1_000


@dataclass(frozen=True, slots=True)
class EngineRun:
    """The engine, asked for one form of output: Arrow events in, real subscription ids or counts out."""

    engine: Engine
    events: Any  # a record batch, or whatever `Engine.match_batch` reads and `len` and slices understand
    output: str = "counts"
    threads: int = 1
    batch: int | None = None

    def __call__(self, n: int) -> int:
        """Match the first n events."""
        step = self.batch or max(n, 1)
        return sum(self._match(self._part(start, min(step, n - start))) for start in range(0, n, step))

    def _part(self, start: int, length: int) -> Any:
        if isinstance(self.events, list):
            return self.events[start : start + length]
        return self.events.slice(start, length)

    def _match(self, events: Any) -> int:
        if self.output == "counts":
            return int(self.engine.count(events, **_thread_options(Engine.count, self.threads)).sum())
        matches = self.engine.match_batch(events, **_thread_options(Engine.match_batch, self.threads))
        if self.output == "ids":
            return len(matches.subscription_ids())
        return sum(len(ids) for ids in matches.to_lists())


def _thread_options(method: Callable[..., Any], threads: int) -> dict[str, Any]:
    if threads == 1:
        return {}
    if "threads" not in inspect.signature(method).parameters:
        raise MatcherError(f"{threads} threads asked for, but this engine matches with one; leave --threads out")
    return {"threads": threads}


def new_engine(schema: Schema | dict[str, object], matcher: str | None) -> Engine:
    """An empty engine; without a name it takes its default matcher."""
    return Engine(schema) if matcher is None else Engine(schema, matcher=matcher)


def build_engine(
    schema: Schema | dict[str, object], matcher: str | None, subscriptions: Any, events: Any
) -> tuple[Engine, float]:
    """An engine with these subscriptions (a table or pairs), and the seconds from texts to ready.

    It is planned for a sample of the events, as the prototypes are: else it would plan in the background while it is timed.
    Kernels are compiled before the clock starts.
    """
    sample = events[:_SAMPLE]

    def build(source: Any) -> Engine:
        engine = new_engine(schema, matcher)
        engine.subscribe_many(source)
        engine.plan(sample)
        return engine

    build(subscriptions[:_FIRST_FEW])
    return timed(lambda: build(subscriptions))


def check_engine(engine: Engine, events: pa.RecordBatch, truth: GroundTruth) -> None:
    """Every checked event must find as many subscriptions as the truth, and the same ids by their sum."""
    batch = events.slice(0, truth.counts.size)
    counts, ids = engine.count(batch), engine.match_batch(batch).subscription_ids()
    owner = np.repeat(np.arange(truth.counts.size), counts)
    sums = (
        np.bincount(owner, ids.astype(np.float64), truth.counts.size).astype(np.int64)
        if ids.size
        else np.zeros_like(counts)
    )
    wrong = np.flatnonzero((counts != truth.counts) | (sums != truth.id_sums))
    if wrong.size:
        e = int(wrong[0])
        raise WrongCountError(
            f"engine, event {e}: {counts[e]} subscriptions with id sum {sums[e]}, expected {truth.counts[e]} with {truth.id_sums[e]}"
        )


def open_seconds(engine: Engine) -> tuple[float | None, int | None]:
    """Seconds to open a snapshot of the engine, and its bytes on disk; None where the engine has no snapshots."""
    save, reopen = getattr(engine, "save", None), getattr(Engine, "open", None)
    if save is None or reopen is None:
        return None, None
    with tempfile.TemporaryDirectory(prefix="wherecast-bench-") as folder:
        place = Path(folder, "snapshot")
        save(place)
        size = sum(f.stat().st_size for f in place.rglob("*") if f.is_file())
        opened, seconds = timed(lambda: reopen(place))
        del opened
        return seconds, size


def candidates_per_event(engine: Engine) -> float | None:
    """What the matchers say they look at for an event; None if one does not say, or says nothing of use.

    A matcher that was built without a sample of events has counted nothing and says 0.
    """
    found = [segment.get("candidates_per_event") for segment in engine.stats()["segments"]]
    if not found or any(f is None for f in found):
        return None
    return float(sum(found)) or None


# -- baselines --------------------------------------------------------------------------------------------------------


#: Files of the prototypes of workloads that `floor.py` does not suit.
_PROTOTYPES = {"geo": "geo_grid.py"}


def floor_contestant(workload: Workload) -> Contestant:
    """The throw-away prototype for this workload: numbers in, counts out."""
    floor = _load_floor(_PROTOTYPES.get(workload.name, "floor.py"))
    prototype, seconds = timed(lambda: floor.build(workload.name, workload.predicates, workload.events))
    return Contestant("floor", prototype.count, seconds, prototype.nbytes)


@cache
def _load_floor(file: str) -> Any:
    """The module of some prototypes; loaded once, so that it compiles once."""
    path = declared_folder() / file
    spec = importlib.util.spec_from_file_location(f"wherecast_bench_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def scan_contestant(workload: Workload, subscriptions: pa.Table, events: pa.RecordBatch) -> Contestant:
    """The engine with the scan matcher."""
    engine, seconds = build_engine(workload.schema, "scan", subscriptions, events)
    return Contestant("scan", EngineRun(engine, events), seconds, engine.stats()["bytes"])


def duckdb_contestant(workload: Workload) -> Contestant:
    """DuckDB, in the formulation that suits the workload best."""
    from wherecast.bench.database import build_database  # noqa: PLC0415 - DuckDB is in the extra `lab`

    count, seconds = timed(lambda: build_database(workload))
    return Contestant("duckdb", count, seconds)


class Baselines:
    """The baselines of one workload, each made once and checked before it is handed out."""

    def __init__(self, workload: Workload, subscriptions: pa.Table, events: pa.RecordBatch, expected: int) -> None:
        makers: dict[str, Callable[[], Contestant]] = {
            "floor": lambda: floor_contestant(workload),
            "scan": lambda: scan_contestant(workload, subscriptions, events),
            "duckdb": lambda: duckdb_contestant(workload),
        }
        self._makers = makers
        self._workload = workload.name
        self._checked = min(50, len(workload.events))
        self._expected = expected
        self._made: dict[str, Contestant] = {}

    def get(self, name: str) -> Contestant:
        """The baseline of this name."""
        if name not in self._made:
            contestant = self._makers[name]()
            found = contestant.run(self._checked)
            check_count(f"{name} on {self._workload}", found, self._expected, self._checked)
            self._made[name] = contestant
        return self._made[name]
