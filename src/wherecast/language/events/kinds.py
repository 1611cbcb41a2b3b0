"""The table of types: everything that the rest of the program asks about a kind, one row each.

A row says what a kind is called, which values fit it, how its values are ordered in an index, and how they are written.
Other modules ask the row (`Attribute.row`, `Attribute.form`); they do not test for kinds. Adding a type is adding a row here, and one
each in the two tables that need Arrow: `arrow` (which Arrow types hold it) and `convert` (whole columns at once).

A kind has one or several *forms*, by width. The form says how values are ordered:

- by a 64-bit *key* (see `keys`): numbers, days, instants. Cut points and events are compared as integers;
- as a *text*: kinds whose values do not fit 64 bits. The constants of filters are ranked in one pool of texts, whose order
  is that of the values.

Everything behind `index.codes` knows these two only.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from wherecast.language.events import values as v
from wherecast.language.events.types import FULL_WIDTH, MAX_PRECISION, Kind, Type
from wherecast.language.events.values import key_float

if TYPE_CHECKING:
    from wherecast.language.events.attributes import Attribute
    from wherecast.language.events.zone import Zone


def _is_never_plain(_: Any) -> bool:
    return False


def _is_boolean(value: Any) -> bool:
    return type(value) is bool


def _is_double(value: Any) -> bool:
    return type(value) is float


def _is_int(value: Any) -> bool:
    return type(value) is int and -0x80000000 <= value <= 0x7FFFFFFF


def _is_bigint(value: Any) -> bool:
    return type(value) is int and -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF


def _is_ascii(value: Any) -> bool:
    return type(value) is str and value.isascii()


def _is_date(value: Any) -> bool:
    return type(value) is dt.date


def _is_instant(value: Any) -> bool:
    return type(value) is dt.datetime and value.tzinfo is dt.UTC


def _is_wall(value: Any) -> bool:
    return type(value) is dt.datetime and value.tzinfo is None


class Form(NamedTuple):
    """One width of a kind, or its only form."""

    names: tuple[str, ...]  # in written schemas; the first is the one that is written, and never changes
    spark: tuple[str, ...]  # in the JSON form of Spark's types; the first is the one that is written
    type: Type  # of an expression that is such an attribute
    is_text: bool = False  # ordered as a text, not by a key
    #: a quick look that most values pass: whether a Python value stands in an index as it is
    is_plain: Callable[[Any], bool] = _is_never_plain


class Plain(NamedTuple):
    """Values as plain texts, in CSV files and logs."""

    pattern: str  # means the same to Python's `re` and to Arrow's RE2
    read: Callable[[str], object]


@dataclass(frozen=True, eq=False)
class Row:
    """What there is to know about a kind."""

    kind: Kind
    forms: Mapping[int, Form]  # by width in bits
    #: the canonical value for a Python value; raises UnfitValueError
    fit: Callable[[Any, Attribute, Zone], Any]
    #: Python types whose values Arrow converts by itself, many at once
    python: frozenset[type]
    #: a position (the key, or the text) as a SQL literal; and as a value for people, as JSON has it
    write: Callable[[Any, Attribute], str]
    show: Callable[[Any, Attribute], object] = lambda key, _: key
    #: whether SQL can write a key: not so infinity, and years beyond 1 to 9999
    can_write: Callable[[int], bool] = lambda _: True
    has_domain: bool = True
    has_range: bool = True  # a domain may have min and max
    has_step: bool = False  # and precision, the step between values
    has_digits: bool = False  # a precision and a scale are part of the type; the width follows from them
    #: what stands for a canonical value in an index, if not the value itself: a number or an ordered text; and back
    store: Callable[[Any, Attribute], int | str] | None = None
    load: Callable[[Any, Attribute], Any] = lambda stored, _: stored
    #: how values stand in plain texts, if not as the texts that `fit` takes
    plain: Plain | None = None
    #: what an attribute with `coerce` makes of a value before it must fit; None: such a kind cannot have it
    coerce: Callable[[Any], Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return row_of, (self.kind,)


def _read_by(plain: Plain) -> Callable[[Any], Any]:
    """Texts as what they say; a text that says nothing of the kind stays."""
    return lambda value: plain.read(value) if isinstance(value, str) and re.match(plain.pattern, value) else value


def _text_of(value: Any) -> Any:
    """Numbers and booleans as JSON writes them."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return f"{value:f}"
    return repr(value) if type(value) in (int, float) else value


