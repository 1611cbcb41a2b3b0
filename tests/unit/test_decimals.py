"""Decimal attributes: exact, with a precision and a scale; the answers are those of Python's decimals."""

from __future__ import annotations

import json
import operator
from decimal import Decimal

import pyarrow as pa
import pytest

from wherecast.engine.engine import Engine
from wherecast.errors import EventError, FilterError, SchemaError
from wherecast.language.events.arrow import declared_type
from wherecast.language.events.schema import Attribute, Kind, Schema
from wherecast.language.events.types import Type
from wherecast.language.expression import Negate, Param, digits_of

SCHEMA = Schema.of({"d": "decimal(10, 2)", "w": "decimal(38, 10)", "a": "array<decimal(6,3)>", "e": "decimal(5,0)"})
VALUES = [
    *("0.00", "1.50", "-1.50", "1.49", "1.51", "99999999.99", "-99999999.99", "0.01", "-0.01", "2.00", "12345678.90"),
    None,
]
EVENTS = [
    {
        "d": None if text is None else Decimal(text),
        "w": None if text is None else Decimal(text) * 10**20 + Decimal("0.0000000001"),
        "a": None if text is None else [Decimal("1.5"), None, Decimal("-2.125")][: i % 4],
        "e": None if text is None else Decimal(i),
    }
    for i, text in enumerate(VALUES)
]
OPS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq, "<>": operator.ne}
CONSTANTS = ["0", "1.5", "1.50", "-1.505", "1.495", "2", "99999999.99", "100000000", "-100000000000000000000", "0.005"]
WIDE = ["150000000000000000000.0000000001", "150000000000000000000", "-1", "0.0000000001", "1.5"]


def matches(filters: list[str], events: object, schema: Schema = SCHEMA) -> list[set[str]]:
    engine = Engine(schema)
    engine.subscribe_many([(text, text) for text in filters])
    return [set(found) for found in engine.match_batch(events)]


def table(events: list[dict[str, object]], schema: Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(events, schema.to_arrow())


def test_comparisons_are_exact():
    """All comparisons, with literals of fewer and of more digits, on a decimal with a key and on one without."""
    filters = {
        f"{name} {op} {constant}": (name, compare, Decimal(constant))
        for op, compare in OPS.items()
        for name, constants in (("d", CONSTANTS), ("w", WIDE))
        for constant in constants
    }
    for events in (EVENTS, table(EVENTS)):
        for event, found in zip(EVENTS, matches([*filters], events), strict=True):
            wanted = {
                text
                for text, (name, compare, constant) in filters.items()
                if event[name] is not None and compare(event[name], constant)
            }
            assert found == wanted


def test_single_events_and_batches_agree():
    """A dict, a batch of dicts and an Arrow table give the same matches, boxes and residuals alike."""
    filters = ["d > 1", "d IN (1.5, 2)", "d * 2 > 3", "w > d", "w IN (0.0000000001)", "array_contains(a, 1.5)"]
    filters += ["d = e", "d > e + 0.5", "abs(d) = 1.5", "-d > 1.0", "d > 1.5e0", "w < 1e19", "d IS NULL", "size(a) = 2"]
    engine = Engine(SCHEMA)
    engine.subscribe_many([(text, text) for text in filters])
    batches = [set(found) for found in engine.match_batch(table(EVENTS))]
    assert [set(found) for found in engine.match_batch(EVENTS)] == batches
    assert [set(engine.match(event)) for event in EVENTS] == batches
    assert batches[1] >= {"d IN (1.5, 2)", "d > 1", "w > d", "array_contains(a, 1.5)", "abs(d) = 1.5"}
    assert batches[11] == {"d IS NULL"}


def test_doubles_compare_as_doubles():
    """Spark casts a decimal to a double where it meets one: 0.1 and the double next to it are told apart as doubles."""
    schema = Schema.of({"d": "decimal(18,17)", "w": "decimal(30,20)"})
    value = Decimal("0.10000000000000001")  # its double is that of 0.1
    assert matches(["d = 1e-1", "d = 0.1", "w = 1e-1", "w > 0.1"], [{"d": value, "w": value}], schema) == [
        {"d = 1e-1", "w = 1e-1", "w > 0.1"}
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Decimal("1.234"), r"expected decimal\(10,2\), got decimal 1.234, which has too many fraction digits"),
        (Decimal("123456789.00"), "too many digits"),
        (10**40, "too many digits"),
        (Decimal("NaN"), r"expected decimal\(10,2\), got decimal NaN"),
        (True, "got boolean true"),
        ("1,5", "got string '1,5'"),
        (0.125, "too many fraction digits"),
        (Decimal("1e9999"), "too many digits"),
        (Decimal("1e-9999"), "too many"),
    ],
)
def test_what_does_not_fit(value: object, message: str):
    """Nothing is rounded; singly, in a batch and as a column the error is the same."""
    engine = Engine(SCHEMA)
    engine.subscribe(1, "d > 0")
    for publish in (lambda: engine.match({"d": value}), lambda: engine.match_batch([{"d": 1}, {"d": value}])):
        with pytest.raises(EventError, match=message):
            publish()


