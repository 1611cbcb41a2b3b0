"""Random filters over everything the language has: drawn from its own tables of functions, as texts.

Filters with functions cannot be drawn as `tests.property` draws its terms, with a second evaluator beside them: there are too
many functions. So they are texts, and Spark SQL is the only judge. A function of the table is used by what its row says: the
types of its arguments and its result. Adding a row is enough for it to be drawn.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from wherecast.language.events.types import Type
from wherecast.language.functions.row import Function, takes_of
from wherecast.language.functions.table import FUNCTIONS

#: Attributes by the type of their values, in Wherecast's words and in Arrow's.
ATTRIBUTES: dict[str, tuple[Type, str, pa.DataType]] = {
    "s": (Type.STRING, "string", pa.string()),
    "u": (Type.STRING, "string", pa.string()),
    "b": (Type.BOOLEAN, "boolean", pa.bool_()),
    "i": (Type.INT, "int", pa.int32()),
    "j": (Type.INT, "int", pa.int32()),
    "l": (Type.BIGINT, "bigint", pa.int64()),
    "d": (Type.DOUBLE, "double", pa.float64()),
    "e": (Type.DOUBLE, "double", pa.float64()),
    "f": (Type.FLOAT, "real", pa.float32()),
    "day": (Type.DATE, "date", pa.date32()),
    "at": (Type.TIMESTAMP, "timestamp", pa.timestamp("us", "UTC")),
    "p": (Type.DECIMAL, "decimal(10,2)", pa.decimal128(10, 2)),
    "wide": (Type.DECIMAL, "decimal(30,5)", pa.decimal128(30, 5)),
    "raw": (Type.BINARY, "binary", pa.binary()),
    "wall": (Type.TIMESTAMP_NTZ, "timestamp_ntz", pa.timestamp("us")),
    "labels": (Type.MAP, "map<string,string>", pa.map_(pa.string(), pa.string())),
    "counts": (Type.MAP, "map<string,bigint>", pa.map_(pa.string(), pa.int64())),
    "tags": (Type.ARRAY, "array<string>", pa.list_(pa.string())),
    "sizes": (Type.ARRAY, "array<bigint>", pa.list_(pa.int64())),
    "tiny": (Type.TINYINT, "tinyint", pa.int8()),
    "small": (Type.SMALLINT, "smallint", pa.int16()),
    "by_number": (Type.MAP, "map<int,double>", pa.map_(pa.int32(), pa.float64())),
    "sums": (Type.MAP, "map<string,decimal(10,2)>", pa.map_(pa.string(), pa.decimal128(10, 2))),
    "amounts": (Type.ARRAY, "array<decimal(10,2)>", pa.list_(pa.decimal128(10, 2))),
    "days": (Type.ARRAY, "array<date>", pa.list_(pa.date32())),
    "flags": (Type.ARRAY, "array<boolean>", pa.list_(pa.bool_())),
    "walls": (Type.ARRAY, "array<timestamp_ntz>", pa.list_(pa.timestamp("us"))),
}
#: An array of structs: each field is an array.
ITEMS = pa.list_(pa.struct([("name", pa.string()), ("price", pa.float64())]))
SCHEMA: dict[str, object] = {
    **{name: written for name, (_, written, _) in ATTRIBUTES.items()},
    "items": {"type": "array<struct>", "fields": {"name": "string", "price": "double"}},
}
TEXTS = [
    "",
    " ",
    "a",
    "A",
    "ab",
    "aBc",
    "Ab c",
    "b,a",
    "x.y.z",
    "é",
    "ß",
    "日本",
    "a😀b",
    "12",
    "-3.5",
    "2024-01-31",
    "true",
    "a%b",
    "İ",
]
VALUES: dict[Type, list[Any]] = {
    Type.STRING: TEXTS,
    Type.BOOLEAN: [True, False],
    Type.INT: [0, 1, -1, 2, 3, 7, -12, 100, 65, 2000, 2**31 - 1, -(2**31)],
    Type.TINYINT: [0, 1, -1, 5, 127, -128],
    Type.SMALLINT: [0, 1, -1, 300, 2**15 - 1, -(2**15)],
    Type.BIGINT: [0, 1, -1, 5, 64, -100, 10**6, 1_700_000_000, 2**40, 2**63 - 1, -(2**63)],
    Type.DOUBLE: [0.0, -0.0, 1.0, -1.5, 0.1, 2.5, 3.5, 1e3, 1e300, -1e-5, float("nan"), float("inf"), float("-inf")],
    Type.FLOAT: [0.0, 0.5, -1.25, 3.0, 1e10, float("nan")],
    Type.DECIMAL: [Decimal(v) for v in ("0", "1", "-1.5", "2.25", "99999999.99", "-0.01", "3", "12.3", "100")],
    Type.BINARY: [b"", b"a", b"ab", b"\x00", b"\xff\xfe", "é".encode()],
    Type.TIMESTAMP_NTZ: [
        dt.datetime(2024, 2, 29, 12, 34, 56, 789012),  # noqa: DTZ001 - wall clocks
        dt.datetime(1970, 1, 1),  # noqa: DTZ001
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
    ],
    Type.DATE: [
        dt.date(2024, 2, 29),
        dt.date(1970, 1, 1),
        dt.date(1969, 12, 31),
        dt.date(2023, 12, 31),
        dt.date(1, 1, 1),
    ],
    Type.TIMESTAMP: [
        dt.datetime(2024, 2, 29, 12, 34, 56, 789012, dt.UTC),
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC),
        dt.datetime(2024, 3, 31, 1, 30, tzinfo=dt.UTC),
    ],
}
_KEYS = ["a", "b", "", "日本"]
#: Arrays with the type of their elements; maps with those of keys and values.
_ARRAYS = {
    "tags": Type.STRING,
    "sizes": Type.BIGINT,
    "amounts": Type.DECIMAL,
    "days": Type.DATE,
    "flags": Type.BOOLEAN,
    "walls": Type.TIMESTAMP_NTZ,
}
_MAPS = {
    "labels": (Type.STRING, Type.STRING),
    "counts": (Type.STRING, Type.BIGINT),
    "by_number": (Type.INT, Type.DOUBLE),
    "sums": (Type.STRING, Type.DECIMAL),
}
_PATTERNS = ["a", "^a", "b$", "[a-c]+", "(?i)ab", r"(\\w)(\\w)?", "x|y", "\\\\d+", "é"]
_UNITS = ["YEAR", "MONTH", "DAY", "HOUR", "week", "quarter"]
#: Literals of functions that take few: by function and position.
_WORDS = {
    ("trunc", 1): ["YEAR", "MONTH", "week", "quarter"],
    ("date_trunc", 0): _UNITS,
    ("next_day", 1): ["MO", "Friday"],
    **{(name, 1): ["UTF-8", "iso-8859-1", "UTF-16BE"] for name in ("encode", "decode")},
}
#: Functions of moments that read texts, too.
_READ = ("to_date", "to_timestamp", "unix_timestamp")
_COMPARISONS = ["=", "<>", "<", "<=", ">", ">=", "<=>"]
_NUMBERS = (Type.INT, Type.BIGINT, Type.DOUBLE, Type.FLOAT, Type.TINYINT, Type.SMALLINT)
#: What conditions compare.
_COMPARED = [
    *[Type.STRING] * 3,
    Type.DATE,
    Type.TIMESTAMP,
    Type.TIMESTAMP_NTZ,
    *[Type.DECIMAL] * 2,
    Type.BINARY,
    *_NUMBERS,
]
#: Types that can be compared with each other.
_GROUPS = ((Type.DECIMAL, *_NUMBERS), (Type.DATE, Type.TIMESTAMP, Type.TIMESTAMP_NTZ))
#: Types of attributes; and of their values by key.
_KINDS = {kind for kind, _, _ in ATTRIBUTES.values()}
_BY_KEY = {value: name for name, (_, value) in _MAPS.items()}


def make_events(rng: random.Random, count: int) -> pa.Table:
    """Events with NULLs in a fifth of their values."""
    columns = {}
    for name, (kind, _, arrow) in ATTRIBUTES.items():
        values = [None if rng.random() < 0.2 else _value(rng, name, kind) for _ in range(count)]
        columns[name] = pa.array(values, arrow)
    columns["items"] = pa.array([None if rng.random() < 0.2 else _items(rng) for _ in range(count)], ITEMS)
    return pa.table(columns)


def _items(rng: random.Random) -> list[dict[str, Any] | None]:
    return [
        None
        if rng.random() < 0.1
        else {"name": rng.choice([None, *TEXTS[:8]]), "price": rng.choice([None, *VALUES[Type.DOUBLE]])}
        for _ in range(rng.randrange(4))
    ]


def _value(rng: random.Random, name: str, kind: Type) -> Any:
    if kind is Type.ARRAY:
        return [rng.choice([*VALUES[_ARRAYS[name]][:8], None]) for _ in range(rng.randrange(4))]
    if kind is Type.MAP:
        key_type, value_type = _MAPS[name]
        keys = _KEYS if key_type is Type.STRING else VALUES[key_type]
        return [(key, rng.choice([*VALUES[value_type], None])) for key in rng.sample(keys, rng.randrange(4))]
    return rng.choice(VALUES[kind])


class TextMaker:
    """Draws filters."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        rows = {row.name: row for row in FUNCTIONS.values()}
        #: functions whose type is known from their row alone
        self.by_result: dict[Type, list[Function]] = {}
        for row in rows.values():
            if (row.build is None or row.name in _READ) and isinstance(row.result, Type):
                self.by_result.setdefault(row.result, []).append(row)

    def condition(self, depth: int = 2) -> str:
        if depth and self.rng.random() < 0.5:
            kind = self.rng.choice([" AND ", " OR ", " OR ", "NOT"])
            if kind == "NOT":
                return f"NOT ({self.condition(depth - 1)})"
            return kind.join(f"({self.condition(depth - 1)})" for _ in range(2))
        return self.rng.choice(self._predicates)(self)

    def _compare(self) -> str:
        kind = self.rng.choice(_COMPARED)
        left = self.value(kind)
        group = next((g for g in _GROUPS if kind in g), (kind,))
        other = self.rng.choice(group) if self.rng.random() < 0.25 else kind
        right = self.literal(other) if self.rng.random() < 0.7 else self.value(other)
        return f"{left} {self.rng.choice(_COMPARISONS)} {right}"

    def _list(self) -> str:
        kind = self.rng.choice([Type.STRING, Type.INT, Type.DATE, Type.DECIMAL, Type.BINARY])
        return f"{self.value(kind)} IN ({self.literal(kind)}, {self.literal(kind)}, {self.literal(kind)})"

    def _between(self) -> str:
        kind = self.rng.choice([Type.DATE, Type.DECIMAL, *_NUMBERS])
        return f"{self.value(kind)} BETWEEN {self.literal(kind)} AND {self.literal(kind)}"

    def _pattern(self) -> str:
        literal = self.rng.choice(TEXTS[:8]).replace("'", "")
        shape = self.rng.choice(["%{}%", "{}%", "%{}", "_{}%", "{}", "%{}%b%"]).format(literal)
        return f"{self.value(Type.STRING)} {self.rng.choice(['LIKE', 'ILIKE', 'NOT LIKE'])} '{shape}'"

    def _truth(self) -> str:
        return self.value(Type.BOOLEAN)

    def _null(self) -> str:
        kind = self.rng.choice(_COMPARED)
        return f"{self.value(kind)} IS {self.rng.choice(['', 'NOT '])}NULL"

    def _elements(self) -> str:
        name, kind = self.rng.choice(
            [
                *_ARRAYS.items(),
                ("items.name", Type.STRING),
                ("items.price", Type.DOUBLE),
                ("map_keys(labels)", Type.STRING),
                ("map_values(counts)", Type.BIGINT),
            ]
        )
        return self.rng.choice(
            [
                f"array_contains({name}, {self.literal(kind)})",
                f"arrays_overlap({name}, array({self.literal(kind)}, {self.literal(kind)}))",
                f"exists({name}, x -> x {self.rng.choice(_COMPARISONS[:6])} {self.literal(kind)})",
                f"exists({name}, x -> x IS NULL)",
                f"exists({name}, x -> x BETWEEN {self.literal(kind)} AND {self.literal(kind)})",
                f"exists({name}, x -> x > {self.literal(kind)} AND x < {self.literal(kind)})",
                f"NOT exists({name}, x -> x <= {self.literal(kind)})",
                f"exists({name}, x -> x IN ({self.literal(kind)}, {self.literal(kind)}))",
                f"forall({name}, x -> x >= {self.literal(kind)})",
                f"size({name}) > {self.rng.randrange(3)}",
                f"get({name}, {self.rng.randrange(3)}) = {self.literal(kind)}",
            ]
        )

    def _keys(self) -> str:
        name = self.rng.choice([*_MAPS])
        key_type, kind = _MAPS[name]
        key = self._key(name)
        own = "s" if key_type is Type.STRING else "i"
        return self.rng.choice(
            [
                f"map_contains_key({name}, {key})",
                f"NOT map_contains_key({name}, {key})",
                f"{name}[{key}] {self.rng.choice(_COMPARISONS)} {self.literal(kind)}",
                f"{name}[{key}] {self.rng.choice(_COMPARISONS)} {self.literal(kind)}",
                f"element_at({name}, {key}) IS NULL",
                f"{name}[{own}] = {self.literal(kind)}",
                f"size({name}) = {self.rng.randrange(3)}",
                f"{name} IS NOT NULL",
            ]
        )

    def _key(self, name: str) -> str:
        key_type, _ = _MAPS[name]
        return f"'{self.rng.choice(_KEYS)}'" if key_type is Type.STRING else self.literal(key_type)

    _predicates: list[Callable[[TextMaker], str]] = [  # noqa: RUF012
        *[_compare] * 5, _list, _between, _pattern, _pattern, _truth, _null, _elements, _keys,
    ]  # fmt: skip

    # -- values ---------------------------------------------------------------------------------------------------

    def value(self, kind: Type, depth: int = 2) -> str:
        """An expression of a type."""
        if not depth or self.rng.random() < 0.25:
            return self._leaf(kind)
        if self.rng.random() < 0.25:
            return self._choice(kind, depth)
        if kind in _NUMBERS and self.rng.random() < 0.3:
            return self._arithmetic(kind, depth)
        rows = self.by_result.get(kind)
        return self._call(self.rng.choice(rows), depth) if rows else self._leaf(kind)

    def _leaf(self, kind: Type) -> str:
        if kind in _BY_KEY and self.rng.random() < 0.15:
            return f"{_BY_KEY[kind]}[{self._key(_BY_KEY[kind])}]"
        if kind is Type.DECIMAL and self.rng.random() < 0.3:
            return f"(p {self.rng.choice('+-*')} {self.rng.choice(['1.5', 'CAST(2 AS DECIMAL(3,1))', 'p'])})"
        names = [name for name, (own, _, _) in ATTRIBUTES.items() if own is kind]
        return self.rng.choice(names) if names and self.rng.random() < 0.9 else self.literal(kind)

    def _choice(self, kind: Type, depth: int) -> str:
        one, other = self.value(kind, depth - 1), self.value(kind, depth - 1)
        return self.rng.choice(
            [
                f"coalesce({one}, {other})",
                f"nullif({one}, {other})",
                f"if({self.condition(0)}, {one}, {other})",
                f"CASE WHEN {self.condition(0)} THEN {one} ELSE {other} END",
                f"greatest({one}, {other})",
                f"least({one}, {other})",
            ]
        )

    def _arithmetic(self, kind: Type, depth: int) -> str:
        one, other = self.value(kind, depth - 1), self.value(kind, depth - 1)
        name = self.rng.choice(["try_add", "try_subtract", "try_multiply", "abs", "mod", "floor", "round"])
        if name in ("try_add", "try_subtract", "try_multiply"):
            return f"{name}({one}, {other})"
        if name == "mod" and kind in (Type.INT, Type.BIGINT):
            return f"try_mod({one}, {other})"
        if name == "abs" and kind in (Type.DOUBLE, Type.FLOAT):
            return f"abs({one})"
        return f"CAST({one} AS {kind.upper()})" if kind is not Type.FLOAT else one

    def _call(self, row: Function, depth: int) -> str:
        if row.name == "extract":
            unit = self.rng.choice(["YEAR", "DOW", "DOW_ISO", "YEAROFWEEK", "MINUTE", "WEEK"])
            return f"extract({unit} FROM {self.value(self.rng.choice([Type.DATE, Type.TIMESTAMP]), depth - 1)})"
        if row.name in _READ:
            return self._read(row.name, depth)
        count = row.least if row.most == row.least else self.rng.randint(row.least, min(row.most, row.least + 1, 3))
        return f"{row.name}({', '.join(self._argument(row, i, depth) for i in range(count))})"

    def _read(self, name: str, depth: int) -> str:
        if self.rng.random() < 0.5:
            form = self.rng.choice(["yyyy-MM-dd", "yyyy-M-d", "dd", "yyyy-MM-dd HH:mm:ss"])
            return f"{name}({self.value(Type.STRING, depth - 1)}, '{form}')"
        return f"{name}({self.value(self.rng.choice([Type.DATE, Type.TIMESTAMP, Type.TIMESTAMP_NTZ]), depth - 1)})"

    def _argument(self, row: Function, position: int, depth: int) -> str:
        takes = takes_of(row, position)
        if (row.name, position) in _WORDS:
            return f"'{self.rng.choice(_WORDS[row.name, position])}'"
        if takes.literal and Type.STRING in takes.types:
            return f"'{self.rng.choice(_PATTERNS)}'" if position == 1 else "'-'"
        if takes.literal:
            return str(self.rng.randrange(3))
        kind = self.rng.choice([kind for kind in takes.types if kind in _KINDS])
        if kind is Type.ARRAY:
            return "tags"
        if kind is Type.MAP:
            return self.rng.choice([*_MAPS])
        if kind is Type.INT and row.name in (
            "repeat",
            "lpad",
            "rpad",
            "space",
            "substring",
            "left",
            "right",
            "date_add",
        ):
            return str(self.rng.randint(-2, 6))
        return self.value(kind, depth - 1)

    def literal(self, kind: Type) -> str:
        value = self.rng.choice([v for v in VALUES[kind] if v == v and v not in (float("inf"), float("-inf"))])
        if kind is Type.STRING:
            return "'" + value.replace("'", "''") + "'"
        if kind is Type.BOOLEAN:
            return str(value).upper()
        if kind is Type.DATE:
            return f"DATE '{value.isoformat()}'"
        if kind is Type.TIMESTAMP:
            return f"TIMESTAMP '{value.strftime('%Y-%m-%d %H:%M:%S.%f').replace('0001-', '0001-')}Z'"
        if kind is Type.DECIMAL:
            return self.rng.choice([f"{value}BD", f"{value}"])
        if kind is Type.BINARY:
            return f"X'{value.hex()}'"
        if kind is Type.TIMESTAMP_NTZ:
            return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
        if kind is Type.BIGINT:
            return f"{value}L" if value > -(2**63) else "-5L"
        if kind in (Type.TINYINT, Type.SMALLINT):
            return f"CAST({value} AS {kind.upper()})"
        if kind is Type.INT:
            return str(value) if value > -(2**31) else "-7"
        if kind is Type.DOUBLE:
            return f"{value!r}D"
        return f"CAST({value!r} AS FLOAT)"
