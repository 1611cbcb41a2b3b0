"""Conditions on the elements of arrays: `exists` is indexed where it asks for elements, and always exact."""

from __future__ import annotations

import itertools

import pytest

from wherecast import Engine

SCHEMA = {"tags": "array<string>", "sizes": "array<integer>", "rates": "array<float>"}
#: A filter, the same in Python of the array (None: NULL), and whether the index says it all.
CASES = [
    ("exists(tags, t -> t = 'a')", "tags", lambda v: "a" in v, True),
    ("exists(tags, t -> 'a' = t OR t IN ('b', 'c'))", "tags", lambda v: {"a", "b", "c"} & set(v), True),
    ("exists(tags, t -> t IN ('a', NULL))", "tags", lambda v: "a" in v, True),
    ("arrays_overlap(tags, array('a', 'c'))", "tags", lambda v: {"a", "c"} & set(v), True),
    ("exists(sizes, s -> s IN (1, 2))", "sizes", lambda v: {1, 2} & set(v), True),
    ("exists(sizes, s -> s IN (1, 2.5))", "sizes", lambda v: 1 in v, False),
    ("exists(sizes, s -> s > 1)", "sizes", lambda v: any(s is not None and s > 1 for s in v), True),
    ("exists(sizes, s -> s <= 9223372036854775807)", "sizes", lambda v: any(s is not None for s in v), True),
    ("exists(rates, r -> r IN (1, 0.5))", "rates", lambda v: {1.0, 0.5} & set(v), True),
    ("exists(tags, t -> t LIKE '%a%')", "tags", lambda v: any("a" in (t or "") for t in v), False),
]
ARRAYS = {
    "tags": [None, [], [None], ["a"], ["b", None], ["c", "a"], ["ba"], ["d"]],
    "sizes": [None, [], [None], [1], [2, None], [3, 1], [2**63 - 1], [-(2**63)], [0]],
    "rates": [None, [], [None], [1.0], [0.5, None], [float("nan")], [-0.0]],
}


@pytest.mark.sampled
@pytest.mark.parametrize(("text", "name", "holds", "is_indexed"), CASES, ids=[case[0] for case in CASES])
def test_exists(text, name, holds, is_indexed):
    engine = Engine(SCHEMA)
    engine.subscribe("yes", text)
    engine.subscribe("no", f"NOT ({text})")
    engine.subscribe("other", f"({text}) OR sizes IS NULL")
    events = [{name: array} for array in ARRAYS[name]]
    found = engine.match_batch(events).to_lists()
    for event, ids in zip(events, found, strict=True):
        array = event[name]
        is_true = array is not None and bool(holds(array))
        assert ("yes" in ids) == is_true, event
        assert ("no" in ids) <= (not is_true)
        assert ("other" in ids) == (is_true or event.get("sizes") is None)
        assert sorted(engine.match(event)) == sorted(ids)
    alone = Engine(SCHEMA)
    alone.subscribe(1, text)
    assert (alone.stats()["segments"][0]["residuals"] == 0) is is_indexed
    again = Engine(SCHEMA)
    again.subscribe("yes", engine["yes"])
    assert [bool(a) for a in again.match_batch(events).to_lists()] == ["yes" in ids for ids in found]


def test_a_list_of_any_length():
    """The literals of a list are one constraint."""
    engine = Engine(SCHEMA)
    for n, names in enumerate(itertools.combinations("abcdef", 4)):
        engine.subscribe(n, f"exists(tags, t -> t IN ({', '.join(map(repr, names))}))")
    assert len(engine.match({"tags": ["f", "x"]})) == 10
    assert engine.match({"tags": ["x"]}) == []