def test_columns_of_other_types():
    """Integers, floats, texts and decimals of other digits are read where nothing is lost."""
    for array in (
        pa.array([1, 2]),
        pa.array([1, 2], pa.uint64()),
        pa.array([1.0, 2.0]),
        pa.array(["1", "2.0"]),
        pa.array([Decimal("1.000"), Decimal(2)], pa.decimal256(60, 10)),
        pa.array([Decimal(1), Decimal(2)], pa.decimal128(3, 0)).dictionary_encode(),
    ):
        assert matches(["d = 1", "w = 2"], pa.table({"d": array, "w": array})) == [{"d = 1"}, {"w = 2"}]
    refused = pa.table({"d": pa.array([Decimal("1.5"), Decimal("1.555")], pa.decimal128(10, 3))})
    with pytest.raises(EventError, match="too many fraction digits"):
        matches(["d = 1"], refused)


def test_schemas():
    """Digits are part of the type, in every form of a schema."""
    attribute = SCHEMA["d"]
    assert (attribute.kind, attribute.digits, attribute.type_name) == (Kind.DECIMAL, (10, 2), "decimal(10,2)")
    assert Schema.from_json(SCHEMA.to_json()) == SCHEMA == Schema.from_yaml(SCHEMA.to_yaml())
    assert Schema.of(SCHEMA.to_arrow()) == SCHEMA
    assert declared_type(attribute) == pa.decimal128(10, 2)
    assert Schema.of({"x": "decimal"})["x"].digits == (10, 0)
    domain = Schema.of({"x": {"type": "decimal(4,1)", "min": "0.5", "max": 2}})
    assert json.loads(domain.to_json()) == {"x": {"type": "decimal(4,1)", "min": "0.5", "max": "2.0"}}
    for written in ("decimal(39,1)", "decimal(5,6)", "decimal(0,0)"):
        with pytest.raises(SchemaError, match="does not exist; use a precision of 1 to 38"):
            Schema.of({"x": written})
    with pytest.raises(SchemaError, match="has no precision and scale"):
        Attribute("x", Kind.DATE, digits=(5, 2))


def test_literals_that_spark_would_round():
    """A literal that does not fit beside the attribute's digits in 38 is refused, also in a list."""
    for text in ("w = 0.00000000001", "w IN (1.5, 0.00000000001)"):
        with pytest.raises(FilterError, match=r"Spark would round one side to compare decimal\(38,10\)"):
            Engine(SCHEMA).subscribe(1, text)


def test_snapshots_and_texts(tmp_path):
    """A saved engine answers as before, and the text of a filter means what the filter meant."""
    filters = ["d > 1.505", "w = 150000000000000000000.0000000001", "w < 1 AND d * 2 <> 3.0", "d IN (1.5, 7)"]
    engine = Engine(SCHEMA)
    engine.subscribe_many([(text, text) for text in filters])
    engine.save(tmp_path / "s")
    opened = Engine.open(tmp_path / "s")
    expected = [set(found) for found in engine.match_batch(EVENTS)]
    assert [set(found) for found in opened.match_batch(EVENTS)] == expected
    rewritten = Engine(SCHEMA)
    rewritten.subscribe_many([(text, opened.get(text)) for text in filters])
    assert [set(found) for found in rewritten.match_batch(EVENTS)] == expected
    shown = str(engine.explain(EVENTS[1], filters[1]))
    assert "150000000000000000000.0000000001" in shown


def test_elements_have_the_digits_of_their_array():
    """Subscripts, lambdas, overlaps and arithmetic on elements know the scale."""
    schema = Schema.of({"d": "decimal(10,2)", "a": "array<decimal(10,2)>", "w": "array<decimal(30,10)>"})
    holds = ["a[0] = 1.5", "exists(a, x -> x > 1.4)", "exists(a, x -> x = 1.5)", "forall(w, x -> x < 1.6)", "w[0] = d"]
    holds += ["arrays_overlap(a, w)", "a[0] + 1 = 2.5", "element_at(w, 1) = 1.5", "d = '1.5'", "coalesce(d, 0) = 1.5"]
    fails = ["exists(a, x -> x > 100)", "a[0] = 150", "array_contains(w, 15000000000)", "d = '150'"]
    event = {"d": Decimal("1.5"), "a": [Decimal("1.5")], "w": [Decimal("1.5")]}
    assert matches([*holds, *fails], [event], schema) == [set(holds)]


def test_elements_are_not_compared_with_literals_that_spark_would_round() -> None:
    """As in comparisons: digits of the elements and of the literal together must fit a decimal."""
    engine = Engine({"amounts": "array<decimal(30,5)>"})
    engine.subscribe("fits", "array_contains(amounts, 1.1234567890123)")
    with pytest.raises(FilterError, match="write fewer digits"):
        engine.subscribe("too many", "array_contains(amounts, 1.12345678901234)")


def test_a_decimal_without_digits_is_an_error() -> None:
    """A node that forgets its digits would have scale 0, and wrong values, in silence."""
    node = Negate(item=Param(slot=0, type=Type.INT), type=Type.DECIMAL)
    with pytest.raises(TypeError, match="without digits"):
        digits_of(node)
