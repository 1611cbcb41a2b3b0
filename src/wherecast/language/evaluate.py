"""Vectorised evaluation of an expression under three-valued logic.

One call evaluates an expression for many (event, literals) pairs at once: attributes and literals come from a
`Scope`, one value per pair. Each is a `Nullable`: values and a validity mask; the value of an invalid row does not matter.
Numbers, dates and booleans are NumPy arrays. Texts of many events are Arrow's, as long as the functions on the way know
them (see `nullable`); other texts and decimals are object arrays, handled row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Bools, Longs
from wherecast.language.casts import cast
from wherecast.language.events.keys import KEY_MAX, KEY_MIN, float_keys
from wherecast.language.events.types import (
    FLOATS,
    INTEGERS,
    MOMENTS,
    TEXTS,
    WIDTH_OF,
    Type,
    common_scale,
    compute,
    integer_range,
)
from wherecast.language.events.zone import Zone
from wherecast.language.expression import (
    And,
    Arith,
    Attr,
    Call,
    CaseWhen,
    Cast,
    Compare,
    Const,
    Elapsed,
    Element,
    InList,
    IntervalLiteral,
    Invert,
    IsNull,
    IsTruth,
    Like,
    Negate,
    Node,
    Not,
    Or,
    Param,
    Quantified,
    Shift,
    Subscript,
    digits_of,
)
from wherecast.language.filters.normalize import Truth
from wherecast.language.functions.row import GrownTextError, element_of, evaluate_call, nothing
from wherecast.language.functions.table import FUNCTIONS
from wherecast.language.functions.text import CASES, uncased
from wherecast.language.intervals import elapsed, read_amount, shift
from wherecast.language.nullable import (
    MANY_ROWS,
    Nullable,
    as_moments,
    both_valid,
    choose,
    decimal_scale,
    filler,
    is_valid_everywhere,
    member_keys,
    rescaled,
    rounded,
    to_double,
)
from wherecast.language.syntax.patterns import text_test


class Scope(Protocol):
    """Where an expression finds attributes and literals, all of `length` rows."""

    length: int
    zone: Zone
    calls: dict[Call, Nullable]  # evaluated so far

    def attribute(self, attr: Attr) -> Nullable: ...

    def literal(self, param: Param) -> Nullable:
        """A scalar literal; a DECIMAL comes unscaled, at the scale of `decimal_scale`."""

    def literal_keys(self, param: Param, common: Type) -> npt.NDArray[np.object_]:
        """Per row, a frozenset of `member_key`s of the values of an IN list, read as `common`."""


def holds(node: Node, truth: Truth, scope: Scope) -> Bools:
    """For which rows the statement "`node` is `truth`" holds."""
    operand = evaluate(node, scope)
    true, false = operand.values & operand.valid, ~operand.values & operand.valid
    return {Truth.TRUE: true, Truth.FALSE: false, Truth.NOT_TRUE: ~true, Truth.NOT_FALSE: ~false}[truth]


def evaluate(node: Node, scope: Scope) -> Nullable:
    """The value of an expression for every row of the scope."""
    if isinstance(node, Attr):
        return scope.attribute(node)
    if isinstance(node, Param):
        return scope.literal(node)
    if isinstance(node, Call):  # 300 ILIKEs on one attribute fold its case once
        found = scope.calls.get(node)
        if found is None:
            found = scope.calls[node] = _call(node, scope)
        return found
    return _EVALUATORS[type(node)](node, scope)


def _constant(node: Const, scope: Scope) -> Nullable:
    n = scope.length
    return Nullable(np.full(n, bool(node.value)), np.full(n, node.value is not None))


def _and(node: And, scope: Scope) -> Nullable:
    return _kleene(node.items, scope, False)


def _or(node: Or, scope: Scope) -> Nullable:
    return _kleene(node.items, scope, True)


def _kleene(items: tuple[Node, ...], scope: Scope, winner: bool) -> Nullable:
    """AND (winner False) and OR (winner True): one item of the winner's value decides, else NULL if any is NULL."""
    decided, valid = np.zeros(scope.length, bool), np.ones(scope.length, bool)
    for item in items:
        operand = evaluate(item, scope)
        decided |= (operand.values == winner) & operand.valid
        valid &= operand.valid
    return Nullable(decided if winner else ~decided, valid | decided)


