"""Guards: one constraint of a clause in 32 bits, beside its slot in a leaf without bitmaps.

Theory of operation
-------------------
A box is in four places of memory; looking at it means waiting for them. So a leaf without bitmaps says beside each slot what refuses
most events: the rarest constraint that the way to the leaf has not settled, as a column and the first and last of at most 256 *buckets*
of its codes. Guards of a leaf are read one after the other.

What a bucket holds decides how much guards leave over. Equal shares of the codes would be simple, but events and the ends of intervals crowd:
with values by Zipf's law most events fall into the first bucket, and most intervals begin there. So buckets have about equal shares of *events* (half by
the sample, half by the number of codes), and a code that many events have is a bucket of its own. A table says the bucket of each code, or of
each few neighbouring codes where there are many. NULL, code 0, always has a bucket of its own.

*Long lists.* A text of 145 words meets most of 256 buckets, so these refuse little. In a column where events have long lists, a guard of a single
code has one of 16,384 *fine* buckets instead, by a hash of the code, and the event's list marks those that it meets. Such a guard is told by its
first bucket being after its last. In such a column every event counts as a list, also one with a single code, and other guards let it pass. Columns of one
attribute share their marks.

Where the guard is all that is left to check, it often decides: for every code between the first and the last bucket, and in these for buckets of
a single code.

*All but some.* A `<>` lets nearly every event pass, so it seldom spares anything but the box, and that only if it decides. Its guard goes round: the first bucket is after
the last one, and what it lets pass is from the first one on and up to the last one, but for NULL. Its two ends are beside the codes that are left out.

*Second guards.* Where the first guards of a leaf let many events pass, each slot has a second guard, of its next rarest constraint. The second guards of a leaf follow the
first ones. A clause is found if both let the event pass, and decided if both decide.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Ints, Longs, Singles, Words
from wherecast.kernels.jit import GUARD_LANES, ONE, ZERO, Scalar, config, inlined, jit, match_guards, match_guards_32

#: Parts of a packed guard: column | whether nothing else is left to check (of a pair, whether it says all of its constraint) | first bucket | last bucket.
DECIDES_AT, FIRST_AT, LAST_AT = 15, 16, 24
#: A guard that lets all events pass; of column 0.
_PASS_ALL = 255 << LAST_AT
#: Bits of the buckets of a guard.
GUARD_BITS = 8
#: In an event's buckets: that the bucket has one code. A list of codes has no bucket of its own; which ones it meets is marked.
SINGLE = 1 << GUARD_BITS
NO_BUCKET = -(1 << 31)

#: In `near` of a column: the low bits that its buckets leave out, and above these the number of its fine buckets' marks, from 1; 0: it has none.
SHIFT_BITS = 6
SHIFT_MASK = (1 << SHIFT_BITS) - 1
#: Words of the marks of a column's fine buckets. They come after the marks of all columns' buckets.
FINE_WORDS = 256
_HALF = 128
#: Places for an event's buckets at least: those of so few columns are in registers where the machine has AVX-512.
LEAST_OWN = 32
#: Whether several guards are looked at at a time.
_AT_ONCE = GUARD_LANES > 0 and not config.DISABLE_JIT
_B16, _LOW16 = np.uint64(16), np.uint64(0xFFFF)

#: The buckets of codes as tables have them: bucket | SINGLE.
Buckets = npt.NDArray[np.int16]


@inlined
def near_bucket(code: Scalar, shift: Scalar) -> Scalar:
    """The place of a code in the table of its column, or its bucket without one: 0 for code 0 alone, then 2**shift codes each."""
    return (code + (np.int64(1) << shift) - 1) >> shift


@inlined
def bucket_of(code: Scalar, column: Scalar, near: Ints, bucket_ptr: Longs, buckets: Buckets) -> Scalar:
    """The bucket of a code and SINGLE, if it has no other code; tables of earlier versions are empty."""
    shift = near[column] & SHIFT_MASK
    place = near_bucket(code, shift)
    if bucket_ptr.size == 0 or bucket_ptr[column] == bucket_ptr[column + 1]:
        return place | SINGLE if shift == 0 or code == 0 else place
    return np.int64(buckets[bucket_ptr[column] + place])


@inlined
def fine_bucket(code: Scalar) -> Scalar:
    """One of 16,384, spread over neighbouring codes."""
    return ((np.uint64(code) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(50)) & np.uint64(0x3FFF)


@inlined
def mark_fine(codes: Ints, first: Scalar, end: Scalar, words: Scalar, met: Words) -> None:
    """Mark the fine buckets of codes first:end, in the words from `words` on."""
    for i in range(words, words + FINE_WORDS):
        met[i] = ZERO
    for k in range(first, end):
        bucket = fine_bucket(codes[k])
        met[words + np.int64(bucket >> np.uint64(6))] |= ONE << (bucket & np.uint64(63))


@inlined
def load_buckets(codes: Ints, list_ptr: Longs, list_codes: Ints, event: Scalar, near: Ints, bucket_ptr: Longs, buckets: Buckets,
                 out: Ints, met: Words) -> Scalar:  # fmt: skip
    """The buckets of an event in all columns; whether it has a list in one of them. `met` has a bit for each bucket that the list meets."""
    if buckets.size == 0 and bucket_ptr.size > 0 and load_codes(codes, event, out):
        return False
    has_lists = False
    for c in range(near.size):
        code = np.int64(codes[event, c])
        fine = np.int64(near[c]) >> SHIFT_BITS
        if code == 0 and fine == 0:
            out[c] = SINGLE  # bucket 0 has no other code
            continue
        if code >= 0 and fine == 0:
            out[c] = bucket_of(code, c, near, bucket_ptr, buckets)
            continue
        out[c] = NO_BUCKET
        has_lists = True
        if fine > 0:
            words = 4 * near.size + FINE_WORDS * (fine - 1)
            if c > 0 and np.int64(near[c - 1]) >> SHIFT_BITS == fine:
                continue  # marked already
            if code < 0:
                mark_fine(list_codes, list_ptr[~code], list_ptr[~code + 1], words, met)
            else:
                mark_fine(codes[event], c, c + 1, words, met)
            continue
        mark_list(list_ptr, list_codes, code, c, near, bucket_ptr, buckets, met)
    return has_lists


@inlined
def load_codes(codes: Ints, event: Scalar, out: Ints) -> Scalar:
    """The buckets of an event where each code is one, several at a time; False if the event has a list, and then nothing is said."""
    some: Scalar = np.int32(0)
    for c in range(codes.shape[1]):
        out[c] = codes[event, c] | np.int32(SINGLE)
        some |= codes[event, c]
    return some >= 0


@inlined
def mark_list(list_ptr: Longs, list_codes: Ints, code: Scalar, c: Scalar, near: Ints, bucket_ptr: Longs, buckets: Buckets,
              met: Words) -> None:  # fmt: skip
    """Mark the buckets that an event's list in a column meets."""
    for i in range(4 * c, 4 * c + 4):
        met[i] = ZERO
    for k in range(list_ptr[~code], list_ptr[~code + 1]):
        bucket = bucket_of(np.int64(list_codes[k]), c, near, bucket_ptr, buckets) & 255
        met[4 * c + (bucket >> 6)] |= ONE << np.uint64(bucket & 63)


