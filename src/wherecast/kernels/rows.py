"""One box against one event: what is left to do for a candidate.

Theory of operation
-------------------
The rows of a clause stand in the order of their attributes, those of one constraint in the order of their intervals (see
`index.boxes`). A constraint of one row is compared. One of several rows is bisected, as is the way to its end, so an IN of
10,000 costs 28 steps. An event's list of codes, which is sorted, is bisected, too.

Most boxes have few rows. How many, and whether one refuses the event, cannot be predicted well, so up to four rows are compared without a branch, and up to eight four at a time.

Rows may be kept once per distinct row, with a number for each place (see `index.packed`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Ints, Longs
from wherecast.kernels.jit import ONE, Scalar, hot_helper, inlined, jit

#: Up to so many rows are compared one after the other, and so many of them without a branch in between.
FEW_ROWS, AT_ONCE = 8, 4


class Rows(NamedTuple):
    """The rows of all clauses; kernels unpack it and may be given a plain tuple."""

    ptr: Ints  # (clauses + 1,) rows of clause c are ptr[c]:ptr[c + 1]
    number: npt.NDArray[Any]  # (rows,) place of each row in what follows, unsigned; or empty: its own
    attr: npt.NDArray[Any]  # attribute, or ~attribute when the next row belongs to the same constraint
    lo: Ints
    hi: Ints  # or empty: equal to lo


class Points(NamedTuple):
    """Events as they were coded, see `index.boxes.EventCodes`; kernels unpack it and may be given a plain tuple."""

    codes: Ints
    list_ptr: Longs
    list_codes: Ints


@inlined
def row_place(number: npt.NDArray[Any], row: Scalar) -> Scalar:
    """Where a row is kept."""
    return np.int64(number[np.uint64(row)]) if number.size > 0 else np.int64(row)


@inlined
def row_attribute(attr: npt.NDArray[Any], place: Scalar) -> Scalar:
    """Attribute of a row."""
    a = np.int64(attr[place])
    return a if a >= 0 else ~a


@inlined
def row_end(lo: Ints, hi: Ints, place: Scalar) -> Scalar:
    """Upper end of a row's interval."""
    return hi[place] if hi.size > 0 else lo[place]


@inlined
def find_row(number: npt.NDArray[Any], attr: npt.NDArray[Any], lo: Ints, hi: Ints, first: Scalar, end: Scalar,
             attribute: Scalar, code: Scalar) -> Scalar:  # fmt: skip
    """First of the rows first:end that is of a later attribute, or of this one and ends at the code or above."""
    while first < end:
        middle = (first + end) >> 1
        place = row_place(number, middle)
        a = row_attribute(attr, place)
        if a < attribute or (a == attribute and row_end(lo, hi, place) < code):
            first = middle + 1
        else:
            end = middle
    return first


@inlined
def list_meets(list_ptr: Longs, list_codes: Ints, code: Scalar, low: Scalar, high: Scalar) -> Scalar:
    """Whether the list that a negative code names has a code in low .. high."""
    at, end = list_ptr[~code], list_ptr[~code + 1]
    size = end - at
    if size == 0:
        return False
    # The first code that is not below `low`, without a branch: which half it is in cannot be predicted.
    while size > 1:
        half = size >> 1
        at += np.int64(list_codes[at + half - 1] < low) * half
        size -= half
    at += np.int64(list_codes[at] < low)
    return at < end and list_codes[at] <= high


@inlined
def long_box_holds(number: npt.NDArray[Any], attr: npt.NDArray[Any], lo: Ints, hi: Ints, codes: Ints, list_ptr: Longs,
                   list_codes: Ints, event: Scalar, row: Scalar, end: Scalar) -> Scalar:  # fmt: skip
    """Whether an event satisfies the rows row:end, whatever they are."""
    held = False
    while row < end:
        place = row_place(number, row)
        a = np.int64(attr[place])
        attribute = a if a >= 0 else ~a
        code = np.int64(codes[event, attribute])
        if a < 0 and code >= 0:
            row = find_row(number, attr, lo, hi, row, end, attribute, code)
            place = row_place(number, row) if row < end else place
            if row == end or row_attribute(attr, place) != attribute or lo[place] > code:
                return False
            row = find_row(number, attr, lo, hi, row, end, attribute + 1, 0)
            continue
        if code >= 0:
            held = lo[place] <= code <= row_end(lo, hi, place)
        elif not held:
            held = list_meets(list_ptr, list_codes, code, lo[place], row_end(lo, hi, place))
        if a >= 0:
            if not held:
                return False
            held = False
        row += 1
    return True