def _not(node: Not, scope: Scope) -> Nullable:
    operand = evaluate(node.item, scope)
    return Nullable(~operand.values, operand.valid)


def _is_null(node: IsNull, scope: Scope) -> Nullable:
    return Nullable(~evaluate(node.item, scope).valid, np.ones(scope.length, bool))


def _is_truth(node: IsTruth, scope: Scope) -> Nullable:
    operand = evaluate(node.item, scope)
    return Nullable((operand.values == node.truth) & operand.valid, np.ones(scope.length, bool))


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def _compare(node: Compare, scope: Scope) -> Nullable:
    scale = comparison_scale(node) if node.common is Type.DECIMAL else 0
    if node.common in FLOATS and isinstance(node.right, Param) and node.op != "<=>":
        found = _compare_doubles(node, scope)
        if found is not None:
            return found
    left, right = (comparable(side, node.common, scale, scope) for side in (node.left, node.right))
    both = both_valid(left.valid, right.valid)
    if left.is_arrow or right.is_arrow:
        from wherecast.language.arrow_texts import compare_texts  # noqa: PLC0415 - Arrow is loaded where there are events

        compared = compare_texts(node.op, left, right)
        return Nullable(compared, both) if node.op != "<=>" else _same(compared & both, left, right)
    if node.op == "<=>":
        return _same(np.asarray(np.equal(left.values, right.values), bool) & both, left, right)
    return Nullable(np.asarray(_COMPARE[node.op](left.values, right.values), bool), both)


def _compare_doubles(node: Compare, scope: Scope) -> Nullable | None:
    """Doubles beside one number for all rows. NaN is the greatest for Spark, so where order is asked for, the opposite is negated."""
    right = evaluate(node.right, scope)
    if not right.is_constant or node.left.type is Type.NULL or isinstance(node.left, Param):
        return None
    limit = to_double(node.right, Nullable(right.values[:1], right.valid[:1]))[0]
    if np.isnan(limit):
        return None
    left = evaluate(node.left, scope)
    values = to_double(node.left, left)
    if node.op in (">", ">="):
        opposite = values <= limit if node.op == ">" else values < limit
        return Nullable(np.logical_not(opposite, out=opposite), left.valid)
    return Nullable(_COMPARE[node.op](values, limit), left.valid)


def _same(equal: Bools, left: Nullable, right: Nullable) -> Nullable:
    return Nullable(equal | (~left.valid & ~right.valid), np.ones(equal.size, bool))


def comparison_scale(node: Compare) -> int:
    """The scale of the decimals that a comparison compares: Spark's, which may round one side."""
    sides = (node.left, node.right)
    is_exact = any(s.type is Type.DECIMAL and isinstance(s, Param) for s in sides) and (
        # Spark turns `integer < 1.5` into a comparison of integers; a literal without digits fits any scale.
        (node.op in ("<", "<=", ">", ">=") and any(s.type in INTEGERS for s in sides))
        or any(isinstance(s, Param) and s.digits == (0, 0) for s in sides)
    )
    if is_exact:
        return max(decimal_scale(s) for s in sides)
    return common_scale(*(digits_of(s) for s in sides))


def comparable(node: Node, common: Type, scale: int, scope: Scope) -> Nullable:
    """A side of a comparison in a form whose plain order is Spark's."""
    operand = evaluate(node, scope)
    if node.type is Type.NULL:
        return Nullable(filler(common, scope.length), np.zeros(scope.length, bool))
    if operand.is_constant and common not in TEXTS:
        one = _in_order(node, Nullable(operand.values[:1], operand.valid[:1]), common, scale, scope.zone)
        return Nullable(np.broadcast_to(one.values, scope.length), operand.valid)
    return _in_order(node, operand, common, scale, scope.zone)


