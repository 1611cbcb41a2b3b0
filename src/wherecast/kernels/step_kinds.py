"""The numbers of steps (see `kernels.steps`), for those who write them: what only checks filters does not load Numba."""

from __future__ import annotations

#: How the values of an attribute are read: as they are, widened from 32 bits, or as sizes of lists.
AS_LONGS, AS_INTS, AS_SIZES = range(3)

#: Steps on doubles; of two doubles, of a double and an integer, and of an integer and a double.
ADD, ADD_RIGHT_LONG, ADD_LEFT_LONG = 0, 1, 2
SUBTRACT, SUBTRACT_RIGHT_LONG, SUBTRACT_LEFT_LONG = 3, 4, 5
MULTIPLY, MULTIPLY_RIGHT_LONG, MULTIPLY_LEFT_LONG = 6, 7, 8
#: A quotient is NULL if the divisor is zero.
DIVIDE = 9
TO_DOUBLE, TO_FLOAT, NEGATE = 10, 11, 12
#: The whole part of a double between two others; NULL outside. The key by which doubles are ordered.
TRUNCATE, KEY = 13, 14
#: Spark's order of doubles, in which NaN is the greatest.
GREATER, NOT_LESS, EQUAL = 15, 16, 17
#: Steps on integers; sums, differences and products are NULL where 64 bits do not hold them, `WITHIN` where it is not between two others.
ADD_LONGS, SUBTRACT_LONGS, MULTIPLY_LONGS, WITHIN = 20, 21, 22, 23
GREATER_LONGS, NOT_LESS_LONGS, EQUAL_LONGS = 24, 25, 26
COMPARISONS = (GREATER, NOT_LESS, EQUAL, GREATER_LONGS, NOT_LESS_LONGS, EQUAL_LONGS)
#: Who makes a step: it is made in its turn, or it is a comparison that the choice which asks for it makes; of these, some have a constant on one side.
IN_TURN, BY_CHOICE, CONSTANT_RIGHT, CONSTANT_LEFT = range(4)
#: Which alternative of such a choice is a constant: none, the first, or the other. If both are, `ONE_OTHER`.
NO_ONE, ONE_FIRST, ONE_OTHER = range(3)
#: How often a positive integer is in another, rounded down: the day of a moment. What is left of it: the time of day. A difference that 64 bits are
#: known to hold.
UNITS, RESTS, DIFFERENCE = 27, 28, 29
#: Conditions.
NOT, BOTH, EITHER, IS_NULL, IS_TRUE = 30, 31, 32, 33, 34
#: The second where the first is true, else the third; the first, or the second where that is NULL; NULL.
CHOOSE, FIRST, NULL = 35, 36, 37

#: By step, the registers of which it reads only the first number: 1 is the second register.
SINGLE = {TRUNCATE: (1, 2), WITHIN: (1, 2), UNITS: (1,), RESTS: (1,)}

#: Rows at a time: a handful of registers fit into the first cache.
BLOCK = 1024
#: Rows from which on half as many are taken: with a million, `datediff` takes 0.8 to 1.2 ms instead of 1.3 to 1.5; with 200,000, 0.18 instead of 0.14.
MANY = 1 << 19
#: Words of memory for a register: its values, its mask of bytes, and the mask that its operands have in common.
REGISTER_WORDS = BLOCK + 2 * (BLOCK // 8)


def words_of(registers: int) -> int:
    """Words of memory that so many registers need: where they are, a mask without NULL, and the registers."""
    return 2 * registers + BLOCK // 8 + REGISTER_WORDS * registers
