"""The runner: declared cases in, results out; nothing is timed before its answers are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from wherecast.bench.cases import Case
from wherecast.bench.contestants import Baselines, EngineRun, build_engine, check_engine
from wherecast.bench.growth import measure_growth
from wherecast.bench.match import LoadedEngine, compare, load_engine
from wherecast.bench.measure import Contestant, check_count
from wherecast.bench.results import Result
from wherecast.bench.updates import measure_latency, measure_updates
from wherecast.bench.workloads.catalogue import make_workload
from wherecast.bench.workloads.truth import CHECKED_EVENTS
from wherecast.errors import MatcherError


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