def _in_order(node: Node, operand: Nullable, common: Type, scale: int, zone: Zone) -> Nullable:
    if common in FLOATS:
        return Nullable(float_keys(to_double(node, operand)), operand.valid)
    if common is Type.DECIMAL:
        return Nullable(rescaled(operand.values, decimal_scale(node), scale), operand.valid)
    if common in MOMENTS:
        return Nullable(as_moments(operand.values, node.type, common, zone), operand.valid)
    return operand


def _in_list(node: InList, scope: Scope) -> Nullable:
    item = evaluate(node.item, scope)
    found = np.zeros(scope.length, bool)
    wanted = [scope.literal_keys(param, node.common) for param in node.values]
    if item.is_arrow and scope.length and all(keys.strides == (0,) for keys in wanted):
        from wherecast.language.arrow_texts import are_among  # noqa: PLC0415 - as above

        found = are_among(item.texts, {text for keys in wanted for text in keys[0]})
    else:
        own = member_keys(node.item, item, node.common, scope.zone)
        for keys in wanted:
            found |= np.fromiter((k in s for k, s in zip(own, keys, strict=True)), bool)
    return Nullable(found, item.valid & (found | (not node.has_null)))


def _like(node: Like, scope: Scope) -> Nullable:
    # Spark's ILIKE is LIKE of both sides in lower case.
    text_node = Call(name="lower", args=(node.item,), type=Type.STRING) if node.kind == "ilike" else node.item
    item, pattern = evaluate(text_node, scope), evaluate(node.pattern, scope)
    valid = item.valid & pattern.valid
    found = np.zeros(scope.length, bool)
    if item.is_arrow and pattern.is_constant:
        from wherecast.language.arrow_texts import are_like  # noqa: PLC0415 - as above

        answers = are_like(item.texts, node.kind, pattern.values[0])
        if answers is not None:
            return Nullable(answers, valid)
    rows = np.flatnonzero(valid)
    pairs = zip(item.values[rows].tolist(), pattern.values[rows].tolist(), strict=True)
    found[rows] = np.fromiter((text_test(node.kind, wanted)(text) for text, wanted in pairs), bool, rows.size)
    return Nullable(found, valid)


def _call(node: Call, scope: Scope) -> Nullable:
    args = map(uncased, node.args) if node.name in CASES else node.args
    return evaluate_call(FUNCTIONS[node.name], node, [evaluate(arg, scope) for arg in args], scope.zone)


def _negate(node: Negate, scope: Scope) -> Nullable:
    item = evaluate(node.item, scope)
    if node.type in INTEGERS:
        lowest, _ = integer_range(WIDTH_OF[node.type])
        with np.errstate(over="ignore"):
            return Nullable(-item.values, item.valid & (item.values != lowest))
    return item if node.item.type is Type.NULL else Nullable(-item.values, item.valid)


def _arith(node: Arith, scope: Scope) -> Nullable:
    left, right = evaluate(node.left, scope), evaluate(node.right, scope)
    valid = both_valid(left.valid, right.valid)
    if Type.NULL in (node.left.type, node.right.type):
        return Nullable(np.zeros(scope.length, object if node.type is Type.DECIMAL else np.int64), np.zeros_like(valid))
    if node.type is Type.DECIMAL:
        return _decimal_arith(node, left, right, valid)
    if node.op == "DIV":
        return _quotient(node, left, right, valid)
    if node.op in _BIT_OPS:
        return _bits(node, left.values, right.values, valid)
    with np.errstate(all="ignore"):
        if node.type in FLOATS:
            a, b = _doubles(node, node.left, left, right), _doubles(node, node.right, right, left)
            if node.op in "/%":
                valid = valid & (b != 0)
            # A double has more than twice the digits of a FLOAT: rounding its result is rounding the exact one.
            values = _compute_doubles(node.op, a, b)
            return Nullable(rounded(values) if node.type is Type.FLOAT else values, valid)
        return _integer_arith(node, left.values, right.values, valid)


