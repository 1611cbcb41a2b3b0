"""Functions of numbers, on NumPy arrays.

Spark computes exp, ln and the like with Java's StrictMath, whose results the C library does not repeat to the last bit. So
those that are here compute with the operations of fdlibm, step by step, as StrictMath does (`fdlibm`).
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Longs
from wherecast.language.events.keys import KEY_MAX, KEY_MIN, NAN_KEY
from wherecast.language.events.types import (
    FLOATS,
    INTEGERS,
    MAX_PRECISION,
    WIDTH_OF,
    Type,
    integer_range,
    rescale,
)
from wherecast.language.events.values import float_key
from wherecast.language.events.zone import Zone
from wherecast.language.expression import (
    Arith,
    Call,
    Const,
    Negate,
    Node,
    Span,
    arithmetic_type,
    digits_of,
    number_type,
)
from wherecast.language.functions import fdlibm
from wherecast.language.functions.row import (
    BIGINT,
    DOUBLES,
    INT,
    NUMBER,
    Describe,
    Function,
    Intervals,
    Takes,
    Typed,
    all_valid,
    common_type,
    converted,
    fault,
    function,
    has_known_digits,
    literal,
    objects,
    retyped,
    vectorised,
)
from wherecast.language.nullable import Nullable, decimal_scale, rounded

Doubles = npt.NDArray[np.float64]


def _same(args: tuple[Node, ...]) -> Typed:
    kind = number_type(args[0].type)
    return kind, digits_of(args[0]) if kind is Type.DECIMAL else (0, 0)


# -- signs ------------------------------------------------------------------------------------------------------------


def _absolute(call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
    (values, valid) = args[0]
    if call.type in INTEGERS:
        lowest, _ = integer_range(WIDTH_OF[call.type])
        valid = valid & (values != lowest)
    return Nullable(np.abs(values), valid)


def _negative(args: tuple[Node, ...], span: Span, _describe: Describe) -> Node:
    kind, digits = _same(args)
    return Negate(item=args[0], type=kind, digits=digits, span=span)


# -- rounding ---------------------------------------------------------------------------------------------------------


def _round(is_even: bool) -> Any:
    def evaluate(call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
        values, valid = args[0].values, all_valid(args)
        places = args[1].values if len(args) > 1 else np.zeros(valid.size, np.int64)
        if call.type in FLOATS:
            out = _rounded_doubles(values, places, is_even)
            return Nullable(rounded(out) if call.type is Type.FLOAT else out, valid)
        own = decimal_scale(call.args[0])
        new = [_rounded_integer(int(v), own - int(n), is_even) for v, n in zip(values, places, strict=True)]
        if call.type is Type.DECIMAL:
            moved = [rescale(v, own, call.digits[1]) for v in new]
            fits = np.array([abs(v) < 10 ** call.digits[0] for v in moved], bool)
            return Nullable(objects(moved), valid & fits)
        low, high = integer_range(WIDTH_OF[call.type])
        fits = np.array([low <= v <= high for v in new], bool)
        return Nullable(np.array([v if ok else 0 for v, ok in zip(new, fits, strict=True)], np.int64), valid & fits)

    return evaluate


def _rounded_integer(value: int, digits: int, is_even: bool) -> int:
    """With so many digits at the end set to zero."""
    if digits <= 0:
        return value
    unit: int = 10 ** min(digits, 60)
    quotient, rest = divmod(abs(value), unit)
    if 2 * rest > unit or (2 * rest == unit and (not is_even or quotient % 2)):
        quotient += 1
    return quotient * unit if value >= 0 else -quotient * unit


def _rounded_doubles(values: Doubles, places: Longs, is_even: bool) -> Doubles:
    """Java rounds the shortest decimal that means the double. Only near a tie is it worth writing that out."""
    from wherecast.kernels.jit import frozen  # noqa: PLC0415 - what only checks filters does not load Numba
    from wherecast.kernels.rounding import round_doubles  # noqa: PLC0415

    out, is_clear = np.empty(values.size, np.float64), np.zeros(values.size, np.bool_)
    place = int(places[0]) if values.size else 0
    if abs(place) <= _NEAR_PLACES and bool((places == place).all()):
        round_doubles(frozen(np.ascontiguousarray(values)), 10.0 ** abs(place), place >= 0, out, is_clear)
    for i in np.flatnonzero(~is_clear).tolist():
        value = float(values[i])
        out[i] = _rounded_double(value, int(places[i]), is_even) + 0.0 if math.isfinite(value) else value
    return out


#: Places whose unit is an exact double with room for digits.
_NEAR_PLACES = 15


_CONTEXT = decimal.Context(prec=800, Emax=10_000, Emin=-10_000)


def _rounded_double(value: float, places: int, is_even: bool) -> float:
    exact = decimal.Decimal(repr(value))
    if -int(exact.as_tuple().exponent) <= places:
        return value
    mode = decimal.ROUND_HALF_EVEN if is_even else decimal.ROUND_HALF_UP
    if places < -400:
        return 0.0
    return float(exact.quantize(decimal.Decimal(1).scaleb(-places, _CONTEXT), mode, _CONTEXT))


def _round_rule(args: tuple[Node, ...]) -> Typed:
    kind, (precision, scale) = _same(args)
    if kind is not Type.DECIMAL:
        return kind, (0, 0)
    if len(args) == 1:
        return kind, (min(precision - scale + 1, MAX_PRECISION), 0) if scale else (precision, 0)
    return kind, (min(precision + 1, MAX_PRECISION), scale)  # Spark's depend on the value: see `has_known_digits`


def _integral(is_ceil: bool) -> Any:
    def evaluate(call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
        values, valid = args[0]
        kind = call.args[0].type
        if kind is Type.DECIMAL:
            unit = 10 ** decimal_scale(call.args[0])
            return Nullable(objects(-(-int(v) // unit) if is_ceil else int(v) // unit for v in values), valid)
        if kind in FLOATS:
            whole = np.ceil(values) if is_ceil else np.floor(values)
            return Nullable(_to_long(whole), valid & ~((whole >= _LONG) | (whole < -_LONG)))
        return Nullable(values, valid)

    return evaluate


def _to_long(values: Doubles) -> Longs:
    """As Java casts: NaN is 0. What does not fit is NULL, and 0 here."""
    return np.where((values >= -_LONG) & (values < _LONG), values, 0.0).astype(np.int64)


#: The least double beyond 64 bits.
_LONG = 2.0**63


def _integral_rule(args: tuple[Node, ...]) -> Typed:
    if args[0].type is not Type.DECIMAL:
        return Type.BIGINT, (0, 0)
    precision, scale = digits_of(args[0])
    return Type.DECIMAL, (precision - scale + 1, 0) if scale else (precision, 0)


def _floor_preimage(op: str, values: Longs, kind: Type, _zone: Zone) -> Intervals:
    """floor(x) is n for the numbers from n to before n + 1."""
    return _integral_intervals(op, values, kind, _least_key)


def _ceil_preimage(op: str, values: Longs, kind: Type, _zone: Zone) -> Intervals:
    """ceil(x) is n for the numbers after n - 1 to n."""
    return _integral_intervals(op, values, kind, lambda n: _least_key(n - 1, above=True))


def _least_key(number: int, *, above: bool = False) -> int:
    """The key of the least double that is not below an integer, or above it."""
    nearest = float(number)
    is_far = int(nearest) <= number if above else int(nearest) < number
    return float_key(nearest) + is_far


def _integral_intervals(op: str, values: Longs, kind: Type, first: Callable[[int], int]) -> Intervals:
    """Where an integer that begins at the key `first(n)` and ends before `first(n + 1)` compares with integers n."""
    is_float, found = kind in FLOATS, []
    bottom, top = (float_key(-_LONG), float_key(_LONG) - 1) if is_float else (KEY_MIN, KEY_MAX)  # NULL beyond them
    for n in values.tolist():
        lo, hi = (first(n), first(n + 1) - 1) if is_float else (n, n)
        lo, hi = max(lo, bottom), min(hi, top)
        bounds = {"=": (lo, hi), "<": (bottom, lo - 1), "<=": (bottom, hi), ">": (hi + 1, top), ">=": (lo, top)}
        of_nan = {"=": n == 0, "<": n > 0, "<=": n >= 0, ">": n < 0, ">=": n <= 0}[op]  # Java's long of NaN is 0
        found.append((*_closed(*bounds[op]), *((NAN_KEY, NAN_KEY) if is_float and of_nan else _EMPTY)))
    lows, highs, nan_lows, nan_highs = np.array(found, np.int64).reshape(-1, 4).T.copy()
    return [(lows, highs), (nan_lows, nan_highs)]


_EMPTY = (KEY_MAX, KEY_MIN)


def _closed(low: int, high: int) -> tuple[int, int]:
    return (low, high) if low <= high else _EMPTY


# -- arithmetic -------------------------------------------------------------------------------------------------------


def _arithmetic(op: str) -> Callable[[tuple[Node, ...], Span, Describe], Node]:
    def build(args: tuple[Node, ...], span: Span, _describe: Describe) -> Node:
        left, right = args
        for side in args:
            check_digits(side)
        kind, digits = arithmetic_type(op, left, right)
        return Arith(op=op, left=left, right=right, type=kind, digits=digits, span=span)

    return build


def check_digits(node: Node) -> None:
    """Refuse to compute with a DECIMAL whose precision is not known."""
    if node.type is Type.DECIMAL and not has_known_digits(node):
        raise fault("what round(x, n) makes of a decimal can be compared, not computed with; round last", node.span)


def _build_pmod(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
    kind, _ = common_type(args, describe)
    if kind is Type.DECIMAL:
        raise fault("pmod of decimals is not supported; write mod", span, "unsupported")
    kind = number_type(kind)
    return Call(name="pmod", args=tuple(retyped(a, kind) for a in args), type=kind, span=span)


def _pmod(call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
    a, b = (converted(n, arg, call.type, (0, 0), zone) for n, arg in zip(call.args, args, strict=True))
    valid = a.valid & b.valid & (b.values != 0)
    if call.type in FLOATS:
        rest = np.fmod(a.values, b.values)
        out = np.where(rest < 0, np.fmod(rest + b.values, b.values), rest)
        return Nullable(rounded(out) if call.type is Type.FLOAT else out, valid)
    divisor = np.where((b.values == 0) | (b.values == -1), 1, b.values)
    rest = np.fmod(a.values, divisor)
    bits = WIDTH_OF[call.type]
    total = rest + divisor
    if bits < 64:  # Java adds in the width of an INT at least, without a check
        bits = max(bits, 32)
        total = (total + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
    return Nullable(np.where(rest < 0, np.fmod(total, divisor), rest), valid)


def _build_nanvl(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
    kind, _ = common_type(args, describe)
    kind = kind if kind is Type.FLOAT else Type.DOUBLE
    return Call(name="nanvl", args=tuple(retyped(a, kind) for a in args), type=kind, span=span)


def _nanvl(_call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
    a, b = args
    is_nan = np.isnan(a.values)
    return Nullable(np.where(is_nan, b.values, a.values), a.valid & (~is_nan | b.valid))


def _isnan(_call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
    (values, valid) = args[0]
    return Nullable(np.isnan(values) & valid, np.ones(valid.size, bool))


def _isnan_of(args: tuple[Node, ...], span: Span, _describe: Describe) -> Node:
    if args[0].type is Type.NULL:
        return Const(value=False, span=span)
    return Call(name="isnan", args=args, span=span)


def _sign(values: Doubles) -> Doubles:
    return np.where(values == 0, values, np.sign(values))


def _positive(compute: Callable[[Doubles], Doubles], least: float = 0.0) -> Any:
    """A logarithm, which is NULL for arguments up to `least`."""

    def evaluate(_call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
        values, valid = args[0]
        known = ~(values <= least)
        return Nullable(compute(np.where(known, values, 1.0)), valid & known)

    return evaluate


def _log_base(_call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
    if len(args) == 1:
        result: Nullable = _positive(fdlibm.log)(_call, args, _zone)
        return result
    base, values = args[0].values, args[1].values
    known = ~(base <= 0) & ~(values <= 0)
    out = fdlibm.log(np.where(known, values, 1.0)) / fdlibm.log(np.where(known, base, 2.0))
    return Nullable(out, all_valid(args) & known)


def _bit_count(values: Longs) -> Longs:
    return np.bitwise_count(values.view(np.uint64)).astype(np.int64)


_PLACES = literal(INT)
_WHOLE_OR_REAL = Takes("a number", NUMBER.types)


def _real(name: str, compute: Callable[..., Doubles], says: str, example: str, *aliases: str) -> Function:
    return function(
        name,
        "n",
        DOUBLES,
        result=Type.DOUBLE,
        evaluate=vectorised(compute),
        says=says,
        example=example,
        aliases=aliases,
    )


def _other_form(name: str, op: str, says: str, example: str) -> Function:
    return function(name, "a, b", NUMBER, NUMBER, build=_arithmetic(op), says=says, example=example)


def _shift(op: str) -> Any:
    def build(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
        left, right = args
        if left.type is Type.NULL or right.type is Type.NULL:
            raise fault(f"{op} of NULL is always NULL; leave it out", span)
        del describe
        kind = Type.BIGINT if left.type is Type.BIGINT else Type.INT
        return Arith(op=op, left=left, right=right, type=kind, span=span)

    return build


def _whole_quotient(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
    for arg in args:
        if arg.type in FLOATS:
            raise fault(f"div needs integers or decimals, found {describe(arg)}", arg.span)
    return Arith(op="DIV", left=args[0], right=args[1], type=Type.BIGINT, span=span)


def _bit(call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
    (values, _), (places, _) = args
    fits = (places >= 0) & (places < WIDTH_OF.get(call.args[0].type, 64))
    return Nullable(values >> np.where(fits, places, 0) & 1, all_valid(args) & fits)


def _factorial(call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
    del call
    values, valid = args[0]
    fits = (values >= 0) & (values <= 20)
    known = np.array([math.factorial(n) for n in range(21)], np.int64)
    return Nullable(known[np.where(fits, values, 0)], valid & fits)


NUMBER_FUNCTIONS = (
    function(
        "abs",
        "n",
        NUMBER,
        result=_same,
        evaluate=_absolute,
        says="NULL for the least integer, which has no positive",
        example="abs(price - quote.bid) > 0.5",
    ),
    function("negative", "n", NUMBER, build=_negative, says="`-n`", example="negative(volume) < -5"),
    function(
        "positive",
        "n",
        NUMBER,
        build=lambda args, _span, _describe: args[0],
        says="`n`",
        example="positive(volume) > 5",
    ),
    _real("sign", _sign, "-1, 0 or 1, as a double", "sign(price) = -1", "signum"),
    function(
        "round",
        "n[, places]",
        _WHOLE_OR_REAL,
        _PLACES,
        result=_round_rule,
        evaluate=_round(False),
        says="to so many places after the point, or before it if negative; ties away from zero",
        example="round(price, 1) = 119.5",
    ),
    function(
        "bround",
        "n[, places]",
        _WHOLE_OR_REAL,
        _PLACES,
        result=_round_rule,
        evaluate=_round(True),
        says="the same with ties to the even digit",
        example="bround(price) = 120",
    ),
    function(
        "floor",
        "n",
        NUMBER,
        result=_integral_rule,
        evaluate=_integral(False),
        preimage=_floor_preimage,
        is_total=False,
        says="the greatest integer that is not above; 0 for NaN, NULL beyond 64 bits",
        example="floor(price) = 119",
    ),
    function(
        "ceil",
        "n",
        NUMBER,
        result=_integral_rule,
        evaluate=_integral(True),
        preimage=_ceil_preimage,
        is_total=False,
        aliases=("ceiling",),
        says="the least integer that is not below; 0 for NaN, NULL beyond 64 bits",
        example="ceil(price) = 120",
    ),
    _other_form("mod", "%", "`a % b`", "mod(volume, 7) = 2"),
    function(
        "pmod",
        "a, b",
        NUMBER,
        NUMBER,
        evaluate=_pmod,
        build=_build_pmod,
        says="the remainder, made positive by adding `b`; NULL if `b` is 0",
        example="pmod(volume, 7) = 2",
    ),
    _other_form("try_add", "+", "`a + b`", "try_add(volume, 1) > 5"),
    _other_form("try_subtract", "-", "`a - b`", "try_subtract(volume, 1) > 5"),
    _other_form("try_multiply", "*", "`a * b`", "try_multiply(volume, 2) > 5"),
    _other_form("try_divide", "/", "`a / b`", "try_divide(price, volume) > 5"),
    _other_form("try_mod", "%", "`a % b`", "try_mod(volume, 7) = 2"),
    _real("sqrt", np.sqrt, "NaN for negative numbers", "sqrt(price) > 10"),
    function(
        "power",
        "n, exponent",
        DOUBLES,
        DOUBLES,
        result=Type.DOUBLE,
        evaluate=vectorised(fdlibm.power),
        aliases=("pow",),
        says="as a double",
        example="power(price, 2) > 100",
    ),
    _real("rint", np.rint, "the nearest integer, as a double; ties to the even one", "rint(price) = 120"),
    _real("cbrt", fdlibm.cbrt, "the cubic root", "cbrt(price) > 5"),
    _real("exp", fdlibm.exp, "", "exp(price) > 100"),
    function(
        "ln",
        "n",
        DOUBLES,
        result=Type.DOUBLE,
        evaluate=_positive(fdlibm.log),
        says="the natural logarithm; NULL unless `n` is positive",
        example="ln(price) > 4",
    ),
    function(
        "log",
        "base[, n]",
        DOUBLES,
        DOUBLES,
        result=Type.DOUBLE,
        evaluate=_log_base,
        says="the logarithm to a base; with one argument `ln`",
        example="log(2, price) > 4",
    ),
    function(
        "log2", "n", DOUBLES, result=Type.DOUBLE, evaluate=_positive(fdlibm.log2), says="", example="log2(price) > 4"
    ),
    function(
        "log10", "n", DOUBLES, result=Type.DOUBLE, evaluate=_positive(fdlibm.log10), says="", example="log10(price) > 2"
    ),
    _real("asin", fdlibm.asin, "arc sine, in radians; NaN beyond 1", "asin(price) > 1"),
    _real("acos", fdlibm.acos, "arc cosine, in radians; NaN beyond 1", "acos(price) > 1"),
    _real("atan", fdlibm.atan, "arc tangent, in radians", "atan(price) > 1"),
    function(
        "atan2",
        "y, x",
        DOUBLES,
        DOUBLES,
        result=Type.DOUBLE,
        evaluate=vectorised(lambda y, x: fdlibm.atan2(y + 0.0, x + 0.0)),
        says="the angle of a point, in radians",
        example="atan2(price, 2) > 1",
    ),
    _real("sinh", fdlibm.sinh, "hyperbolic sine", "sinh(price) > 1"),
    _real("cosh", fdlibm.cosh, "hyperbolic cosine", "cosh(price) > 1"),
    _real("tanh", fdlibm.tanh, "hyperbolic tangent", "tanh(price) > 0.5"),
    _real("expm1", fdlibm.expm1, "`exp(n) - 1`, exact near 0", "expm1(price) > 1"),
    function(
        "log1p",
        "n",
        DOUBLES,
        result=Type.DOUBLE,
        evaluate=_positive(fdlibm.log1p, -1.0),
        says="`ln(n + 1)`, exact near 0; NULL up to -1",
        example="log1p(price) > 1",
    ),
    _real("degrees", lambda v: v * (180.0 / np.pi), "of radians", "degrees(price) > 90"),
    _real("radians", lambda v: v * (np.pi / 180.0), "of degrees", "radians(price) > 1"),
    function(
        "isnan",
        "n",
        DOUBLES,
        evaluate=_isnan,
        build=_isnan_of,
        is_strict=False,
        says="never unknown: false for NULL",
        example="NOT isnan(price)",
    ),
    function(
        "nanvl",
        "n, other",
        DOUBLES,
        DOUBLES,
        evaluate=_nanvl,
        build=_build_nanvl,
        is_strict=False,
        says="`other` where `n` is NaN",
        example="nanvl(price, 0) > 5",
    ),
    function(
        "bit_count",
        "n",
        BIGINT,
        result=Type.INT,
        evaluate=vectorised(_bit_count),
        says="how many bits are set, of 64",
        example="bit_count(volume) = 1",
    ),
    function(
        "bit_get",
        "n, place",
        BIGINT,
        INT,
        result=Type.TINYINT,
        evaluate=_bit,
        aliases=("getbit",),
        says="the bit at a place, counted from the lowest, 0; NULL if there is none",
        example="bit_get(volume, 0) = 1",
    ),
    *(
        function(name, "n, count", BIGINT, INT, build=_shift(op), says=f"`n {op} count`", example=example)
        for name, op, example in (
            ("shiftleft", "<<", "shiftleft(volume, 1) = 4"),
            ("shiftright", ">>", "shiftright(volume, 1) = 4"),
            ("shiftrightunsigned", ">>>", "shiftrightunsigned(volume, 1) = 4"),
        )
    ),
    function(
        "div",
        "a, b",
        NUMBER,
        NUMBER,
        build=_whole_quotient,
        says="`a DIV b`",
        example="div(volume, 2) = 3",
    ),
    function(
        "factorial",
        "n",
        INT,
        result=Type.BIGINT,
        evaluate=_factorial,
        says="of 0 to 20; NULL for other numbers",
        example="factorial(3) < volume",
    ),
)
