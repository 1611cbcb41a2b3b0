from __future__ import annotations

import datetime as dt
import decimal
import enum
import subprocess
import sys
from collections import OrderedDict
from types import MappingProxyType

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherecast.errors import EventError
from wherecast.language.events import convert
from wherecast.language.events.arrow import canonical_type
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Attribute, Schema
from wherecast.language.events.types import Kind
from wherecast.language.events.values import TIMESTAMP_PATTERN

UTC = dt.UTC
ALL = Schema.of(
    {
        "b": "boolean",
        "i": "integer",
        "f": "float",
        "s": "string",
        "d": "date",
        "t": "timestamp",
        "li": "array<integer>",
        "ls": "array<string>",
        "lt": "array<timestamp>",
        "q.x": "integer",
        "q.y.z": "string",
    }
)
DAY = dt.date(2024, 1, 31)
NOON = dt.datetime(2024, 1, 31, 12, tzinfo=UTC)
SINGLE = 0.10000000149011612  # 0.1 in 32 bits


def one(type_name: str) -> Schema:
    return Schema.of({"x": type_name})


def read_one(type_name: str, column: pa.Array) -> pa.Array:
    """Convert an Arrow column and check the promise that holds for every one of them: the canonical type."""
    schema = one(type_name)
    array = EventBatch.read(schema, pa.RecordBatch.from_arrays([column], ["x"])).array(0)
    assert array.type == canonical_type(schema.attributes[0])
    array.validate(full=True)
    return array


def read_values(type_name: str, *values: object) -> list[object]:
    schema = one(type_name)
    array = EventBatch.read(schema, [{"x": value} for value in values]).array(0)
    assert array.type == canonical_type(schema.attributes[0])
    return array.to_pylist()


def same_memory(a: pa.Array, b: pa.Array) -> bool:
    return [x and x.address for x in a.buffers()] == [x and x.address for x in b.buffers()]


# Forms of events


ROWS = [
    {
        "b": True,
        "i": 1,
        "f": 1.5,
        "s": "é",
        "d": DAY,
        "t": NOON,
        "li": [1, None],
        "ls": ["a"],
        "lt": [NOON],
        "q": {"x": 7, "y": {"z": "deep"}},
    },
    {
        "b": None,
        "i": -(2**63),
        "f": float("inf"),
        "s": "",
        "d": None,
        "li": [],
        "ls": None,
        "q": {"x": None, "y": None},
    },
    {},
    {"q": None, "extra": object()},
    {"q.x": 5, "q.y.z": "flat", "i": 2**63 - 1},
]
EXPECTED = {
    "b": [True, None, None, None, None],
    "i": [1, -(2**63), None, None, 2**63 - 1],
    "f": [1.5, float("inf"), None, None, None],
    "s": ["é", "", None, None, None],
    "d": [DAY, None, None, None, None],
    "t": [NOON, None, None, None, None],
    "li": [[1, None], [], None, None, None],
    "ls": [["a"], None, None, None, None],
    "lt": [[NOON], None, None, None, None],
    "q.x": [7, None, None, None, 5],
    "q.y.z": ["deep", None, None, None, "flat"],
}


def contents(batch: EventBatch) -> dict[str, list[object]]:
    for i, attribute in enumerate(batch.schema):
        assert batch.array(i).type == canonical_type(attribute)
        assert len(batch.array(i)) == batch.length
    return {a.name: batch.array(i).to_pylist() for i, a in enumerate(batch.schema)}


def test_mappings():
    """Mappings may be nested or have dotted keys; what is missing is NULL and what is unknown is ignored."""
    batch = EventBatch.read(ALL, ROWS)
    assert contents(batch) == EXPECTED
    assert batch.length == len(batch) == 5
    assert batch.rows.tolist() == [0, 1, 2, 3, 4]
    assert batch.errors == []
    assert repr(batch) == "EventBatch(5 events, 0 skipped)"


def test_one_mapping():
    """One mapping is a batch of one event; any kind of mapping will do."""
    for event in (ROWS[0], OrderedDict(ROWS[0]), MappingProxyType(ROWS[0])):
        assert contents(EventBatch.read(ALL, event)) == {name: column[:1] for name, column in EXPECTED.items()}


def test_iterables():
    """A generator of mappings is read like a list of them; no events are an empty batch."""
    assert contents(EventBatch.read(ALL, (row for row in ROWS))) == EXPECTED
    for empty in ([], pa.table({}), pa.record_batch({"i": pa.array([], pa.int8())}), pd.DataFrame()):
        assert set(map(len, contents(EventBatch.read(ALL, empty)).values())) == {0}


def arrow_rows() -> pa.Table:
    flat = EventBatch.read(ALL, ROWS)
    struct = pa.StructArray.from_arrays(
        [flat.array(9), pa.StructArray.from_arrays([flat.array(10)], ["z"])],
        ["x", "y"],
        mask=pa.array([False, False, True, True, False]),
    )
    return pa.table([*(flat.array(i) for i in range(9)), struct], [a.name for a in ALL.attributes[:9]] + ["q"])


