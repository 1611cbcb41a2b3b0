"""The workloads that peers are compared on: what a peer is given means what Wherecast is given."""

from __future__ import annotations

import re

import numpy as np
import pytest
from benchmarks.peers import workloads
from benchmarks.peers.databases import topic_regex
from benchmarks.peers.engines import load, tally
from benchmarks.peers.golang import pattern
from benchmarks.peers.jvm import ruler_values

HOLDS = {
    "is": lambda value, wanted: value == wanted,
    "not": lambda value, wanted: value != wanted,
    "below": lambda value, bound: value < bound,
    "above": lambda value, bound: value > bound,
    "within": lambda value, pair: pair[0] <= value <= pair[1],
    "has": lambda text, part: part in text,
    "lacks": lambda text, part: part not in text,
    "ends": lambda text, part: text.endswith(part),
    "starts": lambda text, part: text.startswith(part),
    "word": lambda text, word: word in text.split(),
}


def holds(test, event):
    if test.kind == "topic":
        return re.search(topic_regex(test), event["topic"]) is not None
    return test.attribute in event and HOLDS[test.kind](event[test.attribute], test.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", workloads.NAMES)
def test_tests_mean_what_the_texts_mean(name, monkeypatch):
    """Alternatives of tests, evaluated one by one, match what the engine matches for the SQL."""
    monkeypatch.setattr(workloads, "EVENTS", 100)
    workload = workloads.make(name, 60)
    engine, table, _ = load(workload)
    wanted = [sum(any(all(holds(t, e) for t in c) for c in f) for e in workload.events) for f in workload.filters]
    assert np.array_equal(tally(engine, table, 60), wanted)


@pytest.mark.parametrize(
    ("tests", "values"),
    [
        ([("is", 5)], [{"numeric": ["=", 5]}]),
        ([("is", 5), ("not", 5)], []),
        ([("is", 5), ("above", 6)], []),
        ([("not", 5)], [{"anything-but": [5]}]),
        ([("above", 1), ("below", 9)], [{"numeric": [">", 1, "<", 9]}]),
        ([("above", 1), ("not", 5)], [{"numeric": [">", 1, "<", 5]}, {"numeric": [">", 5]}]),
        ([("within", (2, 4))], [{"numeric": [">=", 2, "<=", 4]}]),
    ],
)
def test_values_of_a_field_of_a_rule(tests, values):
    """What event-ruler is given for one field."""
    assert ruler_values([workloads.Test(kind, "a", value) for kind, value in tests]) == values


@pytest.mark.parametrize(
    ("test", "values"),
    [
        (("topic", "topic", "a/+/c"), {"l0": ["a"], "l2": ["c"], "levels": ["3"]}),
        (("topic", "topic", "a/+/#"), {"l0": ["a"], "l1": [{"exists": True}]}),
        (("is", "a", 5), {"a": [5]}),
    ],
)
def test_patterns_of_quamina(test, values):
    """What quamina is given for a clause of one test."""
    assert pattern([workloads.Test(*test)]) == values
