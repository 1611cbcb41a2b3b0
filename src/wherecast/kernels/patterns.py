"""Texts against LIKE patterns, many pairs at once.

Theory of operation
-------------------
A pattern is bytes: ANY stands for `%`, ONE for `_`, neither of which is a byte of UTF-8; the rest is compared. The walk is greedy. At a
mismatch it goes back to the last `%` and lets it take one more character. Earlier ones need not be tried again: what they took
is the shortest possible, so whatever follows the last `%` has the most text to be found in.

The time is at most the length of the text times that of the pattern's longest piece, so callers keep long patterns away.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Bools, Bytes, Ints, Longs
from wherecast.kernels.jit import Scalar, hot, inlined

#: Stand for `%` and `_`.
ANY, ONE = 0xFF, 0xFE
#: What a test says.
NO, YES, UNKNOWN = 0, 1, 2


@inlined
def character_end(data: Bytes | bytes, at: Scalar, end: Scalar) -> Scalar:
    """Where the character that begins at `at` ends: continuation bytes are 0b10xxxxxx."""
    at += 1
    while at < end and (data[at] & 0xC0) == 0x80:
        at += 1
    return at


@inlined
def small(byte: Scalar, fold: Scalar) -> Scalar:
    """A byte, a capital ASCII letter as the small one if `fold`."""
    return byte + 32 if fold and 65 <= byte <= 90 else byte


@inlined
def is_like(
    data: Bytes | bytes, start: Scalar, end: Scalar, fold: Scalar, pattern: Bytes, first: Scalar, last: Scalar
) -> Scalar:
    """Whether data[start:end] matches pattern[first:last]."""
    at, p = start, first
    again, resume = np.int64(-1), start  # behind the last ANY, and the text it has not taken yet
    while at < end:
        if p < last and pattern[p] == ANY:
            p += 1
            again, resume = p, at
        elif p < last and pattern[p] == ONE:
            p += 1
            at = character_end(data, at, end)
        elif p < last and pattern[p] == small(data[at], fold):
            p += 1
            at += 1
        elif again >= 0:
            resume = character_end(data, resume, end)
            at, p = resume, again
        else:
            return False
    while p < last and pattern[p] == ANY:
        p += 1
    return p == last


@hot
def match_texts(
    offsets: npt.NDArray[Any], data: Bytes, valid: npt.NDArray[np.bool_], fold: bool, rows: Longs, pattern_ptr: Longs,
    patterns: Bytes, numbers: Ints, out: Bytes,
) -> None:  # fmt: skip
    """out[i]: does text rows[i] match pattern numbers[i]? UNKNOWN where it is not valid; `valid` is empty where all are."""
    for i in range(rows.size):
        row, number = rows[i], numbers[i]
        if valid.size > 0 and not valid[row]:
            out[i] = UNKNOWN
        else:
            out[i] = is_like(
                data, np.int64(offsets[row]), np.int64(offsets[row + 1]), fold, patterns, pattern_ptr[number],
                pattern_ptr[number + 1],
            )  # fmt: skip


# -- by codes ----------------------------------------------------------------------------------------------------------


class CodeTests(NamedTuple):
    """Tests of residuals that the codes of an event answer: does its set in a column have a code? Kernels unpack it."""

    ptr: Longs  # (residuals + 1,) tests of residual r are ptr[r]:ptr[r + 1]
    column: Ints  # (tests,)
    code: Ints  # (tests,)
    truth: Bytes  # (tests,) row of `admitted`
    admitted: Bools  # (truths, answers)


@inlined
def has_code(codes: Ints, list_ptr: Longs, list_codes: Ints, column: Scalar, code: Scalar) -> Scalar:
    """Whether an event has a code in a column of a set; UNKNOWN if the text is NULL."""
    own = codes[column]
    if own >= 0:
        return np.int64(UNKNOWN) if own == 0 else np.int64(own == code)
    low, high = list_ptr[~own], list_ptr[~own + 1]
    while low < high:
        middle = (low + high) >> 1
        if list_codes[middle] < code:
            low = middle + 1
        else:
            high = middle
    return np.int64(low < list_ptr[~own + 1] and list_codes[low] == code)


@inlined
def codes_hold(tests: CodeTests, residual: Scalar, codes: Ints, list_ptr: Longs, list_codes: Ints) -> Scalar:
    """Whether all tests of a residual hold for an event."""
    ptr, column, code, truth, admitted = tests
    for test in range(ptr[residual], ptr[residual + 1]):
        if not admitted[truth[test], has_code(codes, list_ptr, list_codes, column[test], code[test])]:
            return False
    return True


@hot
def hold_codes(
    tests: CodeTests, codes: Ints, list_ptr: Longs, list_codes: Ints, event_ids: Longs, residual_ids: Ints, out: Bools
) -> None:
    """out[i]: do all tests of residual residual_ids[i] hold for event event_ids[i]? See `index.boxes.EventCodes`."""
    for i in range(out.size):
        out[i] = codes_hold(tests, residual_ids[i], codes[event_ids[i]], list_ptr, list_codes)


@hot
def settle_codes(
    tests: CodeTests, residuals: Ints, clauses: Ints, n: int, codes: Ints, list_ptr: Longs, list_codes: Ints
) -> Scalar:
    """Keep those of clauses[:n] whose residuals' tests hold for one event; how many these are."""
    kept = 0
    for i in range(n):
        residual = residuals[clauses[i]]
        if residual < 0 or codes_hold(tests, residual, codes, list_ptr, list_codes):
            clauses[kept] = clauses[i]
            kept += 1
    return kept