def test_arrow():
    """Batches and tables, of one chunk or several, sliced or not, give the same columns; structs give their fields."""
    table = arrow_rows()
    assert contents(EventBatch.read(ALL, table)) == EXPECTED
    assert contents(EventBatch.read(ALL, table.to_batches()[0])) == EXPECTED
    assert contents(EventBatch.read(ALL, pa.concat_tables([table.slice(0, 2), table.slice(2)]))) == EXPECTED
    tail = {name: column[1:4] for name, column in EXPECTED.items()}
    assert contents(EventBatch.read(ALL, table.slice(1, 3))) == tail
    assert (
        contents(EventBatch.read(ALL, pa.table(list(EventBatch.read(ALL, ROWS)._columns.values()), list(EXPECTED))))
        == EXPECTED
    )


def test_arrow_without_copy():
    """Columns of canonical types are taken as they are."""
    table = arrow_rows()
    batch = EventBatch.read(ALL, table.to_batches()[0])
    for i in range(9):
        assert same_memory(batch.array(i), table.column(i).chunk(0)), ALL.attributes[i]
        assert batch.array(i) is batch.array(i)
    naive = pa.array([1, None], pa.timestamp("us", "Asia/Tokyo"))
    assert same_memory(read_one("timestamp", naive), naive)


def test_pandas():
    """A DataFrame gives the same columns as the mappings it is made of, nested mappings included."""
    frame = pd.DataFrame(ROWS[:4], index=[7, 7, 8, 9]).astype({"i": "Int64"})
    assert contents(EventBatch.read(ALL, frame)) == {n: c[:4] for n, c in EXPECTED.items()}


def test_pandas_types():
    """NaN, None, NaT and NA in pandas are NULL; categories, nullable, Arrow-backed and nanosecond columns are read."""
    frame = pd.DataFrame(
        {
            "f": [1.5, float("nan")],
            "i": pd.array([1, None], "Int64"),
            "b": pd.array([True, pd.NA], "boolean"),
            "s": pd.Categorical(["a", None]),
            "t": pd.to_datetime(["2024-01-31T12:00:00.000000001Z", None]),
            "d": pd.Series([DAY, pd.NaT], dtype=object),
            "li": [[1, 2], None],
            "lt": [[pd.Timestamp("2024-01-31T12:00:00"), pd.NaT, pd.NA], float("nan")],
            "ls": pd.Series([["a"], None], dtype=pd.ArrowDtype(pa.list_(pa.string()))),
            7: [1, 2],
        }
    )
    assert contents(EventBatch.read(ALL, frame)) == {
        "b": [True, None],
        "i": [1, None],
        "f": [1.5, None],
        "s": ["a", None],
        "d": [DAY, None],
        "t": [NOON, None],
        "li": [[1, 2], None],
        "ls": [["a"], None],
        "lt": [[NOON, None, None], None],
        "q.x": [None, None],
        "q.y.z": [None, None],
    }


def test_pandas_of_other_types():
    """A column that Arrow cannot read is refused row by row; a struct behind Arrow is found."""
    frame = pd.DataFrame({"x": pd.period_range("2024", periods=2, freq="D")})
    with pytest.raises(EventError, match=r"event 0, attribute 'x': expected integer, got .*period"):
        EventBatch.read(one("integer"), frame)
    with pytest.raises(EventError, match=r"event 0, attribute 'x': expected integer, got float 1\.5"):
        EventBatch.read(one("integer"), pd.DataFrame({"x": [1.5, None]}))
    with pytest.raises(EventError, match="expected timestamp, got complex"):
        EventBatch.read(one("timestamp"), pd.DataFrame({"x": [1j]}))
    struct = pd.Series([{"x": 1}, None], dtype=pd.ArrowDtype(pa.struct({"x": pa.int8()})))
    assert EventBatch.read(Schema.of({"q.x": "int"}), pd.DataFrame({"q": struct})).array(0).to_pylist() == [1, None]


@pytest.mark.parametrize("events", ["text", b"bytes", 5, None])
def test_no_events(events):
    """What is no batch of events at all is refused whole."""
    with pytest.raises(EventError, match=r"^event: expected a table of Arrow, pandas or Polars"):
        EventBatch.read(ALL, events, on_error="skip")


def test_bad_option():
    """A misspelt option is not taken for the other one."""
    with pytest.raises(ValueError, match="on_error must be"):
        EventBatch.read(ALL, [], on_error="ignore")


def test_repeated_columns():
    """A column that is there twice is refused: there is no telling which is meant."""
    twice = pa.table([pa.array([1]), pa.array([2])], ["x", "x"])
    struct = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    with pytest.raises(EventError, match="attribute 'x': there are 2 columns or fields 'x'"):
        EventBatch.read(one("int"), twice)
    with pytest.raises(EventError, match="there are 2"):
        EventBatch.read(one("int"), pd.DataFrame([[1, 2]], columns=["x", "x"]))
    with pytest.raises(EventError, match=r"attribute 'q\.x': there are 2"):
        EventBatch.read(Schema.of({"q.x": "int"}), pa.table({"q": struct}))
    assert EventBatch.read(Schema.of({"y": "int"}), twice).length == 1