@inlined
def load_present(codes: Ints, list_ptr: Longs, list_codes: Ints, event: Scalar, there: Ints, n_there: Scalar, near: Ints, bucket_ptr: Longs,
                 buckets: Buckets, out: Ints, met: Words) -> Scalar:  # fmt: skip
    """`load_buckets` of the columns there[:n_there]; in the others the event has no value, and `out` says so. None has fine buckets."""
    has_lists = False
    for i in range(n_there):
        c = np.int64(there[i])
        code = np.int64(codes[event, c])
        if code >= 0:
            out[c] = bucket_of(code, c, near, bucket_ptr, buckets)
        else:
            out[c] = NO_BUCKET
            has_lists = True
            mark_list(list_ptr, list_codes, code, c, near, bucket_ptr, buckets, met)
    return has_lists


@inlined
def is_inside(place: Scalar, low: Scalar, high: Scalar) -> Scalar:
    """Whether a bucket is one of low .. high, or, if low > high, one that is not between them and not that of NULL."""
    return (((place - low) & 255) <= ((high - low) & 255)) & ((place > 0) | (low == 0))


@inlined
def weigh_guard(guard: Scalar, own: Ints, near: Ints, met: Words) -> tuple[Scalar, Scalar]:
    """Whether a guard lets an event with lists pass, and whether that is certain.

    A list meets a guard of one bucket, or of a fine one, if that is marked; guards of several let it pass.
    """
    column, low, high = guard & 0x7FFF, (guard >> FIRST_AT) & 255, (guard >> LAST_AT) & 255
    bucket, marks = np.int64(own[column]), np.int64(near[column]) >> SHIFT_BITS
    place = bucket & 255
    certain = ((place != low) & (place != high)) | ((bucket & SINGLE) != 0)
    fine = (low & 127) << 7 | (high & 127)
    is_fine = (low > high) & (marks > 0)
    word = 4 * near.size + FINE_WORDS * (marks - 1) + (fine >> 6) if is_fine else 4 * column + (low >> 6)
    is_met = (met[word] >> np.uint64(fine & 63 if is_fine else low & 63)) & ONE != ZERO
    passes = is_met | ((low != high) & (not is_fine)) | ((low == high) & (marks > 0))
    decides = (guard >> DECIDES_AT) & 1 != 0
    return passes if bucket < 0 else is_inside(place, low, high), (bucket >= 0) & certain & decides


