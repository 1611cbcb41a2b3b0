"""One hit each for the clauses whose bit is set in a word: 64 counters at a time.

Theory of operation
-------------------
A word of the bit matrix is the mask of 64 neighbouring counters. LLVM turns the masked addition into one instruction
where the machine has masks (AVX-512), and into a handful of shuffles elsewhere. Going through the set bits one by one
costs a mispredicted branch for nearly every word that is not zero: 16 ms an event on a million subscriptions of W4,
against 5 ms.

With the JIT off the same name is plain Python.
"""

# ruff: noqa: ARG001 - Numba prescribes the arguments of an intrinsic

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import config as _config
from numba.core import types
from numba.extending import intrinsic

config: Any = _config  # without types of its own

if config.DISABLE_JIT:

    def add_word(word: Any, hits: Any, at: Any) -> None:
        """Add bit i of the word to hits[at + i], for all 64."""
        for i in range(64):
            hits[at + i] += int(word) >> i & 1

else:

    @intrinsic
    def add_word(typing_context: Any, word: Any, hits: Any, at: Any) -> Any:
        """Add bit i of the word to hits[at + i], for all 64."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = signature.args[1]
            lanes = ir.VectorType(ir.IntType(array.dtype.bitwidth), 64)
            data = context.make_array(array)(context, builder, arguments[1]).data
            where = builder.bitcast(builder.gep(data, [arguments[2]]), lanes.as_pointer())
            ones = builder.zext(builder.bitcast(arguments[0], ir.VectorType(ir.IntType(1), 64)), lanes)
            builder.store(builder.add(builder.load(where, align=1), ones), where, align=1)
            return context.get_dummy_value()

        return types.void(types.uint64, hits, types.int64), generate