def test_struct_shapes():
    """A NULL struct has NULL fields, a struct without the field too; what is no struct is an error."""
    schema = Schema.of({"q.x": "int", "q.y.z": "string"})
    null = pa.record_batch({"q": pa.nulls(2)})
    assert EventBatch.read(schema, null).array(1).to_pylist() == [None, None]
    other = pa.record_batch({"q": pa.array([{"w": 1}])})
    assert EventBatch.read(schema, other).array(0).to_pylist() == [None]
    wrong = pa.record_batch({"q": pa.array([None, 5])})
    with pytest.raises(EventError, match=r"event 1, attribute 'q\.x': expected a struct with field 'x', got int64"):
        EventBatch.read(schema, wrong)
    assert EventBatch.read(schema, wrong, on_error="skip").rows.tolist() == [0]
    with pytest.raises(EventError, match=r"event 1, attribute 'q\.y\.z': expected a struct with field 'z', got array"):
        EventBatch.read(schema, [{}, {"q": {"y": [1]}}])
    with pytest.raises(EventError, match="expected a struct with field 'x', got integer 5"):
        EventBatch.read(Schema.of({"q.x": "array<int>"}), {"q": 5})


# Conversions that are accepted


@pytest.mark.parametrize(
    ("type_name", "column", "expected"),
    [
        *(("integer", pa.array([1, None, 127], t), [1, None, 127]) for t in (pa.int8(), pa.int32(), pa.uint8(), pa.uint64())),
        ("integer", pa.array([3, 3, None]).dictionary_encode(), [3, 3, None]),
        ("integer", pc.run_end_encode(pa.array([3, 3, None])), [3, 3, None]),
        ("float", pa.array([np.float16(1.5), None]), [1.5, None]),
        ("float", pa.array([1.5, None], pa.float32()), [1.5, None]),
        ("float", pa.array([2**53 + 1, None]), [2.0**53, None]),
        ("float", pa.array([2**64 - 1], pa.uint64()), [2.0**64]),
        *(("tinyint", pa.array([-128, None, 127], t), [-128, None, 127]) for t in (pa.int8(), pa.int16(), pa.int64())),
        *(("tinyint", pa.array([0, 127], t), [0, 127]) for t in (pa.uint8(), pa.uint64(), pa.decimal128(5, 2))),
        ("int", pa.array([2**31 - 1, None, -(2**31)]), [2**31 - 1, None, -(2**31)]),
        ("integer", pa.array([decimal.Decimal("-12.00"), None]), [-12, None]),
        ("integer", pa.array([2**63 - 1, -(2**63)], pa.decimal128(38, 10)), [2**63 - 1, -(2**63)]),
        ("float", pa.array([decimal.Decimal("0.10"), None]), [0.1, None]),
        ("float", pa.array([decimal.Decimal("9007199254740993.00000000000000000001")]), [9007199254740994.0]),
        ("float", pa.array([decimal.Decimal("1e76")], pa.decimal256(76, -1)), [1e76]),
        ("real", pa.array([0.1, None, float("inf")], pa.float32()), [SINGLE, None, float("inf")]),
        ("real", pa.array([0.1, None, 2**-149]), [SINGLE, None, 2**-149]),
        ("real", pa.array([16777217, 2**62]), [16777216.0, 2.0**62]),
        ("real", pa.array([decimal.Decimal("0.1")]), [SINGLE]),
        ("array<tinyint>", pa.array([[127], None, [-128, None]]), [[127], None, [-128, None]]),
        ("array<real>", pa.array([[0.1], []]), [[SINGLE], []]),
        ("array<integer>", pa.array([[decimal.Decimal("3.0")]]), [[3]]),
        *(("string", pa.array(["é", None, ""], t), ["é", None, ""]) for t in (pa.large_string(), pa.string_view())),
        ("string", pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        ("string", pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"])), ["{}"]),
        ("date", pa.array([DAY, None], pa.date64()), [DAY, None]),
        ("date", pa.array([-1, 86_400_001]).view(pa.date64()), [dt.date(1969, 12, 31), dt.date(1970, 1, 2)]),
        ("date", pa.array(["2024-01-31", None]), [DAY, None]),
        ("date", pa.array(["2024-01-31", None], pa.string_view()), [DAY, None]),
        ("date", pa.array(["2024-01-31", None]).dictionary_encode(), [DAY, None]),
        *(("timestamp", pa.array([NOON, None], pa.timestamp(u)), [NOON, None]) for u in ("s", "ms", "us", "ns")),
        *(("timestamp", pa.array([NOON, None], pa.timestamp(u, "Asia/Tokyo")), [NOON, None]) for u in ("s", "us", "ns")),
        *(("timestamp", pa.array([DAY], t), [dt.datetime(2024, 1, 31, tzinfo=UTC)]) for t in (pa.date32(), pa.date64())),
        ("timestamp", pa.array(["2024-01-31 12:00:00", None]), [NOON, None]),
        ("timestamp", pa.array(["2024-01-31T12:00:00Z", "2024-01-31 14:00:00.000000+02:00"]), [NOON, NOON]),
        ("timestamp", pa.array(["2024-01-31T12:00:00Z", "2024-01-31 12:00:00"]), [NOON, NOON]),
        ("timestamp", pa.array(["2024-01-31", "2024-01-31 12:00:00.123456789"]),
         [dt.datetime(2024, 1, 31, tzinfo=UTC), NOON.replace(microsecond=123456)]),
        *((t, pa.nulls(2), [None, None]) for t in ("boolean", "integer", "array<date>")),
        ("array<integer>", pa.array([[], None]), [[], None]),
        ("array<date>", pa.array([["2024-01-31", None], []]), [[DAY, None], []]),
    ],
)  # fmt: skip
def test_arrow_conversions(type_name: str, column: pa.Array, expected: list[object]):
    """Arrow columns of related types are converted as a whole."""
    assert read_one(type_name, column).to_pylist() == expected


@pytest.mark.parametrize("ticks", [-(2**63), -1001, -1000, -999, -1, 0, 1, 999, 1000, 2**63 - 1, None])
def test_nanoseconds(ticks):
    """Nanoseconds are cut towards minus infinity, at both ends of their range too."""
    for zone in (None, "Asia/Tokyo"):
        column = pa.array([ticks], pa.int64()).view(pa.timestamp("ns", zone))
        assert read_one("timestamp", column).view(pa.int64()).to_pylist() == [None if ticks is None else ticks // 1000]


@pytest.mark.parametrize(
    "list_type",
    [pa.list_, pa.large_list, lambda t: pa.list_(t, 2), pa.list_view, pa.large_list_view],
    ids=["list", "large", "fixed", "view", "large-view"],
)
@pytest.mark.parametrize("element", [pa.int64(), pa.int8()])
def test_list_types(list_type, element: pa.DataType):
    """Lists of every layout are read, sliced or not."""
    data = [[1, 2], None, [3, None], [5, 6]]
    column = pa.array(data, list_type(element))
    assert read_one("array<integer>", column).to_pylist() == data
    assert read_one("array<integer>", column.slice(1, 2)).to_pylist() == data[1:3]


def test_list_view_order():
    """A list view whose lists overlap and are out of order is read as it says."""
    view = pa.ListViewArray.from_arrays(
        pa.array([2, 0], pa.int32()), pa.array([2, 3], pa.int32()), pa.array([1, 2, 3, 4])
    )
    assert read_one("array<integer>", view).to_pylist() == [[3, 4], [1, 2, 3]]


def test_nan_is_a_value():
    """NaN stays NaN in Arrow columns and mappings."""
    nan = float("nan")
    for events in (pa.table({"x": [nan, None]}), [{"x": nan}, {}]):
        array = EventBatch.read(one("float"), events).array(0)
        assert array.null_count == 1
        assert np.isnan(array[0].as_py())


class Level(enum.IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("type_name", "value", "expected"),
    [
        ("boolean", np.True_, True),
        ("integer", np.uint8(3), 3),
        ("integer", Level.HIGH, 3),
        ("float", 2**53 + 1, 2.0**53),
        ("float", 2**70, 2.0**70),
        ("float", np.float32(1.5), 1.5),
        ("float", np.int8(2), 2.0),
        ("tinyint", -128, -128),
        ("tinyint", np.int64(127), 127),
        ("real", 0.1, SINGLE),
        ("real", np.float32(0.1), SINGLE),
        ("real", 16777217, 16777216.0),
        ("real", float("-inf"), float("-inf")),
        ("integer", decimal.Decimal("12.00"), 12),
        ("integer", decimal.Decimal("1e18"), 10**18),
        ("integer", decimal.Decimal("0e999999"), 0),
        ("int", decimal.Decimal(-(2**31)), -(2**31)),
        ("float", decimal.Decimal("0.1"), 0.1),
        ("float", decimal.Decimal("1e-999999"), 0.0),
        ("real", decimal.Decimal("0.1"), SINGLE),
        ("array<tinyint>", [1, None, 127], [1, None, 127]),
        ("array<real>", [0.1, decimal.Decimal(1), 2], [SINGLE, 1.0, 2.0]),
        ("string", np.str_("a"), "a"),
        ("string", "\0", "\0"),
        ("date", "2024-01-31", DAY),
        ("date", np.datetime64("2024-01-31"), DAY),
        ("timestamp", dt.datetime(2024, 1, 31, 12), NOON),  # noqa: DTZ001
        ("timestamp", dt.datetime(2024, 1, 31, 14, tzinfo=dt.timezone(dt.timedelta(hours=2))), NOON),
        ("timestamp", DAY, dt.datetime(2024, 1, 31, tzinfo=UTC)),
        ("timestamp", "2024-01-31", dt.datetime(2024, 1, 31, tzinfo=UTC)),
        ("timestamp", "2024-01-31T12:00:00Z", NOON),
        ("timestamp", "2024-01-31 10:30:00.0-01:30", NOON),
        ("timestamp", np.datetime64("2024-01-31T12:00:00.000000999", "ns"), NOON),
        ("timestamp", np.datetime64("1969-12-31T23:59:59.999999999", "ns"), dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
        ("timestamp", np.datetime64("NaT", "ns"), None),
        ("timestamp", pd.Timestamp("2024-01-31T12:00:00.000000999"), NOON),
        ("timestamp", pd.NaT, None),
        ("integer", pd.NA, None),
        ("array<integer>", (1, 2), [1, 2]),
        ("array<integer>", np.array([1, 2], np.int8), [1, 2]),
        ("array<integer>", [np.int8(1), pd.NA, 2], [1, None, 2]),
        ("array<date>", ["2024-01-31", DAY], [DAY, DAY]),
        ("array<integer>", pd.NA, None),
    ],
)  # fmt: skip
def test_python_conversions(type_name: str, value, expected):
    """A Python value of a related type is converted, alone and next to plain ones."""
    assert read_values(type_name, value) == [expected]
    assert read_values(type_name, None, value, None) == [None, expected, None]


# Conversions that are refused


def invalid_utf8(prefix: str = "", suffix: str = "") -> pa.Array:
    binary = pa.array([None, b"a\xff"], pa.type_for_alias(f"{prefix}binary{suffix}"))
    return binary.view(pa.type_for_alias(f"{prefix}string{suffix}"))


REFUSED_VALUES = [
    ("integer", 3.0, "expected integer, got float 3.0"),
    ("integer", float("nan"), "expected integer, got float nan"),
    ("integer", np.float32(3), "expected integer, got float 3.0"),
    ("integer", True, "expected integer, got boolean true"),
    ("integer", np.False_, "expected integer, got boolean false"),
    ("integer", "3", "expected integer, got string '3'"),
    ("integer", 2**63, "expected integer, got integer 9223372036854775808, which is outside 64 bits"),
    ("integer", 10**5000, "expected integer, got integer of 16610 bits, which is outside 64 bits"),
    ("integer", decimal.Decimal("1.10"), "expected integer, got decimal 1.10"),
    ("integer", decimal.Decimal("1e19"), "expected integer, got decimal 1E+19, which is outside 64 bits"),
    ("integer", decimal.Decimal("1e999999"), "expected integer, got decimal 1E+999999, which is outside 64 bits"),
    ("integer", decimal.Decimal("NaN"), "expected integer, got decimal NaN"),
    ("integer", decimal.Decimal("1" * 100), f"expected integer, got decimal {'1' * 57}..., which is outside 64 bits"),
    ("tinyint", 300, "expected tinyint, got integer 300, which is outside 8 bits"),
    ("tinyint", -129, "expected tinyint, got integer -129, which is outside 8 bits"),
    ("tinyint", np.int16(128), "expected tinyint, got integer 128, which is outside 8 bits"),
    ("smallint", 2**15, "expected smallint, got integer 32768, which is outside 16 bits"),
    ("int", 2**31, "expected int, got integer 2147483648, which is outside 32 bits"),
    ("int", 3.0, "expected int, got float 3.0"),
    ("int", 2**63, "expected int, got integer 9223372036854775808, which is outside 32 bits"),
    ("real", 1e39, "expected real, got float 1e+39, which is outside 32 bits"),
    ("real", "1", "expected real, got string '1'"),
    ("float", decimal.Decimal("sNaN"), "expected float, got decimal sNaN, which is outside the range of a double"),
    ("float", decimal.Decimal("1e400"), "expected float, got decimal 1E+400, which is outside the range of a double"),
    ("real", decimal.Decimal("1e39"), "expected real, got decimal 1E+39, which is outside 32 bits"),
    ("array<tinyint>", [1, 300], "element 1: expected tinyint, got integer 300, which is outside 8 bits"),
    ("array<tinyint>", 5, "expected array<tinyint>, got integer 5"),
    ("integer", [1], "expected integer, got array"),
    ("integer", object(), "expected integer, got object"),
    ("integer", DAY, "expected integer, got date 2024-01-31"),
    ("integer", {"a": 1}, "expected integer, got struct"),
    ("boolean", 1, "expected boolean, got integer 1"),
    ("float", True, "expected float, got boolean true"),
    ("float", "x" * 500, "expected float, got string '" + "x" * 27 + "..." + "x" * 28 + "'"),
    ("float", 10**400, "expected float, got integer of 1329 bits, which is outside the range of a double"),
    ("string", b"a", "expected string, got bytes b'a'"),
    ("string", 5, "expected string, got integer 5"),
    ("string", "a\ud800", "expected string, got string 'a\\ud800', which has a lone surrogate and so is not valid Unicode"),
    ("date", NOON, "expected date, got timestamp 2024-01-31 12:00:00+00:00"),
    ("date", np.datetime64("2024-01-31T12"), "expected date, got timestamp 2024-01-31 12:00:00"),
    ("date", "2024-02-30", "expected date, got string '2024-02-30'; write dates as 2024-01-31"),
    ("date", "20240131", "expected date, got string '20240131'; write dates as 2024-01-31"),
    ("date", "2024-01-31 00:00:00", "expected date, got string '2024-01-31 00:00:00'; write dates as 2024-01-31"),
    ("date", 5, "expected date, got integer 5"),
    ("timestamp", 5, "expected timestamp, got integer 5"),
    ("timestamp", "noon", "expected timestamp, got string 'noon'; write timestamps as 2024-01-31T10:00:00Z"),
    ("timestamp", "2024-01-31T25:00:00", "expected timestamp, got string '2024-01-31T25:00:00'; write timestamps as 2024-01-31T10:00:00Z"),
    ("timestamp", "0001-01-01T00:00:00+01:00", "expected timestamp, got string '0001-01-01T00:00:00+01:00'; timestamps lie in the years 1 to 9999"),
    ("timestamp", dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-1))), "expected timestamp, got timestamp 9999-12-31 23:59:59.999999-01:00; timestamps lie in the years 1 to 9999"),
    ("array<integer>", 5, "expected array<integer>, got integer 5"),
    ("array<integer>", "abc", "expected array<integer>, got string 'abc'"),
    ("array<integer>", {1}, "expected array<integer>, got set"),
    ("array<integer>", [1, 2.0], "element 1: expected integer, got float 2.0"),
    ("array<integer>", [[1]], "element 0: expected integer, got array"),
    ("array<integer>", np.zeros((1, 1)), "expected array<integer>, got ndarray"),
    ("array<string>", ["a", "\ud800"], "element 1: expected string, got string '\\ud800', which has a lone surrogate and so is not valid Unicode"),
    ("array<timestamp>", [dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-1)))], "element 0: expected timestamp, got timestamp 9999-12-31 23:59:59.999999-01:00; timestamps lie in the years 1 to 9999"),
    ("array<date>", ["2024-01-31", "x"], "element 1: expected date, got string 'x'; write dates as 2024-01-31"),
]  # fmt: skip


