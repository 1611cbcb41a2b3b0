"""Random schemas, filters and events.

Literals are drawn from the same pools as the values of events, so that matches happen. Everything is drawn from a
`random.Random`: Hypothesis supplies one that it can shrink, the oracles over whole batches a seeded one.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tests.examples import randoms
from tests.property.terms import COMPARISONS, FLOATING, INTEGRAL, NULL, NUMERIC, Term, column, constant, literal

UTC = dt.UTC

INTEGERS = [
    0, 1, -1, 2, 3, 5, 7, 10, 100, -7,
    2**31 - 1, -(2**31) + 1, 2**31, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 2, 2**63 - 1, -(2**63), -(2**63) + 1,
]  # fmt: skip
FLOATS = [
    0.0, -0.0, 1.0, -1.0, 0.1, 0.5, 1.5, 2.5, -2.5, 3.0, 100.0, 0.1 + 0.2, 2.0**53, 2.0**53 + 2, 2.0**63, -(2.0**63),
    1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf"),
]  # fmt: skip
#: Of 32 bits, each with its neighbours: 24 bits end at 16777216, and 0.1 is another number than in 64 bits.
SINGLES = [float(np.float32(v)) for v in (
    0.0, -0.0, 1.0, -1.0, 0.1, 0.2, 0.3, 0.5, 1.5, 1 / 3, 100.0, 16777216.0, 16777218.0, 2.0**31, 1e20, -1e20, 3.4028234663852886e38,
    -3.4028234663852886e38, 1.401298464324817e-45, 1.1754943508222875e-38, float("nan"), float("inf"), float("-inf"),
)]  # fmt: skip
TINY = [-128, -127, -64, -12, -2, -1, 0, 1, 2, 3, 5, 7, 11, 12, 64, 100, 126, 127]
SMALL = [-32768, -32767, -182, -128, -1, 0, 1, 2, 7, 127, 128, 181, 182, 300, 16384, 32766, 32767]
MEDIUM = [
    -(2**31), -(2**31) + 1, -46341, -32769, -1, 0, 1, 2, 3, 7, 10, 100, 32768, 46340, 46341, 2**24 + 1, 2**30, 2**31 - 2, 2**31 - 1,
]  # fmt: skip
STRINGS = [
    "", "a", "A", "b", "B", "ab", "aB", "abc", "ABC", "ba", "zz", " ", "a b", "\t", "a\nb", "a\n", "\r\n", "a\r\n",
    "it's", '"q"', "\\", "a\\", "a\\b", "a%b", "a_b", "%", "_", "\\%", "a\0b", "ß", "SS", "ss", "É", "é", "e\u0301",
    "Σ", "ς", "ΑΣ", "ας", "İ", "ı", "I", "i", "ǅ", "ﬁ", "日本", "😀", "a😀b", "\ud7ff", "\ue000", "\uffff", "\U0010ffff", "2024-01-31", "1", "true",
    "\u00a0", "\u2028", "\x85", "\x0b",
]  # fmt: skip
DATES = [
    dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date(1582, 10, 10),
    dt.date(2024, 2, 29), dt.date(2024, 1, 31), dt.date(2024, 2, 1), dt.date(1900, 3, 1),
]  # fmt: skip
TIMESTAMPS = [
    dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), dt.datetime(1970, 1, 1, tzinfo=UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), dt.datetime(2024, 1, 31, tzinfo=UTC),
    dt.datetime(2024, 1, 31, 0, 0, 0, 1, UTC), dt.datetime(2024, 1, 30, 23, 59, 59, 999999, UTC),
    dt.datetime(2024, 2, 29, 12, 34, 56, 789000, UTC), dt.datetime(1582, 10, 10, 1, 2, 3, tzinfo=UTC),
]  # fmt: skip
#: Decimals of two widths, one with a key of 64 bits and one without; bytes; wall clocks.
MONEY = [
    Decimal(v)
    for v in ("0.00", "1.00", "1.50", "-1.50", "0.01", "-0.01", "2.00", "99999999.99", "-99999999.99", "3.10", "100.00")
]
WIDE = [Decimal(v) for v in (
    "0.00000", "1.00000", "-1.50000", "0.00001", "9999999999999999999999999.99999", "-9999999999999999999999999.99999",
    "1234567890123456789.12345", "18446744073709551616.00000", "2.00000",
)]  # fmt: skip
BINARIES = [b"", b"a", b"ab", b"\x00", b"\x00\x00", b"\xff", b"\xff\xfe", b"\x7f", b"\x80", "é".encode()]
WALLS = [
    *(moment.replace(tzinfo=None) for moment in TIMESTAMPS),
    *map(dt.datetime.fromisoformat, ("2024-03-31 02:30:00", "2024-10-27 02:30:00")),  # some zones skip or repeat them
]
KEYS = ["", "a", "b", "A", "日本", "a'b"]
DECIMALS = [
    "0.0", "1.0", "1.5", "-1.5", "0.1", "0.10", ".5", "2.50", "3.", "100.00", "0.000001", "0.333333", "-0.5", "7.0", "1.000000000000000001",
    "9223372036854775807.0", "9223372036854775806.5", "9007199254740993.0", "99999999.99", "12345678901234567.123456789",
]  # fmt: skip
PATTERNS = [
    "", "%", "_", "__", "a%", "%a", "%a%", "a_", "_b%", "%b", "a%b", "a\\%b", "a\\_b", "\\%", "\\\\", "a\\\\%", "%\\\\", "A%", "é%", "%ß", "%s%",
    "a_b", "😀", "a_b%", "%_%", "i%", "İ", "ς", "%ς", "%\n%", "a\n%", "%\0%", "a\0%", "ﬁ", "a%%", "%%",
]  # fmt: skip
REGEXES = [
    "a", "^a", "a$", "^a$", "^$", "", ".", "^.$", "^..$", "a.b", "[ab]", "[^a]", "a|b", "(a|b)+$", "a*", "^a+$", "\\\\", "\\.", "\\d", "\\w+", "\\s", "\\S", "\\D",
    "\\W", "[\\s]", "[a-c]{2}", "a{2,}", "b?", "(?i)ab", "(?i)k", "(?i)[a-b]c?", "(?:ab)+", "(?<n>a)", "\\n", "[\\[]", "[\\]]a", "[.]", "[$a]", "\\$", "é", "😀", "^.😀",
    "\\Aa", "a\\z", "%", "x*$", "[^\\n]b", "(a+)+$", "\\t", "^\\s$", "(^a|b$)", "a(?i)B", "((?i)a)B", "[^a-c]$",
]  # fmt: skip

POOLS: dict[str, list[Any]] = {
    "bigint": INTEGERS,
    "double": FLOATS,
    "string": STRINGS,
    "date": DATES,
    "timestamp": TIMESTAMPS,
    "boolean": [True, False],
}
#: Numbers narrower than 64 bits.
NARROW_POOLS: dict[str, list[Any]] = {"tinyint": TINY, "smallint": SMALL, "int": MEDIUM, "float": SINGLES}
#: Types that came later.
LATER_POOLS: dict[str, list[Any]] = {"money": MONEY, "wide": WIDE, "binary": BINARIES, "wall": WALLS}
ALL_POOLS = {**POOLS, **NARROW_POOLS, **LATER_POOLS}
#: Types to draw attributes from: those of 64 bits, and numbers of every width.
FULL_KINDS = (*POOLS, "bigint", "double", "string")
WIDTH_KINDS = (*NARROW_POOLS, *NARROW_POOLS, "bigint", "double")
LATER_KINDS = (*LATER_POOLS, *LATER_POOLS, "bigint", "string")
#: And maps, by the type of their values; keys are strings.
MAP_KINDS = (*LATER_KINDS, "map<bigint>", "map<string>", "map<money>", "map<double>")
KIND_NAMES = {
    "money": "decimal(10,2)",
    "wide": "decimal(30,5)",
    "binary": "binary",
    "wall": "timestamp_ntz",
    "tinyint": "tinyint",
    "smallint": "smallint",
    "int": "int",
    "float": "real",
    "bigint": "integer",
    "double": "float",
    "string": "string",
    "date": "date",
    "timestamp": "timestamp",
    "boolean": "boolean",
}


@dataclass(frozen=True)
class Space:
    """A schema with the values that its events and filters draw from."""

    types: dict[str, str]  # name -> SQL type; `array<...>` for arrays
    values: dict[str, list[Any]]  # by element type

    @property
    def schema(self) -> dict[str, str]:
        """The written form of the schema."""
        return {name: _type_name(kind) for name, kind in self.types.items()}

    def names(self, *kinds: str) -> list[str]:
        return [name for name, kind in self.types.items() if kind in kinds]


def _type_name(kind: str) -> str:
    if kind.startswith("map<"):
        return f"map<string,{KIND_NAMES[kind[4:-1]]}>"
    return f"array<{KIND_NAMES[kind[6:-1]]}>" if kind.startswith("array<") else KIND_NAMES[kind]


def is_scalar(kind: str) -> bool:
    return not kind.startswith(("array<", "map<"))


def chance(rng: random.Random, share: float) -> bool:
    """True in this share of the cases. Low draws say no, so that a shrunk trial is a simple one."""
    return rng.random() >= 1 - share


NAMES = ("a", "b", "c", "d", "a1", "s.x", "s.y", "t.u.v", "E", "weiß")


def make_space(rng: random.Random, attributes: int | None = None, kinds: tuple[str, ...] = FULL_KINDS) -> Space:
    """Two to six attributes (or as many as asked for), and a handful of values of each type."""
    names = rng.sample(NAMES, attributes or rng.randint(2, 6))
    arrays = [kind for kind in kinds if is_scalar(kind)]
    types = {n: f"array<{rng.choice(arrays)}>" if chance(rng, 0.2) else rng.choice(kinds) for n in names}
    pools = POOLS if kinds == FULL_KINDS else ALL_POOLS
    values = {kind: rng.sample(pool, min(len(pool), rng.randint(4, 9))) for kind, pool in pools.items()}
    return Space(types, values)


def make_event(rng: random.Random, space: Space) -> dict[str, Any]:
    """An event: values, NULLs, and attributes that are missing."""
    event = {}
    for name, kind in space.types.items():
        if chance(rng, 0.12):
            continue
        if kind.startswith("array<"):
            event[name] = (
                None if chance(rng, 0.1) else [_value(rng, space, kind[6:-1]) for _ in range(rng.randint(0, 3))]
            )
        elif kind.startswith("map<"):
            keys = rng.sample(KEYS, rng.randint(0, 3))
            event[name] = None if chance(rng, 0.1) else {key: _value(rng, space, kind[4:-1]) for key in keys}
        else:
            event[name] = _value(rng, space, kind)
    return event


def _value(rng: random.Random, space: Space, kind: str) -> Any:
    if chance(rng, 0.12):
        return None
    return rng.choice(ALL_POOLS[kind] if chance(rng, 0.15) else space.values[kind])


@dataclass(frozen=True)
class Features:
    """What a filter may contain; an oracle leaves out what it does differently."""

    arithmetic: bool = True
    decimals: bool = True
    casing: bool = True  # lower, upper, ILIKE
    patterns: tuple[str, ...] = ("like", "ilike", "rlike")
    like_patterns: tuple[str, ...] = tuple(PATTERNS)
    calls: bool = True
    arrays: bool = True
    mixed_times: bool = True  # dates against timestamps, and plain strings against both


ALL_FEATURES = Features()


class FilterMaker:
    """Draws random filters over a space."""

    def __init__(self, rng: random.Random, space: Space, features: Features = ALL_FEATURES) -> None:
        self.rng = rng
        self.space = space
        self.features = features
        #: types of numbers narrower than 64 bits that the space has
        self.narrow = tuple(k for k in NARROW_POOLS if space.names(k))
        self.maps = [(name, kind[4:-1]) for name, kind in space.types.items() if kind.startswith("map<")]

    def condition(self, depth: int = 3) -> Term:
        rng = self.rng
        if depth and chance(rng, 0.55):
            kind = rng.choice(("and", "or", "and", "or", "not", "is"))
            if kind == "not":
                return Term("not", "boolean", (self.condition(depth - 1),))
            if kind == "is":
                return self._is(self.condition(depth - 1), ("TRUE", "FALSE", "NULL"))
            count = rng.choice((2, 2, 2, 3, 4))
            return Term(kind, "boolean", tuple(self.condition(depth - 1) for _ in range(count)))
        return self.predicate()

    def predicate(self) -> Term:
        makers: list[Callable[[], Term]] = [self._compare] * 6 + [
            self._between,
            self._between,
            self._in,
            self._in,
            self._in,
        ]
        makers += [self._null_test, self._null_test, self._constant]
        if self.features.patterns:
            makers += [self._pattern, self._pattern, self._pattern]
        if self.space.names("boolean"):
            makers += [self._boolean, self._boolean]
        if self.features.calls:
            makers += [self._string_test]
        if self.features.arrays and any(k.startswith("array<") for k in self.space.types.values()):
            makers += [self._contains] * 4
        if self.maps:
            makers += [self._has_key] * 2
        return self.rng.choice(makers)()

    # -- predicates -----------------------------------------------------------------------------------------------

    def _compare(self) -> Term:
        left, right = self._pair()
        op = self.rng.choice(COMPARISONS)
        if chance(self.rng, 0.04):
            right = NULL
        return Term(op, "boolean", (right, left) if chance(self.rng, 0.25) else (left, right))

    def _between(self) -> Term:
        item, low = self._pair()
        high = self._against(item)
        return Term("between", "boolean", (item, low, high), negated=chance(self.rng, 0.35))

    def _in(self) -> Term:
        item = self._value(self.rng.choice(self._types()))
        count = self.rng.choice((1, 2, 3, 5))
        values = [
            NULL if chance(self.rng, 0.1) else self._against(item, plain=chance(self.rng, 0.9)) for _ in range(count)
        ]
        return Term("in", "boolean", (item, *values), negated=chance(self.rng, 0.35))

    def _null_test(self) -> Term:
        names = list(self.space.types)
        name = self.rng.choice(names)
        kind = self.space.types[name]
        if is_scalar(kind) and chance(self.rng, 0.4):
            return self._is(self._value(kind), ("NULL",))
        return self._is(column(name, kind), ("NULL",))

    def _is(self, item: Term, against: tuple[str, ...]) -> Term:
        return Term("is", "boolean", (item,), value=self.rng.choice(against), negated=chance(self.rng, 0.4))

    def _constant(self) -> Term:
        if chance(self.rng, 0.5):
            return constant(self.rng.choice((True, False, None)))
        kind = self.rng.choice(("bigint", "double", "string", "date"))
        pair = (self._literal(kind), self._literal(kind))
        return Term(self.rng.choice(COMPARISONS), "boolean", pair)

    def _boolean(self) -> Term:
        item = column(self.rng.choice(self.space.names("boolean")), "boolean")
        if chance(self.rng, 0.5):
            return item
        return self._is(item, ("TRUE", "FALSE", "NULL"))

    def _pattern(self) -> Term:
        kind = self.rng.choice(self.features.patterns)
        pattern = self.rng.choice(REGEXES if kind == "rlike" else self.features.like_patterns)
        args = (self._value("string"), literal(pattern, "string"))
        return Term(kind, "boolean", args, negated=chance(self.rng, 0.3))

    def _string_test(self) -> Term:
        name = self.rng.choice(("startswith", "endswith", "contains"))
        return Term("call", "boolean", (self._value("string"), self._value("string", column_share=0.2)), value=name)

    def _contains(self) -> Term:
        name = self.rng.choice([n for n, k in self.space.types.items() if k.startswith("array<")])
        kind = self.space.types[name]
        element = kind[6:-1]
        value = constant(chance(self.rng, 0.5)) if element == "boolean" else self._plain_literal(element)
        if self.space.names(element) and chance(self.rng, 0.2):
            value = column(self.rng.choice(self.space.names(element)), element)
        return Term("call", "boolean", (column(name, kind), value), value="array_contains")

    def _has_key(self) -> Term:
        name, kind = self.rng.choice(self.maps)
        args = (column(name, f"map<{kind}>"), literal(self.rng.choice(KEYS), "string"))
        return Term("call", "boolean", args, value="map_contains_key")

    # -- values ---------------------------------------------------------------------------------------------------

    def _by_key(self, kind: str) -> Term | None:
        """A value of a map, if there are such maps and chance wants it."""
        names = [name for name, own in self.maps if own == kind]
        if not names or not chance(self.rng, 0.4):
            return None
        args = (column(self.rng.choice(names), f"map<{kind}>"), literal(self.rng.choice(KEYS), "string"))
        return Term("item", kind, args)

    def _types(self) -> list[str]:
        """Types to compare: mostly those of the attributes."""
        there = [k for k in self.space.types.values() if is_scalar(k)] + [kind for _, kind in self.maps]
        return there * 3 + ["bigint", "string"]

    def _pair(self) -> tuple[Term, Term]:
        item = self._value(self.rng.choice(self._types()))
        return item, self._against(item)

    def _against(self, item: Term, *, plain: bool = False) -> Term:
        """Something that `item` may be compared with."""
        kind, rng = item.type, self.rng
        if kind in NUMERIC:
            decimals = ("decimal",) if self.features.decimals else ()
            other = rng.choice(("bigint", "bigint", "double", *decimals, *self.narrow))
            return self._literal(other) if plain or chance(rng, 0.7) else self._number(other, 1)
        if kind in ("money", "wide") and chance(rng, 0.2):
            return literal(str(rng.choice(MEDIUM)), "int")
        if kind in ("date", "timestamp") and self.features.mixed_times and chance(rng, 0.5):
            return self._time(kind, is_literal=item.op == "literal", plain=plain)
        return self._literal(kind) if plain or chance(rng, 0.7) else self._value(kind)

    def _time(self, kind: str, *, is_literal: bool, plain: bool) -> Term:
        rng = self.rng
        other = rng.choice(("date", "timestamp"))
        value = rng.choice(self.space.values[other])
        if not is_literal and chance(rng, 0.5):
            return literal(
                value.replace(tzinfo=None).isoformat(sep=" ") if other == "timestamp" else value.isoformat(), "string"
            )
        return literal(value, other) if plain or chance(rng, 0.6) else self._value(other)

    def _value(self, kind: str, *, column_share: float = 0.8) -> Term:
        rng = self.rng
        item = self._by_key(kind)
        if item is not None:
            return item
        if kind in NUMERIC:
            return self._number(kind, 2 if self.features.arithmetic else 0, column_share)
        if kind == "string" and self.features.casing and chance(rng, 0.2):
            return Term("call", "string", (self._value(kind),), value=rng.choice(("lower", "upper")))
        if self.space.names(kind) and chance(rng, column_share):
            return column(rng.choice(self.space.names(kind)), kind)
        return self._literal(kind)

    def _number(self, kind: str, depth: int, column_share: float = 0.8) -> Term:
        rng = self.rng
        if depth and self.features.arithmetic and chance(rng, 0.3):
            return self._arithmetic(depth)
        if self.features.calls and chance(rng, 0.1):
            return self._counting()
        names = self.space.names(*NUMERIC) if depth else self.space.names(kind)
        if names and chance(rng, column_share):
            name = rng.choice(names)
            return column(name, self.space.types[name])
        return self._literal(kind)

    def _arithmetic(self, depth: int) -> Term:
        rng = self.rng
        kinds = ("bigint", "bigint", "double", "decimal") if self.features.decimals else ("bigint", "double")
        kinds += self.narrow
        left = self._number(rng.choice(kinds), depth - 1)
        if chance(rng, 0.2):
            return Term("neg", left.type, (left,))
        if chance(rng, 0.2):
            return Term("call", left.type, (left,), value="abs")
        op = rng.choice("+-*/%")
        right = self._number(rng.choice(kinds), depth - 1, 0.4)
        return Term(op, _arithmetic_type(op, left.type, right.type), (left, right))

    def _counting(self) -> Term:
        arrays = [n for n, k in self.space.types.items() if k.startswith("array<")]
        if self.features.arrays and arrays and chance(self.rng, 0.6):
            name = self.rng.choice(arrays)
            return Term("call", "int", (column(name, self.space.types[name]),), value="size")
        return Term("call", "int", (self._value("string"),), value="length")

    def _literal(self, kind: str) -> Term:
        rng = self.rng
        if kind == "boolean":
            return constant(chance(rng, 0.5))
        if kind in INTEGRAL and chance(rng, 0.15):
            kind = "decimal" if self.features.decimals else kind
        return self._plain_literal(kind)

    def _plain_literal(self, kind: str) -> Term:
        rng = self.rng
        if kind == "decimal":
            return literal(rng.choice(DECIMALS), "decimal")
        value = rng.choice(self.space.values[kind if kind in self.space.values else "bigint"])
        if kind in FLOATING:
            return _double_literal(rng, value)
        if kind in INTEGRAL:
            return literal(str(value), "int" if -(2**31) <= value < 2**31 else "bigint")
        return literal(value, kind)


def _arithmetic_type(op: str, left: str, right: str) -> str:
    kinds = (left, right)
    if op != "/" and left == right:
        return left
    if any(k in FLOATING for k in kinds) or (op == "/" and "decimal" not in kinds):
        return "double"
    return max(kinds, key=NUMERIC.index)


def _double_literal(rng: random.Random, value: float) -> Term:
    """A double as a filter can write it; NaN and the infinities have no literal."""
    if value != value or value in (float("inf"), float("-inf")):
        value = rng.choice((1e308, -1e308, 0.5))
    shown = repr(value)
    return literal(shown if "e" in shown else f"{shown}e0" if chance(rng, 0.5) else f"{shown}D", "double")


# -- for Hypothesis ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """A space, filters over it, and events of it."""

    space: Space
    filters: list[Term]
    events: list[dict[str, Any]]


def make_trial(
    rng: random.Random,
    filters: int,
    events: int,
    features: Features = ALL_FEATURES,
    attributes: int | None = None,
    kinds: tuple[str, ...] = FULL_KINDS,
) -> Trial:
    space = make_space(rng, attributes, kinds)
    maker = FilterMaker(rng, space, features)
    return Trial(space, [maker.condition() for _ in range(filters)], [make_event(rng, space) for _ in range(events)])


def trials(
    filters: int = 4, events: int = 6, features: Features = ALL_FEATURES, kinds: tuple[str, ...] = FULL_KINDS
) -> st.SearchStrategy[Trial]:
    """Trials for Hypothesis, which shrinks them by the random choices they were made of."""
    return randoms().map(lambda rng: make_trial(rng, filters, events, features, kinds=kinds))
