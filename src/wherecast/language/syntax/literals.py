"""Literals: what Spark takes each for (`SlotKind`), and their values, for many filters of one shape at once.

The literals of a slot are read together, as one array of values (`Literals`). Whatever can be wrong with a literal is found
here (`check_literals`), and is told with its slot.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from wherecast.language.casts import read_boolean, read_double, read_integer
from wherecast.language.events.keys import KEY_MAX, KEY_MIN, days_around, instants, only_walls
from wherecast.language.events.types import INTEGERS, MAX_PRECISION, MOMENTS, NUMBERS, Digits, Type
from wherecast.language.events.zone import UTC, Zone
from wherecast.language.expression import Attr, Call, Compare, InList, IntervalLiteral, Like, Node, Param
from wherecast.language.filters.filters import LiteralValues
from wherecast.language.functions.row import takes_of
from wherecast.language.functions.table import COMPUTING, FUNCTIONS
from wherecast.language.intervals import read_amount
from wherecast.language.nullable import Nullable, as_moments, decimal_scale, member_keys, repeated
from wherecast.language.sequences import pointer, take_ranges
from wherecast.language.syntax.cutting import SlotTexts
from wherecast.language.syntax.java_regex import check_regex
from wherecast.language.syntax.limits import Limits
from wherecast.language.syntax.patterns import like_parts
from wherecast.language.syntax.skeletons import LiteralText, Skeleton
from wherecast.language.syntax.sql import SlotKind
from wherecast.language.syntax.vectors import read_vectors

#: What each slot of a variant holds; a text is the reason why the literal has no kind.
SlotKinds = tuple[SlotKind | str, ...]

_STRING_SLOT, _BIGINT_SLOT, _DECIMAL_SLOT = SlotKind(Type.STRING), SlotKind(Type.BIGINT), SlotKind(Type.DECIMAL)
# All literals in one C call: the literals joined by commas.
_ALL_INTEGERS = re.compile(r"-?[0-9]{1,18}(?:,-?[0-9]{1,18})*+")
_DECIMAL = r"-?(?:[0-9]{1,16}\.[0-9]{0,16}|\.[0-9]{1,16})"
_ALL_DECIMALS = re.compile(rf"{_DECIMAL}(?:,{_DECIMAL})*+")


def slot_kinds(texts: Sequence[LiteralText], *, arithmetic: bool) -> list[SlotKind | str]:
    """The kind of each literal of a slot, or one kind for all of them; a text is the reason why one has none."""
    kind = _common_kind(texts, arithmetic=arithmetic)
    return [slot_kind(t, arithmetic=arithmetic) for t in texts] if kind is None else [kind]


def _common_kind(texts: Sequence[LiteralText], *, arithmetic: bool) -> SlotKind | None:
    """The kind of all literals, where that is quick to see."""
    if all(map("'".__eq__, map(itemgetter(0), texts))):
        return _STRING_SLOT
    if arithmetic:  # Spark's decimal arithmetic depends on the digits of each literal
        return None
    try:
        joined = ",".join(texts)  # type: ignore[arg-type]
    except TypeError:  # IN lists
        return None
    if _ALL_INTEGERS.fullmatch(joined):
        return _BIGINT_SLOT
    return _DECIMAL_SLOT if _ALL_DECIMALS.fullmatch(joined) else None


_EDGES = (str(2**31), str(2**63))


def slot_kind(literal: LiteralText, *, arithmetic: bool) -> SlotKind | str:
    if isinstance(literal, tuple):
        return _list_kind(literal, arithmetic=arithmetic)
    if literal[0] == "'":
        return _STRING_SLOT
    if len(literal) < 10 and literal.isdecimal():  # most numbers, without a regular expression
        return _small_integer(len(literal.lstrip("0")) or 1) if arithmetic else _BIGINT_SLOT
    try:
        kind, digits = number_type(literal)
    except ValueError as error:
        return str(error)
    if arithmetic:
        return SlotKind(kind, digits, is_edge=literal in _EDGES)
    return SlotKind(Type.BIGINT if kind is Type.INT else kind)


@lru_cache
def _small_integer(precision: int) -> SlotKind:
    return SlotKind(Type.INT, (precision, 0))


def _list_kind(values: tuple[str, ...], *, arithmetic: bool) -> SlotKind | str:
    """The kind of an IN list: its widest."""
    kinds = dict.fromkeys(slot_kinds(values, arithmetic=arithmetic))
    wrong = [k for k in kinds if isinstance(k, str)]
    if wrong:
        return wrong[0]
    if len(kinds) == 1:
        return next(iter(kinds))
    types = [k.type for k in kinds if isinstance(k, SlotKind)]
    if Type.STRING in types:
        return "strings and numbers in one list; give all values one type"
    return SlotKind(max(types, key=NUMBERS.index))


def are_strings(kinds: SlotKinds) -> tuple[bool, ...]:
    return tuple(k == _STRING_SLOT for k in kinds)


_ARITHMETIC = re.compile(r"[-+*/%&|^~:\[]|<<|>>|\b(?:div|case|cast|try_cast|interval)\b", re.IGNORECASE)


def has_arithmetic(skeleton: Skeleton) -> bool:
    """Whether the type that Spark gives to a literal may show: in arithmetic, casts, CASE and calls."""
    text = "".join(skeleton)
    return _ARITHMETIC.search(text) is not None or any(name.lower() in COMPUTING for name in _CALL.findall(text))


#: A word before a parenthesis, with what people put between them.
_CALL = re.compile(r"\b(\w++)\s*+\(")


# -- reading -----------------------------------------------------------------------------------------------------------


_DATE = re.compile(r"\s*([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?\s*", re.DOTALL)
_TIMESTAMP = re.compile(
    r"\s*([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{0,9}))?)?\s*"
    r"(Z|UTC|GMT|(?:UTC|GMT)?[+-][0-9]{1,2}(?::[0-9]{1,2}(?::[0-9]{1,2})?)?)?)?)?)?\s*"
)
_EPOCH = dt.date(1970, 1, 1)


def parse_date(text: str) -> int:
    """Days since 1970-01-01 of a date literal. Raises ValueError."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a date; write 'yyyy-mm-dd'")
    year, month, day = (int(g) if g else 1 for g in match.groups())
    return (_civil(text, year, month, day) - _EPOCH).days


