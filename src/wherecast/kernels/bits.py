"""Single instructions on 64-bit words that Numba has no name for.

Theory of operation
-------------------
A bitmap word holds 64 clauses. Counting its matches is one `popcnt`; listing them is a loop of `tzcnt` and
`word & (word - 1)`. Written as arithmetic (the classic sums of masked halves) LLVM recognises the first but not always
the second, hence two intrinsics. With the JIT off the same names are plain Python.
"""

from __future__ import annotations

from typing import Any

import numba  # type: ignore[import-untyped]
import numpy as np
from numba.core import types  # type: ignore[import-untyped]
from numba.extending import intrinsic  # type: ignore[import-untyped]

ONE = np.uint64(1)
ZERO = np.uint64(0)
FULL = np.uint64(0xFFFFFFFFFFFFFFFF)

if numba.config.DISABLE_JIT:

    def popcount(word: Any) -> int:
        """Number of set bits."""
        return int(word).bit_count()

    def trailing_zeros(word: Any) -> int:
        """Position of the lowest set bit; the word is not zero."""
        return (int(word) & -int(word)).bit_length() - 1

else:

    @intrinsic  # type: ignore[untyped-decorator]
    def popcount(typing_context: Any, word: Any) -> Any:
        """Number of set bits."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.ctpop(arguments[0])

        return types.int64(types.uint64), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def trailing_zeros(typing_context: Any, word: Any) -> Any:
        """Position of the lowest set bit; the word is not zero."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.cttz(arguments[0], context.get_constant(types.boolean, True))

        return types.int64(types.uint64), generate