def _doubles(of: Arith, node: Node, operand: Nullable, beside: Nullable) -> Any:
    """Doubles; of a constant beside values that differ, one. A kernel takes integers beside doubles as they are."""
    if operand.is_constant and not beside.is_constant:
        return to_double(node, Nullable(operand.values[:1], operand.valid[:1]))[0]
    is_mixed = node.type in INTEGERS and not beside.is_constant and beside.values.dtype == np.float64
    if is_mixed and of.op in _MIXED and operand.values.size >= MANY_ROWS:
        return operand.values
    return to_double(node, operand)


#: Operations that a kernel computes in one pass for doubles and integers.
_MIXED = {"+": "add_numbers", "-": "subtract_numbers", "*": "multiply_numbers"}


def _compute_doubles(op: str, a: Any, b: Any) -> Any:
    if a.dtype == b.dtype:
        return _DOUBLE_OPS[op](a, b)
    from wherecast.kernels import arithmetic  # noqa: PLC0415 - what only checks filters does not load Numba
    from wherecast.kernels.jit import frozen  # noqa: PLC0415 - as above

    out = np.empty(a.size, np.float64)
    getattr(arithmetic, _MIXED[op])(frozen(np.ascontiguousarray(a)), frozen(np.ascontiguousarray(b)), out)
    return out


_DOUBLE_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
}


def _integer_arith(node: Arith, a: npt.NDArray[Any], b: npt.NDArray[Any], valid: Bools) -> Nullable:
    low, high = integer_range(WIDTH_OF[node.type])
    if node.op == "%":
        divisor = np.where(b == 0, 1, b)
        divisor = np.where(divisor == -1, 1, divisor)  # x % -1 is 0 too, and the lowest integer would trap
        return Nullable(np.fmod(a, divisor), valid & (b != 0))
    result = _DOUBLE_OPS[node.op](a, b)  # modulo 2**64, which holds every sum and product of 32 bits
    fits = _fits_long(node.op, a, b, result) if node.type is Type.BIGINT else (result >= low) & (result <= high)
    return Nullable(result, valid & fits)


def _fits_long(op: str, a: Longs, b: Longs, result: Longs) -> Bools:
    """Whether sums, differences or products modulo 2**64 are the exact ones."""
    if op == "+":  # overflow: both have one sign, the sum has the other
        return np.asarray(((a ^ result) & (b ^ result)) >= 0)
    if op == "-":
        return np.asarray(((a ^ b) & (a ^ result)) >= 0)
    # Doubles are off by less than one part in 2**52: far from the limit they decide, near it Python's integers do.
    size = np.abs(a.astype(np.float64) * b.astype(np.float64))
    fits = size < 2.0**62
    for i in np.flatnonzero((size >= 2.0**62) & (size <= 2.0**64)).tolist():
        fits[i] = KEY_MIN <= int(a[i]) * int(b[i]) <= KEY_MAX
    return fits


#: Digits of a decimal that 64 bits hold.
_LONG_DIGITS = 18


def _decimal_arith(node: Arith, left: Nullable, right: Nullable, valid: Bools) -> Nullable:
    s1, s2 = decimal_scale(node.left), decimal_scale(node.right)
    if node.op in "+-*" and node.digits[0] <= _LONG_DIGITS and left.values.dtype == right.values.dtype == np.int64:
        # Nothing is rounded and nothing grows beyond the digits of the result.
        a, b = left.values, right.values
        if node.op != "*":
            a, b = rescaled(a, s1, max(s1, s2)), rescaled(b, s2, max(s1, s2))
        if a.dtype == b.dtype == np.int64:
            return Nullable(_DOUBLE_OPS[node.op](a, b), valid)
    out, ok = np.zeros(valid.size, object), valid.copy()
    for i in np.flatnonzero(valid).tolist():
        value = compute(node.op, int(left.values[i]), s1, int(right.values[i]), s2, node.digits)
        out[i], ok[i] = (0, False) if value is None else (value, True)
    return Nullable(out, ok)


