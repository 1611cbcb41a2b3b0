"""Six kinds of subscriptions in one index: what each costs alone, all together, and what each adds.

Section II asks the network for channels, topics, attributes, keywords, similarity and patterns, and gives no figures. Each kind has the same number of
subscriptions. An index has those of one kind, of all six or, at the largest size, of all but one; events go through all of them in turns, in one batch. What the first events match
is compared with the naive evaluator (`edn.models.find_naively`) before anything is timed. A time is the best of all rounds: what a kind adds is a small difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from wherecast.bench.measure import Contestant, time_in_turns
from wherecast.engine.engine import Engine
from wherecast.papers.edn.experiments.network import PAPER
from wherecast.papers.edn.models import (
    KINDS,
    SCHEMA,
    Subscription,
    find_naively,
    make_events,
    make_subscriptions,
)
from wherecast.papers.lab.experiment import Claim, Drawing, Experiment, Finding, Progress, show_number
from wherecast.papers.lab.plots import PALETTE, REFERENCE, show_plain
from wherecast.papers.lab.rows import Row, Rows, choose, group, numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "edn-models"
ALL = "all six"
#: The kinds of each index.
SETS: dict[str, tuple[str, ...]] = {
    **{kind: (kind,) for kind in KINDS},
    ALL: KINDS,
    **{f"all but {kind}": tuple(k for k in KINDS if k != kind) for kind in KINDS},
}
#: Ids of a kind at most.
_IDS = 10_000_000
_PASS_US = 7 * 86_400 * 1_000_000
_TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Subscriptions of each kind, and events."""

    subscriptions: tuple[int, ...] = (1_000, 3_000, 10_000)
    n_events: int = 1_000
    n_checked: int = 200  # events whose matches are compared with the naive evaluator's, on the smallest index
    rounds: int = 15
    seed: int = 1


def run(settings: ModelSettings, progress: Progress) -> list[Row]:
    """For each size and set of kinds: time and matches per event, and how many answers were wrong."""
    events = make_events(settings.n_events, settings.seed)
    rows: list[Row] = []
    for n in settings.subscriptions:
        progress(f"{NAME}: {n:,} subscriptions of each kind")
        subscriptions = {kind: make_subscriptions(kind, n, settings.seed) for kind in KINDS}
        sets = SETS if n == max(settings.subscriptions) else {name: SETS[name] for name in (*KINDS, ALL)}
        engines = {name: _engine(subscriptions, kinds, events) for name, kinds in sets.items()}
        found = _find(engines[ALL], events)
        checked = settings.n_checked if n == min(settings.subscriptions) else 0
        wrong = _count_wrong(found, subscriptions, events.slice(0, checked))
        contestants = [Contestant(name, _Stream(engine, events).run) for name, engine in engines.items()]
        timings = time_in_turns(contestants, settings.n_events, rounds=settings.rounds, budget_s=0.2)
        for name, kinds in sets.items():
            rows.append({
                "subscriptions_per_kind": n,
                "kinds": name,
                "us_per_event": timings[name].us_per_event,
                "best_us_per_event": timings[name].best_us_per_event,
                "matches_per_event": sum(len(found[kind]) for kind in kinds) / len(events),
                "checked_events": checked,
                "wrong": sum(wrong[kind] for kind in kinds),
            })  # fmt: skip
    return rows


def _engine(subscriptions: dict[str, list[Subscription]], kinds: tuple[str, ...], events: pa.Table) -> Engine:
    """An index of some kinds; an id is the number of the kind and that of the subscription."""
    engine = Engine(SCHEMA, event_time="ts")
    for kind in kinds:
        first = KINDS.index(kind) * _IDS
        engine.subscribe_many({first + i: s.text for i, s in enumerate(subscriptions[kind])})
    engine.plan(events)
    return engine


class _Stream:
    """Events that go on: each pass is some days later, so that patterns see time pass and none is late."""

    def __init__(self, engine: Engine, events: pa.Table) -> None:
        self._engine, self._events, self._passes = engine, events, 0

    def run(self, n: int) -> int:
        """Take in the first n events once more."""
        self._passes += 1
        us = self._events["ts"].slice(0, n).cast(pa.int64()).to_numpy() + self._passes * _PASS_US
        found = self._engine.advance(self._events.slice(0, n).set_column(0, "ts", pa.array(us, _TIME)))
        return len(found) + found.matches.total()