def parse_timestamp(text: str) -> tuple[int, int | None]:
    """What a timestamp literal says: the wall clock and, if it names one, the offset, in microseconds. Raises ValueError."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a timestamp; write 'yyyy-mm-dd hh:mm:ss[.ffffff][+hh:mm]'")
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    days = (_civil(text, int(year), int(month or 1), int(day or 1)) - _EPOCH).days
    h, m, s = int(hour or 0), int(minute or 0), int(second or 0)
    if h > 23 or m > 59 or s > 59:
        raise ValueError(f"{text!r} has no such time of day; times run from 00:00:00 to 23:59:59")
    micros = int(((fraction or "") + "000000")[:6])
    return ((days * 24 + h) * 60 + m) * 60_000_000 + s * 1_000_000 + micros, _offset_us(zone) if zone else None


_HEX = re.compile(r"[0-9A-Fa-f]*")


def parse_binary(text: str) -> str:
    """The digits of a literal X'1a2b', in capitals; a zero comes before an odd number of them. Raises ValueError."""
    if not _HEX.fullmatch(text):
        raise ValueError(f"{text!r} is not made of hexadecimal digits; write X'1A2B'")
    return ("0" + text if len(text) % 2 else text).upper()


def _civil(text: str, year: int, month: int, day: int) -> dt.date:
    try:
        return dt.date(year, month, day)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}; write an existing day of the years 0001 to 9999") from None


def _offset_us(zone: str) -> int:
    if zone in ("Z", "UTC", "GMT"):
        return 0
    zone = zone.removeprefix("UTC").removeprefix("GMT")
    hours, minutes, seconds = (int(p) for p in (*zone[1:].split(":"), "0", "0")[:3])
    if hours > 18 or minutes > 59 or seconds > 59:
        raise ValueError(f"{zone!r} is not a time zone offset; write Z or +hh:mm up to 18:00")
    offset = (hours * 3600 + minutes * 60 + seconds) * 1_000_000
    return -offset if zone[0] == "-" else offset


def unquote(literal: str) -> str:
    """The content of a string literal in the plain form of `skeletons`."""
    return literal[1:-1].replace("''", "'")


def unquote_all(literals: Sequence[str]) -> list[str]:
    """The contents of many string literals: few have a quote in them."""
    if "''" in "\n".join(literals):
        return [unquote(literal) for literal in literals]
    return [literal[1:-1] for literal in literals]


_NUMBER = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,6})?(BD|bd|[LlDdFfSsYy])?")


def number_type(literal: str) -> tuple[Type, Digits]:
    """Spark's type of a numeric literal, and its (precision, scale). Raises ValueError if the text is not a number."""
    match = _NUMBER.fullmatch(literal)
    if match is None:
        raise ValueError(f"{literal} is not a number; write it as 12, 1.5 or 1.5e3")
    digits, exponent, suffix = match.groups()
    suffix = (suffix or "").upper()
    if suffix in ("F", "S", "Y"):
        raise ValueError(f"the suffix {suffix} is not supported; write the number without it, or with D")
    if suffix == "D" or (exponent and suffix != "BD"):
        if np.isinf(float(digits + (exponent or ""))):
            raise ValueError(f"{literal} is outside the range of a double; use a number up to 1.7e308")
        return Type.DOUBLE, (0, 0)
    whole, _, fraction = digits.partition(".")
    scale = len(fraction) - (int(exponent[1:]) if exponent else 0)
    significant = len((whole + fraction).lstrip("0")) or 1
    precision = max(significant, scale) + max(-scale, 0)
    if precision > MAX_PRECISION or scale > MAX_PRECISION:
        raise ValueError(f"a number of more than {MAX_PRECISION} digits; round it or write it with an exponent")
    if "." in digits or suffix == "BD":
        return Type.DECIMAL, (precision, max(scale, 0))
    return _integer_type(literal, int(whole), suffix, precision)


