"""Every workload by its name, the same in commands, benchmarks and tests.

A name may be followed by parameters: `rapidmatch-light,a=1.5,k=50`. The same name with the same parameters and number of
subscriptions gives the same subscriptions and events everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from wherecast.workloads.edn import CONTINUATIONS, PAPER_MARKET, make_market
from wherecast.workloads.form import Predicates, Workload, WorkloadError
from wherecast.workloads.gryphon import Simulation
from wherecast.workloads.overlay import FIELDS, draw_filters, make_overlay
from wherecast.workloads.places import Places, make_places
from wherecast.workloads.quotes import Quotes, make_continuation, market_of
from wherecast.workloads.rapid import draw_exponential, draw_light
from wherecast.workloads.reference import SOURCES
from wherecast.workloads.reference import make_workload as make_reference
from wherecast.workloads.topss import SPECIFICATIONS


class FilterSource(NamedTuple):
    """What filters of a workload are drawn from, any number of them and a part at a time."""

    fields: tuple[tuple[str, str], ...]  # attribute and type
    draw: Callable[[np.random.Generator, int], Predicates]  # so many filters


@dataclass(frozen=True, slots=True)
class Entry:
    """A workload of the catalogue."""

    name: str
    summary: str
    size: int  # subscriptions at scale 1
    make: Callable[..., Workload]  # of a number of subscriptions and the parameters
    parameters: Mapping[str, int | float] = field(default_factory=dict)  # with their defaults
    source: Callable[..., FilterSource] | None = None  # of the parameters but `events`; None: only drawn as a whole


def make_workload(name: str, scale: float = 1.0) -> Workload:
    """The workload of this name, with `scale` times its subscriptions."""
    entry, parameters = find_entry(name)
    n = int(entry.size * scale)
    if n < 10:
        raise WorkloadError(f"workload {name!r} at scale {scale:g} has {n} subscriptions; use a larger scale")
    return replace(entry.make(n, **parameters), name=name)


def open_source(name: str) -> FilterSource:
    """What the filters of the workload of this name are drawn from."""
    entry, parameters = find_entry(name)
    if entry.source is None:
        others = ", ".join(e.name for e in CATALOGUE.values() if e.source)
        raise WorkloadError(f"workload {entry.name!r} is drawn as a whole, not in parts; those in parts are: {others}")
    parameters.pop("events", None)
    return entry.source(**parameters)


def find_entry(name: str) -> tuple[Entry, dict[str, int | float]]:
    """The entry of a name, and its parameters as the name sets them."""
    plain, *settings = name.split(",")
    if plain not in CATALOGUE:
        raise WorkloadError(f"no workload {plain!r}; there are: {', '.join(CATALOGUE)}")
    entry = CATALOGUE[plain]
    parameters = dict(entry.parameters)
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in parameters:
            known = ", ".join(parameters) or "none"
            raise WorkloadError(f"workload {plain!r} has no parameter {key!r}; there are: {known}")
        try:
            parameters[key] = type(parameters[key])(value)
        except ValueError:
            kind = "a whole number" if isinstance(parameters[key], int) else "a number"
            raise WorkloadError(
                f"workload {plain!r}: {key} is {value!r}, not {kind}; write {key}={parameters[key]}"
            ) from None
    return entry, parameters


# -- the entries ------------------------------------------------------------------------------------------------------


def _reference(name: str, summary: str) -> Entry:
    source = SOURCES[name]

    def make(n: int) -> Workload:
        return make_reference(
            name, (n + 0.5) / source.size
        )  # half a subscription more, so that rounding takes none away

    def open_reference() -> FilterSource:
        return FilterSource(source.fields, source(np.random.default_rng(source.seed)).filters)

    return Entry(name, summary, source.size, make, source=open_reference)


def _topss(number: int, summary: str, size: int) -> Entry:
    specification = SPECIFICATIONS[f"W{number}"]

    def make(n: int, events: int) -> Workload:
        return specification.make(n, events)

    return Entry(f"topss-w{number}", summary, size, make, {"events": 2000})


_SIMULATION = {"attributes": 30, "values": 5, "popularity": 0.98, "falloff": 0.85, "exponent": 1.0}


def _make_simulation(n: int, events: int, seed: int, **shape: Any) -> Workload:
    return Simulation(**shape).workload(n, events, seed)


def _open_simulation(seed: int, **shape: Any) -> FilterSource:  # noqa: ARG001 - it has nothing to prepare
    simulation = Simulation(**shape)
    return FilterSource(tuple((f"a{i}", "long") for i in range(simulation.attributes)), simulation.predicates)


def _make_light(n: int, a: float, c: int, k: int, events: int, seed: int) -> Workload:
    return draw_light(n, a=a, c=c, k=k, n_events=events, seed=seed).workload("rapidmatch-light")


def _make_exponential(n: int, p: float, k: int, events: int, seed: int) -> Workload:
    return draw_exponential(n, p=p, k=k, n_events=events, seed=seed).workload("rapidmatch-exponential")


_MARKET = {"slope": PAPER_MARKET.slope, "bend": PAPER_MARKET.bend, "events": 20_000, "seed": 5}


def _make_market(n: int, slope: float, bend: float, events: int, seed: int) -> Workload:
    return make_market(market_of(n, slope, bend), seed, events)


def _make_continuation(follows: str, n: int, slope: float, bend: float, events: int, seed: int) -> Workload:
    return make_continuation(follows, market_of(n, slope, bend), n, events, seed)


def _open_quotes(follows: str | None, slope: float, bend: float, seed: int) -> FilterSource:
    """Always of the paper's market: more subscriptions are then of the same symbols."""
    return FilterSource(Quotes.fields, Quotes(replace(PAPER_MARKET, slope=slope, bend=bend), follows, seed).filters)


