"""Arrays of different lengths in one Arrow IPC file, each usable where it lies when the file is mapped.

An IPC file has one record batch of one row. Each column is a list whose single value is an array, so that arrays of
different lengths share a file and any Arrow reader can look at them (`pyarrow.ipc.open_file(f).read_all()`): numbers as
numbers, booleans as one byte each, other fixed-width types as fixed-size binaries, 2-D arrays row by row. Arrow aligns
buffers to 8 bytes; columns named `.pad` fill up to 64, the width of a cache line and of the widest vector register.

A `Extent` says where an array lies. Reading takes places, checked against the size of the file, and never parses IPC
metadata: no length is left that a file could lie about, there is nothing to decompress and nothing to allocate.
"""

from __future__ import annotations

import math
import mmap
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

StoredArray: TypeAlias = npt.NDArray[Any] | pa.Array

ALIGNMENT = 64
LONGEST = 1 << 40

_DTYPE = re.compile(
    r"\|b1|\|[iu]1|[<>]([iu][248]|f[248]|c8|c16|[mM]8\[[1-9]?[0-9]{0,5}[a-zA-Z]{1,2}\])|\|[SV][1-9][0-9]{0,3}"
)
_STRINGS = {"string": (pa.string(), 4), "large_string": (pa.large_string(), 8)}


class Extent(NamedTuple):
    """Where an array is: `type` is a NumPy dtype, `string` or `large_string`.

    Buffers are (offset, bytes): one for a NumPy array; validity (None: no NULLs), offsets and data for strings.
    """

    file: str
    type: str
    shape: tuple[int, ...]
    buffers: tuple[tuple[int, int] | None, ...]


def is_count(value: object) -> bool:
    """Whether a value out of a JSON text is a number of things."""
    return type(value) is int and value >= 0


# -- reading ----------------------------------------------------------------------------------------------------------


