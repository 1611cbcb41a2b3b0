"""Binding: a shape's clauses with the literals of many filters make positions.

Theory of operation
-------------------
Work goes in two steps, because the position of a string is its rank among all strings of the batch. `place` turns every
predicate of a shape into intervals for all its filters at once, strings still as provisional ids of a pool; `settle`, once
the pool is sorted, moves them to ranks, takes complements, unions and intersections, drops clauses that cannot hold and
constraints that always do, and emits flat rows.

The sets of many filters are `Ragged`: closed integer intervals, one set per row, all of them in three arrays. Two
primitives are enough: `merged` brings any pile of intervals to canonical form (sorted, disjoint, not adjacent), `complement`
takes the gaps. Union is a merge of piles and intersection follows by De Morgan. Rows without an interval are empty sets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Longs
from wherecast.language.evaluate import holds
from wherecast.language.events.keys import DAY_US, KEY_MAX, KEY_MIN, days_around, float_keys, only_walls
from wherecast.language.events.kinds import decimal_text
from wherecast.language.events.schema import Attribute, Schema
from wherecast.language.events.types import FLOATS, INTEGERS, MOMENTS, Digits, Type
from wherecast.language.events.zone import Zone
from wherecast.language.expression import Param, is_constant
from wherecast.language.filters.columns import Column, marked
from wherecast.language.filters.filters import AFTER, AT, BEFORE
from wherecast.language.filters.normalize import Clause, Predicate, Residual, Values
from wherecast.language.functions.table import FUNCTIONS
from wherecast.language.nullable import Nullable, as_moments
from wherecast.language.syntax.literals import Literals, ProgramScope
from wherecast.language.syntax.patterns import find_form, prefix_end


class Ragged(NamedTuple):
    """Intervals `lo[i]..hi[i]`, both ends included, of the sets of rows `rows[i]`."""

    rows: Longs
    lo: Longs
    hi: Longs


def single(lo: Longs, hi: Longs) -> Ragged:
    """One interval per row; rows with lo > hi are empty."""
    rows = np.flatnonzero(lo <= hi)
    return Ragged(rows, lo[rows], hi[rows])


def everything(n: int) -> Ragged:
    return Ragged(np.arange(n), np.full(n, KEY_MIN, np.int64), np.full(n, KEY_MAX, np.int64))


def merged(pile: Ragged) -> Ragged:
    """Canonical form: sorted by row and start, overlapping and adjacent intervals joined."""
    keep = pile.lo <= pile.hi
    rows, lo, hi = (a[keep] for a in pile)
    order = np.lexsort((lo, rows))
    rows, lo, hi = rows[order], lo[order], hi[order]
    if rows.size < 2:
        return Ragged(rows, lo, hi)
    reach = _running_max(rows, hi)
    new_row = rows[1:] != rows[:-1]
    # lo - 1 cannot wrap where it matters: lo == KEY_MIN is always the first of its row or joined.
    apart = new_row | ((lo[1:] > reach[:-1]) & (lo[1:] - 1 > reach[:-1]))
    starts = np.concatenate(([True], apart))
    ends = np.concatenate((apart, [True]))
    return Ragged(rows[starts], lo[starts], reach[ends])


def _running_max(rows: Longs, hi: Longs) -> Longs:
    """Greatest end so far within each row."""
    if np.all((rows[1:] != rows[:-1]) | (hi[1:] >= hi[:-1])):
        return hi
    out, best, row = hi.copy(), KEY_MIN, -1
    for i, (r, h) in enumerate(zip(rows.tolist(), hi.tolist(), strict=True)):
        best = h if r != row else max(best, h)
        row, out[i] = r, best
    return out


def complement(sets: Ragged, n: int) -> Ragged:
    """The gaps of canonical sets, for rows 0 .. n - 1."""
    rows, lo, hi = sets
    first = np.ones(rows.size, bool)
    first[1:] = rows[1:] != rows[:-1]
    last = np.ones(rows.size, bool)
    last[:-1] = first[1:]
    before = first & (lo > KEY_MIN)
    after = last & (hi < KEY_MAX)
    inner = ~last[:-1] if rows.size else np.zeros(0, bool)
    whole = np.ones(n, bool)
    whole[rows] = False
    empty = np.flatnonzero(whole)
    pile = Ragged(
        np.concatenate((rows[before], rows[:-1][inner], rows[after], empty)),
        np.concatenate(
            (np.full(before.sum(), KEY_MIN), hi[:-1][inner] + 1, hi[after] + 1, np.full(empty.size, KEY_MIN))
        ),
        np.concatenate(
            (lo[before] - 1, lo[1:][inner] - 1, np.full(after.sum(), KEY_MAX), np.full(empty.size, KEY_MAX))
        ),
    )
    order = np.lexsort((pile.lo, pile.rows))
    return Ragged(pile.rows[order], pile.lo[order], pile.hi[order])


def union(sets: list[Ragged]) -> Ragged:
    if len(sets) == 1:
        return sets[0]
    return merged(Ragged(*(np.concatenate(parts) for parts in zip(*sets, strict=True))))


def intersection(sets: list[Ragged], n: int) -> Ragged:
    if len(sets) == 1:
        return sets[0]
    each = np.arange(n)
    if all(s.rows.size == n and np.array_equal(s.rows, each) for s in sets):  # one interval per row: the common case
        return single(np.maximum.reduce([s.lo for s in sets]), np.minimum.reduce([s.hi for s in sets]))
    return complement(union([complement(s, n) for s in sets]), n)


# -- placing and settling ----------------------------------------------------------------------------------------------


class StringPool:
    """Strings in order of arrival; ranked when all are in."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def intern(self, strings: Sequence[str]) -> Longs:
        ids = self.ids
        return np.fromiter((ids.setdefault(s, len(ids)) for s in strings), np.int64, len(strings))

    def ranked(self) -> tuple[list[str], Longs]:
        """The strings in order, and the rank of each id. Code point order is UTF-8 byte order."""
        ordered = sorted(self.ids)
        ranks = np.empty(len(ordered), np.int64)
        ranks[np.fromiter((self.ids[s] for s in ordered), np.int64, len(ordered))] = np.arange(len(ordered))
        return ordered, ranks


