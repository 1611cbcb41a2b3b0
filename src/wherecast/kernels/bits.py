"""Single instructions on 64-bit words that Numba has no name for.

Theory of operation
-------------------
A bitmap word holds 64 clauses. Counting its matches is one `popcnt`; listing them is a loop of `tzcnt` and
`word & (word - 1)`. ANDing rows is a loop of vector loads into one accumulator. LLVM does not find that loop by itself:
given four accumulators it vectorises over the rows instead, with gathers, at a tenth of the speed. `and_rows_1` to
`and_rows_16` therefore spell the vectors out; LLVM maps them to whatever registers the machine has.

Listing a well-filled word bit by bit mispredicts its end each time (2.0 ns a match on `topss`, against 1.1). With
AVX-512, `compress_16` moves the chosen ones of 16 neighbours together in one instruction; elsewhere LLVM would turn it
into 16 branches, so `HAS_COMPRESS` tells whether to use it. `copy_8` is one load and one store: a loop over array
elements stays scalar, because the compiler cannot tell that source and target are apart.

With the JIT off the same names are plain Python.
"""

# ruff: noqa: ARG001 - Numba prescribes the arguments of an intrinsic

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba.core import cgutils as _cgutils
from numba.core import config as _config
from numba.core import types
from numba.extending import intrinsic

ONE = np.uint64(1)
ZERO = np.uint64(0)
FULL = np.uint64(0xFFFFFFFFFFFFFFFF)

cgutils: Any = _cgutils  # without types of its own
config: Any = _config
HAS_COMPRESS = bool(binding.get_host_cpu_features().get("avx512f", False))

if config.DISABLE_JIT:

    def popcount(word: Any) -> int:
        """Number of set bits."""
        return int(word).bit_count()

    def trailing_zeros(word: Any) -> int:
        """Position of the lowest set bit; the word is not zero."""
        return (int(word) & -int(word)).bit_length() - 1

    def compress_16(source: Any, at: Any, mask: Any, target: Any, n: Any) -> None:
        """Write those of source[at:at + 16] whose bit is set to target[n:]; up to 16 places there are overwritten."""
        chosen = [source[at + i] for i in range(16) if int(mask) >> i & 1]
        target[n : n + len(chosen)] = chosen

    def copy_8(source: Any, at: Any, target: Any, n: Any) -> None:
        """Copy source[at:at + 8] to target[n:n + 8], which may have wider integers."""
        target[n : n + 8] = source[at : at + 8]

    def _and_rows(lanes: int) -> Any:
        def and_rows(maps: Any, places: Any, count: Any, at: Any, found: Any) -> None:
            """AND `lanes` words of rows places[:count], from word `at` on, into found."""
            for lane in range(at, at + lanes):
                word = FULL
                for row in places[:count]:
                    word &= maps[row + lane]
                found[lane] = word

        return and_rows

else:

    @intrinsic
    def popcount(typing_context: Any, word: Any) -> Any:
        """Number of set bits."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.ctpop(arguments[0])

        return types.int64(types.uint64), generate

    @intrinsic
    def trailing_zeros(typing_context: Any, word: Any) -> Any:
        """Position of the lowest set bit; the word is not zero."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.cttz(arguments[0], context.get_constant(types.boolean, 1))

        return types.int64(types.uint64), generate

    @intrinsic
    def compress_16(typing_context: Any, source: Any, at: Any, mask: Any, target: Any, n: Any) -> Any:
        """Write those of source[at:at + 16] whose bit is set to target[n:]; up to 16 places there are overwritten."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            values, flags = ir.VectorType(ir.IntType(32), 16), ir.VectorType(ir.IntType(1), 16)
            arrays = [context.make_array(signature.args[i])(context, builder, arguments[i]).data for i in (0, 3)]
            where = builder.bitcast(builder.gep(arrays[0], [arguments[1]]), values.as_pointer())
            chosen = builder.bitcast(builder.trunc(arguments[2], ir.IntType(16)), flags)
            form = ir.FunctionType(values, [values, flags, values])
            name = "llvm.experimental.vector.compress.v16i32"
            function = cgutils.get_or_insert_function(builder.module, form, name)
            rest = ir.Constant(values, ir.Undefined)
            packed = builder.call(function, [builder.load(where, align=4), chosen, rest])
            there = builder.bitcast(builder.gep(arrays[1], [arguments[4]]), values.as_pointer())
            builder.store(packed, there, align=4)
            return context.get_dummy_value()

        return types.void(source, types.int64, types.uint64, target, types.int64), generate

    @intrinsic
    def copy_8(typing_context: Any, source: Any, at: Any, target: Any, n: Any) -> Any:
        """Copy source[at:at + 8] to target[n:n + 8], which may have wider integers."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            places = []
            for array, index in ((0, 1), (2, 3)):
                data = context.make_array(signature.args[array])(context, builder, arguments[array]).data
                vector = ir.VectorType(data.type.pointee, 8)
                places.append(builder.bitcast(builder.gep(data, [arguments[index]]), vector.as_pointer()))
            values = builder.load(places[0], align=signature.args[0].dtype.bitwidth // 8)
            if signature.args[0].dtype != signature.args[2].dtype:
                values = builder.sext(values, places[1].type.pointee)
            builder.store(values, places[1], align=signature.args[2].dtype.bitwidth // 8)
            return context.get_dummy_value()

        return types.void(source, types.int64, target, types.int64), generate

    def _and_rows(lanes: int) -> Any:
        @intrinsic
        def and_rows(typing_context: Any, maps: Any, places: Any, count: Any, at: Any, found: Any) -> Any:
            """AND `lanes` words of rows places[:count], from word `at` on, into found."""

            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                data = [context.make_array(t)(context, builder, a).data if isinstance(t, types.Array) else a
                        for t, a in zip(signature.args, arguments, strict=True)]  # fmt: skip
                rows, starts, n, first, out = data
                vector = ir.VectorType(ir.IntType(64), lanes)
                total = cgutils.alloca_once_value(builder, ir.Constant(vector, [2**64 - 1] * lanes))
                with cgutils.for_range(builder, n) as loop:
                    start = builder.load(builder.gep(starts, [loop.index]))
                    source = builder.gep(rows, [builder.add(start, first)])
                    row = builder.load(builder.bitcast(source, vector.as_pointer()), align=8)
                    builder.store(builder.and_(builder.load(total), row), total)
                target = builder.bitcast(builder.gep(out, [first]), vector.as_pointer())
                builder.store(builder.load(total), target, align=8)
                return context.get_dummy_value()

            return types.void(maps, places, types.int64, types.int64, found), generate

        return and_rows


and_rows_1 = _and_rows(1)
and_rows_2 = _and_rows(2)
and_rows_4 = _and_rows(4)
and_rows_16 = _and_rows(16)