@pytest.mark.parametrize(("type_name", "value", "message"), REFUSED_VALUES, ids=range(len(REFUSED_VALUES)))
def test_refused_values(type_name: str, value, message: str):
    """A Python value that does not fit is refused; the message names row, attribute, expected and got."""
    events = [{}, {"x": value}, {"x": None}]
    with pytest.raises(EventError) as caught:
        EventBatch.read(one(type_name), events)
    assert str(caught.value) == f"event 1, attribute 'x': {message}"
    assert (caught.value.row, caught.value.attribute) == (1, "x")
    batch = EventBatch.read(one(type_name), events, on_error="skip")
    assert batch.rows.tolist() == [0, 2]
    assert [str(e) for e in batch.errors] == [str(caught.value)]


@pytest.mark.parametrize(
    ("type_name", "column", "message"),
    [
        ("integer", pa.array([None, 3.0]), "expected integer, got float 3.0"),
        ("integer", pa.array([None, "3"]), "expected integer, got string '3'"),
        ("integer", pa.array([None, True]), "expected integer, got boolean true"),
        ("integer", pa.array([1, 2**63], pa.uint64()), "expected integer, got integer 9223372036854775808, which is outside 64 bits"),
        ("integer", pa.array([None, "3"]).dictionary_encode(), "expected integer, got string '3'"),
        ("integer", pa.ExtensionArray.from_storage(pa.bool8(), pa.array([None, 1], pa.int8())), "expected integer, got extension<arrow.bool8>"),
        ("integer", pa.array([None, [3]]), "expected integer, got array"),
        ("integer", pa.array([None, {"a": 3}]), "expected integer, got struct"),
        ("boolean", pa.array([None, 1]), "expected boolean, got integer 1"),
        ("integer", pa.array([decimal.Decimal("1.00"), decimal.Decimal("1.10")]), "expected integer, got decimal 1.10"),
        ("integer", pa.array([1, 2**63], pa.decimal128(38, 2)), "expected integer, got decimal 9223372036854775808.00, which is outside 64 bits"),
        ("tinyint", pa.array([1, 128], pa.decimal128(5, 2)), "expected tinyint, got decimal 128.00, which is outside 8 bits"),
        *(("tinyint", pa.array([-128 if t != pa.uint8() else 1, 200], t), "expected tinyint, got integer 200, which is outside 8 bits") for t in (pa.int16(), pa.int64(), pa.uint8())),
        ("int", pa.array([None, 2**32], pa.uint64()), "expected int, got integer 4294967296, which is outside 32 bits"),
        ("int", pa.array([None, 2**31], pa.uint32()), "expected int, got integer 2147483648, which is outside 32 bits"),
        ("real", pa.array([1e38, -1e39]), "expected real, got float -1e+39, which is outside 32 bits"),
        ("real", pa.array([1, 10**39], pa.decimal256(40, 0)), "expected real, got decimal 1000000000000000000000000000000000000000, which is outside 32 bits"),
        ("array<smallint>", pa.array([[1], [2, 2**15]]), "element 1: expected smallint, got integer 32768, which is outside 16 bits"),
        ("float", pa.array([None, False]), "expected float, got boolean false"),
        ("string", pa.array([None, b"a"]), "expected string, got bytes b'a'"),
        ("string", pa.array([None, 1]), "expected string, got integer 1"),
        ("string", invalid_utf8(), "expected string, got invalid UTF-8 bytes b'a\\xff'"),
        ("string", invalid_utf8(prefix="large_"), "expected string, got invalid UTF-8 bytes b'a\\xff'"),
        ("string", invalid_utf8(suffix="_view"), "expected string, got invalid UTF-8 bytes b'a\\xff'"),
        ("date", invalid_utf8(), "expected date, got invalid UTF-8 bytes b'a\\xff'"),
        ("date", pa.array([None, NOON]), "expected date, got timestamp 2024-01-31 12:00:00+00:00"),
        ("date", pa.array([None, 2**33 * 86_400_000]).view(pa.date64()), "expected date, got a date64[ms] that it cannot hold"),
        ("date", pa.array(["2024-01-31", "x"]), "expected date, got string 'x'; write dates as 2024-01-31"),
        ("date", pa.array(["2024-01-31", "0000-01-31"]), "expected date, got string '0000-01-31'; write dates as 2024-01-31"),
        ("timestamp", pa.array([None, 5]), "expected timestamp, got integer 5"),
        ("timestamp", pa.array([None, 2**62]).view(pa.timestamp("s")), "expected timestamp, got a timestamp[s] that it cannot hold"),
        ("timestamp", pa.array([None, 2**31 - 1], pa.int32()).view(pa.date32()), "expected timestamp, got a date32[day] that it cannot hold"),
        ("timestamp", pa.array(["2024-01-31", "2024-01-31 10"]), "expected timestamp, got string '2024-01-31 10'; write timestamps as 2024-01-31T10:00:00Z"),
        ("timestamp", pa.array(["2024-01-31", "2024-13-31"]), "expected timestamp, got string '2024-13-31'; write timestamps as 2024-01-31T10:00:00Z"),
        ("array<integer>", pa.array([None, 5]), "expected array<integer>, got integer 5"),
        ("array<integer>", pa.array([[], ["a"]]), "element 0: expected integer, got string 'a'"),
        ("array<integer>", pa.array([[1], [2, 2**63]], pa.list_(pa.uint64())), "element 1: expected integer, got integer 9223372036854775808, which is outside 64 bits"),
        ("array<string>", pa.ListArray.from_arrays([0, 1, 2], invalid_utf8()), "element 0: expected string, got invalid UTF-8 bytes b'a\\xff'"),
    ],
)  # fmt: skip
def test_refused_columns(type_name: str, column: pa.Array, message: str):
    """An Arrow value that does not fit is refused in its row only; NULL fits everything."""
    batch = pa.RecordBatch.from_arrays([column], ["x"])
    with pytest.raises(EventError) as caught:
        EventBatch.read(one(type_name), batch)
    assert str(caught.value) == f"event 1, attribute 'x': {message}"
    kept = EventBatch.read(one(type_name), batch, on_error="skip")
    assert kept.rows.tolist() == [0]
    assert kept.array(0).type == canonical_type(kept.schema.attributes[0])