class IntervalRows(NamedTuple):
    """Flat rows of one shape: `filter` is the row among the shape's filters, `clause` the clause's number there."""

    filter: Longs
    clause: Longs
    attr: Longs
    part: Longs  # tells the constraints of one array attribute apart
    null: npt.NDArray[np.bool_]
    lo: Longs
    hi: Longs


def take_rows(rows: IntervalRows, chosen: npt.NDArray[Any]) -> IntervalRows:
    """Some rows, by mask or position."""
    return IntervalRows(*(array[chosen] for array in rows))


class Bound(NamedTuple):
    """Clauses of one shape for all its filters."""

    rows: IntervalRows
    alive: npt.NDArray[np.bool_]  # (clauses of the shape, filters)


# -- step 1: tests to intervals ---------------------------------------------------------------------------------------


def place(predicate: Predicate, literals: Literals, schema: Schema, pool: StringPool) -> Ragged:
    """The values of a predicate, without complement and NULL; strings by provisional ids."""
    n = literals.length
    attribute = schema.attributes[predicate.column.attr]
    if predicate.is_some:
        return _place_elements(predicate, literals, schema, pool)
    if predicate.op == "all":
        return everything(n)
    if predicate.op == "true":
        ones = np.full(n, 0 if predicate.complement else 1, np.int64)
        return single(ones, ones)
    if predicate.through:
        return _place_preimage(predicate, literals, attribute.type)
    if attribute.is_text and attribute.type is Type.DECIMAL:
        return _place_wide(predicate, literals, attribute, pool)
    if attribute.is_text:
        return _place_strings(predicate, literals, pool)
    if predicate.op in ("in", "overlaps"):
        return _place_list(predicate, literals, attribute)
    op, param = "=" if predicate.op == "contains" else predicate.op, predicate.params[0]
    return single(*_bounds(op, attribute, predicate, param, literals.scalar(param), literals.zone))


