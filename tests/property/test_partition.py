"""Whatever the filters, the events, the plan and its history: the servers together find what one engine finds."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples, randoms, scaled
from tests.property.strategies import FilterMaker, Trial, make_trial, trials
from tests.property.terms import Term, column, constant, text

from wherecast import Engine
from wherecast.errors import PlanError
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.filters import Filters, take_filters
from wherecast.partition.event_space import EventSpace
from wherecast.partition.migrate import migrate
from wherecast.partition.plan import STRATEGIES, Plan

strategies = pytest.mark.parametrize("strategy", STRATEGIES)


@dataclass
class Model:
    """Filters that compile, with the subscriptions each has now; a plan has to agree with it."""

    schema: Schema
    texts: list[str]
    filters: Filters
    events: EventBatch
    matches: list[set[int]]  # filters that each event satisfies
    weights: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.weights = np.zeros(len(self.texts), np.int64)

    @classmethod
    def of(cls, trial: Trial, rng: random.Random) -> Model:
        schema = Schema.of(trial.space.schema)
        written = [text(fixed(term, trial, rng)) for term in trial.filters]
        compiled = Compiler(schema).compile_many(list(dict.fromkeys(written)))
        texts = {int(f): t for f, t in zip(compiled.filter_of, dict.fromkeys(written), strict=True) if f >= 0}
        engine = Engine(schema, matcher="scan")
        engine.subscribe_many(texts)
        matches = [set(ids) for ids in engine.match_batch(trial.events)]
        in_order = [texts[f] for f in range(len(texts))]
        return cls(schema, in_order, compiled.filters, EventBatch.read(schema, trial.events), matches)

    def some(self, chosen: list[int]) -> Filters:
        return take_filters(self.filters, np.array(chosen, np.int64))

    def alive(self) -> tuple[Filters, np.ndarray]:
        chosen = np.flatnonzero(self.weights)
        return take_filters(self.filters, chosen), self.weights[chosen]

    def check(self, plan: Plan) -> None:
        """Every match of a living filter is found by a server that has the filter and gets the event."""
        routes = plan.route(self.events)
        pairs = set(zip(routes.event_ids.tolist(), routes.servers.tolist(), strict=True))
        assert len(pairs) == routes.servers.size, "a pair twice"
        assert np.all(np.diff(routes.event_ids) >= 0)
        placement = plan.place(self.filters)
        homes = [set(placement.servers[a:b].tolist()) for a, b in zip(placement.ptr, placement.ptr[1:], strict=False)]
        assert sum(map(len, homes)) == placement.servers.size, "a server twice"
        assert all(0 <= s < plan.n_servers for home in homes for s in home)
        for event, found in enumerate(self.matches):
            reached = {s for e, s in pairs if e == event}
            for f in found:
                assert not self.weights[f] or reached & homes[f], (self.texts[f], event, plan.explain())


def fixed(term: Term, trial: Trial, rng: random.Random) -> Term:
    """Half of the filters with an equality to route by in front: of random ones few have any."""
    scalars = [(name, kind) for name, kind in trial.space.types.items() if not kind.startswith("array<")]
    if not scalars or rng.random() < 0.5:
        return term
    name, kind = rng.choice(scalars)
    value = constant(rng.random() < 0.5) if kind == "boolean" else FilterMaker(rng, trial.space)._plain_literal(kind)
    equality = Term("=", "boolean", (column(name, kind), value))
    return equality if rng.random() < 0.3 else Term("and", "boolean", (equality, term))


def build(model: Model, strategy: str, n_servers: int, rng: random.Random) -> Plan:
    filters, weights = model.alive()
    if strategy != "event-space":
        return Plan.build(filters, weights, model.schema, n_servers, strategy=strategy)
    scalars = [a.name for a in model.schema if not a.is_array]
    partition = EventSpace.build(
        filters, weights, model.schema, n_servers,
        attributes=rng.sample(scalars, rng.randint(0, min(2, len(scalars)))) or None,
        unrouted=rng.choice([None, "replicate", "residual"]) if n_servers > 1 else None,
        ratio=rng.choice([1, 3, 10]), summary=rng.choice(["bloom", "dictionary"]), bits=rng.choice([2, 14]),
        seed=rng.choice([0, 2**63 - 1]),
    )  # fmt: skip
    return Plan(model.schema, partition)


def change(plan: Plan, model: Model, rng: random.Random) -> Plan:
    """One thing that happens to a plan."""
    n = len(model.texts)
    chosen = sorted(rng.sample(range(n), rng.randint(1, n)))
    kind = rng.choice(
        ("insert", "insert", "remove", "remove", "rebuild", "rebalance", "join", "leave", "observe", "send")
    )
    if kind == "insert":
        weights = np.array([rng.choice((1, 2, 5, 3000)) for _ in chosen], np.int64)  # some make hot keys
        placement = plan.insert(model.some(chosen), weights)
        assert placement.ptr.size == len(chosen) + 1
        model.weights[chosen] += weights
    elif kind == "remove":
        chosen = [f for f in chosen if model.weights[f]]
        weights = np.array([rng.randint(1, int(model.weights[f])) for f in chosen], np.int64)
        plan.remove(model.some(chosen), weights)
        model.weights[chosen] -= weights
    elif kind == "rebuild":
        plan.rebuild(*model.alive())
    elif kind == "send":
        return Plan.from_bytes(plan.to_bytes())
    elif isinstance(plan.partition, EventSpace):
        change_servers(plan.partition, kind, model, rng)
    return plan


def change_servers(partition: EventSpace, kind: str, model: Model, rng: random.Random) -> None:
    before = partition.place(model.filters)
    if kind == "rebalance":
        moves = partition.rebalance(rng.choice([1.0, 1.2, 2.0]))
        if not moves.buckets.size:
            after = partition.place(model.filters)
            assert np.array_equal(before.servers, after.servers)
    elif kind == "join":
        partition.add_server()
    elif kind == "leave":
        try:
            partition.remove_server(rng.randrange(partition.n_servers))
        except PlanError:
            assert partition.n_servers <= 2
    else:
        partition.observe(model.events)


def live_through(strategy: str, trial: Trial, servers: int, rng: random.Random) -> None:
    """Build a plan, let things happen to it, and check it after each."""
    model = Model.of(trial, rng)
    model.weights[:] = [rng.choice((0, 1, 1, 4, 5000)) for _ in model.texts]
    try:
        plan = build(model, strategy, servers, rng)
    except PlanError:
        assert all(attribute.is_array for attribute in model.schema), "only arrays cannot be routed by"
        return
    model.check(plan)
    for _ in range(5):
        if model.texts:
            plan = change(plan, model, rng)
        model.check(plan)


@strategies
@examples(12)
@given(trial=trials(filters=8, events=8), servers=st.integers(1, 4), rng=randoms())
def test_no_match_is_lost(strategy: str, trial: Trial, servers: int, rng: random.Random) -> None:
    """Through inserts, removals, rebuilding, rebalancing, servers that come and go, and sending."""
    live_through(strategy, trial, servers, rng)


@pytest.mark.slow
@strategies
def test_no_match_is_lost_in_many_lives(strategy: str) -> None:
    """The same for larger trials, with the same seeds in every run."""
    for seed in range(scaled(150)):
        rng = random.Random(seed)
        live_through(strategy, make_trial(rng, 10, 10), rng.randint(1, 6), rng)


@strategies
@examples(8)
@given(seed=st.integers(0, 2**32), servers=st.integers(1, 4))
def test_the_union_of_the_servers_is_the_single_engine(strategy: str, seed: int, servers: int) -> None:
    """An engine per server, filled by the placement and fed by the routes; duplicates are removed by id."""
    rng = random.Random(seed)
    trial = make_trial(rng, 10, 12)
    model = Model.of(trial, rng)
    model.weights[:] = 1
    try:
        plan = build(model, strategy, servers, rng)
    except PlanError:
        return
    placement, routes = plan.place(model.filters), plan.route(model.events)
    engines = [Engine(model.schema) for _ in range(plan.n_servers)]
    for f, written in enumerate(model.texts):
        for server in placement.servers[placement.ptr[f] : placement.ptr[f + 1]].tolist():
            engines[server].subscribe(f, written)
    found: list[set[int]] = [set() for _ in trial.events]
    for event, server in zip(routes.event_ids.tolist(), routes.servers.tolist(), strict=True):
        found[event] |= set(engines[server].match(trial.events[event]))
    assert found == model.matches


@examples(40)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc")), min_size=1, max_size=20),
    asked=st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abcd")), min_size=1, max_size=20),
    servers=st.integers(1, 5),
    summary=st.sampled_from(["bloom", "dictionary"]),
)
def test_pure_equality_sends_an_event_to_at_most_one_server(pairs, asked, servers, summary) -> None:
    """And to none, with a dictionary, if nobody asks for it."""
    schema = Schema.of({"a": "integer", "s": "string"})
    compiled = Compiler(schema).compile_many([f"a = {a} AND s = '{s}'" for a, s in pairs])
    weights = np.bincount(compiled.filter_of)
    partition = EventSpace.build(compiled.filters, weights, schema, servers, attributes=["a", "s"], summary=summary)
    assert not partition.unrouted
    assert np.all(np.diff(partition.place(compiled.filters).ptr) == 1)
    events = EventBatch.read(schema, [{"a": a, "s": s} for a, s in asked])
    reached = np.bincount(partition.route(events).event_ids, minlength=len(asked))
    assert reached.max() <= 1
    wanted = np.array([pair in set(pairs) for pair in asked])
    assert np.all(reached[wanted] == 1)
    if summary == "dictionary":
        assert not reached[~wanted].any()


@examples(30)
@given(
    weights=st.lists(st.sampled_from([1, 40, 1_000, 30_000, 900_000]), min_size=1, max_size=12),
    asked=st.lists(st.integers(0, 12), max_size=40),
    servers=st.integers(1, 9),
    residual=st.booleans(),
    changes=st.lists(st.sampled_from(["rebalance", "join", "leave", "observe", "send"]), max_size=4),
)
def test_hot_keys_are_shared_and_every_event_is_matched_once(weights, asked, servers, residual, changes) -> None:
    """However skewed the keys are: the servers that hold the filter of an event's key are reached once together."""
    schema = Schema.of({"a": "integer"})
    filters = Compiler(schema).compile_many([f"a = {a}" for a in range(len(weights))]).filters
    policy = "residual" if residual and servers > 1 else "replicate"
    partition = EventSpace.build(filters, np.array(weights), schema, servers, attributes=["a"], unrouted=policy)
    events = EventBatch.read(schema, [{"a": a} for a in asked])
    plan = Plan(schema, partition)
    for step in ["", *changes]:
        match step:
            case "rebalance":
                plan.rebalance(1.1)
            case "join":
                plan.partition.add_server()
            case "leave" if plan.n_servers > 2:
                plan.partition.remove_server(plan.n_servers - 1)
            case "observe":
                plan.partition.observe(EventBatch.read(schema, [{"a": 0}] * 5_000))
            case "send":
                plan = Plan.from_bytes(plan.to_bytes())
        placement, routes = plan.place(filters), plan.route(events)
        homes = [set(placement.servers[a:b].tolist()) for a, b in itertools.pairwise(placement.ptr)]
        for event, key in enumerate(asked):
            reached = routes.servers[routes.event_ids == event].tolist()
            assert len(reached) <= 1
            if key < len(weights):
                assert set(reached) <= homes[key]
                assert reached


@examples(15)
@given(trial=trials(filters=8, events=1), rng=randoms(), new=st.sampled_from(list(STRATEGIES)))
def test_a_migration_turns_one_placement_into_the_other(trial: Trial, rng: random.Random, new: str) -> None:
    """Carrying out the moves on sets of filters per server gives the placement of the new plan."""
    model = Model.of(trial, rng)
    model.weights[:] = 1
    try:
        plans = [build(model, s, rng.randint(1, 4), rng) for s in (rng.choice(list(STRATEGIES)), new)]
    except PlanError:
        return
    placements = [p.place(model.filters) for p in plans]
    held = [
        {(f, s) for f in range(len(model.texts)) for s in p.servers[p.ptr[f] : p.ptr[f + 1]].tolist()}
        for p in placements
    ]
    moves = migrate(*plans, model.filters, model.weights)
    now = set(held[0])
    rows = list(zip(*(a.tolist() for a in moves[:4]), strict=True))
    for f, source, target, _ in rows:
        assert source < 0 or (f, source) in held[0]
        if target >= 0:
            assert (f, target) not in held[0]
            now.add((f, target))
    now -= {(f, source) for f, source, _, keeps in rows if not keeps}
    assert now == held[1]
    assert 0 <= moves.share <= 1