def test_bad_elements_of_null_lists():
    """What lies hidden under a NULL list is not looked at."""
    lists = pa.ListArray.from_arrays([0, 1, 2], pa.array(["x", "2024-01-31"]), mask=pa.array([True, False]))
    assert read_one("array<date>", lists).to_pylist() == [None, [DAY]]


def test_damaged_column():
    """A column whose offsets point outside its data is refused whole, not read."""
    buffers = [None, pa.py_buffer(np.array([0, 5, 2], np.int32).tobytes()), pa.py_buffer(b"abcde")]
    damaged = pa.Array.from_buffers(pa.string(), 2, buffers)
    with pytest.raises(EventError, match="attribute 'x': the column cannot be read as string"):
        EventBatch.read(one("string"), pa.RecordBatch.from_arrays([damaged], ["x"]), on_error="skip")


def test_too_large(monkeypatch):
    """A column that does not fit one Arrow array is refused with the way out."""

    class Chunks(pa.ChunkedArray):
        num_chunks = 2

        def __init__(self) -> None:
            """A chunked array of no chunks that says it has two."""

        def combine_chunks(self):
            raise pa.ArrowInvalid("offset overflow")

    with pytest.raises(EventError, match="offset overflow; publish smaller batches"):
        convert.whole_array(Chunks(), Attribute("x", Kind.STRING))


