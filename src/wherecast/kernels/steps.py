"""Expressions over plain numbers, computed for a batch of events in one call.

Theory of operation
-------------------
The naive way computes an expression node by node: each makes an array as long as the batch, which travels through the caches, and each needs a
few calls of Python, which take as long as a thousand rows. Compiling a loop for each expression would avoid both, but takes a second for
each that is first seen.

Here an expression is a list of *steps*, made once (`language.steps`). The kernel takes a block of rows at a time and does all steps for it. A step reads and
writes *registers*: arrays of `BLOCK` 64-bit values that stay in the first cache. So all steps of a block read the events' memory once, and what it takes
to tell a step from another is paid once a block.

Numbers, moments and days are registers of 64 bits; so are conditions, which are 0 or 1. A register may have a mask of the rows that are not
NULL; a register without a mask has no NULL, and masks that nobody needs are never made. A value in a row that is NULL may be anything.

An attribute whose values have 64 bits is read where Arrow has them: its register is that place. Others are widened into their register.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wherecast.kernels.arrays import Bools, Ints, Longs
from wherecast.kernels.jit import Scalar, array_at, hot, hot_helper, inlined
from wherecast.kernels.step_kinds import (
    ADD,
    ADD_LEFT_LONG,
    ADD_LONGS,
    ADD_RIGHT_LONG,
    AS_INTS,
    AS_LONGS,
    BLOCK,
    CHOOSE,
    DIVIDE,
    EITHER,
    EQUAL_LONGS,
    FIRST,
    GREATER,
    GREATER_LONGS,
    IS_NULL,
    IS_TRUE,
    KEY,
    MULTIPLY,
    MULTIPLY_LEFT_LONG,
    MULTIPLY_LONGS,
    MULTIPLY_RIGHT_LONG,
    NEGATE,
    NOT,
    NOT_LESS,
    NOT_LESS_LONGS,
    NULL,
    REGISTER_WORDS,
    SUBTRACT,
    SUBTRACT_LEFT_LONG,
    SUBTRACT_LONGS,
    SUBTRACT_RIGHT_LONG,
    TIMES,
    TO_DOUBLE,
    TO_FLOAT,
    TRUNCATE,
    UNITS,
    WITHIN,
)


@hot
def run_steps(
    steps: Ints, reads: Ints, constants: Longs, columns: Longs, memory: Longs, out: Longs, valid: Bools
) -> Scalar:
    """Compute the last step for all rows; returns whether some of them may be NULL, else `valid` means nothing.

    Args:
        steps: (n, 4) A step and the registers that it reads. Registers are numbered: attributes, constants, steps.
        reads: (n, 2) Rows of `columns`, and how their values are read.
        constants: (n,) As 64 bits.
        columns: Where the attributes are, see `kernels.arrow`.
        memory: (`words_of` so many registers,) Used while it runs.
        out: (rows,) The values, doubles as the words that they are.
        valid: (rows,) Which of them are not NULL.
    """
    n_reads, n_constants = reads.shape[0], constants.size
    count = n_reads + n_constants + steps.shape[0]
    at, masks = memory[:count], memory[count : 2 * count]
    ones = memory.ctypes.data + 16 * count
    base = ones + BLOCK
    array_at(ones, BLOCK, np.bool_)[:] = True
    for i in range(n_reads, n_reads + n_constants):
        at[i], masks[i] = base + 8 * REGISTER_WORDS * i, 0
        array_at(at[i], BLOCK, np.int64)[:] = constants[i - n_reads]
    last, may_be_null = count - 1, False
    for start in range(0, out.size, BLOCK):
        size = min(out.size - start, BLOCK)
        for i in range(count):
            own = base + 8 * REGISTER_WORDS * i
            mask = own + 8 * BLOCK
            if i == last:
                own = out.ctypes.data + 8 * start
            if i < n_reads:
                at[i], masks[i] = _read(columns[reads[i, 0]], reads[i, 1], start, size, own, mask)
            elif i >= n_reads + n_constants:
                at[i] = own
                _do_step(steps[i - n_reads - n_constants], i, mask, size, at, masks, ones)
        if masks[last]:
            if not may_be_null:
                may_be_null = True
                valid[:start] = True
            known = array_at(masks[last], size, np.bool_)
            _join(known, known, valid[start : start + size])
        elif may_be_null:
            valid[start : start + size] = True
    return may_be_null


@hot_helper
def _read(column: Longs, how: Scalar, start: Scalar, size: Scalar, own: Scalar, mask: Scalar) -> Scalar:
    """Where a block of an attribute and its mask are; if need be, they are made at `own` and `mask`."""
    first = column[3] + start
    values, known = array_at(own, size, np.int64), array_at(mask, size, np.bool_)
    if column[0] == 0:  # no row has a value
        known[:] = False
        return own, mask
    if how == AS_LONGS:
        own = column[0] + 8 * first
    elif how == AS_INTS:
        _widen(array_at(column[0] + 4 * first, size, np.int32), values)
    else:
        _take_sizes(array_at(column[0] + 4 * first, size + 1, np.int32), values)
    if column[2] == 0:
        return own, np.int64(0)
    _spread_bits(array_at(column[2], (first + size + 7) >> 3, np.uint8), first, known)
    return own, mask


@inlined
def _widen(values: Ints, out: Longs) -> None:
    for i in range(out.size):
        out[i] = values[i]


@inlined
def _take_sizes(offsets: Ints, out: Longs) -> None:
    for i in range(out.size):
        out[i] = offsets[i + 1] - offsets[i]


@inlined
def _spread_bits(bits: Any, first: Scalar, out: Bools) -> None:
    for i in range(out.size):
        out[i] = (bits[(first + i) >> 3] >> ((first + i) & 7)) & 1


@hot_helper
def _do_step(step: Ints, own: Scalar, mask: Scalar, size: Scalar, at: Longs, masks: Longs, ones: Scalar) -> None:
    """One step for one block; at `mask` there is room for two masks."""
    kind, i, k = step[0], step[1], step[2]
    if kind >= NOT:
        _do_condition(step, own, mask, size, at, masks, ones)
        return
    masks[own] = _meet(masks[i], masks[k], mask + BLOCK, size)
    if kind >= ADD_LONGS:
        a, b = array_at(at[i], size, np.int64), array_at(at[k], size, np.int64)
        _do_integers(step, a, b, own, mask, at, masks)
        return
    a, b, out = (
        array_at(at[i], size, np.float64),
        array_at(at[k], size, np.float64),
        array_at(at[own], size, np.float64),
    )
    if kind <= MULTIPLY_LEFT_LONG:
        _do_arithmetic(kind, a, b, array_at(at[i], size, np.int64), array_at(at[k], size, np.int64), out)
    elif kind == DIVIDE:
        _mask_further(_divide(a, b, out, array_at(mask, size, np.bool_), masks[own]), own, mask, masks)
    elif kind == TO_DOUBLE:
        _to_double(array_at(at[i], size, np.int64), out)
    elif kind == TO_FLOAT:
        _to_float(a, out)
    elif kind == NEGATE:
        _negate(a, out)
    else:
        _do_whole(step, a, b, own, mask, at, masks)


@hot_helper
def _do_arithmetic(kind: Scalar, a: Any, b: Any, a_longs: Any, b_longs: Any, out: Any) -> None:
    if kind == ADD:
        _add(a, b, out)
    elif kind == ADD_RIGHT_LONG:
        _add(a, b_longs, out)
    elif kind == ADD_LEFT_LONG:
        _add(a_longs, b, out)
    elif kind == SUBTRACT:
        _subtract(a, b, out)
    elif kind == SUBTRACT_RIGHT_LONG:
        _subtract(a, b_longs, out)
    elif kind == SUBTRACT_LEFT_LONG:
        _subtract(a_longs, b, out)
    elif kind == MULTIPLY:
        _multiply(a, b, out)
    elif kind == MULTIPLY_RIGHT_LONG:
        _multiply(a, b_longs, out)
    else:
        _multiply(a_longs, b, out)


@hot_helper
def _do_whole(step: Ints, a: Any, b: Any, own: Scalar, mask: Scalar, at: Longs, masks: Longs) -> None:
    """Steps that make integers or conditions of doubles."""
    kind, out = step[0], array_at(at[own], a.size, np.int64)
    if kind == TRUNCATE:
        below = array_at(at[step[3]], a.size, np.float64)
        has_nulls = _truncate(a, b[0], below[0], out, array_at(mask, a.size, np.bool_), masks[own])
        _mask_further(has_nulls, own, mask, masks)
    elif kind == KEY:
        _key(array_at(at[step[1]], a.size, np.int64), out)
    elif kind == GREATER:
        _greater(a, b, out)
    elif kind == NOT_LESS:
        _not_less(a, b, out)
    else:
        _equal(a, b, out)


@hot_helper
def _do_integers(step: Ints, a: Any, b: Any, own: Scalar, mask: Scalar, at: Longs, masks: Longs) -> None:
    kind, out = step[0], array_at(at[own], a.size, np.int64)
    fits = array_at(mask, a.size, np.bool_)
    if kind == ADD_LONGS:
        _mask_further(_add_longs(a, b, out, fits, masks[own]), own, mask, masks)
    elif kind == SUBTRACT_LONGS:
        _mask_further(_subtract_longs(a, b, out, fits, masks[own]), own, mask, masks)
    elif kind == MULTIPLY_LONGS:
        _mask_further(_multiply_longs(a, b, out, fits, masks[own]), own, mask, masks)
    elif kind == WITHIN:
        high = array_at(at[step[3]], a.size, np.int64)
        _mask_further(_within(a, b[0], high[0], out, fits, masks[own]), own, mask, masks)
    elif kind == GREATER_LONGS:
        _greater_longs(a, b, out)
    elif kind == NOT_LESS_LONGS:
        _not_less_longs(a, b, out)
    elif kind == EQUAL_LONGS:
        _equal_longs(a, b, out)
    elif kind == UNITS:
        _units(a, b[0], out)
    elif kind == TIMES:
        _multiply(a, b, out)
    else:
        _subtract(a, b, out)


# -- masks ---------------------------------------------------------------------------------------------------------------


@hot_helper
def _meet(first: Scalar, other: Scalar, mask: Scalar, size: Scalar) -> Scalar:
    """Where the mask of rows that two masks have is: it is one of them, or made."""
    if first in (0, other):
        return other
    if other == 0:
        return first
    a, b, out = array_at(first, size, np.bool_), array_at(other, size, np.bool_), array_at(mask, size, np.bool_)
    for i in range(out.size):
        out[i] = a[i] & b[i]
    return mask


@inlined
def _mask_further(has_nulls: Scalar, own: Scalar, mask: Scalar, masks: Longs) -> None:
    """Take the mask that a step has made, if it was needed."""
    if has_nulls:
        masks[own] = mask


@inlined
def _keep_known(others: Scalar, fits: Bools, known: Scalar) -> Scalar:
    """Leave only rows that were not NULL before; returns whether others did not fit."""
    if others and known:
        before = array_at(known, fits.size, np.bool_)
        for i in range(fits.size):
            fits[i] &= before[i]
    return others > 0


# -- doubles -------------------------------------------------------------------------------------------------------------


@hot_helper
def _add(a: Any, b: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = a[i] + b[i]


@hot_helper
def _subtract(a: Any, b: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = a[i] - b[i]


@hot_helper
def _multiply(a: Any, b: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = a[i] * b[i]


@hot_helper
def _divide(a: Any, b: Any, out: Any, fits: Bools, known: Scalar) -> Scalar:
    zeros = np.int64(0)
    for i in range(out.size):
        is_zero = b[i] == 0.0
        fits[i] = not is_zero
        zeros += is_zero
        out[i] = a[i] / (1.0 if is_zero else b[i])
    return _keep_known(zeros, fits, known)


@hot_helper
def _to_double(a: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = a[i]


@hot_helper
def _to_float(a: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = np.float32(a[i])


@hot_helper
def _negate(a: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = -a[i]


_LAST = 2**63 - 1


@hot_helper
def _truncate(a: Any, above: Scalar, below: Scalar, out: Any, fits: Bools, known: Scalar) -> Scalar:
    """The whole parts of doubles between two limits; 2 ** 63 is as good as the last integer."""
    others = np.int64(0)
    for i in range(out.size):
        is_inside = above < a[i] < below
        fits[i] = is_inside
        others += not is_inside
        out[i] = (_LAST if a[i] >= 2.0**63 else np.int64(a[i])) if is_inside else 0
    return _keep_known(others, fits, known)


_INFINITY = 0x7FF0000000000000


@hot_helper
def _key(words: Any, out: Any) -> None:
    """As `events.keys.float_keys`."""
    for i in range(out.size):
        size = words[i] & np.int64(_LAST)
        key = words[i] ^ ((words[i] >> 63) & np.int64(_LAST))
        out[i] = np.int64(_LAST) if size > np.int64(_INFINITY) else (np.int64(0) if size == 0 else key)


@hot_helper
def _greater(a: Any, b: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = (a[i] > b[i]) | ((a[i] != a[i]) & (b[i] == b[i]))


@hot_helper
def _not_less(a: Any, b: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = (a[i] >= b[i]) | (a[i] != a[i])


@hot_helper
def _equal(a: Any, b: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = (a[i] == b[i]) | ((a[i] != a[i]) & (b[i] != b[i]))


# -- integers ------------------------------------------------------------------------------------------------------------


@hot_helper
def _add_longs(a: Any, b: Any, out: Any, fits: Bools, known: Scalar) -> Scalar:
    """Overflow: both have one sign, the sum has the other."""
    others = np.int64(0)
    for i in range(out.size):
        total = a[i] + b[i]
        is_wrong = ((a[i] ^ total) & (b[i] ^ total)) < 0
        out[i], fits[i] = total, not is_wrong
        others += is_wrong
    return _keep_known(others, fits, known)


@hot_helper
def _subtract_longs(a: Any, b: Any, out: Any, fits: Bools, known: Scalar) -> Scalar:
    others = np.int64(0)
    for i in range(out.size):
        total = a[i] - b[i]
        is_wrong = ((a[i] ^ b[i]) & (a[i] ^ total)) < 0
        out[i], fits[i] = total, not is_wrong
        others += is_wrong
    return _keep_known(others, fits, known)


@hot_helper
def _multiply_longs(a: Any, b: Any, out: Any, fits: Bools, known: Scalar) -> Scalar:
    """Doubles are off by less than one part in 2 ** 52: far from the limit they decide, near it a division does."""
    others = np.int64(0)
    for i in range(out.size):
        size = abs(np.float64(a[i]) * np.float64(b[i]))
        product = a[i] * b[i]
        is_wrong = size >= 2.0**62
        out[i], fits[i] = product, not is_wrong
        others += is_wrong
    if others:
        for i in range(out.size):
            if not fits[i]:
                size = abs(np.float64(a[i]) * np.float64(b[i]))
                # Divided by the larger one, which is neither 0 nor -1 here.
                large, small = (a[i], b[i]) if abs(np.float64(a[i])) >= abs(np.float64(b[i])) else (b[i], a[i])
                fits[i] = size <= 2.0**64 and out[i] % large == 0 and out[i] // large == small
    return _keep_known(others, fits, known)


@hot_helper
def _within(a: Any, low: Scalar, high: Scalar, out: Any, fits: Bools, known: Scalar) -> Scalar:
    others = np.int64(0)
    for i in range(out.size):
        is_inside = low <= a[i] <= high
        out[i], fits[i] = a[i], is_inside
        others += not is_inside
    return _keep_known(others, fits, known)


@hot_helper
def _greater_longs(a: Any, b: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = a[i] > b[i]


@hot_helper
def _not_less_longs(a: Any, b: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = a[i] >= b[i]


@hot_helper
def _equal_longs(a: Any, b: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = a[i] == b[i]


@hot_helper
def _units(a: Any, unit: Scalar, out: Any) -> None:
    """Whole units, by products of doubles: a division takes three times as long.

    The quotient of a double is off by less than one as long as a unit is a second or more; the rest tells which way.
    """
    inverse = 1.0 / np.float64(unit)
    for i in range(out.size):
        whole = np.int64(np.floor(np.float64(a[i]) * inverse))
        rest = a[i] - whole * unit  # of the lowest unit, which begins before 64 bits do, both wrap around
        out[i] = whole - np.int64(rest < 0) + np.int64(rest >= unit)


# -- conditions, and what looks at NULLs itself --------------------------------------------------------------------------


@hot_helper
def _do_condition(step: Ints, own: Scalar, mask: Scalar, size: Scalar, at: Longs, masks: Longs, ones: Scalar) -> None:
    kind, i, k, m = step[0], step[1], step[2], step[3]
    a, b, out = array_at(at[i], size, np.int64), array_at(at[k], size, np.int64), array_at(at[own], size, np.int64)
    has_a, has_b = array_at(masks[i] or ones, size, np.bool_), array_at(masks[k] or ones, size, np.bool_)
    made = array_at(mask, size, np.bool_)
    masks[own] = 0
    if kind == NOT:
        masks[own] = masks[i]
        _not(a, out)
    elif kind == NULL:
        masks[own] = mask
        made[:] = False
    elif kind == IS_NULL:
        _is_null(has_a, out)
    elif kind == IS_TRUE:
        _is_true(a, has_a, out)
    elif kind == CHOOSE:
        c, has_c = array_at(at[m], size, np.int64), array_at(masks[m] or ones, size, np.bool_)
        if masks[i]:
            _choose(a, has_a, b, c, out)
        else:
            _choose_by(a, b, c, out)
        if masks[k] or masks[m]:
            masks[own] = mask
            _choose_mask(a, has_a, has_b, has_c, made)
    elif kind == FIRST:
        _choose_by(has_a, a, b, out)
        if masks[i] and masks[k]:
            masks[own] = mask
            _join(has_a, has_b, made)
    elif masks[i] or masks[k]:
        masks[own] = mask
        _decide(a, has_a, b, has_b, kind == EITHER, out, made)
    else:
        _combine(a, b, kind == EITHER, out)


@hot_helper
def _not(a: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = 1 - a[i]


@hot_helper
def _is_null(known: Bools, out: Any) -> None:
    for i in range(out.size):
        out[i] = not known[i]


@hot_helper
def _is_true(a: Any, known: Bools, out: Any) -> None:
    for i in range(out.size):
        out[i] = (a[i] != 0) & known[i]


@hot_helper
def _choose(condition: Any, known: Bools, a: Any, b: Any, out: Any) -> None:
    for i in range(out.size):
        first, other = a[i], b[i]  # both are read, so that nothing branches
        out[i] = first if (condition[i] != 0) & known[i] else other


@hot_helper
def _choose_mask(condition: Any, known: Bools, has_a: Bools, has_b: Bools, out: Bools) -> None:
    for i in range(out.size):
        first, other = has_a[i], has_b[i]
        out[i] = first if (condition[i] != 0) & known[i] else other


@hot_helper
def _choose_by(use_first: Any, a: Any, b: Any, out: Any) -> None:
    for i in range(out.size):
        first, other = a[i], b[i]
        out[i] = first if use_first[i] else other


@hot_helper
def _join(a: Bools, b: Bools, out: Bools) -> None:
    for i in range(out.size):
        out[i] = a[i] | b[i]


@hot_helper
def _combine(a: Any, b: Any, is_or: Scalar, out: Any) -> None:
    for i in range(out.size):
        out[i] = a[i] | b[i] if is_or else a[i] & b[i]


@hot_helper
def _decide(a: Any, has_a: Bools, b: Any, has_b: Bools, is_or: Scalar, out: Any, known: Bools) -> None:
    """AND and OR where NULLs are: one side may decide alone."""
    winner = np.int64(is_or)
    for i in range(out.size):
        is_decided = ((a[i] == winner) & has_a[i]) | ((b[i] == winner) & has_b[i])
        known[i] = is_decided | (has_a[i] & has_b[i])
        out[i] = winner if is_decided else 1 - winner
