"""Similarity of vectors: cosines as `language.syntax.vectors` defines them, and a quick look that settles nearly all of them.

Theory of operation
-------------------
The naive way: for each pair of vectors, three sums of doubles from the first number to the last (`cosines_into`). Each addition waits
for the one before, so a pair of 384 numbers takes half a microsecond.

*A quick look.* Most pairs are far from the limit that they are compared with. A sum of floats of 32 bits in any order tells that: by
Higham (Accuracy and Stability of Numerical Algorithms, section 3.1) it differs from the true one by at most `n u / (1 - n u)` times the product of the two
lengths, u = 2^-24, whatever the order and with or without fused multiplication. So sums are compared with two bounds around the limit (see
`index.similar`), and only those between them are computed exactly. The answer is the same as the naive one.

*Many pairs.* The sums of a block of events and a block of vectors are one matrix product. `collect_above` finds those that pass their
bound: it looks at 64 neighbours at a time without a branch, because hardly any passes. Always 64, so that
LLVM makes vectors of them: 0.25 ns a sum, against 1.2 in a loop whose end it does not know. What is left of a row is looked at one by one.

*Pruning.* A sum of the first numbers alone bounds the whole: by Cauchy and Schwarz, what is left is at most the product of the lengths of
the two rests. Where limits are high, a third of the numbers settles nearly all pairs (`collect_near`); the others are decided one by one, or, if they are
many, the product is completed.

*Few pairs.* Where other conditions leave few candidates, `hold_pairs` reads the two vectors of each.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wherecast.kernels.arrays import Bools, Ints, Longs
from wherecast.kernels.jit import Scalar, hot, inlined, reordered

#: How a similarity is compared with its limit.
AT_LEAST, ABOVE, BELOW, AT_MOST = range(4)
#: Sums that are looked at together.
_TOGETHER = 64


@inlined
def _sums(a: Any, b: Any) -> Any:
    """The products of two vectors, and the squares of each, summed in their order."""
    dot, own, other = 0.0, 0.0, 0.0
    for i in range(a.size):
        x, y = np.float64(a[i]), np.float64(b[i])
        dot += x * y
        own += x * x
        other += y * y
    return dot, own, other


@inlined
def _cosine(a: Any, b: Any) -> Scalar:
    """NaN for a vector of zeros."""
    dot, own, other = _sums(a, b)
    if own == 0.0 or other == 0.0:
        return math.nan
    return min(1.0, max(-1.0, dot / math.sqrt(own * other)))


@inlined
def _compares(value: Scalar, op: Scalar, limit: Scalar) -> Scalar:
    if op == AT_LEAST:
        return value >= limit
    if op == ABOVE:
        return value > limit
    return value < limit if op == BELOW else value <= limit


@hot
def cosines_into(vectors: Any, others: Any, rows: Longs, places: Longs, out: Any) -> None:
    """The similarity of vectors[rows[i]] and others[places[i]]; NaN where one is zero."""
    for i in range(rows.size):
        out[i] = _cosine(vectors[rows[i]], others[places[i]])


@hot
def squares_into(vectors: Any, out: Any) -> None:
    """The sum of the squares of each vector."""
    for i in range(vectors.shape[0]):
        total = 0.0
        for j in range(vectors.shape[1]):
            x = np.float64(vectors[i, j])
            total += x * x
        out[i] = total


@reordered
def _quick(a: Any, b: Any) -> Scalar:
    """The bounds hold for every order."""
    total = np.float32(0)
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@hot
def hold_pairs(
    units: Any, vectors: Any, others: Any, rows: Longs, places: Longs, bounds: Any, limits: Any, ops: Any, out: Bools
) -> None:
    """Whether the similarity of vectors[rows[i]] and others[places[i]] passes limits[i], as ops[i] says.

    `units` are the vectors with length 1, a row of NaN for zeros; `bounds[:, i]` are two sums, below the first of which the similarity is
    surely below the limit, and from the second on surely above it.
    """
    for i in range(rows.size):
        quick = _quick(units[rows[i]], others[places[i]])
        if quick < bounds[0, i]:
            out[i] = ops[i] >= BELOW
        elif quick >= bounds[1, i]:
            out[i] = ops[i] < BELOW
        else:
            value = _cosine(vectors[rows[i]], others[places[i]])
            out[i] = _compares(value, ops[i], limits[i])


@hot
def collect_above(
    sums: Any,
    sign: Scalar,
    reached: Any,
    sure: Any,
    first: Scalar,
    rows: Ints,
    found: Ints,
    is_sure: Bools,
    n: Scalar,
    at: Longs,
) -> Scalar:
    """Pairs of a block whose sum, times the sign, reaches `reached`: their row, their number, and whether that is sure.

    Written from place n on; returns how many there are now. Where there is no room for a row, it stops and leaves the row in at[0].
    """
    width = sums.shape[1]
    for row in range(at[0], sums.shape[0]):
        if n + width > rows.size:
            at[0] = row
            return n
        for block in range(-(-width // _TOGETHER)):
            begin = block * _TOGETHER
            end = min(begin + _TOGETHER, width)
            if end - begin == _TOGETHER:
                hits = np.int32(0)
                for j in range(_TOGETHER):
                    hits += np.int32(sums[row, begin + j] * sign >= reached[begin + j])
                if hits == 0:
                    continue
            for j in range(begin, end):
                value = sums[row, j] * sign
                if value >= reached[j]:
                    rows[n] = row
                    found[n] = first + j
                    is_sure[n] = value >= sure[j]
                    n += 1
    at[0] = sums.shape[0]
    return n


@hot
def collect_near(
    sums: Any, reached: Any, rests: Any, row_rests: Any, first: Scalar, rows: Longs, found: Longs
) -> Scalar:
    """Pairs whose sum over their first numbers may still reach `reached`, and their number; -1 if there is no room for them.

    `rests` and `row_rests` are at least the lengths of what was left out, of vectors and of rows.
    """
    n = 0
    for row in range(sums.shape[0]):
        rest = row_rests[row]
        for block in range(-(-sums.shape[1] // _TOGETHER)):
            begin = block * _TOGETHER
            end = min(begin + _TOGETHER, sums.shape[1])
            if end - begin == _TOGETHER:
                hits = np.int32(0)
                for j in range(_TOGETHER):
                    hits += np.int32(sums[row, begin + j] + rest * rests[begin + j] >= reached[begin + j])
                if hits == 0:
                    continue
            for j in range(begin, end):
                if sums[row, j] + rest * rests[j] >= reached[j]:
                    if n == rows.size:
                        return -1
                    rows[n] = row
                    found[n] = first + j
                    n += 1
    return n


@hot
def add_products(
    words: Longs, weights: Longs, ptr: Longs, conditions: Ints, asked: Longs, sums: Longs, touched: Ints
) -> Scalar:
    """Add to `sums` what each word of a text has in common with the conditions that ask for it; returns how many are `touched`.

    Word w is asked for by conditions[ptr[w]:ptr[w + 1]], with these weights `asked`. All weights are positive.
    """
    n = 0
    for i in range(words.size):
        for j in range(ptr[words[i]], ptr[words[i] + 1]):
            condition = conditions[j]
            if sums[condition] == 0:
                touched[n] = condition
                n += 1
            sums[condition] += weights[i] * asked[j]
    return n


@hot
def keep_similar(
    own: Scalar, squares: Any, limits: Any, ops: Any, sums: Longs, touched: Ints, n: Scalar, out: Ints
) -> Scalar:
    """Of the conditions that were touched, those that hold; `sums` is zero afterwards. Returns how many there are."""
    kept = 0
    for i in range(n):
        condition = touched[i]
        value = min(1.0, np.float64(sums[condition]) / math.sqrt(own * squares[condition]))
        sums[condition] = 0
        if _compares(value, ops[condition], limits[condition]):
            out[kept] = condition
            kept += 1
    return kept