@inlined
def find_guarded(guards: Ints, first: Scalar, end: Scalar, own: Ints) -> tuple[Scalar, Scalar]:
    """The candidates among up to 64 slots by their guards first:end, and those of them that hold without a check.

    `own` are the event's buckets, none of which is of a list.
    """
    found, sure = ZERO, ZERO
    if _AT_ONCE and own.size <= LEAST_OWN:
        for at in range(first, end, GUARD_LANES):
            both = match_guards_32(guards, at, end - at, own)
            found |= (both & _LOW16) << np.uint64(at - first)
            sure |= (both >> _B16) << np.uint64(at - first)
        return found, sure
    if _AT_ONCE:
        for at in range(first, end, GUARD_LANES):
            both = match_guards(guards, at, end - at, own)
            found |= (both & _LOW16) << np.uint64(at - first)
            sure |= (both >> _B16) << np.uint64(at - first)
        return found, sure
    for at in range(first, end):
        guard = np.int64(guards[at])
        bucket = np.int64(own[guard & 0x7FFF])
        place = bucket & 255
        low, high = (guard >> FIRST_AT) & 255, (guard >> LAST_AT) & 255
        inside = is_inside(place, low, high)
        certain = ((place != low) & (place != high)) | ((bucket & SINGLE) != 0)
        bit = np.uint64(at - first)
        found |= np.uint64(inside) << bit
        sure |= np.uint64(inside & certain & ((guard >> DECIDES_AT) & 1 != 0)) << bit
    return found, sure


@inlined
def find_pairs(
    guards: Ints, first: Scalar, end: Scalar, size: Scalar, in_pairs: Scalar, own: Ints
) -> tuple[Scalar, Scalar]:
    """`find_guarded` in a leaf of so many slots, which may have two guards each."""
    found, sure = find_guarded(guards, first, end, own)
    if in_pairs:
        also, too = find_guarded(guards, first + size, end + size, own)
        found, sure = found & also, sure & too
    return found, sure


@inlined
def list_guarded(guards: Ints, first: Scalar, size: Scalar, in_pairs: Scalar, slots: Ints, slot: Scalar, own: Ints, near: Ints, met: Words,
                 is_checked: Scalar, waiting: Ints, count: Scalar, kept: Ints, held: Scalar) -> tuple[Scalar, Scalar]:  # fmt: skip
    """Candidates by the guards of a leaf, for an event with lists: append those to be checked to waiting[:count], the others to kept[:held].

    Leaves that long lists lead to are many and small, so nothing here branches on what is found.
    """
    for i in range(size):
        passes, sure = weigh_guard(np.int64(guards[first + i]), own, near, met)
        if in_pairs:
            also, too = weigh_guard(np.int64(guards[first + size + i]), own, near, met)
            passes, sure = passes & also, sure & too
        sure |= not is_checked
        clause = slots[slot + i]
        waiting[count] = clause
        count += np.int64(passes & (not sure))
        kept[held] = clause
        held += np.int64(passes & sure)
    return count, held


# -- building ----------------------------------------------------------------------------------------------------------


@jit
def fill_buckets(weights: npt.NDArray[np.float64], shift: Scalar, most: Scalar, table: Buckets) -> Scalar:
    """Cut neighbours into buckets of about equal weight, `most` at most; the first is one by itself. Returns how many there are.

    Each but the first stands for 2**shift codes.
    """
    limit = weights[1:].sum() / (most - 1)
    while True:
        bucket, held = 0, np.inf
        for i in range(1, weights.size):
            if held + weights[i] > limit:
                bucket += 1
                held = 0.0
            held += weights[i]
            table[i] = min(bucket, most - 1)
        if bucket < most:
            break
        limit *= 1.25
    table[0] = 0
    for i in range(weights.size):
        alone = (i == 0 or table[i - 1] & 255 != table[i]) and (i + 1 == weights.size or table[i + 1] != table[i])
        if alone and (i == 0 or shift == 0):
            table[i] |= SINGLE
    return bucket + 1


