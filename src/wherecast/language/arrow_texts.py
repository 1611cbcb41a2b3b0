"""Texts of many events, by Arrow and by kernels over its buffers: the commonest functions, casts and conditions.

Each function is the same as that of single texts in `functions.text`, which says what Spark computes; `tests/property` compares the
two. Where Arrow and Spark differ only beyond ASCII, such texts are computed one by one. What Arrow lacks, or takes long for, is a kernel of
`kernels.texts`; so are `lower` and `upper`, since Arrow has another idea than Spark of the case of some letters.

Texts are strings of Arrow, as events have them, or large strings, which kernels make: widening the offsets takes as long as `lower`. Other
arguments are plain values. What a kernel counts is a `Nullable`. None means: one by one.

This module is imported where it is called: what only checks filters does not load Arrow.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache, lru_cache, reduce
from itertools import count
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.kernels import texts as kernels
from wherecast.kernels.arrays import Bools, Bytes, Longs, Words
from wherecast.kernels.jit import address_of, direct, frozen
from wherecast.language.events.types import Type
from wherecast.language.functions.regexes import check_pattern, replacement_pieces
from wherecast.language.functions.text import MOST_GROWN
from wherecast.language.nullable import Nullable, arrow_valid, is_valid_everywhere, valid_everywhere
from wherecast.language.syntax.patterns import like_form

#: Many texts, or one for all rows; PyArrow has no types.
Text: TypeAlias = Any


_NO_BYTES = frozen(np.zeros(0, np.uint8))
_LARGE_STRING = pa.large_string().id
_STRINGS = (pa.string().id, _LARGE_STRING)


def string_buffers(values: pa.Array) -> tuple[npt.NDArray[Any], Bytes]:
    """Offsets and bytes of a column of strings or large strings, without copying."""
    width = np.int64 if values.type.id == _LARGE_STRING else np.int32
    _, offsets, data = values.buffers()
    if offsets is None or len(values) == 0:
        return frozen(np.zeros(len(values) + 1, width)), _NO_BYTES
    ends = frozen(np.frombuffer(offsets, width)[values.offset : values.offset + len(values) + 1])
    return ends, frozen(np.frombuffer(data, np.uint8)) if data is not None and data.size else _NO_BYTES


def _are_ascii(offsets: Longs, data: Bytes) -> bool:
    """Whether texts have no other letters; what NULLs hide counts too."""
    return int(data[offsets[0] : offsets[-1]].max(initial=0)) < 128


def _count_bytes(texts: pa.Array) -> int:
    offsets, _ = string_buffers(texts)
    return int(offsets[-1]) - int(offsets[0])


def _made_of(texts: pa.Array, offsets: Longs, data: Bytes) -> pa.Array:
    """New texts, NULL where those that they are made of are."""
    kind = pa.string() if offsets.dtype == np.int32 else pa.large_string()
    return _null_as(texts, kind, pa.py_buffer(offsets), pa.py_buffer(data))


def _null_as(texts: pa.Array, kind: pa.DataType, *buffers: pa.Buffer) -> pa.Array:
    """The texts of offsets and bytes, NULL where others are."""
    valid = None
    if texts.null_count:
        bitmap = texts.buffers()[0] if texts.offset % 8 == 0 else texts.is_valid().buffers()[1]
        valid = bitmap.slice(texts.offset // 8) if texts.offset % 8 == 0 else bitmap
    return pa.Array.from_buffers(kind, len(texts), [valid, *buffers], -1 if texts.null_count else 0)


def _written(texts: pa.Array, write: Callable[..., None], *given: Any, most: int | None = None) -> pa.Array:
    """What a kernel makes of each text. All together have at most so many bytes, or as many as before.

    Memory is taken for the result only. The C library returns freed memory to the system when it is more than twice the largest piece,
    and gets it back page by page: `trim` of 200,000 texts took twice as long with arrays between two passes.
    """
    offsets, data = string_buffers(texts)
    room = int(offsets[-1]) - int(offsets[0]) if most is None else most
    ends = np.empty(offsets.size, offsets.dtype if room <= _MOST_BYTES else np.int64)
    out = np.empty(room + kernels.SPARE, np.uint8)
    write(offsets, data, *given, ends, out)
    return _made_of(texts, ends, out)


def _bytes(text: str) -> Bytes:
    found: Bytes = frozen(np.frombuffer(text.encode(), np.uint8))
    return found


def _numbers(texts: pa.Array, values: npt.NDArray[Any]) -> Nullable:
    return Nullable(values, arrow_valid(texts))


def _cased(letter: str, by_neighbours: str, one: Callable[[str], str]) -> Callable[[pa.Array], pa.Array]:
    """Turns letters into the other case as a function of Python does.

    Those of ASCII, from one on, are turned in one pass that tells whether there are others, too. What others become does not depend on
    their neighbours, but for a few.
    """
    first = ord(letter)

    @cache
    def table() -> Words:
        found = np.zeros(_END_OF_CASES, np.uint64)
        for number in range(_END_OF_CASES):
            new = one(chr(number))
            if new != chr(number):
                found[number] = int.from_bytes(new.encode(), "little") | len(new.encode()) << 56
        found[list(map(ord, by_neighbours))] = kernels.BY_NEIGHBOURS << 56
        return frozen(found)  # type: ignore[no-any-return]

    def compute(texts: pa.Array) -> pa.Array:
        kind, start, n = texts.type, texts.offset, len(texts)
        if not n:
            return texts
        valid, offsets, data = texts.buffers()
        is_large, ends = kind.id == _LARGE_STRING, offsets.address
        end = (_long_at(ends + 8 * (start + n)) if is_large else _int_at(ends + 4 * (start + n))).value
        if not end:
            return texts
        out = pa.allocate_buffer(end)  # every text stays where it is
        if _switch_case()(ends, is_large, start, n, data.address, first, out.address):
            return pa.Array.from_buffers(kind, n, [valid, offsets, out], texts.null_count, start)
        offsets, letters = string_buffers(texts)
        beyond = int(np.count_nonzero(letters[offsets[0] : offsets[-1]] & 128))
        is_left = np.empty(n, np.bool_)
        most = int(offsets[-1]) - int(offsets[0]) + (_MOST_BYTES_OF_ONE - 1) * beyond
        cased = _written(texts, kernels.switch_letters, first, table(), is_left, most=most)
        is_left &= arrow_valid(texts)
        if not is_left.any():
            return cased
        rows = pa.array(is_left)
        return pc.replace_with_mask(cased, rows, pa.array(map(one, texts.filter(rows).to_pylist()), cased.type))

    return compute


#: Characters from this number on have no case; and as many bytes one may become for each of its own.
_END_OF_CASES, _MOST_BYTES_OF_ONE = 1 << 17, 3
#: The number at an address: a tenth of the time that an array or a piece of a buffer takes.
_int_at, _long_at = ctypes.c_int32.from_address, ctypes.c_int64.from_address


@cache
def _switch_case() -> Callable[..., bool]:
    return direct(kernels.switch_case, *(0,) * 7)


octet_length, reverse = pc.binary_length, pc.utf8_reverse
lower = _cased("A", "Σ", str.lower)
upper = _cased("a", "", str.upper)


def length(texts: pa.Array) -> Nullable:
    offsets, data = string_buffers(texts)
    if _are_ascii(offsets, data):
        return _numbers(texts, np.subtract(offsets[1:], offsets[:-1], dtype=np.int64))
    counts = np.empty(len(texts), np.int64)
    kernels.count_characters(offsets, data, counts)
    return _numbers(texts, counts)


def bit_length(texts: pa.Array) -> pa.Array:
    return pc.multiply(pc.binary_length(texts).cast(pa.int64()), 8)


def _with_constant(search: Callable[[pa.Array, str], Any]) -> Callable[[Text, Text], Any]:
    """A search for one text in many."""
    return lambda texts, part: search(texts, part) if isinstance(texts, pa.Array) and isinstance(part, str) else None


contains = _with_constant(pc.match_substring)
startswith = _with_constant(pc.starts_with)
endswith = _with_constant(pc.ends_with)


def find_from(texts: pa.Array, part: str, at: int) -> Nullable:
    """As `locate`: positions from 1, and the empty text is at the first."""
    offsets, data = string_buffers(texts)
    places = np.zeros(len(texts), np.int64)
    if at >= 1:
        kernels.locate_part(offsets, data, _bytes(part), at if part else 1, _are_ascii(offsets, data), places)
    return _numbers(texts, places)


instr = _with_constant(lambda texts, part: find_from(texts, part, 1))


def _trimmed(at_start: bool, at_end: bool, by_arrow: Callable[[pa.Array, str], pa.Array]) -> Callable[..., Any]:
    """Spark has what is removed before the text."""

    def compute(*given: Text) -> pa.Array | None:
        texts, characters = given[-1], given[0] if len(given) > 1 else " "
        if isinstance(texts, str) or not isinstance(characters, str):
            return None
        if not characters.isascii():
            return by_arrow(texts, characters)
        is_removed = _table_of(characters)
        return _written(texts, kernels.trim_parts, is_removed, at_start, at_end) if characters else texts

    return compute


@lru_cache(maxsize=4096)
def _table_of(characters: str) -> Bools:
    """Which bytes are among some characters of ASCII."""
    table = np.zeros(256, np.bool_)
    table[list(characters.encode())] = True
    found: Bools = frozen(table)
    return found


trim = _trimmed(True, True, pc.utf8_trim)
ltrim, rtrim = _trimmed(True, False, pc.utf8_ltrim), _trimmed(False, True, pc.utf8_rtrim)


def btrim(texts: Text, characters: Text = " ") -> Any:
    return trim(characters, texts)


def substring(texts: Text, at: int, count: int = 2**31 - 1) -> pa.Array | None:
    """A start before the text takes as many characters less."""
    if isinstance(texts, str):
        return None
    first, count, is_ascii = at - 1 if at > 0 else at, max(count, 0), _are_ascii(*string_buffers(texts))
    most = min(4 * count * len(texts), _count_bytes(texts))
    return _written(texts, kernels.slice_parts, first, count, is_ascii, most=most)


def left(texts: Text, count: int) -> pa.Array | None:
    return substring(texts, 1, count)


def right(texts: Text, count: int) -> pa.Array | None:
    return substring(texts, -count) if count > 0 else substring(texts, 1, 0)


def split_part(texts: Text, mark: Text, number: int) -> pa.Array | None:
    if isinstance(texts, str) or not isinstance(mark, str) or not mark or number == 0:
        return None
    return _written(texts, kernels.split_parts, _bytes(mark), number)


def substring_index(texts: Text, mark: Text, count: int) -> pa.Array | None:
    if isinstance(texts, str) or not isinstance(mark, str):
        return None
    if not mark or count == 0:
        return substring(texts, 1, 0)
    return _written(texts, kernels.index_parts, _bytes(mark), count)


def translate(texts: Text, old: Text, new: Text) -> pa.Array | None:
    if isinstance(texts, str) or not (isinstance(old, str) and isinstance(new, str) and (old + new).isascii()):
        return None
    by = np.arange(256, dtype=np.int16)
    for i in reversed(range(len(old))):  # the first of equal characters counts
        by[ord(old[i])] = ord(new[i]) if i < len(new) and new[i] != "\0" else -1
    return _written(texts, kernels.replace_bytes, by)


def initcap(texts: pa.Array) -> pa.Array | None:
    offsets, data = string_buffers(texts)
    if not _are_ascii(offsets, data):
        return None
    out = np.empty(int(offsets[-1] - offsets[0]), np.uint8)
    kernels.capitalise(offsets, data, out)
    return _made_of(texts, offsets - offsets[0], out)


#: Bytes of texts that offsets of 32 bits count.
_MOST_BYTES = 2**31 - 1


def _may_grow(texts: pa.Array, times: int) -> bool:
    """Whether texts that become so many times as long stay below the limits; else they are made one by one, and may be refused."""
    offsets, _ = string_buffers(texts)
    size = (int(offsets[-1]) - int(offsets[0])) * times
    return size <= MOST_GROWN or (size <= _MOST_BYTES and int(np.diff(offsets).max()) * times <= MOST_GROWN)


def _padded(is_left: bool) -> Callable[..., pa.Array | None]:
    def compute(texts: Text, size: int, fill: Text = " ") -> pa.Array | None:
        if isinstance(texts, str) or not isinstance(fill, str):
            return None
        offsets, data = string_buffers(texts)
        fill_ends = np.cumsum([len(c.encode()) for c in fill], dtype=np.int64)
        size = max(size, 0)
        given = fill_ends, size, _are_ascii(offsets, data)
        filled = -(-size // len(fill)) * int(fill_ends[-1]) if fill else 0  # of an empty text
        most = _count_bytes(texts) + len(texts) * filled
        if most > _MOST_BYTES:
            most = kernels.measure_padded(offsets, data, *given)
        if most > _MOST_BYTES:
            return None
        return _written(texts, kernels.pad_texts, _bytes(fill), *given, is_left, most=most)

    return compute


lpad, rpad = _padded(True), _padded(False)


def repeat(texts: Text, times: int) -> pa.Array | None:
    if isinstance(texts, str) or not _may_grow(texts, times):
        return None
    return pc.binary_repeat(texts, max(times, 0))


def concat_ws(mark: Text, *texts: Text) -> pa.Array | None:
    """NULLs are left out."""
    if not isinstance(mark, str) or not texts:
        return None
    can_be_null = not any(isinstance(text, str) for text in texts)
    if can_be_null and not np.logical_or.reduce([arrow_valid(text) for text in texts]).all():
        return None  # Arrow 25 loses rows in which all are NULL
    return pc.binary_join_element_wise(*_of_one_kind(*texts, mark), null_handling="skip")


def concat(*texts: Text) -> pa.Array:
    """NULL where one of them is."""
    arrays = [text for text in texts if not isinstance(text, str)]
    rows, size, columns = len(arrays[0]), 0, np.empty((len(texts), 5), np.int64)
    read = [_one_text(text) if isinstance(text, str) else string_buffers(text) for text in texts]  # which keeps them
    for column, (offsets, data), text in zip(columns, read, texts, strict=True):
        is_array = not isinstance(text, str)
        column[:] = address_of(offsets), offsets.itemsize, address_of(data), data.size, is_array
        size += (int(offsets[-1]) - int(offsets[0])) * (1 if is_array else rows)
    ends: Longs = np.empty(rows + 1, np.int32 if size <= _MOST_BYTES else np.int64)
    out = np.empty(size + kernels.SPARE, np.uint8)
    kernels.join_texts(columns, ends, out)
    with_nulls = [array for array in arrays if array.null_count]
    if len(with_nulls) > 1:  # any texts of this mask
        known = reduce(pc.and_, (array.is_valid() for array in with_nulls))
        with_nulls = [pc.if_else(known, "", pa.scalar(None, pa.string()))]
    return _made_of(with_nulls[0] if with_nulls else arrays[0], ends, out)


def _one_text(text: str) -> tuple[npt.NDArray[Any], Bytes]:
    data = _bytes(text)
    return np.array([0, data.size], np.int64), data


def _of_one_kind(*texts: Text) -> list[Any]:
    """Arrays and scalars of strings, or of large ones if one is large or all together have too many bytes."""
    arrays = [text for text in texts if not isinstance(text, str)]
    rows = len(arrays[0]) if arrays else 0
    size = sum(rows * len(t.encode()) if isinstance(t, str) else _count_bytes(t) for t in texts)
    is_small = size <= _MOST_BYTES and all(pa.types.is_string(array.type) for array in arrays)
    kind = pa.string() if is_small else pa.large_string()
    return [pa.scalar(t, kind) if isinstance(t, str) else t if is_small else t.cast(kind) for t in texts]


def replace(texts: Text, old: Text, new: Text = "") -> pa.Array | None:
    if isinstance(texts, str) or not isinstance(old, str) or not isinstance(new, str):
        return None
    if not old:
        return texts
    before, after, size = _bytes(old), _bytes(new), _count_bytes(texts)
    if after.size > before.size and not _may_grow(texts, after.size):
        return None
    most = size + size // before.size * max(after.size - before.size, 0)
    return _written(texts, kernels.replace_parts, before, after, most=most)


# -- patterns ---------------------------------------------------------------------------------------------------------

#: RE2 writes a group in a replacement with one digit.
_MOST_GROUPS = 9
#: What looks at more than the characters that it matches. Arrow goes on behind a match as if a text began there.
_LOOKS_AROUND = re.compile(r"(?<!\[)\^|\\[AbB]")
_GROUP = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?!\?)|\(\?P<[^>]*>", re.DOTALL)


@lru_cache(maxsize=4096)
def _plain_pattern(pattern: str) -> str | None:
    """A pattern as RE2 has it, if its matches say all: `$` may stand before the end of a line (see `functions.regexes`)."""
    regex = check_pattern(pattern)
    text: str = regex.compiled.pattern
    return None if regex.before_line_end or _LOOKS_AROUND.search(text) else text


def regexp_count(texts: Text, pattern: Text) -> pa.Array | None:
    if isinstance(texts, str) or not isinstance(pattern, str):  # Arrow takes one pattern for all texts
        return None
    plain = _plain_pattern(pattern)
    return None if plain is None else pc.count_substring_regex(texts, plain)


def regexp_instr(texts: Text, pattern: Text) -> pa.Array | None:
    if not isinstance(pattern, str):
        return None
    regex = check_pattern(pattern)
    if isinstance(texts, str) or regex.before_line_end or not _are_ascii(*string_buffers(texts)):
        return None
    return pc.add(pc.find_substring_regex(texts, regex.compiled.pattern), 1)


def regexp_extract(texts: Text, pattern: Text, group: int = 1) -> pa.Array | None:
    """Arrow wants names for all groups, and takes less time if there is one only."""
    if not isinstance(pattern, str):
        return None
    regex = check_pattern(pattern)
    if isinstance(texts, str) or regex.before_line_end or not 0 <= group <= regex.compiled.groups:
        return None
    named, count = _name_group(f"({regex.compiled.pattern})", group)
    if count != regex.compiled.groups + 1:
        return None
    found = pc.extract_regex(texts, named)
    # Where nothing is found, Arrow's struct is NULL, and what stands below it is empty, as Spark wants it.
    part = found.field("found")
    assert part.offset == 0, "Arrow made it"
    return _null_as(texts, part.type, *part.buffers()[1:])


@lru_cache(maxsize=4096)
def _name_group(pattern: str, wanted: int) -> tuple[str, int]:
    """A pattern whose only group is the wanted one, counted from 0, and how many it had."""
    numbers = count()

    def name(found: re.Match[str]) -> str:
        if not found[0].startswith("("):
            return found[0]
        return "(?P<found>" if next(numbers) == wanted else "(?:"

    return _GROUP.sub(name, pattern), next(numbers)


def regexp_substr(texts: Text, pattern: Text) -> pa.Array | None:
    found = regexp_extract(texts, pattern, 0)
    return None if found is None else pc.if_else(pc.equal(found, ""), pa.scalar(None, found.type), found)


def regexp_replace(texts: Text, pattern: Text, new: Text) -> pa.Array | None:
    if isinstance(texts, str) or not isinstance(pattern, str) or not isinstance(new, str):
        return None
    plain = _plain_pattern(pattern)
    if plain is None:
        return None
    written, times = _write_replacement(new, check_pattern(pattern).compiled.groups)
    if written is None or not _may_grow(texts, times):
        return None
    return pc.replace_substring_regex(texts, plain, written)


@lru_cache(maxsize=4096)
def _write_replacement(new: str, groups: int) -> tuple[str | None, int]:
    """A replacement as RE2 has it, if it can be written so, and how many times as long texts become at most."""
    pieces = replacement_pieces(new, groups)
    numbers = [piece for piece in pieces if isinstance(piece, int)]
    written = "".join(f"\\{p}" if isinstance(p, int) else p.replace("\\", "\\\\") for p in pieces)
    return (written if max(numbers, default=0) <= _MOST_GROUPS else None), 1 + len(numbers) + len(new.encode())


# -- conditions -------------------------------------------------------------------------------------------------------

#: Arrow's searches for one literal, by the form of a pattern.
_BY_FORM = {"infix": pc.match_substring, "suffix": pc.ends_with, "prefix": pc.starts_with}
_COMPARE = {
    "=": pc.equal,
    "<=>": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def are_like(texts: pa.Array, kind: str, pattern: str) -> Bools | None:
    """Which texts match a LIKE pattern of one literal (of ILIKE, texts in lower case); None for other patterns."""
    form = None if kind == "rlike" else like_form(pattern.lower() if kind == "ilike" else pattern)
    search = None if form is None else _BY_FORM.get(form.name)
    return None if form is None or search is None else from_arrow(search(texts, form.literal[1:])).values


def are_among(texts: pa.Array, members: set[str]) -> Bools:
    found: Bools = from_arrow(pc.is_in(texts, pa.array(sorted(members), texts.type), skip_nulls=True)).values
    return found


def compare_texts(op: str, left: Nullable, right: Nullable) -> Bools:
    """The order of UTF-8, which Arrow compares by, is that of code points, which Spark and Python compare by."""
    sides = _of_one_kind(*(s.values[0] if s.is_constant else s.texts for s in (left, right)))
    found: Bools = from_arrow(_COMPARE[op](*sides)).values
    return found


# -- from and to other values -----------------------------------------------------------------------------------------


def texts_of(operand: Nullable) -> pa.Array:
    """Python's strings as Arrow has them."""
    if operand.is_constant:
        return pa.repeat(pa.scalar(operand.values[0], pa.large_string()), operand.valid.size)
    return pa.array(operand.values, pa.large_string(), mask=~operand.valid)