def _continuation(follows: str) -> Entry:
    summary = f"new subscriptions to the market of edn, popularity {follows}"
    make, source = partial(_make_continuation, follows), partial(_open_quotes, follows)
    return Entry(f"edn-{follows}", summary, PAPER_MARKET.subscriptions, make, _MARKET, source)


_ENTRIES = (
    _reference("topss", "10 integers, 1-5 predicates of = <> < >; 17.6 % match"),
    _reference("stock", "a symbol and 1-2 bounds on price, volume, change; 290,000 distinct filters"),
    _reference("light", "100 binary properties, a tenth of them tested; events with few ones"),
    _reference("gryphon", "30 attributes of 5 values, equality"),
    _reference("range", "6 floats, 2-4 two-sided ranges of very different widths"),
    _topss(0, "TOPSS W0: 120 integers of 1..250, 1-20 predicates", 100_000),
    _topss(1, "TOPSS W1: 120 integers of 250..10,000, 1-20 predicates", 100_000),
    _topss(2, "TOPSS W2: 120 integers of 10,000..100,000, 1-20 predicates", 100_000),
    _topss(3, "TOPSS W3: W0, W1 and W2 mixed by attribute", 100_000),
    _topss(4, "TOPSS W4: 10 integers of 1..10, 1-5 predicates", 1_000_000),
    Entry(
        "gryphon-simulation", "the Gryphon simulation with other settings", 100_000, _make_simulation,
        {**_SIMULATION, "events": 2000, "seed": 4}, _open_simulation,
    ),
    Entry(
        "rapidmatch-light", "RAPIDMatch: k binary properties; events of 1 to c - 1 ones, t with chance t^-a", 100_000,
        _make_light, {"a": 2.0, "c": 100, "k": 100, "events": 2000, "seed": 0},
    ),
    Entry(
        "rapidmatch-exponential", "RAPIDMatch: k binary properties, 1 in events with chance p", 100_000,
        _make_exponential, {"p": 0.1, "k": 100, "events": 2000, "seed": 0},
    ),
    Entry(
        "edn", "stock quotes: symbol = S AND price > (or <) P; 290,000 distinct filters", PAPER_MARKET.subscriptions,
        _make_market, _MARKET, partial(_open_quotes, None),
    ),
    *(_continuation(name) for name in CONTINUATIONS),
    Entry(
        "places", "rectangles of a map around towns", 300_000, make_places,
        {"events": 20_000, "seed": 6}, lambda seed: FilterSource(Places.fields, Places(np.random.default_rng(seed)).filters),
    ),
    Entry(
        "overlay", "random filters for the overlay: symbol, narrow ranges of price and volume", 100_000,
        make_overlay, {"events": 2000, "seed": 7}, lambda seed: FilterSource(FIELDS, draw_filters),  # noqa: ARG005
    ),
)  # fmt: skip

#: By name.
CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}
