"""Filter-set partitioning never loses an event, whatever comes, goes or is rebuilt."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.property.naive import NAIVE_FEATURES, evaluate
from tests.property.strategies import FilterMaker, Space, Trial, make_event, make_space, make_trial
from tests.property.terms import Term, text

from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.filters import Filters, take_filters
from wherecast.partition import axes
from wherecast.partition.filter_set import FilterSet
from wherecast.partition.hierarchy import Hierarchy
from wherecast.partition.protocol import Placement

N_FILTERS = 20

#: Large trials come from a seed: Hypothesis would spend its time on shrinking them.
seeds = st.integers(0, 2**32)


def seeded_trial(seed: int, events: int) -> Trial:
    return make_trial(random.Random(seed), N_FILTERS, events, NAIVE_FEATURES)


@pytest.fixture(autouse=True)
def few_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few cuts and axes: most constants have to be rounded, some attributes have no axis."""
    monkeypatch.setattr(axes, "MOST_CUTS", 6)
    monkeypatch.setattr(axes, "MOST_AXES", 3)


def compile_terms(space: Space, terms: list[Term]) -> Filters:
    """One filter per term, in order, equal ones repeated."""
    compiled = Compiler(Schema.of(space.schema)).compile_many([text(t) for t in terms])
    assert not compiled.errors
    return take_filters(compiled.filters, compiled.filter_of)


def homes(placement: Placement) -> list[int]:
    """The server of each filter; there is exactly one."""
    assert np.array_equal(placement.ptr, np.arange(placement.servers.size + 1))
    return placement.servers.tolist()


def check_routes(partition: FilterSet, standing: list[tuple[Term, int]], space: Space, events: list[Any]) -> None:
    """An event that satisfies a filter is routed to the filter's server; pairs are in order, each once."""
    batch = EventBatch.read(Schema.of(space.schema), events)
    routes = partition.route(batch)
    pairs = list(zip(routes.event_ids.tolist(), routes.servers.tolist(), strict=True))
    assert pairs == sorted(set(pairs))
    for row, event in enumerate(events):
        for term, server in standing:
            if evaluate(term, event) is True:
                assert (row, server) in pairs, f"{text(term)}\n{event}"


@examples(25)
@given(seeds, st.integers(1, 6), st.integers(1, 4), st.booleans())
def test_no_event_is_lost(seed: int, servers: int, boxes: int, sampled: bool) -> None:
    """Whatever the filters, servers, boxes and sample, an event goes where its filters live."""
    trial = seeded_trial(seed, 10)
    filters = compile_terms(trial.space, trial.filters)
    schema = Schema.of(trial.space.schema)
    sample = EventBatch.read(schema, trial.events) if sampled else None
    weights = np.ones(filters.n_filters, np.int64)
    partition = FilterSet.build(filters, weights, schema, servers, sample, boxes_per_server=boxes)
    placed = homes(partition.place(filters))
    check_routes(partition, list(zip(trial.filters, placed, strict=True)), trial.space, trial.events)
    again = FilterSet.from_arrays(partition.arrays(), schema)
    batch = EventBatch.read(schema, trial.events)
    for one, two in zip(partition.route(batch), again.route(batch), strict=True):
        assert np.array_equal(one, two)
    assert homes(again.place(filters)) == placed


