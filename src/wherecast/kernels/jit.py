"""All that kernels need of Numba: decorators, so that kernels are compiled alike, and instructions that it has no name for.

This module and `kept` are the only ones that use what Numba does not promise: the option `_nrt`, the compiled code behind a dispatcher
(`direct`), how it finds the class of a result, its code generator (`cgutils`, intrinsics) and LLVM; there, how code is kept and loaded. `tests/unit/test_jit.py` names the versions that they were tried with.

Theory of operation
-------------------
*Decorators.* `nogil` lets a caller split a batch over threads; `cache` keeps the compiled code beside the module, so that
only the first match after installation pays for compilation (see `kept`). With `NUMBA_DISABLE_JIT=1` a kernel is the plain Python function.

Kernels that match (`hot`, `inlined`) are compiled without Numba's reference counting: they allocate nothing, their
arrays belong to the caller. With it, every helper that takes an array and has more than one exit counts up and down
atomically: a match on `gryphon` then takes seven times as long.

*Calls.* Numba looks at the types of all arguments of a call, to find the code compiled for them. That takes 0.4 us, and
0.2 us more for each array in a tuple: 5 us for a matcher, which is nothing for a batch and most of the time for one event.
`direct` finds the code once, and a call takes 0.1 us, and 0.01 us more for each array.

*Ctrl-C.* A signal that comes during a kernel is handled in the first function of Python after it. For a kernel that returns arrays
that is Numba's own, which finds the class of the result; Numba does not look whether it failed, and the caller would
get a SystemError in place of KeyboardInterrupt. It is kept behind a cache written in C, which handles no signals.

*Instructions.* A bitmap word holds 64 clauses. Counting its matches is one `popcnt`; listing them is a loop of `tzcnt` and
`word & (word - 1)`. ANDing rows is a loop of vector loads into one accumulator. LLVM does not find that loop by itself:
given four accumulators it vectorises over the rows instead, with gathers, at a tenth of the speed. `and_rows_1` to
`and_rows_16` therefore spell the vectors out; LLVM maps them to whatever registers the machine has. `count_rows_1` to
`count_rows_16` count the bits while they are in those registers, `count_both_4` the bits of a mask; left to itself LLVM
sums a loop of twenty words at twice the time.

Listing a well-filled word bit by bit mispredicts its end each time (2.0 ns a match on `topss`, against 1.1). With
AVX-512, `compress_16` moves the chosen ones of 16 neighbours together in one instruction (`HAS_COMPRESS`). With AVX2 it permutes eight at
a time, by a table of the 256 ways to choose among eight (`HAS_PERMUTE`). Elsewhere LLVM would turn it into 16 branches. `copy_8` is one load and one store: a loop over array
elements stays scalar, because the compiler cannot tell that source and target are apart. With AVX-512, `compress_16` takes numbers of 64 bits, too, and makes 64 bits of 32.

`place_rows` finds the rows that an event asks of eight columns at a time. One by one that takes 3 ns a column: how many rows a column has depends on the
event, so each waits for the one before. It takes 1.1 ns so.

`add_word` takes a word as the mask of 64 neighbouring counters. LLVM turns the masked addition into one instruction where
the machine has masks (AVX-512), and into a handful of shuffles elsewhere. Going through the set bits one by one costs a
mispredicted branch for nearly every word that is not zero: 16 ms an event on a million subscriptions of W4, against 5 ms.

`match_guards` looks at 16 guards at a time with AVX-512 and at 8 with AVX2 (see `guards`). It gathers the event's buckets, which LLVM does not do by
itself: 2.0 ns a guard one by one and 0.4 so with AVX-512 (Xeon), 2.3 and 1.0 with AVX2 (Zen 3).

`four_bytes` and `eight_bytes` are one load each. Byte by byte, Numba looks at the sign of each index, and LLVM does not put the bytes together.

`array_at` makes an array of an address. A kernel that reads hundreds of columns gets a table of their addresses: handing over
hundreds of arrays one by one takes longer than reading them. `call_at` calls a function of C, as structures of Arrow have one that gives them back.

With the JIT off the same names are plain Python.
"""