def _integer_type(literal: str, value: int, suffix: str, precision: int) -> tuple[Type, Digits]:
    if suffix != "L" and value < 2**31:
        return Type.INT, (precision, 0)
    if value < 2**63 or (value == 2**63 and literal.startswith("-")):
        return Type.BIGINT, (precision, 0)
    if suffix == "L":
        raise ValueError(f"{literal} is outside the range of bigint; leave out the L")
    return Type.DECIMAL, (precision, 0)


def number_body(literal: str) -> str:
    """A numeric literal without its suffix."""
    return literal.rstrip("LlDdBb") if literal[-1:].isalpha() else literal


def read_number(literal: str) -> tuple[int, int]:
    """A numeric literal as an exact (unscaled integer, scale)."""
    whole, _, fraction = literal.partition(".")
    try:
        return int(whole + fraction), len(fraction)
    except ValueError:
        return _read_number(literal)


def _read_number(literal: str) -> tuple[int, int]:
    """The same of a literal with an exponent or a suffix."""
    body = number_body(literal).lower()
    negative, body = body.startswith("-"), body.lstrip("-")
    mantissa, _, exponent = body.partition("e")
    whole, _, fraction = mantissa.partition(".")
    unscaled, scale = int(whole + fraction), len(fraction) - int(exponent or 0)
    if scale < 0:
        unscaled, scale = unscaled * 10**-scale, 0
    return (-unscaled if negative else unscaled), scale


def read_literals(kind: Type, texts: Sequence[str], zone: Zone = UTC) -> npt.NDArray[np.generic]:
    """Literals of one type as an array: int64, float64, or objects (strings; exact `(unscaled, scale)` decimals).

    `zone` is that of timestamps that name none.

    Raises ValueError if any of them cannot be read; the caller finds the row.
    """
    if kind is Type.STRING:
        return np.fromiter(unquote_all(texts), object, len(texts))
    if kind is Type.BINARY:
        return np.fromiter((parse_binary(unquote(t)) for t in texts), object, len(texts))
    if kind not in MOMENTS and texts and texts[0].startswith("'"):
        return _read_quoted(kind, [unquote(t) for t in texts])
    if kind is Type.FLOAT:  # an integer among the elements of an array of FLOATs
        return read_literals(Type.BIGINT, texts).astype(np.float32).astype(np.float64)
    if kind is Type.DOUBLE or kind in INTEGERS:
        read_one: Callable[[str], float] = float if kind is Type.DOUBLE else int
        try:
            values = list(map(read_one, texts))
        except ValueError:  # a suffix, as in 12L
            values = [read_one(number_body(t)) for t in texts]
        return np.array(values, np.float64 if kind is Type.DOUBLE else np.int64)
    if kind is Type.DECIMAL:
        return np.fromiter((read_number(t) for t in texts), object, len(texts))
    known = list(dict.fromkeys(texts))  # lists repeat them
    moments = dict(zip(known, _read_moments(kind, [unquote(t) for t in known], zone).tolist(), strict=True))
    return np.fromiter((moments[t] for t in texts), np.int64, len(texts))