@examples(30)
@given(
    seeds,
    st.lists(st.sampled_from(["insert", "insert", "remove", "rebuild", "save"]), max_size=8),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_no_event_is_lost_through_changes(seed: int, steps: list[str], servers: int, boxes: int) -> None:
    """Through inserts, removals, rebuilds and saving, events go where their filters live and loads add up."""
    rng = random.Random(seed)
    space = make_space(rng)
    maker = FilterMaker(rng, space, NAIVE_FEATURES)
    schema = Schema.of(space.schema)
    standing = [maker.condition(2) for _ in range(rng.randint(0, 6))]
    filters = compile_terms(space, standing)
    partition = FilterSet.build(filters, np.ones(len(standing), np.int64), schema, servers, boxes_per_server=boxes)
    for step in steps:
        if step == "insert":
            new = [maker.condition(2) for _ in range(rng.randint(1, 4))] + standing[:1]
            filters, ones = compile_terms(space, new), np.ones(len(new), np.int64)
            would = homes(partition.place(filters))
            assert len(homes(partition.insert(filters, ones))) == len(new) == len(would)
            standing += new
        elif step == "remove" and standing:
            gone = [standing.pop(rng.randrange(len(standing)))]
            partition.remove(compile_terms(space, gone), np.ones(1, np.int64))
        elif step == "rebuild":
            sample = EventBatch.read(schema, [make_event(rng, space) for _ in range(5)]) if rng.random() < 0.5 else None
            partition.rebuild(compile_terms(space, standing), np.ones(len(standing), np.int64), sample)
        elif step == "save":
            partition = FilterSet.from_arrays(partition.arrays(), schema)
        placed = homes(partition.place(compile_terms(space, standing)))
        check_routes(
            partition, list(zip(standing, placed, strict=True)), space, [make_event(rng, space) for _ in range(4)]
        )
        assert np.array_equal(partition.loads(), np.bincount(np.array(placed, int), minlength=servers))


@examples(15)
@given(seeds, st.integers(1, 9), st.lists(st.integers(1, 4), max_size=2), st.integers(1, 3))
def test_a_tree_of_dispatchers_loses_nothing(seed: int, servers: int, fanouts: list[int], precision: int) -> None:
    """However coarse the levels, an event arrives at every server that has a match for it."""
    trial = seeded_trial(seed, 10)
    filters, schema = compile_terms(trial.space, trial.filters), Schema.of(trial.space.schema)
    partition = FilterSet.build(filters, np.ones(filters.n_filters, np.int64), schema, servers)
    levels = [None if precision == 3 else precision] * (len(fanouts) + 1)
    tree = Hierarchy([partition.cover(s) for s in range(servers)], fanouts, levels)
    arrived = tree.deliver(EventBatch.read(schema, trial.events))[0]
    for term, server in zip(trial.filters, homes(partition.place(filters)), strict=True):
        for row, event in enumerate(trial.events):
            assert arrived[server, row] or evaluate(term, event) is not True, f"{text(term)}\n{event}"


@examples(15)
@given(seeds, st.integers(1, 12))
def test_loads_stay_within_the_bound(seed: int, servers: int) -> None:
    """A part weighs at most its share and (1 + 1/2 + ... + 1/n) / 2 of the heaviest filter."""
    trial = seeded_trial(seed, 1)
    filters, schema = compile_terms(trial.space, trial.filters), Schema.of(trial.space.schema)
    weights = np.random.default_rng(seed).integers(1, 50, N_FILTERS)
    partition = FilterSet.build(filters, weights, schema, servers)
    heaviest = max(weights[[d == e for e in filters.each_digest()]].sum() for d in filters.each_digest())
    loads = partition.loads()
    assert loads.sum() == weights.sum()
    assert loads.max() <= loads.mean() + heaviest * sum(1 / k for k in range(1, servers + 1)) / 2 + 1e-6


@examples(10)
@given(seeds, st.integers(1, 6))
def test_new_filters_keep_the_balance(seed: int, servers: int) -> None:
    """New filters bring no server above 1 + slack of the mean, but for the weight of one filter."""
    trial = seeded_trial(seed, 1)
    filters, schema = compile_terms(trial.space, trial.filters), Schema.of(trial.space.schema)
    empty = take_filters(filters, np.zeros(0, np.int64))
    partition = FilterSet.build(empty, np.zeros(0, np.int64), schema, servers, slack=0.2)
    for f in range(filters.n_filters):
        if filters.digest(f) not in filters.each_digest()[:f]:
            partition.insert(take_filters(filters, np.array([f])), np.ones(1, np.int64))
    loads = partition.loads()
    assert loads.max() <= 1.2 * loads.mean() + 1
