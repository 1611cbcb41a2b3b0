"""Types: what the values of an attribute can be, and what an expression makes of them.

An attribute has a `Kind` and a width in bits. An expression has a `Type`, which is one of Spark SQL's: `TINYINT`,
`SMALLINT`, `INT` and `BIGINT` (attributes by their width; small literals, `length` and `size` are INT), `DECIMAL` (literals
with a point, and what arithmetic makes of them), `FLOAT` (32 bits), `DOUBLE`, and so on. `NULL` is the type of a bare NULL.

Decimals are exact, with Spark SQL's precision and scale. A literal such as `1.1` is DECIMAL(2, 1) in Spark, not a double,
so `qty * 1.1 > 100` on an integer attribute is decimal arithmetic. Decimal values are Python integers, unscaled, in object
arrays; the scale is static and stands in the expression. That is slow (about a microsecond per operation) and runs only
where an integer meets a decimal literal in arithmetic, on candidates that passed their box. The rules are those of Spark's
DecimalPrecision with `spark.sql.decimalOperations.allowPrecisionLoss` on, its default.
"""

from __future__ import annotations

import enum
from functools import cache


class Kind(enum.StrEnum):
    """What the values of an attribute (or the elements of an array attribute) are."""

    BOOLEAN = "boolean"
    INTEGER = "integer"  # signed
    FLOAT = "float"  # IEEE 754
    DECIMAL = "decimal"  # exact, with a precision and a scale
    STRING = "string"  # Unicode, compared as UTF-8 bytes
    BINARY = "binary"  # bytes
    DATE = "date"
    TIMESTAMP = "timestamp"  # an instant: microseconds, UTC
    TIMESTAMP_NTZ = "timestamp_ntz"  # a wall clock, in no time zone: microseconds


FULL_WIDTH = 64


def integer_range(bits: int) -> tuple[int, int]:
    """The least and the greatest integer of a width."""
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


class Type(enum.StrEnum):
    """What the values of an expression are."""

    BOOLEAN = "boolean"
    TINYINT = "tinyint"
    SMALLINT = "smallint"
    INT = "int"
    BIGINT = "bigint"
    DECIMAL = "decimal"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp_ntz"
    MONTHS = "interval year to month"
    DURATION = "interval day to second"
    ARRAY = "array"
    MAP = "map"
    VECTOR = "vector"  # of a literal; an attribute that is a vector is an ARRAY of FLOATs
    NULL = "null"


#: Types of several values, which cannot be compared.
COLLECTIONS = (Type.ARRAY, Type.MAP)
#: Integer types by their width in bits, narrowest first.
WIDTH_OF = {Type.TINYINT: 8, Type.SMALLINT: 16, Type.INT: 32, Type.BIGINT: 64}
INTEGERS = tuple(WIDTH_OF)
FLOATS = (Type.FLOAT, Type.DOUBLE)
NUMBERS = (*INTEGERS, Type.DECIMAL, *FLOATS)
#: Types whose values are texts to an index and to the evaluator; bytes are written in hexadecimal digits.
TEXTS = (Type.STRING, Type.BINARY)
#: Each can be compared with those after it, as what comes last: a day as its midnight, a wall clock as its instant.
MOMENTS = (Type.DATE, Type.TIMESTAMP_NTZ, Type.TIMESTAMP)


#: Lengths of time: in months, which differ in length, or in microseconds.
INTERVALS = (Type.MONTHS, Type.DURATION)


def common_number(a: Type, b: Type) -> Type:
    """The type in which Spark's ANSI mode compares and computes two numbers.

    A FLOAT meets anything but a FLOAT as a double: neither an integer nor a decimal is rounded to 24 bits.
    """
    if a is not b and Type.FLOAT in (a, b):
        return Type.DOUBLE
    return max(a, b, key=NUMBERS.index)


# -- decimals ----------------------------------------------------------------------------------------------------------

#: (precision, scale)
Digits = tuple[int, int]

MAX_PRECISION = 38
_MIN_ADJUSTED_SCALE = 6


def arithmetic_digits(op: str, left: Digits, right: Digits) -> Digits:
    """Precision and scale of a decimal operation's result."""
    (p1, s1), (p2, s2) = left, right
    if op in "+-":
        scale = max(s1, s2)
        return _adjust(max(p1 - s1, p2 - s2) + scale + 1, scale)
    if op == "*":
        return _adjust(p1 + p2 + 1, s1 + s2)
    if op == "/":
        scale = max(_MIN_ADJUSTED_SCALE, s1 + p2 + 1)
        return _adjust(p1 - s1 + s2 + scale, scale)
    scale = max(s1, s2)
    return _adjust(min(p1 - s1, p2 - s2) + scale, scale)


def _adjust(precision: int, scale: int) -> Digits:
    """Keep integral digits and give up fraction digits, down to six, when the precision would pass 38."""
    if precision <= MAX_PRECISION:
        return precision, scale
    return MAX_PRECISION, max(MAX_PRECISION - (precision - scale), min(scale, _MIN_ADJUSTED_SCALE))


def wider_digits(left: Digits, right: Digits) -> Digits:
    """Precision and scale that hold the numbers of both; past 38 digits, fraction digits are given up."""
    integral, scale = max(left[0] - left[1], right[0] - right[1]), max(left[1], right[1])
    return min(integral + scale, MAX_PRECISION), max(min(scale, MAX_PRECISION - integral), 0)


def common_scale(left: Digits, right: Digits) -> int:
    """The scale at which Spark compares two decimals: integral digits are kept, fraction digits given up past 38."""
    return wider_digits(left, right)[1]


def rescale(value: int, old: int, new: int) -> int:
    """Change the scale of an unscaled value, rounding half away from zero."""
    if new >= old:
        return value * _power_of_ten(new - old)
    unit = _power_of_ten(old - new)
    quotient, rest = divmod(abs(value), unit)
    quotient += 2 * rest >= unit
    return quotient if value >= 0 else -quotient


@cache
def _power_of_ten(exponent: int) -> int:
    power: int = 10**exponent
    return power


def fit(value: int, scale: int, digits: Digits) -> int | None:
    """Round to `digits`; None when the integral part does not fit."""
    value = rescale(value, scale, digits[1])
    return value if abs(value) < 10 ** digits[0] else None


def compute(op: str, a: int, s1: int, b: int, s2: int, digits: Digits) -> int | None:
    """One decimal operation on unscaled values; None for overflow or division by zero."""
    if op == "*":
        return fit(a * b, s1 + s2, digits)
    if op == "/":
        return _divide(a, s1, b, s2, digits)
    scale = max(s1, s2)
    a, b = rescale(a, s1, scale), rescale(b, s2, scale)
    if op == "%":
        if b == 0:
            return None
        rest = abs(a) % abs(b)
        return fit(rest if a >= 0 else -rest, scale, digits)
    return fit(a + b if op == "+" else a - b, scale, digits)


def _divide(a: int, s1: int, b: int, s2: int, digits: Digits) -> int | None:
    if b == 0:
        return None
    # Spark divides to 39 fraction digits first and rounds to the result's scale afterwards.
    scale = MAX_PRECISION + 1
    numerator, denominator = abs(a) * 10 ** (scale + s2), abs(b) * 10**s1
    quotient, rest = divmod(numerator, denominator)
    quotient += 2 * rest >= denominator
    return fit(quotient if (a >= 0) == (b > 0) else -quotient, scale, digits)