# -- one event ---------------------------------------------------------------------------------------------------------


class Tests(NamedTuple):
    """The text tests of residuals; kernels unpack it and may be given a plain tuple."""

    is_settled: Bools  # (residuals,) those of which nothing is left to evaluate
    program: Ints  # (residuals,) the program of each
    reads: Longs  # (programs,) how often a residual reads text
    has_rest: Bools  # (programs,) whether a residual is more than its tests
    ptr: Longs  # (residuals + 1,) tests of residual r are ptr[r]:ptr[r + 1]
    column: Ints  # (tests,) the text that is tested
    pattern: Ints  # (tests,)
    truth: Bytes  # (tests,) row of `admitted`
    admitted: Bools  # (truths, answers)
    pattern_ptr: Longs  # pattern p is patterns[pattern_ptr[p]:pattern_ptr[p + 1]]
    patterns: Bytes


@inlined
def needs_evaluation(is_settled: Bools, residual: Scalar) -> Scalar:
    """Whether a residual (negative: none) has to be evaluated."""
    return residual >= 0 and not is_settled[residual]


@hot
def ask_tests(tests: Tests, residuals: Ints, clauses: Ints, n: int, place: Ints, wanted: Ints) -> tuple[Scalar, Scalar]:
    """What settling clauses[:n], by their residuals, takes: how often text is read (-1: nothing is left to settle), and texts.

    The number of distinct texts that are tested is returned, `wanted` lists them, and `place`, -1 for all before, tells
    where each stands there.
    """
    is_settled, program, reads, _, ptr, column, _, _, _, _, _ = tests
    total, n_wanted = np.int64(-1), 0
    for i in range(n):
        residual = residuals[clauses[i]]
        if not needs_evaluation(is_settled, residual):
            continue
        total = max(total, 0) + reads[program[residual]]
        for test in range(ptr[residual], ptr[residual + 1]):
            if place[column[test]] < 0:
                place[column[test]] = n_wanted
                wanted[n_wanted] = column[test]
                n_wanted += 1
    return total, n_wanted


@inlined
def tests_hold(tests: Tests, residual: Scalar, place: Ints, bounds: Longs, texts: bytes) -> Scalar:
    """Whether all text tests of a residual hold; text k is texts[bounds[2 * k]:bounds[2 * k + 1]], NULL if these are -1."""
    _, _, _, _, ptr, column, pattern, truth, admitted, pattern_ptr, patterns = tests
    for test in range(ptr[residual], ptr[residual + 1]):
        at = 2 * place[column[test]]
        answer = np.int64(UNKNOWN)
        if bounds[at] >= 0:
            first, last = pattern_ptr[pattern[test]], pattern_ptr[pattern[test] + 1]
            answer = np.int64(is_like(texts, bounds[at], bounds[at + 1], False, patterns, first, last))
        if not admitted[truth[test], answer]:
            return False
    return True


@hot
def settle_tests(
    tests: Tests, residuals: Ints, clauses: Ints, n: int, place: Ints, wanted: Ints, n_wanted: int, bounds: Longs,
    texts: bytes, rest: Ints,
) -> tuple[Scalar, Scalar]:  # fmt: skip
    """Keep those of clauses[:n] whose text tests hold; those of which more is to be evaluated are moved to `rest`.

    `place` and `wanted` are as `ask_tests` left them, and cleared. Returns how many are kept, and how many moved.
    """
    is_settled, program, _, has_rest, _, _, _, _, _, _, _ = tests
    n_kept, n_rest = 0, 0
    for i in range(n):
        residual = residuals[clauses[i]]
        if needs_evaluation(is_settled, residual):
            if not tests_hold(tests, residual, place, bounds, texts):
                continue
            if has_rest[program[residual]]:
                rest[n_rest] = clauses[i]
                n_rest += 1
                continue
        clauses[n_kept] = clauses[i]
        n_kept += 1
    for k in range(n_wanted):
        place[wanted[k]] = -1
    return n_kept, n_rest