# Skipping


def test_first_error():
    """The error raised is that of the first bad row and, in that row, of the first attribute."""
    schema = Schema.of({"a": "int", "b": "int"})
    events = [{"a": 1}, {"a": 1, "b": "x"}, {"a": "y", "b": "z"}, 5]
    with pytest.raises(EventError, match="event 1, attribute 'b'"):
        EventBatch.read(schema, events)
    with pytest.raises(EventError, match="event 0, attribute 'a'"):
        EventBatch.read(schema, events[2:])
    with pytest.raises(EventError, match=r"^event 0: expected a mapping of attributes to values, got integer 5$"):
        EventBatch.read(schema, events[3:])
    skipped = EventBatch.read(schema, events, on_error="skip")
    assert [(e.row, e.attribute) for e in skipped.errors] == [(1, "b"), (2, "a"), (3, None)]
    assert contents(skipped) == {"a": [1], "b": [None]}


def test_needed():
    """Columns that are not needed are not touched; asked for later, they raise for rows that are still there."""
    schema = Schema.of({"a": "int", "b": "int", "c": "int"})
    events = pa.table({"a": ["x", None, None], "b": [1, 2, 3], "c": ["x", None, None]})
    assert EventBatch.read(schema, events, needed={1}).array(1).to_pylist() == [1, 2, 3]
    with pytest.raises(EventError, match="event 0, attribute 'a'"):
        EventBatch.read(schema, events, needed={1, 0})
    late = EventBatch.read(schema, events, needed=[1])
    with pytest.raises(EventError, match="event 0, attribute 'a'"):
        late.array(0)
    skipped = EventBatch.read(schema, events, on_error="skip", needed=[0])
    assert skipped.rows.tolist() == [1, 2]
    assert skipped.array(1).to_pylist() == [2, 3]
    assert skipped.array(2).to_pylist() == [None, None]