_BIT_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
    "<<": np.left_shift,
    ">>": np.right_shift,
    ">>>": np.right_shift,
}


def _bits(node: Arith, a: npt.NDArray[Any], b: npt.NDArray[Any], valid: Bools) -> Nullable:
    if node.op not in ("<<", ">>", ">>>"):
        return Nullable(_BIT_OPS[node.op](a, b), valid)
    # As in Java, the distance counts modulo the width.
    signed, unsigned = (np.int64, np.uint64) if node.type is Type.BIGINT else (np.int32, np.uint32)
    bits = a.astype(signed)
    bits = bits.view(unsigned) if node.op == ">>>" else bits
    moved = _BIT_OPS[node.op](bits, (b & (bits.dtype.itemsize * 8 - 1)).astype(bits.dtype))
    return Nullable(moved.view(signed).astype(np.int64), valid)


def _invert(node: Invert, scope: Scope) -> Nullable:
    item = evaluate(node.item, scope)
    return Nullable(~item.values, item.valid)


def _quotient(node: Arith, left: Nullable, right: Nullable, valid: Bools) -> Nullable:
    """DIV: the whole part of a quotient, as a BIGINT."""
    s1, s2 = decimal_scale(node.left), decimal_scale(node.right)
    low, high = integer_range(64)
    out, ok = np.zeros(valid.size, np.int64), valid.copy()
    for i in np.flatnonzero(valid).tolist():
        a, b = int(left.values[i]) * 10**s2, int(right.values[i]) * 10**s1
        value = abs(a) // abs(b) * (1 if (a >= 0) == (b > 0) else -1) if b else high + 1
        ok[i] = low <= value <= high
        out[i] = value if ok[i] else 0
    return Nullable(out, ok)


def _cast(node: Cast, scope: Scope) -> Nullable:
    return cast(
        evaluate(node.item, scope), node.item.type, decimal_scale(node.item), node.type, node.digits, scope.zone
    )


def _case(node: CaseWhen, scope: Scope) -> Nullable:
    *values, out = [_typed(value, node.type, scope) for value in node.values]
    for condition, value in zip(reversed(node.conditions), reversed(values), strict=True):
        test = evaluate(condition, scope)
        out = choose(test.values if is_valid_everywhere(test.valid) else test.values & test.valid, value, out)
    return out


def _typed(node: Node, kind: Type, scope: Scope) -> Nullable:
    """The values of an expression of a type, or of a bare NULL, which has none."""
    return evaluate(node, scope) if node.type is not Type.NULL else nothing(kind, scope.length)


def _item(node: Subscript, scope: Scope) -> Nullable:
    array, index = evaluate(node.array, scope), evaluate(node.index, scope)
    if array.lists is not None and index.is_constant:
        value = index.values[0]
        if node.array.type is Type.MAP:
            return array.lists.by_key(value)
        return array.lists.at(int(value)) if value >= 0 else nothing(node.type, scope.length)
    out, valid = filler(node.type, scope.length), array.valid & index.valid
    if node.array.type is Type.MAP:
        rows = np.flatnonzero(valid)
        found = [items.get(key) for items, key in zip(array.values[rows], index.values[rows].tolist(), strict=True)]
        valid[rows] = [value is not None for value in found]
        out[valid] = np.fromiter((value for value in found if value is not None), out.dtype)
        return Nullable(out, valid)
    for i in np.flatnonzero(valid).tolist():
        items, at = array.values[i], int(index.values[i])
        value = items[at] if 0 <= at < len(items) else None
        valid[i] = value is not None
        if value is not None:
            out[i] = value
    return Nullable(out, valid)