def find_fault(place: Extent, file_bytes: int) -> str | None:
    """Why a place cannot be true of a file of this size; None: it can.

    The fields may be anything JSON can say: numbers are Python's here and do not overflow; what is of a wrong type
    altogether raises TypeError or ValueError.
    """
    if place.type not in _STRINGS and not _DTYPE.fullmatch(place.type):
        return f"{place.type!r:.60} is not a type of fixed width"
    if not 1 <= len(place.shape) <= 2 or not all(is_count(n) and n <= LONGEST for n in place.shape):
        return f"{place.shape!r:.60} is not a shape"
    for buffer in place.buffers:
        if buffer is not None:
            offset, size = buffer
            if not is_count(offset) or not is_count(size) or offset % 8 or offset + size > file_bytes:
                return f"{buffer!r:.60} does not lie inside its file"
    held = tuple(None if b is None else b[1] for b in place.buffers)
    if place.type in _STRINGS:
        length = place.shape[0]
        data = held[2] if len(held) == 3 else None
        wanted: tuple[int | None, ...] = (-(-length // 8), (length + 1) * _STRINGS[place.type][1], data)
        right = len(place.shape) == 1 and data is not None and held in (wanted, (None, *wanted[1:]))
        return None if right else f"{held!r:.60} bytes are not those of {length} texts"
    if held != (math.prod(place.shape) * np.dtype(place.type).itemsize,):
        return f"{held!r:.60} bytes are not those of its shape"
    return f"it is not at a multiple of {ALIGNMENT}" if (place.buffers[0] or (0,))[0] % ALIGNMENT else None


def read_array(file: mmap.mmap, place: Extent) -> StoredArray:
    """The array at a place without fault, read-only and not copied.

    Raises ValueError for what the bytes alone can get wrong: texts, and booleans that are neither 0 nor 1.
    """
    if place.type in _STRINGS:
        return _read_strings(file, place)
    (buffer,) = place.buffers
    assert buffer is not None
    dtype = np.dtype(place.type)
    if not buffer[1]:
        empty = np.zeros(place.shape, dtype)
        empty.flags.writeable = False
        return empty
    array = np.frombuffer(file, dtype, buffer[1] // dtype.itemsize, buffer[0])
    # NumPy counts the true values of a mask by adding up its bytes: with other bytes it would write past its result.
    if dtype.kind == "b" and array.view(np.uint8).max() > 1:
        raise ValueError("it has booleans that are neither 0 nor 1")
    return array.reshape(place.shape)


def _read_strings(file: mmap.mmap, place: Extent) -> pa.Array:
    view = memoryview(file)
    buffers = [None if b is None else pa.py_buffer(view[b[0] : b[0] + b[1]]) for b in place.buffers]
    try:
        array = pa.Array.from_buffers(_STRINGS[place.type][0], place.shape[0], buffers)
        array.validate(full=True)
    except pa.ArrowException as error:
        raise ValueError(f"it holds no texts: {error}") from None
    return array


# -- writing ----------------------------------------------------------------------------------------------------------


def write_arrays(path: Path, arrays: Mapping[str, StoredArray]) -> dict[str, Extent]:
    """Write a new file, sync it, and return the places of the arrays. Raises TypeError for what cannot be stored."""
    columns = {name: _stored(name, array) for name, array in arrays.items()}
    batch = _aligned_batch({name: child for name, (child, _, _) in columns.items()})
    with path.open("xb") as file:
        with pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
        file.flush()
        os.fsync(file.fileno())
    with pa.memory_map(str(path)) as source:
        base = source.read_buffer()
        written = pa.ipc.open_file(base).get_batch(0)
        return {
            name: Extent(path.name, kind, shape, _buffers_of(written[name].values, base.address))
            for name, (_, kind, shape) in columns.items()
        }


def _stored(name: str, array: StoredArray) -> tuple[pa.Array, str, tuple[int, ...]]:
    """An array as Arrow holds it, its type and its shape."""
    if isinstance(array, pa.Array) and str(array.type) in _STRINGS:
        return array, str(array.type), (len(array),)
    fits = isinstance(array, np.ndarray) and not array.dtype.names and array.ndim in (1, 2)
    if not fits or not _DTYPE.fullmatch(array.dtype.str):
        kind = (
            f"{array.dtype}, {array.ndim}-D"
            if isinstance(array, np.ndarray)
            else getattr(array, "type", type(array).__name__)
        )
        raise TypeError(
            f"array {name!r} ({kind}): only 1-D and 2-D arrays of fixed width and Arrow string arrays are stored"
        )
    flat, dtype = np.ascontiguousarray(array).reshape(-1), array.dtype
    if dtype.kind == "b":
        kind = pa.uint8()
    elif dtype.kind in "iuf" and dtype.isnative:
        kind = pa.from_numpy_dtype(dtype)
    else:
        kind = pa.binary(dtype.itemsize)
    return pa.Array.from_buffers(kind, flat.size, [None, pa.py_buffer(flat.view(np.uint8))]), dtype.str, array.shape


def _aligned_batch(children: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """One row, one list per array. Strings come last; before each other array stands the padding that aligns it.

    Where the body of a batch begins depends on the number and types of its columns, not on their lengths, so it is
    measured on a batch of empty lists. In the body, buffers follow each other, each filled up to 8 bytes.
    """
    numbers = {name: child for name, child in children.items() if str(child.type) not in _STRINGS}
    strings = {name: child for name, child in children.items() if name not in numbers}
    names = [n for name in numbers for n in (".pad", name)] + list(strings)
    empty = [c for child in numbers.values() for c in (_PADS[0], _one_list(child.slice(0, 0)))]
    empty += [_one_list(child.slice(0, 0)) for child in strings.values()]
    at = _body_offset(pa.record_batch(empty, names)) if numbers else 0
    columns = []
    for child in numbers.values():
        at += 8 + 16  # the offsets of the padding, and those of the list
        padding = -at % ALIGNMENT
        at += padding + -(-child.nbytes // 8) * 8
        columns += [_PADS[padding], _one_list(child)]
    return pa.record_batch([*columns, *map(_one_list, strings.values())], names)


def _pad(size: int) -> pa.Array:
    """One row of so many bytes. Of buffers: the first `pa.array` of a process loads pandas, which takes a third of a second."""
    ends = np.array([0, size], np.int32)
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(ends), pa.py_buffer(bytes(size))])


_PADS = [_pad(n) for n in range(ALIGNMENT)]


def _one_list(child: pa.Array) -> pa.Array:
    """One row that is a list. Of buffers, because a save makes hundreds, and Arrow takes longer to read Python's numbers."""
    ends = pa.py_buffer(np.array([0, len(child)], np.int64))
    return pa.Array.from_buffers(pa.large_list(child.type), 1, [None, ends], children=[child])


def _body_offset(batch: pa.RecordBatch) -> int:
    """Where the first buffer of a batch comes to lie in a file of its own; that of a padding is never empty."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    file = sink.getvalue()
    return int(pa.ipc.open_file(file).get_batch(0).column(0).buffers()[1].address - file.address)


def _buffers_of(child: pa.Array, base: int) -> tuple[tuple[int, int] | None, ...]:
    """Places of the buffers of an array, given the address at which its file was read."""

    def place(buffer: pa.Buffer | None, size: int) -> tuple[int, int]:
        return (0, 0) if buffer is None or not size else (buffer.address - base, size)

    n = len(child)
    if str(child.type) not in _STRINGS:
        return (place(child.buffers()[1], child.nbytes),)
    validity, offsets, data = child.buffers()
    width = _STRINGS[str(child.type)][1]
    there = place(validity, -(-n // 8)) if child.null_count else None
    return there, place(offsets, (n + 1) * width), place(data, 0 if data is None else data.size)