def quote(text: str) -> str:
    """A text as a SQL literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


# -- dates and timestamps ----------------------------------------------------------------------------------------------

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock
_HOUR = 3_600_000_000
_DAYS = (dt.date.min - _EPOCH.date()).days, (dt.date.max - _EPOCH.date()).days
_WALLS = _DAYS[0] * 24 * _HOUR, (_DAYS[1] + 1) * 24 * _HOUR - 1
_INSTANTS = _WALLS[0] - 18 * _HOUR, _WALLS[1] + 18 * _HOUR


def _within(ends: tuple[int, int]) -> Callable[[int], bool]:
    return lambda key: ends[0] <= key <= ends[1]


def _day(key: int) -> dt.date:
    return _EPOCH.date() + dt.timedelta(days=key)


def _wall(key: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=key)


def _write_date(key: int, _: Attribute) -> str:
    return f"DATE '{_day(key)}'" if _within(_DAYS)(key) else f"day {key}"


def _write_wall(key: int, _: Attribute) -> str:
    return f"TIMESTAMP_NTZ '{_wall(key)}'" if _within(_WALLS)(key) else str(key)


def _write_instant(key: int, _: Attribute) -> str:
    if not _within(_INSTANTS)(key):
        return str(key)
    # At the ends of time, a clock elsewhere still shows a year from 1 to 9999.
    hours = 18 if key < _WALLS[0] else -18 if key > _WALLS[1] else 0
    return f"TIMESTAMP '{_wall(key + hours * _HOUR)}{f'{hours:+03d}:00' if hours else 'Z'}'"


def _show_float(key: int, _: Attribute) -> object:
    value = key_float(key)
    return value if math.isfinite(value) else str(value)


# -- decimals ----------------------------------------------------------------------------------------------------------

#: Unscaled values up to so many digits are their own keys.
KEY_DIGITS = 18
#: The others are ordered as hexadecimal texts of one length, from the least integer of 128 bits on.
_LEAST = -(2**127)


def width_of_digits(precision: int) -> int:
    return FULL_WIDTH if precision <= KEY_DIGITS else 2 * FULL_WIDTH


def decimal_text(unscaled: int) -> str:
    """The text whose order is that of unscaled values of up to 38 digits."""
    return f"{unscaled - _LEAST:032X}"


def unscaled_of(stored: int | str) -> int:
    """The unscaled value of a decimal as an index has it."""
    return int(stored, 16) + _LEAST if isinstance(stored, str) else int(stored)


def _store_decimal(value: Decimal, of: Attribute) -> int | str:
    unscaled = int(value.scaleb(of.digits[1], _EXACT))
    return decimal_text(unscaled) if of.is_text else unscaled


def _load_decimal(stored: int | str, of: Attribute) -> Decimal:
    return Decimal(unscaled_of(stored)).scaleb(-of.digits[1], _EXACT)


def _write_decimal(stored: int | str, of: Attribute) -> str:
    return f"{_load_decimal(stored, of):f}"


_EXACT = Context(prec=2 * MAX_PRECISION)


# -- the table ---------------------------------------------------------------------------------------------------------

_BOOLEANS = Plain(r"(?i)^\s*(?:true|false)\s*$", lambda text: text.strip().lower() == "true")
_INTEGERS = Plain(r"^\s*-?[0-9]+\s*$", int)
_FLOATS = Plain(r"(?i)^\s*[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf|infinity)\s*$", float)

_TABLE = (
    Row(
        Kind.BOOLEAN,
        {FULL_WIDTH: Form(("boolean", "bool"), ("boolean",), Type.BOOLEAN, is_plain=_is_boolean)},
        fit=lambda value, of, _: v.boolean(value, of.element_name),
        python=frozenset({bool}),
        write=lambda key, _: "TRUE" if key else "FALSE",
        show=lambda key, _: bool(key),
        has_range=False,
        plain=_BOOLEANS,
        coerce=_read_by(_BOOLEANS),
    ),
    # `integer` and `float` have 64 bits: that is what schemas written before there were widths mean. To Spark they have 32.
    Row(
        Kind.INTEGER,
        {
            8: Form(("tinyint", "byte"), ("byte", "tinyint"), Type.TINYINT),
            16: Form(("smallint", "short"), ("short", "smallint"), Type.SMALLINT),
            32: Form(("int",), ("integer", "int"), Type.INT, is_plain=_is_int),
            64: Form(("integer", "bigint", "long"), ("long", "bigint"), Type.BIGINT, is_plain=_is_bigint),
        },
        fit=lambda value, of, _: v.integer(value, of.element_name, of.bits),
        python=frozenset({int}),
        write=lambda key, _: str(key),
        has_step=True,
        plain=_INTEGERS,
        coerce=_read_by(_INTEGERS),
    ),
    Row(
        Kind.FLOAT,
        {
            32: Form(("real",), ("float", "real"), Type.FLOAT),
            64: Form(("float", "double"), ("double",), Type.DOUBLE, is_plain=_is_double),
        },
        fit=lambda value, of, _: v.double(value, of.element_name, of.bits),
        python=frozenset({float, int}),
        write=lambda key, _: repr(key_float(key)),
        show=_show_float,
        can_write=lambda key: math.isfinite(key_float(key)),
        has_step=True,
        plain=_FLOATS,
        coerce=_read_by(_FLOATS),
    ),
    Row(
        Kind.DECIMAL,
        {
            FULL_WIDTH: Form(("decimal", "numeric", "dec"), ("decimal",), Type.DECIMAL),
            2 * FULL_WIDTH: Form((), (), Type.DECIMAL, is_text=True),
        },
        fit=lambda value, of, _: v.decimal(value, of.element_name, of.digits),
        python=frozenset({Decimal, int}),
        write=_write_decimal,
        show=_write_decimal,
        has_digits=True,
        store=_store_decimal,
        load=_load_decimal,
        coerce=lambda value: value,  # a text is a decimal anyway
    ),
    Row(
        Kind.STRING,
        {
            FULL_WIDTH: Form(
                ("string", "text", "varchar"),
                ("string", "text", "varchar", "char"),
                Type.STRING,
                is_text=True,
                is_plain=_is_ascii,
            )
        },
        fit=lambda value, of, _: v.string(value, of.element_name),
        python=frozenset({str}),
        write=lambda text, _: quote(text),
        has_range=False,
        coerce=_text_of,
    ),
    Row(
        Kind.BINARY,
        # In hexadecimal digits: their order is that of the bytes, and a value that another one begins with comes first.
        {FULL_WIDTH: Form(("binary",), ("binary",), Type.BINARY, is_text=True)},
        fit=lambda value, of, _: v.binary(value, of.element_name),
        python=frozenset({bytes}),
        write=lambda digits, _: f"X'{digits}'",
        has_domain=False,
        store=lambda value, _: value.hex().upper(),
        load=lambda digits, _: bytes.fromhex(digits),
    ),
    Row(
        Kind.DATE,
        {FULL_WIDTH: Form(("date",), ("date",), Type.DATE, is_plain=_is_date)},
        fit=lambda value, of, _: v.date(value, of.element_name),
        python=frozenset({dt.date}),
        write=_write_date,
        show=lambda key, _: _day(key).isoformat(),
        can_write=_within(_DAYS),
    ),
    Row(
        Kind.TIMESTAMP,
        {
            FULL_WIDTH: Form(
                ("timestamp", "timestamp_ltz"),
                ("timestamp", "timestamp_ltz"),
                Type.TIMESTAMP,
                is_plain=_is_instant,
            )
        },
        fit=lambda value, of, zone: v.timestamp(value, of.element_name, zone),
        python=frozenset({dt.datetime}),
        write=_write_instant,
        show=lambda key, _: _wall(key).isoformat() + "+00:00",
        can_write=_within(_INSTANTS),
    ),
    Row(
        Kind.TIMESTAMP_NTZ,
        {FULL_WIDTH: Form(("timestamp_ntz",), ("timestamp_ntz",), Type.TIMESTAMP_NTZ, is_plain=_is_wall)},
        fit=lambda value, of, _: v.timestamp_ntz(value, of.element_name),
        python=frozenset({dt.datetime}),
        write=_write_wall,
        show=lambda key, _: _wall(key).isoformat(),
        can_write=_within(_WALLS),
    ),
)

ROWS: Mapping[Kind, Row] = {row.kind: row for row in _TABLE}
#: The kind and width of every name in written schemas, and in Spark's JSON.
NAMES = {name: (row.kind, bits) for row in _TABLE for bits, form in row.forms.items() for name in form.names}
SPARK_NAMES = {name: (row.kind, bits) for row in _TABLE for bits, form in row.forms.items() for name in form.spark}


def row_of(kind: Kind) -> Row:
    return ROWS[kind]