def _read_quoted(kind: Type, texts: list[str]) -> npt.NDArray[np.generic]:
    """Texts beside a number or a truth value, read as Spark casts them."""
    what = "TRUE or FALSE" if kind is Type.BOOLEAN else "an integer" if kind in INTEGERS else "a number"
    read: Callable[[str], Any] = (
        read_boolean if kind is Type.BOOLEAN else (lambda t: read_integer(t, kind)) if kind in INTEGERS else read_double
    )
    values = [read(text) for text in texts]
    for text, value in zip(texts, values, strict=True):
        if value is None:
            raise ValueError(f"{text!r:.60} is not {what}; write {what} without quotes")
    return np.array(values, bool if kind is Type.BOOLEAN else np.int64 if kind in INTEGERS else np.float64)


def _read_moments(kind: Type, texts: list[str], zone: Zone) -> npt.NDArray[np.int64]:
    if kind is Type.DATE:
        return np.array([parse_date(t) for t in texts], np.int64)
    parsed = [parse_timestamp(t) for t in texts]
    walls = np.array([wall for wall, _ in parsed], np.int64)
    if kind is Type.TIMESTAMP_NTZ:  # Spark does not look at the zone of such a literal
        return walls
    named = np.array([offset is not None for _, offset in parsed], bool)
    out = walls - np.array([offset or 0 for _, offset in parsed], np.int64)
    out[~named] = instants(zone, walls[~named])
    return out


# -- the literals of a shape -------------------------------------------------------------------------------------------


class Literals:
    """Literal texts by slot, read on demand: each distinct one once.

    Raises ValueError when a literal of any row cannot be read; `check_row` tells which slot of a row is at fault.
    """

    def __init__(self, slots: Sequence[SlotTexts], length: int, zone: Zone) -> None:
        self.slots = slots
        self.length = length
        self.zone = zone
        self._values: dict[Param, npt.NDArray[Any]] = {}
        self._strings: dict[Param, list[str]] = {}
        self._lists: dict[tuple[Param, Type], tuple[npt.NDArray[Any], npt.NDArray[np.int64]]] = {}

    def scalar(self, param: Param) -> npt.NDArray[Any]:
        """One value per row; decimals as (unscaled, scale)."""
        values, numbers = self.values(param)
        return values[numbers]

    def values(self, param: Param) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """The distinct values of a slot, and the number of each row's."""
        if param not in self._values:
            if param.type is Type.STRING:
                strings, _ = self.strings(param)
                self._values[param] = np.fromiter(strings, object, len(strings))
            else:
                self._values[param] = _read(param, self._plain(param), self.zone)
        return self._values[param], self.slots[param.slot].numbers

    def strings(self, param: Param) -> tuple[list[str], npt.NDArray[np.int64]]:
        """The distinct values of a slot of strings, and the number of each row's."""
        if param not in self._strings:
            self._strings[param] = unquote_all(self._plain(param))
        return self._strings[param], self.slots[param.slot].numbers

    def _plain(self, param: Param) -> list[str]:
        texts = self.slots[param.slot].known
        if tuple in set(map(type, texts)):
            raise ValueError("a list of values stands where one value is expected")
        return texts  # type: ignore[return-value]

    def listed(self, param: Param, common: Type) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """All values of an IN slot in one array, with offsets per row."""
        key = (param, common)
        if key not in self._lists:
            texts, numbers = self.slots[param.slot]
            lists = [t if isinstance(t, tuple) else (t,) for t in texts]
            values = _read(param, [v for each in lists for v in each], self.zone)
            places, ptr = take_ranges(pointer(map(len, lists), len(lists)), numbers)
            self._lists[key] = values[places], ptr
        return self._lists[key]

    def take(self, nodes: Sequence[Node]) -> LiteralValues:
        """The literals that evaluating these expressions needs, in the form that `ProgramScope` serves."""
        found: LiteralValues = {}
        for root in nodes:
            in_lists = {id(v) for n in root.walk() if isinstance(n, InList) for v in n.values}
            for node in root.walk():
                if isinstance(node, InList):
                    for value in node.values:
                        found[(value, node.common)] = self._member_sets(value, node.common)
                elif isinstance(node, Param) and id(node) not in in_lists:
                    found[node] = _computable(node, self.scalar(node))
        return found

    def _member_sets(self, param: Param, common: Type) -> npt.NDArray[np.object_]:
        flat, ptr = self.listed(param, common)
        members = Nullable(_computable(param, flat), np.ones(flat.size, bool))
        keys = member_keys(param, members, common, self.zone)
        return np.fromiter((frozenset(keys[a:b]) for a, b in pairwise(ptr.tolist())), object, ptr.size - 1)


