"""Expressions over plain numbers as steps of a kernel (see `kernels.steps`), written once for a column of an index.

`Steps` goes through an expression and gives each part a register; equal parts share one. A function of the table says how a call of it is written
(`Function.steps`). What has no steps, such as a text or a decimal, is not plain: then there is no `Recipe`, and `evaluate` computes the whole
expression. `evaluate` says what an expression means; `tests/property/test_steps.py` holds the steps against it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from wherecast.kernels import step_kinds as kinds
from wherecast.kernels.arrays import Ints, Longs
from wherecast.language.casts import truncation_limits
from wherecast.language.events.keys import DAY_US
from wherecast.language.events.types import FLOATS, INTEGERS, MOMENTS, NUMBERS, WIDTH_OF, Type, integer_range
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
    IsNull,
    IsTruth,
    Negate,
    Node,
    Not,
    Or,
    Param,
)
from wherecast.language.filters.filters import LiteralValues
from wherecast.language.functions.table import FUNCTIONS
from wherecast.language.nullable import Nullable, to_double

#: Looking up `np.empty` takes a quarter of the time that it takes itself, and finding the dtype of a class as much.
_empty, _LONG, _DOUBLE = np.empty, np.dtype(np.int64), np.dtype(np.float64)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an expression is computed for a batch of events; the arrays are those of `run_steps`."""

    steps: Ints
    reads: Ints
    constants: Longs
    words: int  # of memory that a run needs
    is_direct: bool  # no register is written but the last, and no constant read row by row
    is_double: bool
    kernel: Callable[..., bool]

    def run(self, columns: Longs, length: int) -> Nullable:
        """The values for so many events, whose attributes are where `columns` says (see `index.stored`)."""
        out = _empty(length, _LONG)
        memory = _empty(self.words + (length + 7) // 8, _LONG)  # of each call: several threads may run a recipe
        has_nulls = self.kernel(self.steps, self.reads, self.constants, self.is_direct, columns, memory, out)
        valid = memory[self.words :].view(np.bool_)[:length] if has_nulls else None
        return Nullable(out.view(_DOUBLE) if self.is_double else out, valid)


@cache
def _kernel() -> Callable[..., bool]:
    from wherecast.kernels.jit import direct  # noqa: PLC0415 - what only checks filters does not load Numba
    from wherecast.kernels.steps import run_steps  # noqa: PLC0415 - as above

    pairs, numbers = np.zeros((1, 2), np.int32), np.zeros(1, np.int64)
    columns = np.zeros((1, 4), np.int64)
    return direct(run_steps, pairs, pairs, numbers, False, columns, numbers, numbers)


class NotPlainError(Exception):
    """An expression that has no steps."""


class Register(NamedTuple):
    """Where a value is: the number of an attribute, a constant or a step."""

    group: int
    number: int


_READ, _CONSTANT, _STEP = range(3)


def _how_left(left: Register, right: Register) -> int:
    """How a comparison of two registers is left to a choice."""
    if right.group == _CONSTANT:
        return kinds.CONSTANT_RIGHT
    return kinds.CONSTANT_LEFT if left.group == _CONSTANT else kinds.BY_CHOICE


class Steps:
    """Writes the steps of an expression with the literals of one row."""

    def __init__(self, literals: LiteralValues, row: int, zone: Zone) -> None:
        self.zone = zone
        self._literals = literals
        self._row = row
        self._reads: dict[tuple[int, int], Register] = {}
        self._constants: dict[int, Register] = {}
        self._steps: dict[tuple[Any, ...], Register] = {}

    def finish(self, last: Register, *, is_double: bool) -> Recipe | None:
        """The recipe whose value is in a register; None if an index has this value anyway, or the last step gives another value."""
        is_size = [how for _, how in self._reads] == [kinds.AS_SIZES] and last.group == _READ
        if not is_size and last != Register(_STEP, len(self._steps) - 1):
            return None
        base = (0, len(self._reads), len(self._reads) + len(self._constants))
        left = self._left_to_choices()
        steps = [
            (
                step[0],
                *(base[r.group] + r.number for r in step[1:]),
                left.get(number, kinds.IN_TURN),
                self._alone(step, left),
            )
            for number, step in enumerate(self._steps)
        ]
        return Recipe(
            np.array(steps, np.int32).reshape(-1, 6),
            np.array(list(self._reads), np.int32).reshape(-1, 2),
            np.array(list(self._constants), np.int64),
            kinds.words_of(base[_STEP] + len(steps)),
            self._is_direct(left),
            is_double,
            _kernel(),
        )

    def _left_to_choices(self) -> dict[int, int]:
        """The comparisons that one choice asks for, and nobody else: it makes them itself."""
        read = Counter(r for _, *registers in self._steps for r in registers)
        asked = (registers[0] for kind, *registers in self._steps if kind == kinds.CHOOSE)
        steps = list(self._steps)
        alone = {r.number for r in asked if r.group == _STEP and read[r] == 1}
        return {n: _how_left(*steps[n][1:3]) for n in alone if steps[n][0] in kinds.COMPARISONS}

    def _alone(self, step: tuple[Any, ...], left: dict[int, int]) -> int:
        """Which alternative of a choice is one number, where it compares with one."""
        kind, condition, first, other = step
        is_by_one = (
            kind == kinds.CHOOSE and condition.group == _STEP and left.get(condition.number, 0) > kinds.BY_CHOICE
        )
        if is_by_one and other.group == _CONSTANT:
            return kinds.ONE_OTHER
        return kinds.ONE_FIRST if is_by_one and first.group == _CONSTANT else kinds.NO_ONE

    def _is_direct(self, left: dict[int, int]) -> bool:
        """Whether the values that events have are all that is read row by row, and the result all that is written."""
        in_turn = [step for number, step in enumerate(self._steps) if number not in left]
        if not in_turn:  # sizes, which are written where they belong
            return True
        if len(in_turn) > 1 or any(how != kinds.AS_LONGS for _, how in self._reads):
            return False
        [(kind, *registers)] = in_turn
        if kind >= kinds.NOT:
            n_constants = sum(register.group == _CONSTANT for register in registers[1:])
            return bool(left) and n_constants == (self._alone(in_turn[0], left) != kinds.NO_ONE)
        return all(
            register.group != _CONSTANT or place in kinds.SINGLE.get(kind, ())
            for place, register in enumerate(registers)
        )

    # -- what rows of the table write with --

    def step(self, kind: int, *registers: Register) -> Register:
        """A step on registers; one that reads fewer than three is given its first again."""
        given = (kind, *registers, *(registers[0],) * (3 - len(registers)))
        return self._steps.setdefault(given, Register(_STEP, len(self._steps)))

    def read(self, attr: Attr, how: int) -> Register:
        return self._reads.setdefault((attr.index, how), Register(_READ, len(self._reads)))

    def size(self, collection: Attr) -> Register:
        """How many elements an array or map has."""
        return self.read(collection, kinds.AS_SIZES)

    def constant(self, value: float) -> Register:
        word = int(np.array([+value]).view(np.int64)[0])
        return self._constants.setdefault(word, Register(_CONSTANT, len(self._constants)))

    def literal(self, param: Node) -> Any:
        """The value of a literal."""
        return self._literals[param][self._row] if isinstance(param, Param) else self.refuse()

    def value(self, node: Node) -> Register:
        """Any plain value: a number, moment or condition."""
        write = _WRITERS.get(type(node))
        if write is None:
            raise NotPlainError
        return write(self, node)

    def double(self, node: Node) -> Register:
        """A number as a double."""
        if isinstance(node, Param) and node.type in NUMBERS:
            own = self._literals[node][self._row : self._row + 1]
            return self.constant(float(to_double(node, Nullable(own, np.ones(1, bool)))[0]))
        if node.type in INTEGERS:
            return self.step(kinds.TO_DOUBLE, self.value(node))
        return self.value(node) if node.type in FLOATS else self.refuse()

    def typed(self, node: Node, kind: Type) -> Register:
        """A value as one of a type that it is brought to without loss; a bare NULL has any type."""
        if node.type is Type.NULL and (kind in FLOATS or kind in _PLAIN):
            return self.value(node)
        if kind in FLOATS:
            return self.double(node)
        is_alike = node.type in INTEGERS if kind in INTEGERS else node.type is kind
        return self.value(node) if is_alike and kind in _PLAIN else self.refuse()

    def days(self, node: Node) -> Register:
        """The day of a moment."""
        return self.value(node) if node.type is Type.DATE else self.units(self.wall(node), DAY_US)

    def wall(self, node: Node) -> Register:
        """The wall clock of a timestamp."""
        moment, fixed = self.value(node), self.zone.fixed_us if node.type is Type.TIMESTAMP else 0
        if node.type not in (Type.TIMESTAMP, Type.TIMESTAMP_NTZ) or fixed is None:
            raise NotPlainError
        return self.step(kinds.DIFFERENCE, moment, self.constant(-fixed)) if fixed else moment

    def units(self, moment: Register, unit: int) -> Register:
        """How many whole units have passed."""
        return self.step(kinds.UNITS, moment, self.constant(unit))

    def rest(self, moment: Register, unit: int) -> Register:
        """What has passed of the last unit."""
        return self.step(kinds.RESTS, moment, self.constant(unit))

    def refuse(self) -> Register:
        raise NotPlainError


_PLAIN = frozenset((*INTEGERS, *MOMENTS, Type.BOOLEAN))


def value_recipe(node: Node, literals: LiteralValues, row: int, zone: Zone) -> Recipe | None:
    """How to compute an expression with the literals of a row; None if it is not plain."""
    return _written(Steps(literals, row, zone), lambda steps: steps.value(node), is_double=node.type in FLOATS)


def key_recipe(node: Node, common: Type, literals: LiteralValues, row: int, zone: Zone) -> Recipe | None:
    """The same for the keys by which the expression is compared as a type (see `evaluate.comparable`)."""

    def write(steps: Steps) -> Register:
        found = steps.typed(node, common)
        return steps.step(kinds.KEY, found) if common in FLOATS else found

    return _written(Steps(literals, row, zone), write, is_double=False)


def _written(steps: Steps, write: Callable[[Steps], Register], *, is_double: bool) -> Recipe | None:
    try:
        return steps.finish(write(steps), is_double=is_double)
    except NotPlainError:
        return None


# -- nodes ---------------------------------------------------------------------------------------------------------------


def _attribute(steps: Steps, node: Attr) -> Register:
    if node.type is Type.DATE:
        return steps.read(node, kinds.AS_INTS)
    return steps.read(node, kinds.AS_LONGS) if node.type in _STORED_LONG else steps.refuse()


_STORED_LONG = frozenset((*FLOATS, *INTEGERS, Type.TIMESTAMP, Type.TIMESTAMP_NTZ))


def _literal(steps: Steps, node: Param) -> Register:
    value = steps.literal(node)
    is_plain = node.type in _PLAIN or node.type in FLOATS
    return steps.constant(value.item()) if is_plain and isinstance(value, np.generic) else steps.refuse()


def _constant(steps: Steps, node: Const) -> Register:
    zero = steps.constant(int(node.value or 0))
    return steps.step(kinds.NULL, zero) if node.value is None else zero


def _arith(steps: Steps, node: Arith) -> Register:
    if node.type in INTEGERS and node.op in _OF_LONGS:
        sides = steps.typed(node.left, node.type), steps.typed(node.right, node.type)
        return _within(steps, steps.step(_OF_LONGS[node.op], *sides), node.type)
    if node.type not in FLOATS or node.op not in _OF_DOUBLES:
        raise NotPlainError
    kind = _OF_DOUBLES[node.op]
    if kind != kinds.DIVIDE and _is_computed_long(node.right) and node.left.type in FLOATS:
        found = steps.step(kind + 1, steps.double(node.left), steps.value(node.right))
    elif kind != kinds.DIVIDE and _is_computed_long(node.left) and node.right.type in FLOATS:
        found = steps.step(kind + 2, steps.value(node.left), steps.double(node.right))
    else:
        found = steps.step(kind, steps.double(node.left), steps.double(node.right))
    return steps.step(kinds.TO_FLOAT, found) if node.type is Type.FLOAT else found


_OF_LONGS = {"+": kinds.ADD_LONGS, "-": kinds.SUBTRACT_LONGS, "*": kinds.MULTIPLY_LONGS}
#: The steps after each take one side as an integer.
_OF_DOUBLES = {"+": kinds.ADD, "-": kinds.SUBTRACT, "*": kinds.MULTIPLY, "/": kinds.DIVIDE}


def _is_computed_long(node: Node) -> bool:
    return node.type in INTEGERS and not isinstance(node, Param)


def _within(steps: Steps, found: Register, kind: Type) -> Register:
    """An integer, NULL if its type does not hold it."""
    if kind is Type.BIGINT:
        return found
    return steps.step(kinds.WITHIN, found, *map(steps.constant, integer_range(WIDTH_OF[kind])))


def _negate(steps: Steps, node: Negate) -> Register:
    if node.type in FLOATS:
        return steps.step(kinds.NEGATE, steps.double(node.item))
    negated = steps.step(kinds.SUBTRACT_LONGS, steps.constant(0), steps.typed(node.item, node.type))
    return _within(steps, negated, node.type)


def _cast(steps: Steps, node: Cast) -> Register:
    source, target = node.item.type, node.type
    if source is Type.NULL:
        return steps.typed(node.item, target)
    if target in INTEGERS and source in FLOATS:
        limits = truncation_limits(*integer_range(WIDTH_OF[target]))
        return steps.step(kinds.TRUNCATE, steps.value(node.item), *map(steps.constant, limits))
    if target in INTEGERS and source in INTEGERS:
        return _within(steps, steps.value(node.item), target)
    if target is Type.DOUBLE and source in (*FLOATS, *INTEGERS):
        return steps.double(node.item)
    is_narrowed = target is Type.FLOAT and source in FLOATS
    return steps.step(kinds.TO_FLOAT, steps.value(node.item)) if is_narrowed else steps.refuse()


def _compare(steps: Steps, node: Compare) -> Register:
    if node.op not in _COMPARED:
        raise NotPlainError
    kind, is_flipped, is_negated = _COMPARED[node.op]
    left, right = steps.typed(node.left, node.common), steps.typed(node.right, node.common)
    kind += 0 if node.common in FLOATS else kinds.GREATER_LONGS - kinds.GREATER
    found = steps.step(kind, *((right, left) if is_flipped else (left, right)))
    return steps.step(kinds.NOT, found) if is_negated else found


#: The step for doubles, whether it takes the sides in the other order, and whether its opposite is meant.
_COMPARED = {
    "=": (kinds.EQUAL, False, False),
    "<>": (kinds.EQUAL, False, True),
    ">": (kinds.GREATER, False, False),
    ">=": (kinds.NOT_LESS, False, False),
    "<": (kinds.GREATER, True, False),
    "<=": (kinds.NOT_LESS, True, False),
}


def _combined(kind: int) -> Callable[[Steps, Any], Register]:
    def write(steps: Steps, node: And | Or) -> Register:
        first, *others = (steps.typed(item, Type.BOOLEAN) for item in node.items)
        for other in others:
            first = steps.step(kind, first, other)
        return first

    return write


def _not(steps: Steps, node: Not) -> Register:
    return steps.step(kinds.NOT, steps.typed(node.item, Type.BOOLEAN))


def _is_truth(steps: Steps, node: IsTruth) -> Register:
    item = steps.typed(node.item, Type.BOOLEAN)
    return steps.step(kinds.IS_TRUE, item if node.truth else steps.step(kinds.NOT, item))


def _is_null(steps: Steps, node: IsNull) -> Register:
    return steps.step(kinds.IS_NULL, steps.value(node.item))


def _case(steps: Steps, node: CaseWhen) -> Register:
    *values, out = (steps.typed(value, node.type) for value in node.values)
    for condition, value in zip(reversed(node.conditions), reversed(values), strict=True):
        out = steps.step(kinds.CHOOSE, steps.typed(condition, Type.BOOLEAN), value, out)
    return out


def _call(steps: Steps, node: Call) -> Register:
    write = FUNCTIONS[node.name].steps
    return steps.refuse() if write is None else write(steps, node)


_WRITERS: dict[type[Node], Callable[[Steps, Any], Register]] = {
    Attr: _attribute,
    Param: _literal,
    Const: _constant,
    Arith: _arith,
    Negate: _negate,
    Cast: _cast,
    Compare: _compare,
    And: _combined(kinds.BOTH),
    Or: _combined(kinds.EITHER),
    Not: _not,
    IsTruth: _is_truth,
    IsNull: _is_null,
    CaseWhen: _case,
    Call: _call,
}