def _place_elements(predicate: Predicate, literals: Literals, schema: Schema, pool: StringPool) -> Ragged:
    """Elements within one bound or two. Those of texts begin at the least text: the place below it says "it is there"."""
    attribute = schema.attributes[predicate.column.attr]
    bounds = zip(predicate.op.split(), predicate.params, strict=True)
    sets = [
        place(replace(predicate, op=op, params=(param,), is_some=False), literals, schema, pool) for op, param in bounds
    ]
    if not attribute.is_text:
        return intersection(sets, literals.length) if sets else everything(literals.length)
    # Provisional ids have no order: `settle` drops what is empty.
    first, last = (sets[0], sets[-1]) if sets else (everything(literals.length),) * 2
    text = decimal_text(1 - 10 ** attribute.digits[0]) if attribute.row.has_digits else ""
    least = 4 * pool.intern([text])[0] + AT
    return Ragged(np.arange(literals.length), np.where(first.lo == KEY_MIN, least, first.lo), last.hi)


def _place_preimage(predicate: Predicate, literals: Literals, kind: Type) -> Ragged:
    """The attribute's values that a function maps to where the comparison holds."""
    preimage = FUNCTIONS[predicate.through].preimage
    assert preimage is not None
    op, rows, piles = predicate.op, np.arange(literals.length), []
    for param in predicate.params:
        if op == "in":
            values, ptr = literals.listed(param, predicate.common)
            rows = np.repeat(np.arange(literals.length), np.diff(ptr))
        else:
            values = literals.scalar(param)
        found = preimage("=" if op == "in" else op, values.astype(np.int64), kind, literals.zone)
        piles += [Ragged(rows, lo, hi) for lo, hi in found]
    return merged(Ragged(*(np.concatenate(parts) for parts in zip(*piles, strict=True))))


def _place_list(predicate: Predicate, literals: Literals, attribute: Attribute) -> Ragged:
    piles = []
    for param in predicate.params:
        values, ptr = literals.listed(param, predicate.common)
        lo, hi = _bounds("=", attribute, predicate, param, values, literals.zone)
        piles.append(Ragged(np.repeat(np.arange(literals.length), np.diff(ptr)), lo, hi))
    return merged(Ragged(*(np.concatenate(parts) for parts in zip(*piles, strict=True))))


def _place_strings(predicate: Predicate, literals: Literals, pool: StringPool) -> Ragged:
    n = literals.length
    if predicate.op in ("in", "overlaps"):
        # Not merged here: provisional ids have no order. `settle` merges after ranking.
        owners, points = [], []
        for param in predicate.params:
            values, ptr = literals.listed(param, predicate.common)
            points.append(4 * pool.intern(_read_literals(predicate, values)) + AT)
            owners.append(np.repeat(np.arange(n), np.diff(ptr)))
        at = np.concatenate(points)
        return Ragged(np.concatenate(owners), at, at)
    values = literals.scalar(predicate.params[0])
    if predicate.op == "prefix":
        return _place_prefixes(predicate, values, pool)
    places = 4 * pool.intern(_read_literals(predicate, values))
    return Ragged(np.arange(n), *string_bounds(predicate.op, places))


_SIDES: dict[str, tuple[int | None, int | None]] = {
    "=": (AT, AT),
    "contains": (AT, AT),
    "<": (None, BEFORE),
    "<=": (None, AT),
    ">": (AFTER, None),
    ">=": (AT, None),
}


def string_bounds(op: str, places: Longs) -> tuple[Longs, Longs]:
    """Closed intervals of positions of `text op literal`, for many literals by four times their ranks."""
    low, high = _SIDES[op]
    return (
        np.full(places.size, KEY_MIN, np.int64) if low is None else places + low,
        np.full(places.size, KEY_MAX, np.int64) if high is None else places + high,
    )


def _place_wide(predicate: Predicate, literals: Literals, attribute: Attribute, pool: StringPool) -> Ragged:
    """Decimals that are ordered as texts: positions beside the values next to each literal."""
    owners, lows, highs = [], [], []
    for param in predicate.params:
        is_list = predicate.op in ("in", "overlaps")
        values, ptr = literals.listed(param, predicate.common) if is_list else (literals.scalar(param), None)
        around = _decimals_around(attribute.digits, param, values)
        floor, ceil = (4 * pool.intern([decimal_text(ends[i]) for ends in around]) for i in range(2))
        owners.append(np.arange(values.size) if ptr is None else np.repeat(np.arange(literals.length), np.diff(ptr)))
        op = "=" if predicate.op in ("in", "overlaps", "contains") else predicate.op
        low, high = np.full(floor.size, KEY_MIN, np.int64), np.full(floor.size, KEY_MAX, np.int64)
        lows.append({"=": ceil + AT, ">=": ceil + AT, ">": floor + AFTER}.get(op, low))
        highs.append({"=": floor + AT, "<=": floor + AT, "<": ceil + BEFORE}.get(op, high))
        if op == "=":  # a literal between two values equals none, one that is a double may equal several
            some = np.array([least <= greatest for greatest, least in around], bool)
            owners[-1], lows[-1], highs[-1] = owners[-1][some], lows[-1][some], highs[-1][some]
    return Ragged(np.concatenate(owners), np.concatenate(lows), np.concatenate(highs))