good = {
    "b": st.booleans(),
    "i": st.integers(-(2**63), 2**63 - 1),
    "f": st.floats(allow_nan=False) | st.integers(-(2**53), 2**53),
    "s": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    "d": st.dates() | st.dates().map(str),
    "t": st.datetimes() | st.datetimes(timezones=st.just(UTC)).map(str) | st.dates(),
    "li": st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=3),
    "ls": st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=3), max_size=3),
    "lt": st.lists(st.datetimes(), max_size=3).map(tuple),
    "q.x": st.integers(-9, 9),
    "q.y.z": st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
}
bad = {
    "b": st.sampled_from([0, "true", 1.0]),
    "i": st.sampled_from([1.0, True, "1", 2**63, -(2**63) - 1]),
    "f": st.sampled_from([False, "1.0", 10**400]),
    "s": st.sampled_from([1, b"", "\udfff"]),
    "d": st.sampled_from([5, "2024-1-1", "2023-02-29", NOON]),
    "t": st.sampled_from([5, "2024-01-31T", "2024-01-31T10:00", "2024-01-31T10:00:00+24:00"]),
    "li": st.sampled_from([5, [1.0], [1, True], [2**63]]),
    "ls": st.sampled_from(["a", [1], ["\ud800"]]),
    "lt": st.sampled_from([[5], NOON]),
    "q.x": st.sampled_from([1.5, {}]),
    "q.y.z": st.sampled_from([1, []]),
}