@jit
def guard_chance(k: Scalar, column: Ints, list_at: Ints, filed: Singles, chance: Singles, path_shift: Ints) -> Scalar:
    """Chance that a guard made of constraint k lets an event pass that has come this far; a list is no guard."""
    if list_at[k] >= 0:
        return np.float32(1.0)
    return chance[k] if path_shift[column[k]] < 0 else min(np.float32(1.0), chance[k] / filed[k])


@jit
def is_all_but_some(
    k: Scalar, column: Ints, list_at: Ints, list_end: Ints, list_lo: Ints, list_hi: Ints, width: Ints
) -> Scalar:
    """Whether a constraint leaves out one range of codes and NULL, and nothing else: a <>."""
    at = list_at[k]
    return at >= 0 and list_end[k] - at == 2 and list_lo[at] == 1 and list_hi[at + 1] >= width[column[k]] - 1


@jit
def rarest_constraint(clause: Scalar, skipped: Scalar, ptr: Longs, number: Ints, column: Ints, lo: Ints, list_at: Ints, filed: Singles,
                      chance: Singles, path_shift: Ints) -> tuple[Scalar, Scalar]:  # fmt: skip
    """Of the constraints of a clause that the path has not settled, the rarest but for one, -1 if there is none; and how many they all are."""
    best: Scalar = np.int64(-1)
    rarest, unsettled = np.float32(1.0), 0
    for entry in range(ptr[clause], ptr[clause + 1]):
        k = np.int64(number[entry])
        if path_shift[column[k]] == 0:
            continue
        unsettled += 1
        passes = guard_chance(k, column, list_at, filed, chance, path_shift)
        if list_at[k] >= 0 and lo[k] == 1 and path_shift[column[k]] < 0:
            passes = chance[k]  # a <>: the hull is all values, and holds about as often
        if k != skipped and (passes < rarest or best < 0):
            best, rarest = k, passes
    return best, unsettled


@jit
def pack_guard(k: Scalar, is_last: Scalar, column: Ints, lo: Ints, hi: Ints, list_at: Ints, list_end: Ints, list_lo: Ints, list_hi: Ints, width: Ints,
               near: Ints, bucket_ptr: Longs, buckets: Buckets) -> Scalar:  # fmt: skip
    """The guard of a constraint. It decides if `is_last`, and if it says all of the constraint.

    Of several intervals the guard is the hull, which never decides; but see *All but some*.
    """
    c = np.int64(column[k])
    has_fine = near[c] >> SHIFT_BITS > 0
    if has_fine and lo[k] == hi[k]:
        fine = np.int64(fine_bucket(lo[k]))
        return c | (_HALF | fine >> 7) << FIRST_AT | (fine & 127) << LAST_AT
    if not has_fine and is_all_but_some(k, column, list_at, list_end, list_lo, list_hi, width):
        last = bucket_of(np.int64(list_hi[list_at[k]]), c, near, bucket_ptr, buckets) & 255
        first = max(bucket_of(np.int64(list_lo[list_at[k] + 1]), c, near, bucket_ptr, buckets) & 255, last + 1)
        if first <= 255:
            return c | np.int64(is_last) << DECIDES_AT | first << FIRST_AT | last << LAST_AT
    first = bucket_of(np.int64(lo[k]), c, near, bucket_ptr, buckets) & 255
    last = bucket_of(np.int64(hi[k]), c, near, bucket_ptr, buckets) & 255
    return c | np.int64(is_last and list_at[k] < 0) << DECIDES_AT | first << FIRST_AT | last << LAST_AT


@jit
def pack_guards(clause: Scalar, in_pairs: Scalar, ptr: Longs, number: Ints, column: Ints, lo: Ints, hi: Ints, list_at: Ints, list_end: Ints,
                list_lo: Ints, list_hi: Ints, filed: Singles, chance: Singles, width: Ints, path_shift: Ints, near: Ints, bucket_ptr: Longs,
                buckets: Buckets) -> tuple[Scalar, Scalar]:  # fmt: skip
    """The guard of a clause in a leaf, of its rarest constraint, and the second one; all codes where there is no such constraint."""
    best, unsettled = rarest_constraint(clause, -1, ptr, number, column, lo, list_at, filed, chance, path_shift)
    given = column, lo, hi, list_at, list_end, list_lo, list_hi, width, near, bucket_ptr, buckets
    guard: Scalar = np.int64(unsettled == 0) << DECIDES_AT | np.int64(_PASS_ALL)
    if best >= 0:
        guard = pack_guard(best, in_pairs or unsettled == 1, *given)
    second, _ = rarest_constraint(clause, best, ptr, number, column, lo, list_at, filed, chance, path_shift)
    if second < 0:
        return guard, np.int64(1) << DECIDES_AT | np.int64(_PASS_ALL)
    return guard, pack_guard(second, unsettled == 2, *given)