def _read_literals(predicate: Predicate, values: npt.NDArray[Any]) -> list[str]:
    """The strings that literals stand for: patterns without their wildcards, texts to be looked for with their marks."""
    if predicate.pattern:
        forms = [find_form(predicate.pattern, v) for v in values.tolist()]
        return [form.literal if predicate.is_element else form.prefix for form in forms]
    if predicate.mark:
        return [marked(predicate.mark, v) for v in values.tolist()]
    return values.tolist()  # type: ignore[no-any-return]


def _place_prefixes(predicate: Predicate, values: npt.NDArray[Any], pool: StringPool) -> Ragged:
    n = values.size
    prefixes = _read_literals(predicate, values)
    ends = [prefix_end(p) for p in prefixes]
    starts = 4 * pool.intern(prefixes) + AT
    bounded = np.fromiter((e is not None for e in ends), bool, n)
    stops = np.where(bounded, 4 * pool.intern([e or "" for e in ends]) + BEFORE, KEY_MAX)
    empty = np.fromiter((p == "" for p in prefixes), bool, n)  # every string has the empty prefix
    return Ragged(np.arange(n), np.where(empty, KEY_MIN, starts), np.where(empty, KEY_MAX, stops))


def _bounds(
    op: str, attribute: Attribute, predicate: Predicate, param: Param, values: npt.NDArray[Any], zone: Zone
) -> tuple[Longs, Longs]:
    own = attribute.type
    if own is Type.DECIMAL:
        return _rounded_bounds(op, _decimals_around(attribute.digits, param, values))
    if own not in MOMENTS:
        return _number_bounds(op, own, param, values)
    return _moment_bounds(op, own, predicate.common, as_moments(values, param.type, predicate.common, zone), zone)