@st.composite
def rows(draw) -> tuple[dict[str, object], str | None]:
    """An event and the first attribute of it that is bad."""
    names = [a.name for a in ALL]
    event = {name: draw(good[name]) for name in draw(st.lists(st.sampled_from(names), unique=True))}
    wrong = draw(st.just([]) | st.lists(st.sampled_from(names), max_size=2, unique=True))
    event |= {name: draw(bad[name]) for name in wrong}
    return event, min(wrong, key=names.index, default=None)


@given(st.lists(rows(), max_size=12))
def test_skip_keeps_the_good(drawn):
    """Skipping keeps exactly the good rows, as they would be read alone, and has one error for each other row."""
    events = [event for event, _ in drawn]
    batch = EventBatch.read(ALL, events, on_error="skip")
    kept = [row for row, (_, wrong) in enumerate(drawn) if wrong is None]
    assert batch.rows.tolist() == kept
    assert contents(batch) == contents(EventBatch.read(ALL, [events[row] for row in kept]))
    assert [(e.row, e.attribute) for e in batch.errors] == [
        (row, w) for row, (_, w) in enumerate(drawn) if w is not None
    ]
    one_by_one = [contents(EventBatch.read(ALL, events[row])) for row in kept]
    assert contents(batch) == {a.name: [each[a.name][0] for each in one_by_one] for a in ALL}


@given(st.lists(st.sampled_from(["good", "zone", "short", "bad"]), max_size=6), st.data())
def test_text_same_everywhere(forms, data):
    """A text is a timestamp, or is none, regardless of whether it comes in Arrow or Python and of its neighbours."""
    instants = st.datetimes()
    draw = {
        "good": instants.map(str),
        "zone": instants.map(
            lambda t: f"{t.isoformat()}{data.draw(st.sampled_from(['Z', '+00:00', '-13:37', '+23:59']))}"
        ),
        "short": st.dates().map(str),
        "bad": st.text("0123456789-:T Z+.", max_size=26) | st.from_regex(TIMESTAMP_PATTERN, fullmatch=True),
    }
    texts = [data.draw(draw[form]) for form in forms]
    alone = [EventBatch.read(one("timestamp"), [{"x": text}], on_error="skip") for text in texts]
    expected = [batch.array(0)[0] for batch in alone if batch.length]
    for events in ([{"x": text} for text in texts], pa.table({"x": pa.array(texts, pa.string())})):
        together = EventBatch.read(one("timestamp"), events, on_error="skip")
        assert together.array(0).to_pylist() == [scalar.as_py() for scalar in expected]
        assert together.rows.tolist() == [row for row, batch in enumerate(alone) if batch.length]


@given(st.data())
def test_arrow_equals_python(data):
    """The same values give the same column from Arrow and from Python."""
    for i, attribute in enumerate(ALL):
        values = data.draw(st.lists(st.none() | good[attribute.name], max_size=5))
        python = EventBatch.read(ALL, [{attribute.name: value} for value in values]).array(i)
        arrow = EventBatch.read(ALL, pa.table({attribute.name: python})).array(i)
        assert arrow.equals(python)


@pytest.mark.slow
def test_pandas_is_not_imported():
    """Importing the module does not load pandas (PyArrow does when it first makes an array, where pandas is there)."""
    code = "import sys, wherecast.language.events.events; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
