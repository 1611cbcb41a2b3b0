"""Binary attributes: compared byte by byte; the answers are those of Python's bytes."""

from __future__ import annotations

import operator

import pyarrow as pa
import pytest

from wherecast.engine.engine import Engine
from wherecast.errors import EventError, FilterError
from wherecast.language.events.schema import Schema

SCHEMA = Schema.of({"b": "binary", "c": "binary", "l": "array<binary>", "s": "string"})
VALUES = [b"", b"\x00", b"\x00\x00", b"\x1a", b"\x1a\x2b", b"\x7f", b"\x80", b"\xff", b"\xff\xff", b"ab", None]
EVENTS = [{"b": b, "c": b"\x1a", "l": None if b is None else [b, None, b"\xff"], "s": "x"} for b in VALUES]
OPS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq, "<>": operator.ne}


def test_comparisons():
    """All comparisons with literals, and with each other, in a batch, a table and event by event."""
    literals = ["", "0", "1a", "1A2B", "80", "ff", "6162"]
    filters = {
        f"b {op} X'{digits}'": (compare, bytes.fromhex(digits.rjust(len(digits) + len(digits) % 2, "0")))
        for op, compare in OPS.items()
        for digits in literals
    }
    filters |= {f"b {op} c": (compare, b"\x1a") for op, compare in OPS.items()}
    engine = Engine(SCHEMA)
    engine.subscribe_many([(text, text) for text in filters])
    wanted = [{t for t, (f, v) in filters.items() if e["b"] is not None and f(e["b"], v)} for e in EVENTS]
    assert [set(found) for found in engine.match_batch(EVENTS)] == wanted
    assert [set(engine.match(event)) for event in EVENTS] == wanted
    for form in (pa.binary(), pa.large_binary(), pa.binary_view()):
        table = pa.table({"b": pa.array(VALUES, form), "c": pa.array([b"\x1a"] * len(VALUES), form)})
        assert [set(found) for found in engine.match_batch(table.slice(1))] == wanted[1:]


def test_lists_nulls_and_snapshots(tmp_path):
    """IN, IS NULL, elements, and what is saved and written."""
    filters = [
        "b IN (X'1A', X'', X'ff')",
        "b IS NULL",
        "array_contains(l, X'80')",
        "NOT b IN (X'00')",
        "b > c AND s = 'x'",
    ]
    filters += [f"b <> c AND s = 'x' AND b <> X'{i:02x}'" for i in range(10)]
    engine = Engine(SCHEMA)
    engine.subscribe_many([(text, text) for text in filters])
    found = [set(f) for f in engine.match_batch(EVENTS)]
    assert found[3] == {filters[0], filters[3]}
    assert found[6] >= {"array_contains(l, X'80')", "b > c AND s = 'x'"}
    assert found[-1] == {"b IS NULL"}
    engine.save(tmp_path / "s")
    opened = Engine.open(tmp_path / "s")
    assert [set(f) for f in opened.match_batch(EVENTS)] == found
    again = Engine(SCHEMA)
    again.subscribe_many([(text, opened[text]) for text in filters])
    assert [set(f) for f in again.match_batch(EVENTS)] == found
    assert opened["b > c AND s = 'x'"] == "s = 'x' AND b > c"
    assert "X'1A'" in opened[filters[0]]


def test_what_is_refused():
    """Texts are no bytes, in events and in filters."""
    engine = Engine(SCHEMA)
    engine.subscribe(1, "b > X'00'")
    with pytest.raises(EventError, match="expected binary, got string 'ab'; give bytes"):
        engine.match({"b": "ab"})
    for text, message in (
        ("b = 'ab'", r"write X'1A2B'"),
        ("b = X'1G'", "hexadecimal"),
        ("b LIKE 'a%'", "needs a string"),
    ):
        with pytest.raises(FilterError, match=message):
            engine.subscribe(2, text)


def test_schemas():
    """Binary in every form of a schema."""
    assert Schema.from_yaml(SCHEMA.to_yaml()) == SCHEMA == Schema.of(SCHEMA.to_arrow())
    assert Schema.of(pa.schema({"x": pa.binary(16)}))["x"].type_name == "binary"