def _moment_bounds(op: str, own: Type, common: Type, values: Longs, zone: Zone) -> tuple[Longs, Longs]:
    """Bounds of an attribute of type `own` that is compared with values of type `common`."""
    if own is common:
        return key_bounds(op, values)
    if (
        common is Type.TIMESTAMP and own is Type.TIMESTAMP_NTZ
    ):  # `check_literals` has refused values that have no only wall
        return key_bounds(op, only_walls(zone, values)[0])
    floor, ceil = days_around(zone, values) if common is Type.TIMESTAMP else (values // DAY_US, -(-values // DAY_US))
    return _rounded_bounds(op, list(zip(floor.tolist(), ceil.tolist(), strict=True)))


def _number_bounds(op: str, own: Type, param: Param, values: npt.NDArray[Any]) -> tuple[Longs, Longs]:
    """Closed key intervals of `attribute op literal`, for many literals."""
    if own in FLOATS:
        return key_bounds(op, float_keys(_as_doubles(param, values)))
    if own in INTEGERS and param.type is Type.DECIMAL:
        return _rounded_bounds(op, [(u // 10**s, -(-u // 10**s)) for u, s in values])
    if own in INTEGERS and param.type is Type.DOUBLE:
        return _rounded_bounds(op, [_integers_around(v) for v in values.tolist()])
    return key_bounds(op, values.astype(np.int64))


def _as_doubles(param: Param, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    if param.type is Type.DECIMAL:
        return np.array([u / 10**s for u, s in values], np.float64)
    return values.astype(np.float64)


def key_bounds(op: str, keys: Longs) -> tuple[Longs, Longs]:
    """Closed intervals of keys of `value op literal`, for many literals by their keys; an empty one ends before it begins."""
    low, high = np.full(keys.size, KEY_MIN, np.int64), np.full(keys.size, KEY_MAX, np.int64)
    if op == "=":
        return keys, keys
    if op == "<=":
        return low, keys
    if op == ">=":
        return keys, high
    if op == "<":  # nothing is below the least key: an empty interval
        return np.where(keys == KEY_MIN, KEY_MAX, low), np.where(keys == KEY_MIN, KEY_MIN, keys - 1)
    return np.where(keys == KEY_MAX, KEY_MAX, keys + 1), np.where(keys == KEY_MAX, KEY_MIN, high)


def _rounded_bounds(op: str, around: list[tuple[int, int]]) -> tuple[Longs, Longs]:
    """Bounds for literals between two keys: (greatest key not above, least key not below), unbounded integers."""
    out = []
    for floor, ceil in around:
        lo = {"=": ceil, ">=": ceil, ">": floor + 1}.get(op, KEY_MIN)
        hi = {"=": floor, "<=": floor, "<": ceil - 1}.get(op, KEY_MAX)
        lo, hi = max(lo, KEY_MIN), min(hi, KEY_MAX)
        out.append((lo, hi) if lo <= hi else (KEY_MAX, KEY_MIN))
    lows, highs = np.array(out, np.int64).reshape(-1, 2).T
    return np.ascontiguousarray(lows), np.ascontiguousarray(highs)


def _decimals_around(digits: Digits, param: Param, values: npt.NDArray[Any]) -> list[tuple[int, int]]:
    """For each literal the greatest unscaled value that is not above it, and the least that is not below it."""
    most, unit = 10 ** digits[0], 10 ** digits[1]
    if param.type is Type.DOUBLE:  # Spark compares the doubles of both
        around = [_numbers_around(v, lambda u: u / unit, most) for v in values.tolist()]
    elif param.type is Type.DECIMAL:
        around = [(u * unit // 10**s, -(-u * unit // 10**s)) for u, s in values]
    else:
        around = [(v * unit, v * unit) for v in values.tolist()]
    return [(min(max(floor, -most), most), min(max(ceil, -most), most)) for floor, ceil in around]


def _integers_around(value: float) -> tuple[int, int]:
    """Greatest integer whose double is <= value, and least whose double is >= value (casting rounds)."""
    return _numbers_around(value, float, KEY_MAX)


def _numbers_around(value: float, double: Callable[[int], float], most: int) -> tuple[int, int]:
    """Greatest integer down to `-most - 2` whose double is <= value, and least up to `most + 1` whose double is >= value."""

    def last(holds_for: Callable[[float], bool]) -> int:
        low, high = -most - 2, most  # invariant: holds at `low` (a sentinel) and below
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if holds_for(double(middle)) else (low, middle - 1)
        return low

    return last(lambda f: f <= value), last(lambda f: f < value) + 1


# -- step 2: positions to rows ----------------------------------------------------------------------------------------


def settle(
    clauses: Sequence[Clause],
    placed: dict[Predicate, Ragged],
    ranks: Longs,
    literals: Literals,
    schema: Schema,
) -> Bound:
    """Rows of all filters of a shape."""
    n = literals.length
    alive = np.ones((len(clauses), n), bool)
    blocks: list[IntervalRows] = []
    # The clauses of an OR share what is ANDed to it, and then the sets themselves: `expand` makes no copies.
    known: dict[tuple[int, ...], list[Constraint]] = {}
    for number, clause in enumerate(clauses):
        found = []
        for column, unions in _by_column(clause.values).items():
            key = tuple(map(id, unions))
            if key not in known:
                known[key] = _constraints(column, unions, placed, ranks, schema, n)
            found += known[key]
        for _, _, sets, null in found:
            if not null:
                present = np.zeros(n, bool)
                present[sets.rows] = True
                alive[number] &= present
        for residual in clause.residuals:
            if is_constant(residual.node):
                alive[number] &= _constant_truth(residual, literals)
        blocks += [_block(number, *constraint, alive[number]) for constraint in found]
    if not blocks:
        none = np.zeros(0, np.int64)
        return Bound(IntervalRows(none, none, none, none, np.zeros(0, bool), none, none), alive)
    return Bound(IntervalRows(*(np.concatenate(parts) for parts in zip(*blocks, strict=True))), alive)


def _by_column(values: Sequence[Values]) -> dict[Column, list[Values]]:
    """The sets of each column; rows are put in the order of columns later."""
    out: dict[Column, list[Values]] = {}
    for each in values:
        out.setdefault(each.column, []).append(each)
    return out


Constraint = tuple[int, int, Ragged, bool]  # column, part, intervals, NULL allowed


def _constraints(
    column: Column, unions: list[Values], placed: dict[Predicate, Ragged], ranks: Longs, schema: Schema, n: int
) -> list[Constraint]:
    """The constraints of one clause on one column: one, or one per element asked of a set."""
    attribute, number = schema.attributes[column.attr], schema.number_of(column)
    resolved = {t: _resolve(t, placed[t], ranks, attribute.is_text, n) for v in unions for t in v.predicates}
    elements = [v for v in unions if v.is_elements]
    plain = [v for v in unions if not v.is_elements]
    out: list[Constraint] = []
    if plain:
        sets = intersection([union([resolved[t] for t in v.predicates]) for v in plain], n)
        null = all(any(t.null for t in v.predicates) for v in plain)
        if attribute.type is Type.BOOLEAN and not attribute.is_array:
            sets = _whole_booleans(sets)
        if elements and not null and sets.rows.size == n:
            pass  # "the array is there" follows from any element asked for
        else:
            out.append((number, 0, sets, null and not elements))
    for part, v in enumerate(elements, 1):
        out.append((number, part, _some_element(union([resolved[t] for t in v.predicates])), False))
    return out


def _some_element(sets: Ragged) -> Ragged:
    """Sets of elements; one of all keys is written as two intervals, because one stands for "the array is there"."""
    full = (sets.lo == KEY_MIN) & (sets.hi == KEY_MAX)
    if not full.any():
        return sets
    pile = Ragged(
        np.concatenate((sets.rows, sets.rows[full])),
        np.concatenate((np.where(full, KEY_MIN + 1, sets.lo), sets.lo[full])),
        np.concatenate((sets.hi, sets.lo[full])),
    )
    order = np.lexsort((pile.lo, pile.rows))
    return Ragged(*(a[order] for a in pile))


def _resolve(predicate: Predicate, sets: Ragged, ranks: Longs, is_text: bool, n: int) -> Ragged:
    if is_text and predicate.op != "all":
        sets = merged(Ragged(sets.rows, _ranked(sets.lo, KEY_MIN, ranks), _ranked(sets.hi, KEY_MAX, ranks)))
    if not predicate.complement or predicate.op == "true":  # the complement of a boolean was placed as its other value
        return sets
    return complement(sets, n)


def _ranked(positions: Longs, open_end: int, ranks: Longs) -> Longs:
    out, bounded = positions.copy(), positions != open_end
    inside = positions[bounded]
    out[bounded] = 4 * ranks[inside >> 2] + (inside & 3)
    return out


def _whole_booleans(sets: Ragged) -> Ragged:
    """Both booleans are every value."""
    whole = (sets.lo <= 0) & (sets.hi >= 1)
    return Ragged(sets.rows, np.where(whole, KEY_MIN, sets.lo), np.where(whole, KEY_MAX, sets.hi))


def _constant_truth(residual: Residual, literals: Literals) -> npt.NDArray[np.bool_]:
    def no_attribute(index: int) -> Nullable:
        raise AssertionError(f"a constant reads attribute {index}")

    scope = ProgramScope(literals.take([residual.node]), np.arange(literals.length), no_attribute, literals.zone)
    return holds(residual.node, residual.truth, scope)


def _block(clause: int, attr: int, part: int, sets: Ragged, null: bool, alive: npt.NDArray[np.bool_]) -> IntervalRows:
    keep = alive[sets.rows]
    if null:  # NULL and every value: no constraint
        full = np.zeros(alive.size, bool)
        full[sets.rows[(sets.lo == KEY_MIN) & (sets.hi == KEY_MAX)]] = True
        keep &= ~full[sets.rows]
        nulls = np.flatnonzero(alive & ~full)
    else:
        nulls = np.zeros(0, np.int64)
    filters = np.concatenate((nulls, sets.rows[keep]))
    return IntervalRows(
        filters,
        np.full(filters.size, clause),
        np.full(filters.size, attr),
        np.full(filters.size, part),
        np.arange(filters.size) < nulls.size,
        np.concatenate((np.zeros(nulls.size, np.int64), sets.lo[keep])),
        np.concatenate((np.zeros(nulls.size, np.int64), sets.hi[keep])),
    )