# ruff: noqa: ARG001 - Numba prescribes the arguments of an intrinsic

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba.core import cgutils as _cgutils
from numba.core import serialize as _serialize
from numba.core import types
from numba.extending import intrinsic
from numba.np import arrayobj as _arrayobj

from wherecast.kernels.kept import keep, keep_helper
from wherecast.kernels.private import make_private

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
Arrays = TypeVar("Arrays", bound=tuple[Any, ...])
#: A number or truth value in a kernel: Python's or NumPy's with the JIT off, a machine word with it.
Scalar = Any

config: Any = numba.config  # without types of its own
if config.CACHE_DIR:  # set by NUMBA_CACHE_DIR; what is in it will be run
    make_private(Path(config.CACHE_DIR))

serialize: Any = _serialize  # without types of its own
serialize._numba_unpickle = cache(serialize._numba_unpickle)  # noqa: SLF001 - see Ctrl-C
_njit: Callable[..., Any] = numba.njit  # its declared options leave out `_nrt`


def _compile(function: Kernel, **options: Any) -> Kernel:
    """A kernel that Python may call; nothing calls it as a function of C."""
    kernel: Any = _njit(nogil=True, no_cfunc_wrapper=True, **options)(function)
    if not config.DISABLE_JIT:
        keep(kernel)
    return cast("Kernel", kernel)


def _compile_helper(function: Kernel, **options: Any) -> Kernel:
    """A kernel that only kernels call: what Python would need to call it takes long to compile and is left out."""
    kernel: Any = _njit(nogil=True, no_cfunc_wrapper=True, no_cpython_wrapper=True, **options)(function)
    if not config.DISABLE_JIT:
        keep_helper(kernel)
    return cast("Kernel", kernel)


def jit(function: Kernel) -> Kernel:
    """Compile a function of arrays; it may allocate."""
    return _compile(function)


def helper(function: Kernel) -> Kernel:
    """Compile a function that only kernels call."""
    return _compile_helper(function)


def hot(function: Kernel) -> Kernel:
    """Compile a function of arrays that allocates none."""
    return _compile(function, _nrt=False)


def hot_helper(function: Kernel) -> Kernel:
    """The same for a function that only kernels call."""
    return _compile_helper(function, _nrt=False)


def inlined(function: Kernel) -> Kernel:
    """Compile a helper of a hot kernel, to be inlined: an array is seven words, too many to pass in an inner loop."""
    return _compile_helper(function, _nrt=False, forceinline=True)


def reordered(function: Kernel) -> Kernel:
    """The same for a sum of floats whose order does not matter: additions go as many at a time as registers hold."""
    return _compile_helper(function, _nrt=False, forceinline=True, fastmath={"reassoc", "contract", "nsz"})


def plain(arrays: Arrays) -> Arrays:
    """A named tuple as a plain one, for kernels that unpack it: Numba recognises it in half the time."""
    return cast("Arrays", tuple(arrays))


