"""The columns in which an event has a value.

Theory of operation
-------------------
Of 200 optional columns an event has ten. Asking each column by itself, whether there is a test for it and which bucket its code is in, costs more than matching.
So the columns with a code other than 0, which is NULL or what no clause asks for, are listed first, 16 at a time and without a branch; all
that follows goes by this list. With few columns asking each is as quick.
"""

from __future__ import annotations

from wherecast.kernels.arrays import Ints
from wherecast.kernels.jit import HAS_COMPRESS, HAS_PERMUTE, Scalar, compress_16, inlined, nonzero_16, popcount

#: Columns of a matcher from which on those that an event has are listed.
MANY_COLUMNS = 24
#: Places behind the last of a list that may be overwritten.
PADDING = 16
_AT_ONCE = HAS_COMPRESS or HAS_PERMUTE


@inlined
def list_present(codes: Ints, event: Scalar, numbers: Ints, out: Ints) -> Scalar:
    """Write the columns in which an event has a code other than 0 to `out`, ascending; how many there are.

    `codes` is contiguous, `numbers` counts from 0 on, and `out` has PADDING places more than there are columns.
    """
    n: Scalar = 0
    first: Scalar = 0
    width = codes.shape[1]
    if _AT_ONCE:
        while first + 16 <= width:
            found = nonzero_16(codes, event * width + first)
            compress_16(numbers, first, found, out, n)
            n += popcount(found)
            first += 16
    for c in range(first, width):
        out[n] = c
        n += codes[event, c] != 0
    return n