def _read(param: Param, texts: Sequence[str], zone: Zone) -> npt.NDArray[Any]:
    if param.type is Type.VECTOR:
        return read_vectors(texts, param.digits[0])
    # With its sign from the start: the least integer has no positive.
    return read_literals(param.type, [f"-{t}" for t in texts] if param.negative else texts, zone)


def _computable(param: Param, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Decimals as unscaled integers at the parameter's scale; the rest as it is."""
    if param.type is not Type.DECIMAL:
        return values
    scale = decimal_scale(param)
    return np.fromiter((unscaled * 10 ** (scale - s) for unscaled, s in values), object, values.size)


def nodes_with_literals(root: Node) -> tuple[Node, ...]:
    """The parts of an expression that `check_literals` looks at."""
    in_lists = {v for n in root.walk() if isinstance(n, InList) for v in n.values}
    return tuple(
        n
        for n in root.walk()
        if isinstance(n, (InList, Compare, Like, IntervalLiteral))
        or (isinstance(n, Param) and n not in in_lists)
        or (isinstance(n, Call) and (FUNCTIONS[n.name].check is not None or _decimal_array(n) is not None))
    )


def _decimal_array(call: Call) -> Attr | None:
    """The array of decimals whose elements a call compares with its other arguments."""
    array = call.args[0] if call.args else None
    return array if isinstance(array, Attr) and array.type is Type.ARRAY and array.element is Type.DECIMAL else None


def check_literals(nodes: Sequence[Node], literals: Literals, limits: Limits) -> None:
    """Read every literal of an expression, patterns included. Raises LiteralFault for the first that is wrong.

    `nodes` are those of `nodes_with_literals`.
    """
    for node in nodes:
        if isinstance(node, (InList, Compare)) and node.common is Type.DECIMAL:
            _check_decimals(node, literals)
        if isinstance(node, (InList, Compare)) and node.common is Type.TIMESTAMP:
            _check_moments(node, literals)
        if isinstance(node, InList):
            for value in node.values:
                _guard(value, lambda v=value, c=node.common: literals.listed(v, c))  # type: ignore[misc]
                _check_length(value, literals.listed(value, node.common)[1], limits.values)
        elif isinstance(node, IntervalLiteral):
            for amount, unit in zip(node.amounts, node.units, strict=True):
                _guard(amount, lambda a=amount, u=unit: _check_amounts(a, u, literals))  # type: ignore[misc]
        elif isinstance(node, Param):
            _guard(node, lambda p=node: literals.scalar(p))  # type: ignore[misc]
        elif isinstance(node, Like):
            _guard(node.pattern, lambda n=node: _check_patterns(n, literals, limits))  # type: ignore[misc]
        elif isinstance(node, Call):
            array = _decimal_array(node)
            if array is not None:
                numbers = [a for a in node.args[1:] if isinstance(a, Param) and a.type in NUMBERS]
                _check_digits(array.digits, node, numbers, literals)
            _check_call(node, literals, limits.pattern)


class LiteralFault(ValueError):  # noqa: N818 - not raised to callers: it becomes a FilterError
    """A literal that cannot be read, and its slot."""

    def __init__(self, slot: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.slot = slot
        self.reason = reason


def _guard(param: Param, read: Callable[[], object]) -> None:
    try:
        read()
    except LiteralFault:
        raise
    except (ValueError, OverflowError) as error:
        raise LiteralFault(param.slot, "literal", str(error)) from None


def _check_length(param: Param, ptr: npt.NDArray[np.int64], limit: int) -> None:
    longest = int(np.diff(ptr).max(initial=0))
    if longest > limit:
        raise LiteralFault(param.slot, "limit", f"{longest} values in one IN list, at most {limit}; split the filter")


def _check_moments(node: InList | Compare, literals: Literals) -> None:
    """Refuse the instants with which Spark compares a wall clock or a day in two ways.

    By its rules it casts the attribute to an instant; where it can, it casts the literal to a wall clock or a day instead.
    Both say the same, except where clocks change: there two wall clocks are one instant, or none is.
    """
    sides = (node.item, *node.values) if isinstance(node, InList) else (node.left, node.right)
    cast = {side.type for side in sides if not isinstance(side, Param)} & {Type.DATE, Type.TIMESTAMP_NTZ}
    for side in sides if cast else ():
        if isinstance(side, Param):
            _guard(side, lambda p=side: _check_clear(p, node, Type.DATE in cast, literals))  # type: ignore[misc]


def _check_clear(param: Param, node: InList | Compare, is_day: bool, literals: Literals) -> None:
    values = literals.listed(param, node.common)[0] if isinstance(node, InList) else literals.scalar(param)
    zone, moments = literals.zone, as_moments(values, param.type, node.common, literals.zone)
    if is_day:
        floor, ceil = days_around(zone, moments)
        is_clear = floor <= ceil
    else:
        _, is_clear = only_walls(zone, moments)
    if not is_clear.all():
        raise ValueError(
            f"the clocks of {zone.name} change at this time, and Spark has two answers for it; "
            "write TIMESTAMP_NTZ '...' to compare wall clocks, or choose another time"
        )


_INTEGER_SCALE = 18  # an integer needs up to 20 of the 38 digits of a decimal


def _check_decimals(node: InList | Compare, literals: Literals) -> None:
    """Refuse the decimals that Spark does not compare exactly with an integer.

    It rounds those of more than 18 fraction digits, and says that NULL is less than a number beyond 64 bits.
    """
    sides = (node.item, *node.values) if isinstance(node, InList) else (node.left, node.right)
    for side in sides:
        if isinstance(side, Attr) and side.type is Type.DECIMAL:
            _check_digits(side.digits, node, [s for s in sides if isinstance(s, Param)], literals)
    if not any(side.type in INTEGERS and not isinstance(side, Param) for side in sides):
        return
    ordered = isinstance(node, Compare) and node.op in ("<", "<=", ">", ">=")
    for side in sides:
        if isinstance(side, Param) and side.type is Type.DECIMAL:
            values = literals.listed(side, node.common)[0] if isinstance(node, InList) else literals.scalar(side)
            for unscaled, scale in values:
                if not ordered and scale > _INTEGER_SCALE:
                    message = f"a number with more than {_INTEGER_SCALE} fraction digits cannot be compared with an integer; round it"
                    raise LiteralFault(side.slot, "literal", message)
                if ordered and not KEY_MIN * 10**scale <= unscaled <= KEY_MAX * 10**scale:
                    message = "an integer is always on one side of a number beyond 64 bits; test IS NOT NULL instead"
                    raise LiteralFault(side.slot, "literal", message)


def _check_digits(own: Digits, node: Node, params: list[Param], literals: Literals) -> None:
    """Refuse literals that Spark would round to compare them with a decimal: all digits together must fit a decimal."""
    whole = np.full(literals.length, own[0] - own[1])
    scale = np.full(literals.length, own[1])
    for param in params:
        values, ptr = (
            literals.listed(param, node.common)
            if isinstance(node, InList)
            else (literals.scalar(param), np.arange(literals.length + 1))
        )
        rows = np.repeat(np.arange(literals.length), np.diff(ptr))
        each = [v if param.type is Type.DECIMAL else (v, 0) for v in values.tolist()]
        np.maximum.at(whole, rows, [max(len(str(abs(u))) - s, 0) for u, s in each])
        np.maximum.at(scale, rows, [s for _, s in each])
        if np.any(whole + scale > MAX_PRECISION):
            message = (
                f"Spark would round one side to compare decimal({own[0]},{own[1]}) with a number of so many digits; "
                "write fewer digits"
            )
            raise LiteralFault(param.slot, "literal", message)


def _check_amounts(amount: Param, unit: str, literals: Literals) -> None:
    for text in [t for t in literals.slots[amount.slot].known if isinstance(t, str)]:
        read_amount(unit, unquote(text) if text.startswith("'") else number_body(text))


def _check_patterns(node: Like, literals: Literals, limits: Limits) -> None:
    slot, patterns = node.pattern.slot, literals.strings(node.pattern)[0]
    most = min(limits.pattern, limits.wildcards)  # no pattern has more wildcards than characters
    if node.kind != "rlike" and max(map(len, patterns), default=0) <= most and "\\" not in "".join(patterns):
        return
    for pattern in patterns:
        if len(pattern) > limits.pattern:
            raise LiteralFault(slot, "limit", f"a pattern of {len(pattern)} characters, at most {limits.pattern}")
        if node.kind == "rlike":
            check_regex(pattern, limits.regex_steps)
            continue
        if "\\" not in pattern and pattern.count("%") + pattern.count("_") <= limits.wildcards:
            continue
        # Whatever passes compiles; RE2 gets to see it when there is something to match.
        wildcards = sum(is_wildcard for is_wildcard, _ in like_parts(pattern))
        if wildcards > limits.wildcards:
            raise LiteralFault(slot, "limit", f"a pattern with {wildcards} wildcards, at most {limits.wildcards}")


def _check_call(node: Call, literals: Literals, limit: int) -> None:
    """Patterns and the like, by the function's own check."""
    row = FUNCTIONS[node.name]
    check = row.check
    if check is None:
        return
    if row.grows:
        params = [arg for arg in node.args if isinstance(arg, Param)]
        columns = (literals.scalar(a).tolist() if isinstance(a, Param) else [None] * literals.length for a in node.args)
        for values in set(zip(*columns, strict=True)) if params else ():
            _guard(params[-1], lambda v=values: check(*v))  # type: ignore[misc]
        return
    params = [arg for i, arg in enumerate(node.args) if isinstance(arg, Param) and takes_of(row, i).literal]
    for values in set(zip(*(literals.scalar(param).tolist() for param in params), strict=True)):
        if len(str(values[0])) > limit:
            message = f"a pattern of {len(values[0])} characters, at most {limit}"
            raise LiteralFault(params[0].slot, "limit", message)
        _guard(params[0], lambda v=values: check(*v))  # type: ignore[misc]


class ProgramScope:
    """What a program is evaluated with: literals by clause row, attributes by a function of the caller."""

    def __init__(
        self,
        literals: LiteralValues,
        literal_rows: npt.NDArray[np.integer[Any]] | int,
        attribute: Callable[[int], Nullable],
        zone: Zone,
        length: int = -1,
    ) -> None:
        """`literal_rows` has one row per value, or is the row of all of so many; of one row, literals are constants (see `nullable`)."""
        self.zone = zone
        self.calls: dict[Call, Nullable] = {}
        self._literals = literals
        self._attribute = attribute
        if isinstance(literal_rows, int):
            self.length, self._one_row = length, literal_rows
            return
        self.length = int(literal_rows.size)
        self._one_row = int(literal_rows[0]) if _is_repeated(literal_rows) else -1
        self._rows = literal_rows

    def attribute(self, attr: Attr) -> Nullable:
        return self._attribute(attr.index)

    def literal(self, param: Param) -> Nullable:
        values = self._literals[param]
        if param.type is Type.VECTOR:
            chosen = values[np.broadcast_to(self._one_row, self.length) if self._one_row >= 0 else self._rows]
            return Nullable(chosen, np.ones(self.length, bool))
        if self._one_row >= 0:
            return repeated(values[self._one_row], values.dtype, self.length)
        return Nullable(values[self._rows], np.ones(self.length, bool))

    def literal_keys(self, param: Param, common: Type) -> npt.NDArray[np.object_]:
        keys: npt.NDArray[np.object_] = self._literals[(param, common)]
        if self._one_row >= 0:
            return np.broadcast_to(keys[self._one_row : self._one_row + 1], (self.length,))
        chosen: npt.NDArray[np.object_] = keys[self._rows]
        return chosen


def _is_repeated(rows: npt.NDArray[np.integer[Any]]) -> bool:
    """Whether several rows are all the same."""
    return rows.size > 1 and (rows.strides == (0,) or bool((rows == rows[0]).all()))
