"""Random filters over everything the language has: drawn from its own tables of functions, as texts.

Filters with functions cannot be drawn as `tests.property` draws its terms, with a second evaluator beside them: there are too
many functions. So they are texts, and Spark SQL is the only judge. A function of the table is used by what its row says: the
types of its arguments and its result. Adding a row is enough for it to be drawn.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
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
    "tags": (Type.ARRAY, "array<string>", pa.list_(pa.string())),
    "sizes": (Type.ARRAY, "array<bigint>", pa.list_(pa.int64())),
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
    Type.BIGINT: [0, 1, -1, 5, 64, -100, 10**6, 1_700_000_000, 2**40, 2**63 - 1, -(2**63)],
    Type.DOUBLE: [0.0, -0.0, 1.0, -1.5, 0.1, 2.5, 3.5, 1e3, 1e300, -1e-5, float("nan"), float("inf"), float("-inf")],
    Type.FLOAT: [0.0, 0.5, -1.25, 3.0, 1e10, float("nan")],
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
_ELEMENTS = {"tags": VALUES[Type.STRING][:8], "sizes": VALUES[Type.BIGINT][:6]}
_PATTERNS = ["a", "^a", "b$", "[a-c]+", "(?i)ab", r"(\\w)(\\w)?", "x|y", "\\\\d+", "é"]
_UNITS = ["YEAR", "MONTH", "DAY", "HOUR", "week", "quarter"]
#: Literals of functions that take few: by function and position.
_WORDS = {
    ("trunc", 1): ["YEAR", "MONTH", "week", "quarter"],
    ("date_trunc", 0): _UNITS,
    ("next_day", 1): ["MO", "Friday"],
}
_COMPARISONS = ["=", "<>", "<", "<=", ">", ">=", "<=>"]
_NUMBERS = (Type.INT, Type.BIGINT, Type.DOUBLE, Type.FLOAT)


def make_events(rng: random.Random, count: int) -> pa.Table:
    """Events with NULLs in a fifth of their values."""
    columns = {}
    for name, (kind, _, arrow) in ATTRIBUTES.items():
        values = [None if rng.random() < 0.2 else _value(rng, name, kind) for _ in range(count)]
        columns[name] = pa.array(values, arrow)
    return pa.table(columns)


def _value(rng: random.Random, name: str, kind: Type) -> Any:
    if kind is Type.ARRAY:
        return [rng.choice([*_ELEMENTS[name], None]) for _ in range(rng.randrange(4))]
    return rng.choice(VALUES[kind])


class TextMaker:
    """Draws filters."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        rows = {row.name: row for row in FUNCTIONS.values()}
        #: functions whose type is known from their row alone
        self.by_result: dict[Type, list[Function]] = {}
        for row in rows.values():
            if row.build is None and isinstance(row.result, Type):
                self.by_result.setdefault(row.result, []).append(row)

    def condition(self, depth: int = 2) -> str:
        if depth and self.rng.random() < 0.5:
            kind = self.rng.choice([" AND ", " OR ", " OR ", "NOT"])
            if kind == "NOT":
                return f"NOT ({self.condition(depth - 1)})"
            return kind.join(f"({self.condition(depth - 1)})" for _ in range(2))
        return self.rng.choice(self._predicates)(self)

    def _compare(self) -> str:
        kind = self.rng.choice([Type.STRING, Type.STRING, Type.DATE, Type.TIMESTAMP, *_NUMBERS])
        left = self.value(kind)
        right = self.literal(kind) if self.rng.random() < 0.7 else self.value(kind)
        return f"{left} {self.rng.choice(_COMPARISONS)} {right}"

    def _list(self) -> str:
        kind = self.rng.choice([Type.STRING, Type.INT, Type.DATE])
        return f"{self.value(kind)} IN ({self.literal(kind)}, {self.literal(kind)}, {self.literal(kind)})"

    def _between(self) -> str:
        kind = self.rng.choice([Type.DATE, *_NUMBERS])
        return f"{self.value(kind)} BETWEEN {self.literal(kind)} AND {self.literal(kind)}"

    def _pattern(self) -> str:
        literal = self.rng.choice(TEXTS[:8]).replace("'", "")
        shape = self.rng.choice(["%{}%", "{}%", "%{}", "_{}%", "{}", "%{}%b%"]).format(literal)
        return f"{self.value(Type.STRING)} {self.rng.choice(['LIKE', 'ILIKE', 'NOT LIKE'])} '{shape}'"

    def _truth(self) -> str:
        return self.value(Type.BOOLEAN)

    def _null(self) -> str:
        kind = self.rng.choice([Type.STRING, Type.DATE, *_NUMBERS])
        return f"{self.value(kind)} IS {self.rng.choice(['', 'NOT '])}NULL"

    def _elements(self) -> str:
        name = self.rng.choice(["tags", "sizes"])
        kind = Type.STRING if name == "tags" else Type.BIGINT
        return self.rng.choice(
            [
                f"array_contains({name}, {self.literal(kind)})",
                f"arrays_overlap({name}, array({self.literal(kind)}, {self.literal(kind)}))",
                f"exists({name}, x -> x {self.rng.choice(_COMPARISONS[:6])} {self.literal(kind)})",
                f"exists({name}, x -> x IN ({self.literal(kind)}, {self.literal(kind)}))",
                f"forall({name}, x -> x >= {self.literal(kind)})",
                f"size({name}) > {self.rng.randrange(3)}",
                f"get({name}, {self.rng.randrange(3)}) = {self.literal(kind)}",
            ]
        )

    _predicates: list[Callable[[TextMaker], str]] = [  # noqa: RUF012
        *[_compare] * 5, _list, _between, _pattern, _pattern, _truth, _null, _elements,
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
        count = row.least if row.most == row.least else self.rng.randint(row.least, min(row.most, row.least + 1, 3))
        return f"{row.name}({', '.join(self._argument(row, i, depth) for i in range(count))})"

    def _argument(self, row: Function, position: int, depth: int) -> str:
        takes = takes_of(row, position)
        if (row.name, position) in _WORDS:
            return f"'{self.rng.choice(_WORDS[row.name, position])}'"
        if takes.literal and Type.STRING in takes.types:
            return f"'{self.rng.choice(_PATTERNS)}'" if position == 1 else "'-'"
        if takes.literal:
            return str(self.rng.randrange(3))
        kinds = [kind for kind in takes.types if any(own is kind for own, _, _ in ATTRIBUTES.values())]
        kind = self.rng.choice(kinds)
        if kind is Type.ARRAY:
            return "tags"
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
        if kind is Type.BIGINT:
            return f"{value}L" if value > -(2**63) else "-5L"
        if kind is Type.INT:
            return str(value) if value > -(2**31) else "-7"
        if kind is Type.DOUBLE:
            return f"{value!r}D"
        return f"CAST({value!r} AS FLOAT)"