def frozen(array: Any) -> Any:
    """A read-only view. Numba compiles anew for arrays that differ in this: mapped files are read-only, so is all."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def address_of(array: Any) -> int:
    """Where an array stands, for `array_at`."""
    address: int = array.__array_interface__["data"][0]
    return address


def direct(kernel: Callable[..., Any], *examples: Any) -> Callable[..., Any]:
    """The compiled code of a kernel for arguments of the types that these have.

    Nothing looks at the types again: whoever calls it must pass such arguments only. Arrays may be read-only or not.
    """
    if config.DISABLE_JIT:
        return kernel
    form = kernel, _form(examples)
    found = _COMPILED.get(form)
    if found is None:
        dispatcher: Any = kernel
        types_of_call = tuple(map(numba.typeof, examples))
        dispatcher.compile(types_of_call)
        found = _COMPILED[form] = dispatcher.overloads[types_of_call].entry_point
    return found


#: What `direct` has found. Numba takes 10 us to tell the type of an array, and a new segment asks for hundreds.
_COMPILED: dict[Any, Callable[..., Any]] = {}


def _form(value: Any) -> Any:
    """Equal for values of equal type in kernels."""
    if isinstance(value, np.ndarray):
        flags = value.flags
        return value.dtype.str, value.ndim, flags.writeable, flags.c_contiguous, flags.aligned
    return (type(value), *map(_form, value)) if isinstance(value, tuple) else type(value)


# -- instructions -------------------------------------------------------------------------------------------------------

ONE = np.uint64(1)
ZERO = np.uint64(0)
FULL = np.uint64(0xFFFFFFFFFFFFFFFF)

cgutils: Any = _cgutils  # without types of its own
arrayobj: Any = _arrayobj
_FEATURES = binding.get_host_cpu_features()
HAS_COMPRESS = bool(_FEATURES.get("avx512f", False))
HAS_PERMUTE = not HAS_COMPRESS and bool(_FEATURES.get("avx2", False))
#: Guards that `match_guards` looks at at a time; 0: the machine has no instructions for it.
GUARD_LANES = 16 if HAS_COMPRESS else 8 if HAS_PERMUTE else 0

if config.DISABLE_JIT:

    def popcount(word: Any) -> int:
        """Number of set bits."""
        return int(word).bit_count()

    def trailing_zeros(word: Any) -> int:
        """Position of the lowest set bit; 64 if there is none."""
        return (int(word) & -int(word)).bit_length() - 1 if word else 64

    def leading_zeros(word: Any) -> int:
        """Zeros above the highest set bit; 64 if there is none."""
        return 64 - int(word).bit_length()

    def swap_bytes(word: Any) -> Any:
        """A word with its bytes in the other order."""
        return np.uint64(word).byteswap()

    def compress_16(source: Any, at: Any, mask: Any, target: Any, n: Any) -> None:
        """Write those of source[at:at + 16] whose bit is set to target[n:]; up to 16 places there are overwritten."""
        chosen = [source[at + i] for i in range(16) if int(mask) >> i & 1]
        target[n : n + len(chosen)] = chosen

    def copy_8(source: Any, at: Any, target: Any, n: Any) -> None:
        """Copy source[at:at + 8] to target[n:n + 8], which may have wider integers."""
        target[n : n + 8] = source[at : at + 8]

    def nonzero_16(array: Any, at: Any) -> Any:
        """Which of 16 numbers from place `at` on are not 0, as bits; a table is counted through row by row."""
        return np.uint64(sum(1 << i for i, value in enumerate(array.reshape(-1)[at : at + 16]) if value))

    def prefetch(array: Any, at: Any) -> None:
        """Bring array[at] into the cache; `at` may be anywhere."""

    def four_bytes(data: Any, at: Any) -> Any:
        """The bytes data[at:at + 4] as a number, the first the lowest."""
        return np.uint64(int.from_bytes(bytes(data[at : at + 4]), "little"))

    def eight_bytes(data: Any, at: Any) -> Any:
        """The bytes data[at:at + 8] as a number, the first the lowest."""
        return np.uint64(int.from_bytes(bytes(data[at : at + 8]), "little"))

    def array_at(address: Any, size: Any, dtype: Any) -> Any:
        """The array of so many values that stands at an address; its owner must keep it there."""
        if size == 0:
            return np.zeros(0, dtype)
        return np.frombuffer((ctypes.c_char * (size * np.dtype(dtype).itemsize)).from_address(int(address)), dtype)

    def call_at(address: Any, argument: Any) -> None:
        """Call the function of C at an address, which takes an address and returns nothing."""
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(int(address))(int(argument))

    def match_guards(guards: Any, at: Any, count: Any, own: Any) -> int:
        """Stands in for the vector instructions; `guards.find_guarded` has the meaning."""
        raise NotImplementedError

    match_guards_32 = match_guards

    def stay_apart() -> None:
        """Keep the function that calls this out of its callers' code."""

    def place_rows(columns: Any, at: Any, left: Any, own: Any, stride: Any, base: Any, places: Any, n: Any) -> Any:
        """Stands in for the vector instructions; `leaves.gather_rows` has the meaning."""
        raise NotImplementedError

    def add_word(word: Any, hits: Any, at: Any) -> None:
        """Add bit i of the word to hits[at + i], for all 64."""
        for i in range(64):
            hits[at + i] += int(word) >> i & 1

    def _and_rows(lanes: int) -> Any:
        def and_rows(maps: Any, places: Any, count: Any, at: Any, found: Any) -> None:
            """AND `lanes` words of rows places[:count], from word `at` on, into found."""
            for lane in range(at, at + lanes):
                word = FULL
                for row in places[:count]:
                    word &= maps[row + lane]
                found[lane] = word

        return and_rows

    def count_both_4(a: Any, i: Any, b: Any, k: Any) -> int:
        """Number of bits that are set both in a[i:i + 4] and in b[k:k + 4]."""
        return sum(int(word).bit_count() for word in a[i : i + 4] & b[k : k + 4])

    def _count_rows(lanes: int) -> Any:
        def count_rows(maps: Any, places: Any, count: Any, at: Any, skip: Any) -> int:
            """Number of set bits in the AND of rows places[:count], of `lanes` words from `at` on but for the first `skip`."""
            words = [np.bitwise_and.reduce(maps[places[:count] + lane]) for lane in range(at + skip, at + lanes)]
            return sum(int(word).bit_count() for word in words)

        return count_rows