def from_arrow(array: pa.Array | Nullable) -> Nullable:
    """Texts, numbers or booleans that Arrow computed; what a kernel computed is in this form already."""
    if isinstance(array, Nullable):
        return array
    if array.type.id in _STRINGS:
        return Nullable.of_texts(array)
    valid = arrow_valid(array)
    if pa.types.is_integer(array.type):
        array = array.cast(pa.int64())
    if array.null_count:
        array = array.fill_null(pa.scalar(0).cast(array.type))
    return Nullable(array.to_numpy(zero_copy_only=False), valid)


def take_texts(texts: pa.Array, places: Longs) -> pa.Array:
    """The texts at places, NULL where a place is negative."""
    return texts.cast(pa.large_string()).take(pa.array(places, mask=places < 0))


def take_rows(texts: pa.Array, rows: npt.NDArray[Any]) -> pa.Array:
    """Some of the texts; one may be taken many times, so they may have more bytes than before."""
    return texts.cast(pa.large_string()).take(rows)


def choose_texts(use_first: Bools, first: Nullable, other: Nullable) -> Nullable:
    """The texts of the first where the mask says so, else those of the other."""
    return Nullable.of_texts(pc.if_else(pa.array(use_first), *_of_one_kind(first.texts, other.texts)))


#: Digits that fit, by the type that is read.
_MOST_DIGITS = {Type.TINYINT: 2, Type.SMALLINT: 4, Type.INT: 9, Type.BIGINT: 18}
_POWERS = frozen(10.0 ** np.arange(17))