@inlined
def several_rows_hold(number: npt.NDArray[Any], attr: npt.NDArray[Any], lo: Ints, hi: Ints, codes: Ints, list_ptr: Longs,
                      list_codes: Ints, event: Scalar, row: Scalar, end: Scalar) -> Scalar:  # fmt: skip
    """Whether an event satisfies the rows row:end, some at a time if they are few and the event has no lists there."""
    if end - row > FEW_ROWS:
        return long_box_holds(number, attr, lo, hi, codes, list_ptr, list_codes, event, row, end)
    holds: Scalar = True
    held: Scalar = False
    some: Scalar = np.int32(0)
    for first in range(row, end, AT_ONCE):
        for at in range(first, first + AT_ONCE):
            place = np.uint64(row_place(number, min(at, end - 1)))
            a = np.int64(attr[place])
            code = codes[np.uint64(event), np.uint64(a ^ (a >> 63))]
            some |= code
            held |= (lo[place] <= code) & (code <= row_end(lo, hi, place))
            holds &= held | (a < 0) | (at >= end)
            held &= a < 0
    if some < 0:
        return long_box_holds(number, attr, lo, hi, codes, list_ptr, list_codes, event, row, end)
    return holds


@inlined
def box_holds(ptr: Ints, number: npt.NDArray[Any], attr: npt.NDArray[Any], lo: Ints, hi: Ints, codes: Ints, list_ptr: Longs,
              list_codes: Ints, event: Scalar, clause: Scalar) -> Scalar:  # fmt: skip
    """Whether an event satisfies a clause.

    Places are unsigned, so that nothing asks whether they count from the end; and up to AT_ONCE rows take no branch at all.
    """
    row, end = np.uint64(ptr[np.uint64(clause)]), np.uint64(ptr[np.uint64(clause) + ONE])
    if end - row > np.uint64(AT_ONCE):
        rows = np.int64(row), np.int64(end)
        return several_rows_hold(number, attr, lo, hi, codes, list_ptr, list_codes, event, *rows)
    own = codes[event]
    holds: Scalar = True
    held: Scalar = False
    some: Scalar = np.int32(0)
    for i in range(AT_ONCE if end > row else 0):
        at = row + np.uint64(i)
        place = np.uint64(row_place(number, min(at, end - ONE)))
        a = np.int64(attr[place])
        goes_on = a < 0
        code = own[np.uint64(a ^ (a >> 63))]
        some |= code
        held |= (lo[place] <= code) & (code <= row_end(lo, hi, place))
        holds &= held | goes_on | (at >= end)
        held &= goes_on
    if some < 0:
        rows = np.int64(row), np.int64(end)
        return long_box_holds(number, attr, lo, hi, codes, list_ptr, list_codes, event, *rows)
    return holds


@hot_helper
def fewest_values(ptr: Ints, number: npt.NDArray[Any], attr: npt.NDArray[Any], lo: Ints) -> Scalar:
    """In how many attributes an event needs a value to satisfy any of the clauses; where that is 0, not all are looked at."""
    fewest: Scalar = np.int64(1) << 32
    for clause in range(ptr.size - 1):
        count: Scalar = np.int64(0)
        counted: Scalar = np.int64(-1)
        goes_on: Scalar = False
        for row in range(ptr[clause], ptr[clause + 1]):
            place = row_place(number, row)
            a = row_attribute(attr, place)
            if not goes_on and lo[place] > 0 and a != counted:
                count += 1
                counted = a
            goes_on = attr[place] < 0
        fewest = min(fewest, count)
        if fewest == 0:
            break
    return fewest


@jit
def find_bad_row(attr: npt.NDArray[Any], lo: Ints, hi: Ints, widths: Ints, far: Scalar) -> Scalar:
    """The first row that is not an interval of codes of an attribute, or -1; `far` is an end that is open."""
    for place in range(attr.size):
        attribute = row_attribute(attr, place)
        low, high = lo[place], row_end(lo, hi, place)
        if attribute >= widths.size or low < 0 or low > high or low >= widths[attribute]:
            return place
        if low == 0 and high > 0:  # an interval of values cannot begin at NULL
            return place
        if high >= widths[attribute] and high != far:
            return place
    return -1


@jit
def find_bad_clause(
    ptr: npt.NDArray[Any], number: npt.NDArray[Any], attr: npt.NDArray[Any], lo: Ints, hi: Ints,
    several: npt.NDArray[np.bool_],
) -> Scalar:  # fmt: skip
    """The first clause whose rows are not constraints in the order of attributes, or -1.

    The intervals of a constraint climb and do not meet, and the last one ends it. A clause has one constraint on an
    attribute, unless `several` says that it may have more.
    """
    for clause in range(ptr.size - 1):
        goes_on: Scalar = False
        before, top = np.int64(-1), np.int64(0)
        for row in range(ptr[clause], ptr[clause + 1]):
            place = row_place(number, row)
            attribute = row_attribute(attr, place)
            if goes_on and (attribute != before or lo[place] <= top):
                return clause
            if not goes_on and (attribute < before or (attribute == before and not several[attribute])):
                return clause
            before, top = attribute, np.int64(row_end(lo, hi, place))
            goes_on = attr[place] < 0
        if goes_on:
            return clause
    return -1