else:

    def _call(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
        """Call a function of LLVM's own."""
        form = ir.FunctionType(result, [argument.type for argument in arguments])
        return builder.call(cgutils.get_or_insert_function(builder.module, form, name), arguments)

    def _vector_at(
        context: Any, builder: Any, signature: Any, arguments: Any, array: int, index: Any, lanes: int
    ) -> Any:
        """Where `lanes` elements of an argument that is an array begin, as a vector."""
        data = context.make_array(signature.args[array])(context, builder, arguments[array]).data
        return builder.bitcast(builder.gep(data, [index]), ir.VectorType(data.type.pointee, lanes).as_pointer())

    @intrinsic
    def popcount(typing_context: Any, word: Any) -> Any:
        """Number of set bits."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.ctpop(arguments[0])

        return types.int64(types.uint64), generate

    @intrinsic
    def trailing_zeros(typing_context: Any, word: Any) -> Any:
        """Position of the lowest set bit; 64 if there is none."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.cttz(arguments[0], context.get_constant(types.boolean, 0))

        return types.int64(types.uint64), generate

    @intrinsic
    def leading_zeros(typing_context: Any, word: Any) -> Any:
        """Zeros above the highest set bit; 64 if there is none."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.ctlz(arguments[0], context.get_constant(types.boolean, 0))

        return types.int64(types.uint64), generate

    @intrinsic
    def swap_bytes(typing_context: Any, word: Any) -> Any:
        """A word with its bytes in the other order."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.bswap(arguments[0])

        return types.uint64(types.uint64), generate

    def _permute_16(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """`compress_16` of two times eight numbers."""
        byte, long, eight = ir.IntType(8), ir.IntType(64), ir.VectorType(ir.IntType(32), 8)
        form = ir.ArrayType(ir.VectorType(byte, 8), 256)
        # The chosen ones first.
        ways = [[bit for take in (1, 0) for bit in range(8) if mask >> bit & 1 == take] for mask in range(256)]
        table = cgutils.global_constant(
            builder.module, "wherecast.ways", ir.Constant(form, [ir.Constant(form.element, way) for way in ways])
        )
        _, at, mask, _, n = arguments
        for half in range(2):
            chosen = builder.and_(builder.lshr(mask, long(8 * half)), long(255))
            way = builder.load(builder.gep(table, [long(0), chosen]), align=8)
            place = builder.add(at, long(8 * half))
            values = builder.load(_vector_at(context, builder, signature, arguments, 0, place, 8), align=4)
            packed = _call(builder, "llvm.x86.avx2.permd", eight, values, builder.zext(way, eight))
            builder.store(packed, _vector_at(context, builder, signature, arguments, 3, n, 8), align=4)
            n = builder.add(n, _call(builder, "llvm.ctpop.i64", long, chosen))
        return context.get_dummy_value()

    @intrinsic
    def compress_16(typing_context: Any, source: Any, at: Any, mask: Any, target: Any, n: Any) -> Any:
        """Write those of source[at:at + 16] whose bit is set to target[n:]; up to 16 places there are overwritten."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            parts = context, builder, signature, arguments
            if HAS_PERMUTE:
                return _permute_16(*parts)
            _, at, mask, _, n = arguments
            width, wide = signature.args[0].dtype.bitwidth, signature.args[3].dtype.bitwidth
            lanes = 512 // max(width, 32)
            long, number = ir.IntType(64), ir.VectorType(ir.IntType(width), lanes)
            for first in range(0, 16, lanes):
                source = _vector_at(*parts, 0, builder.add(at, long(first)), lanes)
                values = builder.load(builder.bitcast(source, number.as_pointer()), align=width // 8)
                bits = builder.trunc(builder.lshr(mask, long(first)), ir.IntType(lanes))
                chosen = builder.bitcast(bits, ir.VectorType(ir.IntType(1), lanes))
                name, rest = f"llvm.experimental.vector.compress.v{lanes}i{width}", ir.Constant(number, ir.Undefined)
                packed = _call(builder, name, number, values, chosen, rest)
                if wide > width:
                    packed = builder.sext(packed, ir.VectorType(ir.IntType(wide), lanes))
                place = _vector_at(*parts, 3, n, lanes)
                builder.store(packed, builder.bitcast(place, packed.type.as_pointer()), align=wide // 8)
                n = builder.add(n, builder.zext(builder.ctpop(bits), long))
            return context.get_dummy_value()

        return types.void(source, types.int64, types.uint64, target, types.int64), generate

    @intrinsic
    def copy_8(typing_context: Any, source: Any, at: Any, target: Any, n: Any) -> Any:
        """Copy source[at:at + 8] to target[n:n + 8], which may have wider integers."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            parts = context, builder, signature, arguments
            source, target = (_vector_at(*parts, array, arguments[array + 1], 8) for array in (0, 2))
            values = builder.load(source, align=signature.args[0].dtype.bitwidth // 8)
            if signature.args[0].dtype != signature.args[2].dtype:
                values = builder.sext(values, target.type.pointee)
            builder.store(values, target, align=signature.args[2].dtype.bitwidth // 8)
            return context.get_dummy_value()

        return types.void(source, types.int64, target, types.int64), generate

    @intrinsic
    def nonzero_16(typing_context: Any, array: Any, at: Any) -> Any:
        """Which of 16 numbers from place `at` on are not 0, as bits; a table is counted through row by row."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            values = builder.load(_vector_at(context, builder, signature, arguments, 0, arguments[1], 16), align=4)
            found = builder.icmp_signed("!=", values, ir.Constant(values.type, [0] * 16))
            return builder.zext(builder.bitcast(found, ir.IntType(16)), ir.IntType(64))

        return types.uint64(array, types.int64), generate

    @intrinsic
    def prefetch(typing_context: Any, array: Any, at: Any) -> Any:
        """Bring array[at] into the cache; `at` may be anywhere."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            place = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
            how = (ir.Constant(ir.IntType(32), number) for number in (0, 3, 1))  # to be read, soon, as data
            _call(builder, "llvm.prefetch.p0", ir.VoidType(), place, *how)
            return context.get_dummy_value()

        return types.void(array, types.int64), generate

    def _bytes_as_number(size: int) -> Any:
        def load(typing_context: Any, data: Any, at: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                bytes_of = context.make_array(signature.args[0])(context, builder, arguments[0]).data
                kind = ir.IntType(8 * size)
                where = builder.bitcast(builder.gep(bytes_of, [arguments[1]]), kind.as_pointer())
                number = builder.load(where, align=1)
                return number if size == 8 else builder.zext(number, ir.IntType(64))

            return types.uint64(data, types.int64), generate

        load.__doc__ = f"The bytes data[at:at + {size}] as a number, the first the lowest."
        return intrinsic(load)

    four_bytes, eight_bytes = _bytes_as_number(4), _bytes_as_number(8)

    @intrinsic
    def array_at(typing_context: Any, address: Any, size: Any, dtype: Any) -> Any:
        """The array of so many values that stands at an address; its owner must keep it there."""
        result = types.Array(dtype.instance_type, 1, "C")

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array, element = context.make_array(result)(context, builder), context.get_data_type(result.dtype)
            width = context.get_constant(types.intp, context.get_abi_sizeof(element))
            arrayobj.populate_array(
                array,
                data=builder.inttoptr(arguments[0], element.as_pointer()),
                shape=[arguments[1]],
                strides=[width],
                itemsize=width,
                meminfo=None,
            )
            return array._getvalue()  # noqa: SLF001 - Numba's way to read it

        return result(types.int64, types.int64, dtype), generate

    @intrinsic
    def call_at(typing_context: Any, address: Any, argument: Any) -> Any:
        """Call the function of C at an address, which takes an address and returns nothing."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            form = ir.FunctionType(ir.VoidType(), [ir.IntType(64)])
            builder.call(builder.inttoptr(arguments[0], form.as_pointer()), [arguments[1]])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    def _load_guards(
        context: Any, builder: Any, signature: Any, arguments: Any, there: Any, *, in_registers: bool
    ) -> tuple[Any, Any]:
        """The guards that are there, 0 for the others, and the event's bucket in the column of each."""
        lanes, number = there.type.count, ir.VectorType(ir.IntType(32), there.type.count)
        align, nothing = ir.Constant(ir.IntType(32), 4), ir.Constant(number, [0] * lanes)
        where = _vector_at(context, builder, signature, arguments, 0, arguments[1], lanes)
        guard = _call(builder, f"llvm.masked.load.v{lanes}i32.p0", number, where, align, there, nothing)
        column = builder.and_(guard, ir.Constant(number, [0x7FFF] * lanes))
        data = context.make_array(signature.args[3])(context, builder, arguments[3]).data
        if in_registers:
            own = builder.bitcast(data, number.as_pointer())
            halves = [builder.load(builder.gep(own, [ir.Constant(ir.IntType(64), half)]), align=4) for half in (0, 1)]
            return guard, _call(builder, "llvm.x86.avx512.vpermi2var.d.512", number, halves[0], column, halves[1])
        if HAS_PERMUTE:  # eight loads take a little less time than the gather of AVX2
            found = ir.Constant(number, ir.Undefined)
            for lane in range(lanes):
                at = ir.Constant(ir.IntType(32), lane)
                where = builder.zext(builder.extract_element(column, at), ir.IntType(64))
                found = builder.insert_element(found, builder.load(builder.gep(data, [where])), at)
            return guard, found
        longs = ir.VectorType(ir.IntType(64), lanes)
        offset = builder.shl(builder.zext(column, longs), ir.Constant(longs, [2] * lanes))
        places = builder.add(_spread(builder, builder.ptrtoint(data, ir.IntType(64)), longs), offset)
        pointers = builder.inttoptr(places, ir.VectorType(ir.IntType(32).as_pointer(), lanes))
        return guard, _call(
            builder, f"llvm.masked.gather.v{lanes}i32.v{lanes}p0", number, pointers, align, there, nothing
        )

    def _spread(builder: Any, scalar: Any, kind: Any) -> Any:
        """A vector of one number again and again."""
        first = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(
            first, first, ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
        )

    def _match_guards(*, in_registers: bool) -> Any:
        def match_guards(typing_context: Any, guards: Any, at: Any, count: Any, own: Any) -> Any:
            """Which of guards[at:at + count], up to GUARD_LANES, let an event pass whose buckets are `own`, and, 16 bits on, which of them decide."""

            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                lanes, long = GUARD_LANES, ir.IntType(64)
                number = ir.VectorType(ir.IntType(32), lanes)

                def all_of(value: int) -> Any:
                    return ir.Constant(number, [value] * lanes)

                left = _spread(builder, builder.trunc(arguments[2], ir.IntType(32)), number)
                there = builder.icmp_signed("<", ir.Constant(number, list(range(lanes))), left)
                guard, bucket = _load_guards(context, builder, signature, arguments, there, in_registers=in_registers)
                place = builder.and_(bucket, all_of(255))
                low = builder.and_(builder.lshr(guard, all_of(16)), all_of(255))
                high = builder.lshr(guard, all_of(24))
                compare = builder.icmp_signed
                span = builder.and_(builder.sub(high, low), all_of(255))  # a guard may go round, see `guards`
                inside = compare("<=", builder.and_(builder.sub(place, low), all_of(255)), span)
                there = builder.and_(there, builder.or_(compare(">", place, all_of(0)), compare("==", low, all_of(0))))
                between = builder.and_(compare("!=", place, low), compare("!=", place, high))
                certain = builder.or_(between, compare("!=", builder.and_(bucket, all_of(256)), all_of(0)))
                decides = compare("!=", builder.and_(guard, all_of(1 << 15)), all_of(0))
                found = builder.and_(inside, there)
                sure = builder.and_(builder.and_(found, certain), decides)
                bits = [builder.zext(builder.bitcast(each, ir.IntType(lanes)), long) for each in (found, sure)]
                return builder.or_(bits[0], builder.shl(bits[1], long(16)))

            return types.uint64(guards, types.int64, types.int64, own), generate

        return intrinsic(match_guards)

    match_guards = _match_guards(in_registers=False)
    # The same for at most 32 columns: their buckets are in two registers, and nothing is gathered from memory.
    match_guards_32 = _match_guards(in_registers=HAS_COMPRESS)

    @intrinsic
    def place_rows(
        typing_context: Any, columns: Any, at: Any, left: Any, own: Any, stride: Any, base: Any, places: Any, n: Any
    ) -> Any:
        """Write where the rows of columns[at:at + 8], of which `left` are left, start for an event with the codes `own` to places[n:].

        Columns are packed as `leaves` has them; `stride` and `base` are those of `leaves.gather_rows`.

        Returns the new n and, 32 bits on, how many of the codes are negative; these have no row. places[n:n + 16] may be overwritten.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            parts, lanes = (context, builder, signature, arguments), 8
            long, byte, kind = ir.IntType(64), ir.IntType(8), ir.VectorType(ir.IntType(64), lanes)

            def all_of(value: int) -> Any:
                return ir.Constant(kind, [value] * lanes)

            def part(first: int, bits: int) -> Any:
                return builder.and_(builder.lshr(packed, all_of(first)), all_of(2**bits - 1))

            def append(rows: Any, chosen: Any, n: Any) -> Any:
                name, rest = f"llvm.experimental.vector.compress.v{lanes}i64", ir.Constant(kind, ir.Undefined)
                chosen_rows = _call(builder, name, kind, rows, chosen, rest)
                builder.store(chosen_rows, _vector_at(*parts, 6, n, lanes), align=8)
                return builder.add(n, count(chosen))

            def count(chosen: Any) -> Any:
                return builder.zext(builder.ctpop(builder.bitcast(chosen, byte)), long)

            left = _spread(builder, arguments[2], kind)
            there = builder.icmp_signed("<", ir.Constant(kind, list(range(lanes))), left)
            align = ir.Constant(ir.IntType(32), 8), ir.Constant(ir.IntType(32), 4)
            where = _vector_at(*parts, 0, arguments[1], lanes)
            name = f"llvm.masked.load.v{lanes}i64.p0"
            packed = _call(builder, name, kind, where, align[0], there, all_of(0))
            data = context.make_array(signature.args[3])(context, builder, arguments[3]).data
            offset = builder.shl(part(0, 16), all_of(2))
            addresses = builder.add(_spread(builder, builder.ptrtoint(data, long), kind), offset)
            pointers = builder.inttoptr(addresses, ir.VectorType(ir.IntType(32).as_pointer(), lanes))
            number = ir.VectorType(ir.IntType(32), lanes)
            name, nothing = f"llvm.masked.gather.v{lanes}i32.v{lanes}p0", ir.Constant(number, [0] * lanes)
            code = builder.sext(_call(builder, name, number, pointers, align[1], there, nothing), kind)
            mask = builder.sub(builder.shl(all_of(1), part(21, 5)), all_of(1))
            bucket = builder.and_(builder.ashr(code, part(16, 5)), mask)
            folded = part(26, 1)
            is_first = builder.icmp_signed(">", folded, bucket)
            row = builder.select(is_first, all_of(0), builder.sub(bucket, folded))
            row = builder.add(row, builder.lshr(packed, all_of(32)))
            stride = _spread(builder, arguments[4], kind)
            low = all_of(2**32 - 1)
            row = builder.mul(builder.and_(row, low), builder.and_(stride, low))
            row = builder.add(row, _spread(builder, arguments[5], kind))
            has_row = builder.and_(there, builder.icmp_signed(">=", code, all_of(0)))
            n = append(row, has_row, arguments[7])
            n = append(builder.add(row, stride), builder.and_(has_row, is_first), n)
            lists = count(builder.icmp_signed("<", code, all_of(0)))
            return builder.or_(n, builder.shl(lists, long(32)))

        form = types.int64(columns, types.int64, types.int64, own, types.int64, types.int64, places, types.int64)
        return form, generate

    @intrinsic
    def stay_apart(typing_context: Any) -> Any:
        """Keep the function that calls this out of its callers' code."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            builder.function.attributes.add("noinline")
            return context.get_dummy_value()

        return types.void(), generate

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

    def _and_of_rows(context: Any, builder: Any, signature: Any, arguments: Any, lanes: int) -> Any:
        """The AND of some rows as a vector; the arguments are maps, places, count, at and others."""
        starts = context.make_array(signature.args[1])(context, builder, arguments[1]).data
        vector = ir.VectorType(ir.IntType(64), lanes)
        total = cgutils.alloca_once_value(builder, ir.Constant(vector, [2**64 - 1] * lanes))
        with cgutils.for_range(builder, arguments[2]) as loop:
            start = builder.load(builder.gep(starts, [loop.index]))
            first = builder.add(start, arguments[3])
            row = builder.load(_vector_at(context, builder, signature, arguments, 0, first, lanes), align=8)
            builder.store(builder.and_(builder.load(total), row), total)
        return builder.load(total)

    def _count_bits(builder: Any, words: Any) -> Any:
        """Number of set bits in a vector."""
        bits = _call(builder, f"llvm.ctpop.v{words.type.count}i64", words.type, words)
        return _call(builder, f"llvm.vector.reduce.add.v{words.type.count}i64", ir.IntType(64), bits)

    @intrinsic
    def count_both_4(typing_context: Any, a: Any, i: Any, b: Any, k: Any) -> Any:
        """Number of bits that are set both in a[i:i + 4] and in b[k:k + 4]."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            parts = context, builder, signature, arguments
            words = [builder.load(_vector_at(*parts, array, arguments[array + 1], 4), align=8) for array in (0, 2)]
            return _count_bits(builder, builder.and_(*words))

        return types.int64(a, types.int64, b, types.int64), generate

    def _and_rows(lanes: int) -> Any:
        @intrinsic
        def and_rows(typing_context: Any, maps: Any, places: Any, count: Any, at: Any, found: Any) -> Any:
            """AND `lanes` words of rows places[:count], from word `at` on, into found."""

            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                total = _and_of_rows(context, builder, signature, arguments, lanes)
                target = _vector_at(context, builder, signature, arguments, 4, arguments[3], lanes)
                builder.store(total, target, align=8)
                return context.get_dummy_value()

            return types.void(maps, places, types.int64, types.int64, found), generate

        return and_rows

    def _count_rows(lanes: int) -> Any:
        @intrinsic
        def count_rows(typing_context: Any, maps: Any, places: Any, count: Any, at: Any, skip: Any) -> Any:
            """Number of set bits in the AND of rows places[:count], of `lanes` words from `at` on but for the first `skip`."""

            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                words = _and_of_rows(context, builder, signature, arguments, lanes)
                zero = ir.Constant(ir.IntType(32), 0)
                skip = builder.insert_element(ir.Constant(words.type, ir.Undefined), arguments[4], zero)
                skip = builder.shuffle_vector(
                    skip, skip, ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
                )
                kept = builder.icmp_signed(">=", ir.Constant(words.type, list(range(lanes))), skip)
                words = builder.and_(words, builder.sext(kept, words.type))
                return _count_bits(builder, words)

            return types.int64(maps, places, types.int64, types.int64, types.int64), generate

        return count_rows


and_rows_1 = _and_rows(1)
and_rows_2 = _and_rows(2)
and_rows_4 = _and_rows(4)
and_rows_16 = _and_rows(16)
count_rows_1 = _count_rows(1)
count_rows_4 = _count_rows(4)
count_rows_16 = _count_rows(16)