def _find(engine: Engine, events: pa.Table) -> dict[str, set[tuple[int, int]]]:
    """By kind, pairs of event and number of the subscription; a pattern has the event that completes it."""
    found = engine.advance(events)
    table = found.matches.to_arrow()
    pairs = list(zip(table["event"].to_pylist(), table["subscription"].to_pylist(), strict=True))
    pairs += [(match.events[-1], int(match.id)) for match in found]
    by_kind: dict[str, set[tuple[int, int]]] = {kind: set() for kind in KINDS}
    for event, id in pairs:
        by_kind[KINDS[id // _IDS]].add((event, id % _IDS))
    return by_kind


def _count_wrong(
    found: dict[str, set[tuple[int, int]]], subscriptions: dict[str, list[Subscription]], events: pa.Table
) -> dict[str, int]:
    """By kind, pairs of the first events that only one of the index and the naive evaluator finds."""
    plain = events.to_pylist()
    own = {kind: {pair for pair in pairs if pair[0] < len(plain)} for kind, pairs in found.items()}
    return {kind: len(own[kind] ^ find_naively(subscriptions[kind], plain)) for kind in KINDS}


# -- claims and drawings -----------------------------------------------------------------------------------------------


def _largest(rows: Rows) -> Rows:
    return choose(rows, subscriptions_per_kind=int(max(numbers(rows, "subscriptions_per_kind"))))


def _cost(rows: Rows, kinds: str) -> float:
    return float(choose(rows, kinds=kinds)[0]["best_us_per_event"])


def _judge_exact(rows: Rows) -> Finding:
    whole = choose(rows, kinds=ALL)
    wrong, checked = (int(numbers(whole, name).sum()) for name in ("wrong", "checked_events"))
    per_event = {kind: float(choose(_largest(rows), kinds=kind)[0]["matches_per_event"]) for kind in KINDS}
    listed = ", ".join(f"{kind} {show_number(found)}" for kind, found in per_event.items())
    return Finding(
        f"{wrong} wrong in {checked:,} events; matches per event: {listed}", not wrong and all(per_event.values())
    )


def _judge_sum(rows: Rows) -> Finding:
    largest = _largest(rows)
    together, alone = _cost(largest, ALL), sum(_cost(largest, kind) for kind in KINDS)
    return Finding(f"{show_number(together)} us together, {show_number(alone)} us one by one", together <= 1.1 * alone)


def _judge_growth(rows: Rows) -> Finding:
    sizes = numbers(choose(rows, kinds=ALL), "subscriptions_per_kind")
    growth = {}
    for kind in KINDS:
        costs = numbers(choose(rows, kinds=kind), "best_us_per_event")
        growth[kind] = float(costs[-1] / costs[0])
    listed = ", ".join(f"{kind} {show_number(times)}x" for kind, times in growth.items())
    most = sizes[-1] / sizes[0]
    return Finding(
        f"{most:g} times as many: {listed}", all(t < most / 2 for k, t in growth.items() if k != "similarity")
    )


def plot(rows: Rows, axes: Axes) -> None:
    """Time over the number of subscriptions, both logarithmic, by kind and together."""
    sizes = tuple(numbers(choose(rows, kinds=ALL), "subscriptions_per_kind").tolist())
    for kind, color in zip((*KINDS, ALL), PALETTE, strict=False):
        own = choose(rows, kinds=kind)
        style = "s-" if kind == ALL else "o-"
        axes.plot(sizes, numbers(own, "best_us_per_event"), style, color=color, label=kind)
    alone = [sum(_cost(own, kind) for kind in KINDS) for _, own in group(rows, "subscriptions_per_kind")]
    axes.plot(sizes, alone, "--", color=REFERENCE, label="the six one by one")
    axes.set(xscale="log", yscale="log", xlabel="subscriptions of each kind", ylabel="time per event (us, best)")
    show_plain(axes.xaxis, sizes)


def plot_shares(rows: Rows, axes: Axes) -> None:
    """At the largest size: what a kind costs alone, and what it adds to the other five."""
    largest = _largest(rows)
    places = np.arange(len(KINDS))
    alone = [_cost(largest, kind) for kind in KINDS]
    added = [_cost(largest, ALL) - _cost(largest, f"all but {kind}") for kind in KINDS]
    axes.bar(places - 0.2, alone, 0.38, color=PALETTE[0], label="alone in an index")
    axes.bar(places + 0.2, added, 0.38, color=PALETTE[1], label="added to the other five")
    axes.set_xticks(places, KINDS)
    n = int(largest[0]["subscriptions_per_kind"])
    axes.set(xlabel=f"kind of subscription, {n:,} each", ylabel="time per event (us, best)")


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Six models of subscription in one index",
    {
        "small": ModelSettings(subscriptions=(100, 400), n_events=200, n_checked=50, rounds=1),
        "paper": ModelSettings(),
        "large": ModelSettings(subscriptions=(1_000, 10_000, 100_000)),
    },
    run,
    (
        Claim(PAPER, NAME, "One index carries all six models, and finds what a naive evaluator finds.", "no figure", _judge_exact),
        Claim(PAPER, NAME, "Together they cost about what they cost one by one.", "no figure", _judge_sum),
        Claim(PAPER, NAME, "More subscriptions cost little more, but for similarity, which compares all vectors.", "no figure", _judge_growth),
    ),
    plot,
    more_drawings=(Drawing(f"{NAME}-shares", "Six models of subscription: alone, and added to the others", plot_shares),),
    seconds={"small": 5, "paper": 120},
)  # fmt: skip
