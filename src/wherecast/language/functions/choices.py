"""Functions that choose one of their arguments. They bring them to one type, as Spark does, and most are not strict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from wherecast.kernels import step_kinds as kinds
from wherecast.language.events.keys import float_keys
from wherecast.language.events.types import FLOATS, Type
from wherecast.language.events.zone import Zone
from wherecast.language.expression import Call, Compare, Const, IsNull, IsTruth, Node, Not, Span
from wherecast.language.functions.row import (
    ANY,
    CONDITION,
    SCALAR,
    Describe,
    Function,
    common_type,
    converted,
    fault,
    function,
    nothing,
    retyped,
)
from wherecast.language.nullable import Nullable, choose, sort_keys

if TYPE_CHECKING:
    from wherecast.language.steps import Register, Steps

Build = Callable[[tuple[Node, ...], Span, Describe], Node]


def _alike(name: str, first: int = 0) -> Build:
    """A call whose arguments from number `first` on have one type, which is that of the call."""

    def build(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
        kind, digits = common_type(args[first:], describe)
        alike = tuple(arg if i < first else retyped(arg, kind) for i, arg in enumerate(args))
        return Call(name=name, args=alike, type=kind, digits=digits, span=span)

    return build


def _read(call: Call, args: Sequence[Nullable], first: int, zone: Zone) -> list[Nullable]:
    nodes = call.args[first:]
    return [converted(n, a, call.type, call.digits, zone) for n, a in zip(nodes, args[first:], strict=True)]


def _build_coalesce(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
    """A condition with TRUE or FALSE for unknown is IS [NOT] ... of it, which the index knows."""
    if len(args) == 2 and args[0].type is Type.BOOLEAN and isinstance(args[1], Const) and args[1].value is not None:
        if args[1].value:
            return Not(item=IsTruth(item=args[0], truth=False, span=span), span=span)
        return IsTruth(item=args[0], truth=True, span=span)
    return _alike("coalesce")(args, span, describe)


def _coalesce(call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
    *others, out = _read(call, args, 0, zone)
    for other in reversed(others):
        out = choose(other.valid, other, out)
    return out


def _coalesce_steps(steps: Steps, call: Call) -> Register:
    *others, out = (steps.typed(arg, call.type) for arg in call.args)
    for other in reversed(others):
        out = steps.step(kinds.FIRST, other, out)
    return out


def _if_steps(steps: Steps, call: Call) -> Register:
    condition, *values = call.args
    return steps.step(
        kinds.CHOOSE, steps.typed(condition, Type.BOOLEAN), *(steps.typed(value, call.type) for value in values)
    )


def _if(call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
    then, otherwise = _read(call, args, 1, zone)
    return choose(args[0].values & args[0].valid, then, otherwise)


def _build_nvl2(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
    is_there = Not(item=IsNull(item=args[0], span=span), span=span)
    return _alike("if", 1)((is_there, *args[1:]), span, describe)


def _build_nullif(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
    kind, digits = common_type(args, describe)
    own = args[0].type
    if own is not kind and own is not Type.NULL:
        raise fault("nullif needs two values of one type; write the second in the type of the first", span)
    return Call(name="nullif", args=tuple(retyped(a, kind) for a in args), type=kind, digits=digits, span=span)


def _nullif(call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
    a, b = _read(call, args, 0, zone)
    equal = np.asarray(sort_keys(a, call.type) == sort_keys(b, call.type), bool) & a.valid & b.valid
    return Nullable(a.values, a.valid & ~equal)


def _extreme(is_least: bool) -> Callable[[Call, Sequence[Nullable], Zone], Nullable]:
    """NULLs do not count; NaN is the greatest number."""

    def evaluate(call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
        out, *others = _read(call, args, 0, zone)
        for other in others:
            a, b = (float_keys(v.values) if call.type in FLOATS else v.values for v in (out, other))
            is_better = np.asarray(b < a if is_least else b > a, bool)
            out = choose(other.valid & (is_better | ~out.valid), other, out)
        return out if call.type is not Type.NULL else nothing(call.type, out.valid.size)

    return evaluate


def _equal_null(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
    kind, _ = common_type(args, describe)
    left, right = (retyped(arg, kind) for arg in args)
    return Compare(op="<=>", left=left, right=right, common=kind, span=span)


def _is_null(args: tuple[Node, ...], span: Span, _describe: Describe) -> Node:
    return IsNull(item=args[0], span=span)


def _is_not_null(args: tuple[Node, ...], span: Span, _describe: Describe) -> Node:
    return Not(item=IsNull(item=args[0], span=span), span=span)


CHOICE_FUNCTIONS: tuple[Function, ...] = (
    function(
        "coalesce",
        "v[, ...]",
        SCALAR,
        evaluate=_coalesce,
        steps=_coalesce_steps,
        build=_build_coalesce,
        is_strict=False,
        says="the first that is not NULL",
        example="coalesce(price, 0) > 1",
    ),
    function(
        "nvl",
        "v, other",
        SCALAR,
        SCALAR,
        build=_build_coalesce,
        aliases=("ifnull",),
        says="`coalesce(v, other)`",
        example="nvl(symbol, '') = ''",
    ),
    function(
        "nvl2",
        "v, then, other",
        SCALAR,
        SCALAR,
        SCALAR,
        build=_build_nvl2,
        says="`if(v IS NOT NULL, then, other)`",
        example="nvl2(price, volume, 0) > 5",
    ),
    function(
        "nullif",
        "v, w",
        SCALAR,
        SCALAR,
        evaluate=_nullif,
        build=_build_nullif,
        is_strict=False,
        says="NULL where `v = w`, else `v`",
        example="nullif(symbol, '') IS NULL",
    ),
    function(
        "if",
        "c, then, other",
        CONDITION,
        SCALAR,
        SCALAR,
        evaluate=_if,
        steps=_if_steps,
        build=_alike("if", 1),
        is_strict=False,
        says="`other` also where `c` is unknown",
        example="if(price > 100, volume, 0) > 5",
    ),
    function(
        "greatest",
        "v, w[, ...]",
        SCALAR,
        evaluate=_extreme(False),
        build=_alike("greatest"),
        is_strict=False,
        says="NULLs do not count; NaN is the greatest number",
        example="greatest(price, quote.bid, quote.ask) > 100",
    ),
    function(
        "least",
        "v, w[, ...]",
        SCALAR,
        evaluate=_extreme(True),
        build=_alike("least"),
        is_strict=False,
        says="NULLs do not count",
        example="least(price, quote.bid) < 100",
    ),
    function("isnull", "v", ANY, build=_is_null, says="`v IS NULL`", example="isnull(price)"),
    function("isnotnull", "v", ANY, build=_is_not_null, says="`v IS NOT NULL`", example="isnotnull(price)"),
    function(
        "equal_null",
        "v, w",
        SCALAR,
        SCALAR,
        build=_equal_null,
        says="`v <=> w`",
        example="equal_null(price, quote.bid)",
    ),
)
