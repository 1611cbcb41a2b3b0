"""A slow, obvious evaluator of `Term`: one row at a time, plain Python, None for NULL.

It leaves out what takes more than a line to say: decimals, regular expressions, lower and upper, and dates against
timestamps. Those are checked against Spark.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tests.property.strategies import Features
from tests.property.terms import FLOATING, INTEGRAL, Term, text

from wherecast.engine.engine import Engine

NAIVE_FEATURES = Features(decimals=False, casing=False, patterns=("like", "ilike"), mixed_times=False)

_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}


def evaluate(term: Term, event: dict[str, Any]) -> Any:
    """The value of a term for one event."""
    return _RULES.get(term.op, _compare)(term, event)


def _column(term: Term, event: dict[str, Any]) -> Any:
    return event.get(str(term.value))


def _literal(term: Term, _event: dict[str, Any]) -> Any:
    if term.type in INTEGRAL:
        return int(str(term.value))
    return float(str(term.value).rstrip("D")) if term.type == "double" else term.value


def _constant(term: Term, _event: dict[str, Any]) -> Any:
    return term.value


def _and(term: Term, event: dict[str, Any]) -> bool | None:
    found = [evaluate(a, event) for a in term.args]
    return False if False in found else None if None in found else True


def _or(term: Term, event: dict[str, Any]) -> bool | None:
    found = [evaluate(a, event) for a in term.args]
    return True if True in found else None if None in found else False


def _not(term: Term, event: dict[str, Any]) -> bool | None:
    return _opposite(evaluate(term.args[0], event))


def _opposite(value: bool | None) -> bool | None:
    return None if value is None else not value


def _is(term: Term, event: dict[str, Any]) -> bool:
    value = evaluate(term.args[0], event)
    found = value is {"NULL": None, "TRUE": True, "FALSE": False}[str(term.value)]
    return found != term.negated


def _key(value: Any, *, as_double: bool) -> Any:
    """Something that compares as Spark's values do: NaN equals itself and is above everything, -0.0 is 0.0."""
    if as_double:
        number = float(value)
        return (1, 0.0) if math.isnan(number) else (0, number + 0.0)
    return value


def _holds(op: str, left: Any, right: Any, *, as_double: bool) -> bool | None:
    if op == "<=>" and (left is None or right is None):
        return left is right
    if left is None or right is None:
        return None
    a, b = _key(left, as_double=as_double), _key(right, as_double=as_double)
    if op in ("<>", "!="):
        return bool(a != b)
    if op in ("=", "<=>"):
        return bool(a == b)
    return bool(a < b or (op == "<=" and a == b)) if op[0] == "<" else bool(a > b or (op == ">=" and a == b))


def _compare(term: Term, event: dict[str, Any]) -> bool | None:
    left, right = (evaluate(a, event) for a in term.args)
    return _holds(term.op, left, right, as_double=any(a.type in FLOATING for a in term.args))


def _between(term: Term, event: dict[str, Any]) -> bool | None:
    item, low, high = term.args
    whole = Term("and", "boolean", (Term(">=", "boolean", (item, low)), Term("<=", "boolean", (item, high))))
    found = evaluate(whole, event)
    return _opposite(found) if term.negated else found


def _in(term: Term, event: dict[str, Any]) -> bool | None:
    as_double = any(a.type in FLOATING for a in term.args)
    item, *values = (evaluate(a, event) for a in term.args)
    found = [_holds("=", item, value, as_double=as_double) for value in values]
    answer = True if True in found else None if None in found else False
    return _opposite(answer) if term.negated else answer


def _like(term: Term, event: dict[str, Any]) -> bool | None:
    value, pattern = (evaluate(a, event) for a in term.args)
    if value is None:
        return None
    found = _fits(value.lower(), pattern.lower()) if term.op == "ilike" else _fits(value, pattern)
    return found != term.negated


def _fits(value: str, pattern: str) -> bool:
    if not pattern:
        return not value
    if pattern[0] == "%":
        return any(_fits(value[i:], pattern[1:]) for i in range(len(value) + 1))
    if not value:
        return False
    if pattern[0] == "_":
        return _fits(value[1:], pattern[1:])
    if pattern[0] == "\\":
        pattern = pattern[1:]
    return value[0] == pattern[0] and _fits(value[1:], pattern[1:])


def _item(term: Term, event: dict[str, Any]) -> Any:
    items, key = (evaluate(a, event) for a in term.args)
    return None if items is None else items.get(key)


def _call(term: Term, event: dict[str, Any]) -> Any:
    args = [evaluate(a, event) for a in term.args]
    if None in args:
        return None
    if term.value == "array_contains":
        element, wanted = term.args[0].type[6:-1], args[1]
        if element == "float" and term.args[1].type in INTEGRAL:
            wanted = float(np.float32(np.int64(wanted)))
        return _contains(args[0], wanted, as_double=element in FLOATING)
    first = args[0]
    if term.value == "map_contains_key":
        return args[1] in first
    if term.value in ("size", "length"):
        return len(first)
    if term.value == "abs":
        return _whole(term, abs(first)) if term.type in INTEGRAL else abs(first)
    return {"startswith": str.startswith, "endswith": str.endswith, "contains": str.__contains__}[str(term.value)](
        *args
    )


def _contains(items: list[Any], wanted: Any, *, as_double: bool) -> bool | None:
    found = [_holds("=", item, wanted, as_double=as_double) for item in items]
    return True if True in found else None if None in found else False


def _negate(term: Term, event: dict[str, Any]) -> Any:
    value = evaluate(term.args[0], event)
    return None if value is None else _whole(term, -value) if term.type in INTEGRAL else -value


def _arithmetic(term: Term, event: dict[str, Any]) -> Any:
    left, right = (evaluate(a, event) for a in term.args)
    if left is None or right is None or (term.op in "/%" and right == 0):
        return None
    if term.type in INTEGRAL:
        if term.op == "%":
            return abs(left) % abs(right) * (1 if left >= 0 else -1)
        return _whole(term, {"+": left + right, "-": left - right, "*": left * right}[term.op])
    if term.type == "float":
        with np.errstate(all="ignore"):
            return float(_float_arithmetic(term.op, np.float32(left), np.float32(right)))
    return _float_arithmetic(term.op, float(left), float(right))


def _float_arithmetic(op: str, left: Any, right: Any) -> Any:
    if op == "%":
        return math.nan if math.isinf(left) or math.isnan(left) or math.isnan(right) else math.fmod(left, right)
    if op == "/":
        return left / right
    return {"+": left + right, "-": left - right, "*": left * right}[op]


def _whole(term: Term, value: int) -> int | None:
    limit = 2 ** _BITS[term.type]
    return value if -limit <= value < limit else None


_RULES = {
    "column": _column,
    "literal": _literal,
    "constant": _constant,
    "and": _and,
    "or": _or,
    "not": _not,
    "is": _is,
    "between": _between,
    "in": _in,
    "like": _like,
    "ilike": _like,
    "call": _call,
    "item": _item,
    "neg": _negate,
    **dict.fromkeys("+-*/%", _arithmetic),
}


def check(engine: Engine, standing: dict[int, Term], events: list[dict[str, Any]]) -> None:
    """Every event reaches exactly the standing filters that it satisfies, in a batch and alone."""
    matched = engine.match_batch(events).to_lists()
    for event, found in zip(events, matched, strict=True):
        assert sorted(engine.match(event)) == sorted(found)
        assert len(found) == len(set(found))
        for number, term in standing.items():
            assert (number in found) == (evaluate(term, event) is True), f"{text(term)}\n{event}"
