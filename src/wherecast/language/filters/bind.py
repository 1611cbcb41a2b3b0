"""Binding: a shape's clauses with the literals of many filters make positions.

Theory of operation
-------------------
Work goes in two steps, because the position of a string is its rank among all strings of the batch. `place` turns every
predicate of a shape into intervals for all its filters at once, strings still as provisional ids of a pool. Once the pool is sorted,
`resolve` moves the sets of the whole batch to ranks and takes complements. Unions and intersections follow in
`kernels.clauses`, filter by filter.

The sets of many filters are `Ragged`: closed integer intervals, one set per row, all of them in three arrays. `merged` brings
any pile of intervals to canonical form (sorted, disjoint, not adjacent), `complement` takes the gaps. Rows without an interval
are empty sets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Bools, Longs
from wherecast.language.evaluate import holds
from wherecast.language.events.keys import DAY_US, KEY_MAX, KEY_MIN, days_around, float_keys, only_walls
from wherecast.language.events.kinds import decimal_text
from wherecast.language.events.schema import Attribute, Schema
from wherecast.language.events.types import FLOATS, INTEGERS, MOMENTS, Digits, Type
from wherecast.language.events.zone import Zone
from wherecast.language.expression import Param
from wherecast.language.filters.columns import Reading, marked
from wherecast.language.filters.filters import AFTER, AT, BEFORE
from wherecast.language.filters.normalize import Predicate, Residual
from wherecast.language.functions.table import FUNCTIONS
from wherecast.language.nullable import Nullable, as_moments
from wherecast.language.syntax.literals import Literals, ProgramScope
from wherecast.language.syntax.patterns import find_form, prefix_end
from wherecast.language.syntax.skeletons import TextNumbers
from wherecast.language.syntax.words import longest_word


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
    rows, lo, hi = pile if keep.all() else (a[keep] for a in pile)
    if rows.size < 2 or np.all(rows[1:] > rows[:-1]):
        return Ragged(rows, lo, hi)
    if not np.all((rows[1:] > rows[:-1]) | ((rows[1:] == rows[:-1]) & (lo[1:] >= lo[:-1]))):
        order = np.lexsort((lo, rows))
        rows, lo, hi = rows[order], lo[order], hi[order]
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


# -- strings -----------------------------------------------------------------------------------------------------------


class StringPool:
    """Strings in order of arrival; ranked when all are in."""

    def __init__(self) -> None:
        self.ids = TextNumbers[str]()

    def intern(self, strings: Sequence[str]) -> Longs:
        return np.fromiter(map(self.ids.__getitem__, strings), np.int64, len(strings))

    def ranked(self) -> tuple[list[str], Longs]:
        """The strings in order, and the rank of each id. Code point order is UTF-8 byte order."""
        ordered = sorted(self.ids)
        ranks = np.empty(len(ordered), np.int64)
        ranks[self.intern(ordered)] = np.arange(len(ordered))
        return ordered, ranks


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
    values, numbers = literals.values(param)
    lo, hi = _bounds(op, attribute, predicate, param, values, literals.zone)
    return single(lo[numbers], hi[numbers])


def _place_elements(predicate: Predicate, literals: Literals, schema: Schema, pool: StringPool) -> Ragged:
    """Elements within one bound or two. Those of texts begin at the least text: the place below it says "it is there"."""
    attribute = schema.attributes[predicate.column.attr]
    bounds = zip(predicate.op.split(), predicate.params, strict=True)
    sets = [
        place(replace(predicate, op=op, params=(param,), is_some=False), literals, schema, pool) for op, param in bounds
    ]
    if not attribute.is_text:
        return _between(sets, literals.length)
    # Provisional ids have no order: `resolve` drops what is empty.
    first, last = (sets[0], sets[-1]) if sets else (everything(literals.length),) * 2
    text = decimal_text(1 - 10 ** attribute.digits[0]) if attribute.row.has_digits else ""
    least = 4 * pool.intern([text])[0] + AT
    return Ragged(np.arange(literals.length), np.where(first.lo == KEY_MIN, least, first.lo), last.hi)


def _between(bounds: Sequence[Ragged], n: int) -> Ragged:
    """What is within all bounds, each of which leaves one interval of a row, or none."""
    lo, hi = np.full(n, KEY_MIN), np.full(n, KEY_MAX)
    for bound in bounds:
        own_lo, own_hi = np.full(n, KEY_MAX), np.full(n, KEY_MIN)
        own_lo[bound.rows], own_hi[bound.rows] = bound.lo, bound.hi
        lo, hi = np.maximum(lo, own_lo), np.minimum(hi, own_hi)
    return single(lo, hi)


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
        # Not merged here: provisional ids have no order. `resolve` merges after ranking.
        owners, points = [], []
        for param in predicate.params:
            values, ptr = literals.listed(param, predicate.common)
            points.append(4 * pool.intern(_read_literals(predicate, values)) + AT)
            owners.append(np.repeat(np.arange(n), np.diff(ptr)))
        at = np.concatenate(points)
        return Ragged(np.concatenate(owners), at, at)
    values, numbers = literals.values(predicate.params[0])
    if predicate.op == "prefix":
        _, lo, hi = _place_prefixes(predicate, values, pool)
        return Ragged(np.arange(n), lo[numbers], hi[numbers])
    places = 4 * pool.intern(_read_literals(predicate, values))
    return Ragged(np.arange(n), *string_bounds(predicate.op, places[numbers]))


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
    """The strings that literals stand for: patterns without their wildcards, texts to be looked for with their marks, words."""
    if predicate.column.reading is Reading.WORDS:
        return [longest_word(text) for text in values.tolist()]
    if predicate.pattern:
        forms = [find_form(predicate.pattern, pattern) for pattern in values.tolist()]
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


# -- step 2: ranks and complements --------------------------------------------------------------------------------------


def resolve(pile: Ragged, is_text: Bools, is_complement: Bools, ranks: Longs, n: int) -> Ragged:
    """The sets of all atoms of a batch, in canonical form; flags are by atom.

    Strings get their ranks. Complements are taken among the values that are there.
    """
    text = is_text[pile.rows]
    if text.any():
        lo, hi = (_ranked(ends, open_end, text, ranks) for ends, open_end in ((pile.lo, KEY_MIN), (pile.hi, KEY_MAX)))
        pile = Ragged(pile.rows, lo, hi)
    sets = merged(pile)
    chosen = np.flatnonzero(is_complement)
    if not chosen.size:
        return sets
    place = np.empty(n, np.int64)
    place[chosen] = np.arange(chosen.size)
    inside = is_complement[sets.rows]
    rest = complement(Ragged(place[sets.rows[inside]], sets.lo[inside], sets.hi[inside]), chosen.size)
    both = [np.concatenate((a[~inside], b)) for a, b in zip(sets, (chosen[rest.rows], rest.lo, rest.hi), strict=True)]
    order = np.argsort(both[0], kind="stable")
    return Ragged(*(array[order] for array in both))


def _ranked(positions: Longs, open_end: int, text: Bools, ranks: Longs) -> Longs:
    out, bounded = positions.copy(), text & (positions != open_end)
    inside = positions[bounded]
    out[bounded] = 4 * ranks[inside >> 2] + (inside & 3)
    return out


def place_constant(residual: Residual, literals: Literals) -> Ragged:
    """A condition without attributes: every value where it holds, none elsewhere."""

    def no_attribute(index: int) -> Nullable:
        raise AssertionError(f"a constant reads attribute {index}")

    scope = ProgramScope(literals.take([residual.node]), np.arange(literals.length), no_attribute, literals.zone)
    rows = np.flatnonzero(holds(residual.node, residual.truth, scope))
    return Ragged(rows, np.full(rows.size, KEY_MIN, np.int64), np.full(rows.size, KEY_MAX, np.int64))
