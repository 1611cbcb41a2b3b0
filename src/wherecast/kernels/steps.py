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

Columns of a large batch come from beyond the caches. Then blocks are shorter, so that the processor computes one while it waits for the next.

An attribute whose values have 64 bits is read where Arrow has them: its register is that place. Others are widened into their register.

Where one step reads such attributes and writes the result, nothing is kept for the next step. Then all rows are one block: what it takes to
begin one is a fifth of the time of so short a loop.
"""

from __future__ import annotations

import numpy as np

from wherecast.kernels.arithmetic import (
    add_longs,
    add_numbers,
    divide_doubles,
    find_rests,
    find_units,
    keep_within,
    longs_to_doubles,
    multiply_longs,
    multiply_numbers,
    negate_doubles,
    round_to_floats,
    sizes_between,
    subtract_longs,
    subtract_numbers,
    truncate_doubles,
    words_to_keys,
)
from wherecast.kernels.arrays import Bools, Bytes, Ints, Longs
from wherecast.kernels.conditions import (
    are_equal,
    are_greater,
    are_not_less,
    are_null,
    are_true,
    choose_by,
    choose_by_one,
    choose_values,
    combine,
    decide,
    negate,
)
from wherecast.kernels.jit import Scalar, array_at, hot, hot_helper, inlined
from wherecast.kernels.step_kinds import (
    ADD,
    ADD_LEFT_LONG,
    ADD_LONGS,
    ADD_RIGHT_LONG,
    AS_INTS,
    AS_LONGS,
    BLOCK,
    BY_CHOICE,
    CHOOSE,
    CONSTANT_LEFT,
    DIVIDE,
    EITHER,
    EQUAL,
    EQUAL_LONGS,
    FIRST,
    GREATER,
    GREATER_LONGS,
    IN_TURN,
    IS_NULL,
    IS_TRUE,
    KEY,
    MANY,
    MULTIPLY,
    MULTIPLY_LEFT_LONG,
    MULTIPLY_LONGS,
    MULTIPLY_RIGHT_LONG,
    NEGATE,
    NOT,
    NOT_LESS,
    NOT_LESS_LONGS,
    NULL,
    ONE_FIRST,
    ONE_OTHER,
    REGISTER_WORDS,
    RESTS,
    SUBTRACT,
    SUBTRACT_LEFT_LONG,
    SUBTRACT_LONGS,
    SUBTRACT_RIGHT_LONG,
    TO_DOUBLE,
    TO_FLOAT,
    TRUNCATE,
    UNITS,
    WITHIN,
)


@hot
def run_steps(
    steps: Ints, reads: Ints, constants: Longs, is_direct: bool, columns: Longs, memory: Longs, out: Longs
) -> Scalar:
    """Compute the last step for all rows; returns whether some of them may be NULL.

    Args:
        steps: (n, 6) A step, the registers that it reads, who makes it, and which alternative of a choice is one number. Registers
            are numbered: attributes, constants, steps.
        reads: (n, 2) Rows of `columns`, and how their values are read.
        constants: (n,) As 64 bits.
        is_direct: No register is written but the last, and no constant is read row by row.
        columns: Where the attributes are, see `kernels.arrow`.
        memory: (`words_of` so many registers, and a byte for each row,) Used while it runs. If some rows may be NULL, the bytes
            at the end say which are not, else they mean nothing.
        out: (rows,) The values, doubles as the words that they are.
    """
    n_reads, n_constants = reads.shape[0], constants.size
    count = n_reads + n_constants + steps.shape[0]
    at, masks = memory[:count], memory[count : 2 * count]
    ones = memory.ctypes.data + 16 * count
    base = ones + BLOCK
    valid = array_at(base + 8 * REGISTER_WORDS * count, out.size, np.bool_)
    is_long = is_direct and not _have_nulls(reads, columns)
    if not is_long:
        array_at(ones, BLOCK, np.bool_)[:] = True
    for i in range(n_reads, n_reads + n_constants):
        at[i], masks[i] = base + 8 * REGISTER_WORDS * i, 0
        array_at(at[i], 1 if is_long else BLOCK, np.int64)[:] = constants[i - n_reads]
    last, may_be_null, rows = count - 1, False, max(out.size, 1) if is_long else _block_of(out.size)
    for start in range(0, out.size, rows):
        size = min(out.size - start, rows)
        for i in range(count):
            own = base + 8 * REGISTER_WORDS * i
            mask = valid.ctypes.data if is_long else own + 8 * BLOCK  # of a long block, which is the only one
            if i == last:
                own = out.ctypes.data + 8 * start
            if i < n_reads:
                at[i], masks[i] = _read(columns[reads[i, 0]], reads[i, 1], start, size, own, mask)
            elif i >= n_reads + n_constants:
                at[i] = own
                _do_next(steps, i - n_reads - n_constants, i, mask, size, at, masks, ones)
        if masks[last]:
            if not may_be_null:
                may_be_null = True
                valid[:start] = True
            known = array_at(masks[last], size, np.bool_)
            combine(known, known, True, valid[start : start + size])
        elif may_be_null:
            valid[start : start + size] = True
    return may_be_null


@inlined
def _block_of(rows: Scalar) -> Scalar:
    """How many of so many rows are taken at a time."""
    return BLOCK if rows < MANY else BLOCK // 2


@inlined
def _have_nulls(reads: Ints, columns: Longs) -> Scalar:
    """Whether an attribute that is read may be NULL."""
    for i in range(reads.shape[0]):
        column = columns[reads[i, 0]]
        if column[0] == 0 or column[2] != 0:
            return True
    return False


@hot_helper
def _do_next(
    steps: Ints, number: Scalar, own: Scalar, mask: Scalar, size: Scalar, at: Longs, masks: Longs, ones: Scalar
) -> None:
    """A step, unless it is left to a later one; and before a choice, the comparison that was left to it."""
    step, first = steps[number], own - number
    if step[4] != IN_TURN:
        return
    compared = step[1] - first if step[0] == CHOOSE else np.int64(-1)
    if compared < 0 or steps[compared, 4] == IN_TURN:
        _do_step(step, own, mask, size, at, masks, ones)
        return
    left = steps[compared]
    if masks[left[1]] == 0 and masks[left[2]] == 0 and masks[step[2]] == 0 and masks[step[3]] == 0:
        masks[own] = 0
        _choose_by(left, step, size, at, at[own])
        return
    _do_step(left, step[1], at[step[1]] + 8 * BLOCK, size, at, masks, ones)
    _do_step(step, own, mask, size, at, masks, ones)


@hot_helper
def _choose_by(left: Ints, step: Ints, size: Scalar, at: Longs, own: Scalar) -> None:
    """A comparison and the choice that it decides, without NULLs."""
    if left[4] != BY_CHOICE:
        _choose_by_constant(left, step, size, at, own)
        return
    kind, i, k = left[0], left[1], left[2]
    a, b = array_at(at[i], size, np.float64), array_at(at[k], size, np.float64)
    a_longs, b_longs = array_at(at[i], size, np.int64), array_at(at[k], size, np.int64)
    first, other = array_at(at[step[2]], size, np.int64), array_at(at[step[3]], size, np.int64)
    out = array_at(own, size, np.int64)
    if kind == GREATER:
        choose_by(GREATER, a, b, first, other, out)
    elif kind == NOT_LESS:
        choose_by(NOT_LESS, a, b, first, other, out)
    elif kind == GREATER_LONGS:
        choose_by(GREATER, a_longs, b_longs, first, other, out)
    elif kind == NOT_LESS_LONGS:
        choose_by(NOT_LESS, a_longs, b_longs, first, other, out)
    elif kind == EQUAL_LONGS:
        choose_by(EQUAL, a_longs, b_longs, first, other, out)
    else:
        choose_by(EQUAL, a, b, first, other, out)


@hot_helper
def _choose_by_constant(left: Ints, step: Ints, size: Scalar, at: Longs, own: Scalar) -> None:
    """The same if one side of the comparison is a constant."""
    kind, value, constant, chosen, other, alone = left[0], at[left[1]], at[left[2]], at[step[2]], at[step[3]], step[5]
    is_double = kind <= EQUAL
    above = kind == (GREATER if is_double else GREATER_LONGS)
    not_below = kind == (NOT_LESS if is_double else NOT_LESS_LONGS)
    if left[4] == CONSTANT_LEFT:
        value, constant = constant, value
        if above or not_below:
            # A constant is greater unless the value is not less, and not less unless that is greater.
            above, not_below, chosen, other = not_below, above, other, chosen
            alone = (ONE_FIRST + ONE_OTHER - alone) % (ONE_FIRST + ONE_OTHER)
    doubles, longs = array_at(value, size, np.float64), array_at(value, size, np.int64)
    double, long = array_at(constant, 1, np.float64)[0], array_at(constant, 1, np.int64)[0]
    first, second, out = (
        array_at(chosen, size, np.int64),
        array_at(other, size, np.int64),
        array_at(own, size, np.int64),
    )
    if above and is_double:
        choose_by_one(GREATER, doubles, double, first, second, alone, out)
    elif above:
        choose_by_one(GREATER, longs, long, first, second, alone, out)
    elif not_below and is_double:
        choose_by_one(NOT_LESS, doubles, double, first, second, alone, out)
    elif not_below:
        choose_by_one(NOT_LESS, longs, long, first, second, alone, out)
    elif is_double:
        choose_by_one(EQUAL, doubles, double, first, second, alone, out)
    else:
        choose_by_one(EQUAL, longs, long, first, second, alone, out)


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
        sizes_between(array_at(column[0] + 4 * first, size + 1, np.int32), values)
    if column[2] == 0:
        return own, np.int64(0)
    _spread_bits(array_at(column[2], (first + size + 7) >> 3, np.uint8), first, known)
    return own, mask


@inlined
def _widen(values: Ints, out: Longs) -> None:
    for i in range(out.size):
        out[i] = values[i]


@inlined
def _spread_bits(bits: Bytes, first: Scalar, out: Bools) -> None:
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
    fits = array_at(mask, size, np.bool_)
    if kind >= ADD_LONGS:
        others = _do_integers(step, fits, at, at[own])
    elif kind <= MULTIPLY_LEFT_LONG:
        others = _do_mixed(step, size, at, at[own])
    else:
        others = _do_doubles(step, fits, at, at[own])
    if others:
        if masks[own]:
            combine(fits, array_at(masks[own], size, np.bool_), False, fits)
        masks[own] = mask


@hot_helper
def _do_mixed(step: Ints, size: Scalar, at: Longs, own: Scalar) -> Scalar:
    """Arithmetic on doubles, of which one side may be integers; all results fit."""
    kind, i, k = step[0], step[1], step[2]
    a, b, out = array_at(at[i], size, np.float64), array_at(at[k], size, np.float64), array_at(own, size, np.float64)
    a_longs, b_longs = array_at(at[i], size, np.int64), array_at(at[k], size, np.int64)
    if kind == ADD:
        add_numbers(a, b, out)
    elif kind == ADD_RIGHT_LONG:
        add_numbers(a, b_longs, out)
    elif kind == ADD_LEFT_LONG:
        add_numbers(a_longs, b, out)
    elif kind == SUBTRACT:
        subtract_numbers(a, b, out)
    elif kind == SUBTRACT_RIGHT_LONG:
        subtract_numbers(a, b_longs, out)
    elif kind == SUBTRACT_LEFT_LONG:
        subtract_numbers(a_longs, b, out)
    elif kind == MULTIPLY:
        multiply_numbers(a, b, out)
    elif kind == MULTIPLY_RIGHT_LONG:
        multiply_numbers(a, b_longs, out)
    else:
        multiply_numbers(a_longs, b, out)
    return np.int64(0)


@hot_helper
def _do_doubles(step: Ints, fits: Bools, at: Longs, own: Scalar) -> Scalar:
    """Other steps that read doubles, or make some; returns how many results do not fit."""
    kind, size = step[0], fits.size
    a, b = array_at(at[step[1]], size, np.float64), array_at(at[step[2]], size, np.float64)
    a_longs, out, out_longs = (
        array_at(at[step[1]], size, np.int64),
        array_at(own, size, np.float64),
        array_at(own, size, np.int64),
    )
    if kind == DIVIDE:
        return divide_doubles(a, b, out, fits)
    if kind == TRUNCATE:
        return truncate_doubles(a, b[0], array_at(at[step[3]], size, np.float64)[0], out_longs, fits)
    if kind == TO_DOUBLE:
        longs_to_doubles(a_longs, out)
    elif kind == TO_FLOAT:
        round_to_floats(a, out)
    elif kind == NEGATE:
        negate_doubles(a, out)
    elif kind == KEY:
        words_to_keys(a_longs, out_longs)
    elif kind == GREATER:
        are_greater(a, b, out_longs)
    elif kind == NOT_LESS:
        are_not_less(a, b, out_longs)
    else:
        are_equal(a, b, out_longs)
    return np.int64(0)


@hot_helper
def _do_integers(step: Ints, fits: Bools, at: Longs, own: Scalar) -> Scalar:
    """Steps on integers; returns how many results do not fit."""
    kind, size = step[0], fits.size
    a, b, out = (
        array_at(at[step[1]], size, np.int64),
        array_at(at[step[2]], size, np.int64),
        array_at(own, size, np.int64),
    )
    if kind == ADD_LONGS:
        return add_longs(a, b, out, fits)
    if kind == SUBTRACT_LONGS:
        return subtract_longs(a, b, out, fits)
    if kind == MULTIPLY_LONGS:
        return multiply_longs(a, b, out, fits)
    if kind == WITHIN:
        return keep_within(a, b[0], array_at(at[step[3]], size, np.int64)[0], out, fits)
    if kind == GREATER_LONGS:
        are_greater(a, b, out)
    elif kind == NOT_LESS_LONGS:
        are_not_less(a, b, out)
    elif kind == EQUAL_LONGS:
        are_equal(a, b, out)
    elif kind == UNITS:
        find_units(a, b[0], out)
    elif kind == RESTS:
        find_rests(a, b[0], out)
    else:
        subtract_numbers(a, b, out)
    return np.int64(0)


@inlined
def _meet(first: Scalar, other: Scalar, mask: Scalar, size: Scalar) -> Scalar:
    """Where the mask of rows that two masks have is: it is one of them, or made."""
    if first in (0, other):
        return other
    if other == 0:
        return first
    a, b = array_at(first, size, np.bool_), array_at(other, size, np.bool_)
    combine(a, b, False, array_at(mask, size, np.bool_))
    return mask


@hot_helper
def _do_condition(step: Ints, own: Scalar, mask: Scalar, size: Scalar, at: Longs, masks: Longs, ones: Scalar) -> None:
    """Steps on conditions, and those that look at NULLs themselves."""
    kind, i, k = step[0], step[1], step[2]
    a, b, out = array_at(at[i], size, np.int64), array_at(at[k], size, np.int64), array_at(at[own], size, np.int64)
    has_a, has_b = array_at(masks[i] or ones, size, np.bool_), array_at(masks[k] or ones, size, np.bool_)
    made = array_at(mask, size, np.bool_)
    masks[own] = 0
    if kind == NOT:
        masks[own] = masks[i]
        negate(a, out)
    elif kind == NULL:
        masks[own] = mask
        made[:] = False
    elif kind == IS_NULL:
        are_null(has_a, out)
    elif kind == IS_TRUE:
        are_true(a, has_a, out)
    elif kind == CHOOSE:
        _choose(step, own, mask, size, at, masks, ones)
    elif kind == FIRST:
        if masks[i] == 0 and own + 1 < at.size:  # of the last step, the values are wanted in `out`
            at[own] = at[i]
            return
        choose_values(has_a, a, b, out)
        if masks[i] and masks[k]:
            masks[own] = mask
            combine(has_a, has_b, True, made)
    elif masks[i] or masks[k]:
        masks[own] = mask
        decide(a, has_a, b, has_b, kind == EITHER, out, made)
    else:
        combine(a, b, kind == EITHER, out)


@hot_helper
def _choose(step: Ints, own: Scalar, mask: Scalar, size: Scalar, at: Longs, masks: Longs, ones: Scalar) -> None:
    """The second where the first is true, else the third."""
    i, k, m = step[1], step[2], step[3]
    condition, out = array_at(at[i], size, np.int64), array_at(at[own], size, np.int64)
    a, b = array_at(at[k], size, np.int64), array_at(at[m], size, np.int64)
    if masks[i] == 0 and masks[k] == 0 and masks[m] == 0:
        choose_values(condition, a, b, out)
        return
    use_first = array_at(mask + BLOCK, size, np.bool_)
    are_true(condition, array_at(masks[i] or ones, size, np.bool_), use_first)
    choose_values(use_first, a, b, out)
    if masks[k] or masks[m]:
        has_a, has_b = array_at(masks[k] or ones, size, np.bool_), array_at(masks[m] or ones, size, np.bool_)
        choose_values(use_first, has_a, has_b, array_at(mask, size, np.bool_))
        masks[own] = mask
