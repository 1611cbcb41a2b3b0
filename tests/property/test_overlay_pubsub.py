"""The overlay tells exactly those whom the engine names, whatever the hash, the ids and the comings and goings."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from wherecast import Engine, FilterError
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.overlay.placement import RingPlacement, difference
from wherecast.overlay.positions import line_of
from wherecast.overlay.settings import RingSettings
from wherecast.papers.chord.balance import equi_depth
from wherecast.papers.chord.simulate import LinkModel, SimulatedNetwork

pytestmark = pytest.mark.slow

SCHEMA = Schema.of(
    {
        "a": {"type": "bigint", "min": 0, "max": 9},
        "b": {"type": "bigint", "min": -20, "max": 100, "precision": 5},
        "x": {"type": "double", "min": 0, "max": 5, "precision": 0.5},
        "y": {"type": "double", "min": -1, "max": 1},
        "s": "string",
        "f": "boolean",
        "d": {"type": "date", "min": "2024-01-01", "max": "2024-12-31"},
        "k": "bigint",
        "tags": "array<string>",
    }
)
TERMS = [
    "a = {i}", "a <> {i}", "a < {i}", "a >= {i}", "a BETWEEN {i} AND {j}", "a IN ({i}, {j}, 12)", "a > -3", "a < 11", "a = 12",
    "b > {i}", "b <= {j}", "b = {i}", "b <> {j}", "b NOT IN ({i}, {j})", "x < {i}.5", "x >= {j}.25", "x = {i}", "x <> {j}.5",
    "y > 0.25", "y <= 0.1", "s = '{c}'", "s <> '{c}'", "s LIKE '{c}%'", "s > '{c}'", "s IN ('{c}', 'ab')", "s NOT LIKE '{c}%'",
    "f", "NOT f", "d >= DATE '2024-0{m}-15'", "d < DATE '2023-05-01'", "k = {i}", "k IN ({i}, {j})", "a IS NOT NULL", "f IS NOT NULL",
]  # fmt: skip
REFUSED = {
    "a > b": "not a comparison of an attribute with constants",
    "TRUE": "constrains no attribute",
    "a IS NULL": "events without 'a'",
    "array_contains(tags, 'a')": "'tags' is an array",
    "k > 3": "give that attribute min and max",
    "k BETWEEN 1 AND 2000": "give that attribute min and max",
    "a = 1 OR k < 3": "give that attribute min and max",
    "s LIKE '%a'": "it looks for a text in 's'",
}


def random_filter(rng: random.Random) -> str:
    def term() -> str:
        return rng.choice(TERMS).format(
            i=rng.randint(0, 9), j=rng.randint(0, 9), c=rng.choice(["a", "b", "ab", "é"]), m=rng.randint(1, 9)
        )

    return " OR ".join(" AND ".join(term() for _ in range(rng.randint(1, 4))) for _ in range(rng.choice((1, 1, 2, 3))))


def random_event(rng: random.Random) -> dict[str, Any]:
    values = {
        "a": rng.randint(-2, 12),
        "b": rng.randint(-30, 110),
        "x": rng.choice([0.0, 0.25, 0.5, 1.5, 2.75, 5.0, 9.0, -1.0, float("nan"), float("inf")]),
        "y": rng.uniform(-1.5, 1.5),
        "s": rng.choice(["", "a", "ab", "abc", "b", "é", "ée", "zz", "a\0"]),
        "f": rng.random() < 0.5,
        "d": f"202{rng.choice((3, 4, 4, 5))}-0{rng.randint(1, 9)}-15",
        "k": rng.randint(0, 9),
        "tags": ["a"],
    }
    return {name: value for name, value in values.items() if rng.random() < 0.9}


QUIET = LinkModel()


class Bench:
    """An overlay and an engine, changed together."""

    def __init__(self, rng: random.Random, placement: RingPlacement, nodes: int, links: LinkModel = QUIET) -> None:
        self.rng, self.compiler, self.engine = rng, Compiler(SCHEMA), Engine(SCHEMA)
        self.network = SimulatedNetwork(placement, rng.randrange(10**6), links)
        self.network.found(nodes)
        self.subscribers = [self.network.subscriber() for _ in range(3)]
        self.registrations: dict[int, Any] = {}

    def any_node(self):
        return self.rng.choice([n for n in self.network.nodes.values() if n.ring.is_member])

    def await_(self, node, operation: int) -> tuple[Any, int]:
        self.network.settle(node)
        key = node.ring.me.address, operation
        assert self.network.run_until([key], 120_000)
        assert self.network.outcomes[key].is_complete
        return key

    def acceptable_filter(self) -> str:
        """Without order, wide ranges are refused: then another one is drawn."""
        while True:
            text = random_filter(self.rng)
            try:
                self.network.placement.clauses(self.compiler.compile(text))
            except FilterError:
                continue
            return text

    def subscribe(self, number: int) -> None:
        node, text = self.any_node(), self.acceptable_filter()
        filters = self.compiler.compile(text)
        if number in self.registrations:
            operation, self.registrations[number] = node.update(self.registrations[number], filters)
        else:
            address = self.rng.choice(self.subscribers)
            operation, self.registrations[number] = node.subscribe(number, filters, address)
        self.await_(node, operation)
        self.engine.subscribe(number, text, replace=True)

    def unsubscribe(self, number: int) -> None:
        node = self.any_node()
        self.await_(node, node.unsubscribe(self.registrations.pop(number)))
        self.engine.unsubscribe(number)

    def check_events(self, count: int) -> None:
        for _ in range(count):
            event, node = random_event(self.rng), self.any_node()
            told = self.network.told(*self.await_(node, node.publish(event)))
            assert told == dict.fromkeys(self.engine.match(event), 1), event


PLACEMENTS = {
    "opchord": RingSettings(bits=64, successors=3, copies=2),
    "chord": RingSettings(bits=64, successors=3, copies=2, mode="chord"),
    "short ids": RingSettings(bits=8, successors=3, copies=2),
    "short ids, chord": RingSettings(bits=8, successors=3, copies=2, mode="chord"),
    "laid out": RingSettings(bits=160, successors=3, copies=2, nodes=64),
}


@pytest.mark.parametrize("name", PLACEMENTS)
@given(seed=st.integers(0, 2**32))
@examples(6)
def test_matches_are_the_engines(name, seed):
    """On random filters, updates, deletions and events, everybody is told whom the engine names, once."""
    rng = random.Random(seed)
    bench = Bench(rng, RingPlacement(SCHEMA, PLACEMENTS[name]), rng.choice((1, 2, 5, 12)))
    for number in range(12):
        bench.subscribe(number)
    bench.check_events(8)
    for number in rng.sample(range(12), 6):
        bench.subscribe(number) if rng.random() < 0.6 else bench.unsubscribe(number)
    bench.check_events(8)


@given(seed=st.integers(0, 2**32))
@examples(6)
def test_bent_lines_change_nothing(seed):
    """With knots of any sample the results are the same."""
    rng = random.Random(seed)
    config = PLACEMENTS["opchord"]
    sample = [rng.randint(0, 9) for _ in range(20)]
    knots = {"a": equi_depth(line_of(SCHEMA["a"], 64, 1), sample, arcs=5)}
    bench = Bench(rng, RingPlacement(SCHEMA, config, knots), 6)
    for number in range(12):
        bench.subscribe(number)
    bench.check_events(10)


@given(seed=st.integers(0, 2**32))
@examples(5)
def test_matches_are_the_engines_during_joins_and_leaves(seed):
    """While nodes join and leave, and messages are late and lost, nobody is missed and nobody is told in error."""
    rng = random.Random(seed)
    placement = RingPlacement(SCHEMA, RingSettings(bits=64, successors=4, copies=3))
    bench = Bench(rng, placement, 8, LinkModel(loss=0.02))
    for number in range(8):
        bench.subscribe(number)
    for round in range(10):
        if rng.random() < 0.5 or len(bench.network.nodes) < 7:
            bench.network.join([bench.any_node().ring.me.address for _ in range(2)])
        else:
            bench.network.leave(bench.any_node().ring.me.address)
        bench.network.run(rng.choice((0, 50, 200, 1500)))
        bench.check_events(2)
        if round % 3 == 0:
            bench.subscribe(rng.randrange(10))


@pytest.mark.parametrize(("text", "reason"), REFUSED.items())
def test_what_it_cannot_serve_is_refused(text, reason):
    """Each refusal says why."""
    placement = RingPlacement(SCHEMA, RingSettings())
    with pytest.raises(FilterError, match=reason) as caught:
        placement.clauses(Compiler(SCHEMA).compile(text))
    assert caught.value.reason == "unsupported"


def test_too_many_values_one_by_one_are_refused():
    """Chord without order stores a range value by value; a wide one is refused, and OPChord takes it."""
    schema = Schema.of({"v": {"type": "bigint", "min": 0, "max": 10**9}})
    filters = Compiler(schema).compile("v > 5")
    with pytest.raises(FilterError, match="at most 100000"):
        RingPlacement(schema, RingSettings(mode="chord")).clauses(filters)
    assert len(RingPlacement(schema, RingSettings()).clauses(filters)[0][0]) <= 2


def test_the_difference_of_an_update_is_the_papers():
    """Section 3.1.2: what lies in both ranges is not touched."""
    schema = Schema.of({"v": {"type": "bigint", "min": 0, "max": 255}})
    placement, compiler = RingPlacement(schema, RingSettings(bits=8)), Compiler(schema)

    def runs(text):
        return placement.clauses(compiler.compile(text))[0][0]

    changed = difference(runs("v BETWEEN 10 AND 20"), runs("v BETWEEN 15 AND 30"))
    assert [(run[0].first, run[-1].last, run[0].spans is None) for run in changed] == [(10, 14, True), (21, 30, False)]
    assert difference(runs("v = 3"), runs("v = 3")) == []
    gone = difference(runs("v <> 3"), ())
    assert [(run[0].first, run[-1].last) for run in gone] == [(0, 2), (4, 255)]