class _ElementScope:
    """One row per element of the arrays of another scope; `rows` tells which row an element belongs to."""

    def __init__(self, scope: Scope, rows: npt.NDArray[np.int64], variable: str, elements: Nullable) -> None:
        self.length = rows.size
        self.zone = scope.zone
        self.calls: dict[Call, Nullable] = {}
        self.rows = rows
        self._scope = scope
        self._elements = {variable: elements}

    def attribute(self, attr: Attr) -> Nullable:
        return self._scope.attribute(attr).take(self.rows)

    def literal(self, param: Param) -> Nullable:
        return self._scope.literal(param).take(self.rows)

    def literal_keys(self, param: Param, common: Type) -> npt.NDArray[np.object_]:
        return self._scope.literal_keys(param, common)[self.rows]

    def element(self, name: str) -> Nullable:
        if name in self._elements:
            return self._elements[name]
        assert isinstance(self._scope, _ElementScope), "the checker knows every variable"
        return self._scope.element(name).take(self.rows)


def _element(node: Element, scope: Scope) -> Nullable:
    assert isinstance(scope, _ElementScope), "a variable stands inside its lambda"
    return scope.element(node.name)


def _elements(array: Nullable, kind: Type) -> tuple[Longs, Nullable]:
    """The elements of all arrays, and the row of each."""
    if array.lists is not None:
        return array.lists.owners, array.lists.elements
    rows, items = [], []
    for i in np.flatnonzero(array.valid).tolist():
        rows += [i] * len(array.values[i])
        items += list(array.values[i])
    known = np.array([v is not None for v in items], bool)
    elements = filler(kind, len(items))
    for i in np.flatnonzero(known).tolist():
        elements[i] = items[i]
    return np.array(rows, np.int64), Nullable(elements, known)


def _quantified(node: Quantified, scope: Scope) -> Nullable:
    array = evaluate(node.array, scope)
    owner, elements = _elements(array, element_of(node.array))
    try:
        body = evaluate(node.body, _ElementScope(scope, owner, node.variable, elements))
    except GrownTextError as grown:
        grown.renumber(owner)
        raise
    decided, unknown = np.zeros(scope.length, bool), np.zeros(scope.length, bool)
    decided[owner[(body.values != node.is_all) & body.valid]] = True  # an element that settles it
    unknown[owner[~body.valid]] = True
    return Nullable(decided != node.is_all, array.valid & (decided | ~unknown))


def _interval(node: IntervalLiteral, scope: Scope) -> Nullable:
    total = np.zeros(scope.length, np.int64)
    for amount, unit in zip(node.amounts, node.units, strict=True):
        operand = evaluate(amount, scope)
        texts = cast(operand, amount.type, decimal_scale(amount), Type.STRING, (0, 0), scope.zone)
        total += np.fromiter((read_amount(unit, text) for text in texts.values.tolist()), np.int64, scope.length)
    return Nullable(total, np.ones(scope.length, bool))


def _shift(node: Shift, scope: Scope) -> Nullable:
    moment, amount = evaluate(node.moment, scope), evaluate(node.amount, scope)
    by = -amount.values if node.op == "-" else amount.values
    valid = moment.valid & amount.valid
    return Nullable(*shift(moment.values, valid, node.moment.type, by, node.amount.type, node.type, scope.zone))


def _elapsed(node: Elapsed, scope: Scope) -> Nullable:
    end, start = evaluate(node.end, scope), evaluate(node.start, scope)
    micros = elapsed(end.values, node.end.type, start.values, node.start.type, scope.zone)
    return Nullable(micros, end.valid & start.valid)


_EVALUATORS: dict[type[Node], Callable[[Any, Scope], Nullable]] = {
    Const: _constant,
    And: _and,
    Or: _or,
    Not: _not,
    IsNull: _is_null,
    IsTruth: _is_truth,
    Compare: _compare,
    InList: _in_list,
    Like: _like,
    Negate: _negate,
    Arith: _arith,
    Invert: _invert,
    Cast: _cast,
    CaseWhen: _case,
    Subscript: _item,
    Element: _element,
    Quantified: _quantified,
    IntervalLiteral: _interval,
    Shift: _shift,
    Elapsed: _elapsed,
}
