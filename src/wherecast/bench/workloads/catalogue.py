"""Every workload by its name, the same in commands, benchmarks and tests.

A name may be followed by parameters: `rapidmatch-light,a=1.5,k=50`. The same name with the same parameters and number of
subscriptions gives the same subscriptions and events everywhere.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import import_module

import numpy as np

from wherecast.bench.workloads.form import CatalogueEntry, FilterSource, Workload, WorkloadError
from wherecast.bench.workloads.reference import SOURCES
from wherecast.bench.workloads.reference import make_workload as make_reference

#: Modules with further `ENTRIES`, known by name only: benchmarks do not depend on the papers.
_MORE = (
    "wherecast.papers.topss.workload",
    "wherecast.papers.gryphon.workload",
    "wherecast.papers.rapidmatch.workload",
    "wherecast.papers.edn.quotes",
    "wherecast.papers.edn.places",
    "wherecast.papers.chord.workload",
)


@cache
def catalogue() -> dict[str, CatalogueEntry]:
    """All workloads by name: the reference ones, then those of the papers."""
    entries = [*_reference_entries(), *(entry for module in _MORE for entry in import_module(module).ENTRIES)]
    return {entry.name: entry for entry in entries}


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
        others = ", ".join(e.name for e in catalogue().values() if e.source)
        raise WorkloadError(f"workload {entry.name!r} is drawn as a whole, not in parts; those in parts are: {others}")
    parameters.pop("events", None)
    return entry.source(**parameters)


def find_entry(name: str) -> tuple[CatalogueEntry, dict[str, int | float]]:
    """The entry of a name, and its parameters as the name sets them."""
    plain, *settings = name.split(",")
    if plain not in catalogue():
        raise WorkloadError(f"no workload {plain!r}; there are: {', '.join(catalogue())}")
    entry = catalogue()[plain]
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


def _reference(name: str, summary: str) -> CatalogueEntry:
    source = SOURCES[name]

    def make(n: int) -> Workload:
        return make_reference(
            name, (n + 0.5) / source.size
        )  # half a subscription more, so that rounding takes none away

    def open_reference() -> FilterSource:
        return FilterSource(source.fields, source(np.random.default_rng(source.seed)).filters)

    return CatalogueEntry(name, summary, source.size, make, source=open_reference)


def _reference_entries() -> tuple[CatalogueEntry, ...]:
    return (
        _reference("topss", "10 integers, 1-5 predicates of = <> < >; 17.6 % match"),
        _reference("stock", "a symbol and 1-2 bounds on price, volume, change; 290,000 distinct filters"),
        _reference("light", "100 binary properties, a tenth of them tested; events with few ones"),
        _reference("gryphon", "30 attributes of 5 values, equality"),
        _reference("range", "6 floats, 2-4 two-sided ranges of very different widths"),
        _reference("geo", "boxes around cities, some with a category, a highest price, hours; large cities crowd"),
    )