def read_numbers(texts: pa.Array, target: Type, read: Callable[[str], Any]) -> Nullable:
    """Numbers in many texts: plain ones by a kernel, the rest one by one."""
    offsets, data = string_buffers(texts)
    values: npt.NDArray[Any] = np.empty(len(texts), np.float64 if target is Type.DOUBLE else np.int64)
    is_read = np.empty(len(texts), np.bool_)
    if target is Type.DOUBLE:
        kernels.read_doubles(offsets, data, _POWERS, values, is_read)
    else:
        kernels.read_longs(offsets, data, _MOST_DIGITS[target], values, is_read)
    valid = arrow_valid(texts)
    if is_valid_everywhere(valid) and is_read.all():
        return Nullable(values, valid_everywhere(values.size))
    others = np.flatnonzero(~is_read & valid)
    valid = valid & is_read
    for i, text in zip(others.tolist(), texts.take(others).to_pylist() if others.size else (), strict=True):
        value = read(text)
        if value is not None:
            values[i], valid[i] = value, True
    return Nullable(values, valid)


_PAIRS = _bytes("".join(f"{number:02}" for number in range(100)))


def write_integers(operand: Nullable) -> Nullable:
    """Integers as texts."""
    values = np.ascontiguousarray(operand.values)
    ptr, out = np.empty(values.size + 1, np.int64), np.empty(values.size * 20, np.uint8)
    kernels.write_longs(frozen(values), _PAIRS, ptr, out)
    valid = None
    if not is_valid_everywhere(operand.valid):
        valid = pa.py_buffer(np.packbits(operand.valid, bitorder="little"))
    buffers = [valid, pa.py_buffer(ptr), pa.py_buffer(out)]
    return Nullable.of_texts(pa.Array.from_buffers(pa.large_string(), values.size, buffers))


def write_booleans(operand: Nullable) -> Nullable:
    """Booleans as texts."""
    return Nullable.of_texts(pa.array(operand.values, mask=~operand.valid).cast(pa.large_string()))
