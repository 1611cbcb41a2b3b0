"""Many values of one type at once, some of them NULL, and how values of one type become values of another."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Bools, Longs
from wherecast.language.events.keys import DAY_US, float_keys, instants
from wherecast.language.events.types import FLOATS, INTEGERS, MAX_PRECISION, MOMENTS, TEXTS, Type, rescale
from wherecast.language.events.zone import Zone
from wherecast.language.expression import Node, Param, digits_of
from wherecast.language.sequences import take_ranges

#: Rows up to which strings of Python are quicker than a call of Arrow; many residuals have a handful each.
_FEW_ROWS = 32
#: Rows from which on a kernel is quicker than NumPy.
MANY_ROWS = 256


class Nullable:
    """Values with a validity mask. dtype by type: bool, int64, float64, or object (strings, lists).

    Integers of every width are int64; a FLOAT is a float64 that 32 bits can hold, so that comparing needs no conversion.
    Decimals are unscaled: int64 where their type has at most 18 digits and they were read or computed so, else object.

    Texts of many events come as an Arrow array. Functions that Arrow knows work on that; Python's strings are made when
    one asks for `values`. Arrays and maps of many events come as `ListValues` in the same way. A value that is the same in every row, such as a literal, is an array of one value with a stride
    of zero.
    """

    __slots__ = ("_texts", "_valid", "_values", "lists")

    def __init__(self, values: npt.NDArray[Any], valid: Bools | None) -> None:
        """A mask of None says that no value is NULL: it is made when somebody asks."""
        self._values: npt.NDArray[Any] | None = values
        self._valid = valid
        self._texts: Any = None  # an Arrow array, if it is there
        self.lists: ListValues | None = None

    @classmethod
    def of_texts(cls, texts: Any) -> Nullable:
        """Texts of Arrow, as strings or large strings; what may have more bytes than 32 bits count is made large."""
        made = cls.__new__(cls)
        made._values, made._valid, made._texts, made.lists = None, None, texts, None  # noqa: SLF001
        return made

    @classmethod
    def of_lists(cls, lists: ListValues, valid: Bools) -> Nullable:
        """Arrays or maps."""
        made = cls(np.zeros(0), valid)
        made._values, made.lists = None, lists
        return made

    @property
    def values(self) -> npt.NDArray[Any]:
        if self._values is None and self.lists is not None:
            self._values = self.lists.to_python()
        if self._values is None:
            self._values = np.fromiter(self._texts.fill_null("").to_pylist(), object, len(self._texts))
        return self._values

    @property
    def length(self) -> int:
        """Rows; of texts they are known without their mask."""
        if self._valid is None:
            return len(self._texts) if self._values is None else self._values.size
        return self._valid.size

    @property
    def valid(self) -> Bools:
        if self._valid is None:
            self._valid = arrow_valid(self._texts) if self._texts is not None else valid_everywhere(self.length)
        return self._valid

    @property
    def texts(self) -> Any:
        """Strings as Arrow has them."""
        if self._texts is None:
            from wherecast.language.arrow_texts import texts_of  # noqa: PLC0415 - Arrow is loaded where there are events

            self._texts = texts_of(self)
        return self._texts

    @property
    def is_arrow(self) -> bool:
        """Whether these are texts in Arrow's form already."""
        return self._texts is not None

    @property
    def is_constant(self) -> bool:
        """Whether it is one value, repeated, and not NULL in any row: what a literal is, and `nullif(literal, a)` is not."""
        values = self._values
        if values is None or values.strides != (0,) or not values.size:
            return False
        return is_valid_everywhere(self.valid) or bool(self.valid.all())

    def take(self, rows: npt.NDArray[Any]) -> Nullable:
        """The values of some rows."""
        # No rows at all stay in Arrow's form, too: an empty array of objects would not say that these are texts.
        if self.is_arrow and (rows.size >= _FEW_ROWS or not rows.size):
            from wherecast.language.arrow_texts import take_rows  # noqa: PLC0415 - Arrow is loaded where there are events

            return Nullable.of_texts(take_rows(self._texts, rows))
        if self.lists is not None and self._values is None:
            return Nullable.of_lists(self.lists.take(rows), self.valid[rows])
        return Nullable(self.values[rows], self.valid[rows])

    def find(self, places: Longs) -> Nullable:
        """The values at places, NULL where a place is negative."""
        if self.is_arrow:
            from wherecast.language.arrow_texts import take_texts  # noqa: PLC0415 - Arrow is loaded where there are events

            return Nullable.of_texts(take_texts(self._texts, places))
        if not self.valid.size:
            return Nullable(np.zeros(places.size, self.values.dtype), np.zeros(places.size, bool))
        return Nullable(self.values[places], self.valid[places] & (places >= 0))

    def __iter__(self) -> Iterator[Any]:
        """Values and mask."""
        yield self.values
        yield self.valid


class ListValues:
    """Arrays of many events, one after the other: those of row i are elements number offsets[i] to before offsets[i + 1].

    Maps have keys, too, and their values are the elements. Both are read when somebody asks for them: `size` does not.
    """

    def __init__(
        self,
        bounds: npt.NDArray[np.integer[Any]],
        elements: Callable[[], Nullable],
        keys: Callable[[], Nullable] | None = None,
    ) -> None:
        """`bounds` are the offsets in integers of any width, counted from any number."""
        self._bounds = bounds
        self._read_elements = elements
        self._read_keys = keys

    @cached_property
    def offsets(self) -> Longs:
        offsets: Longs = np.subtract(self._bounds, self._bounds[0], dtype=np.int64)
        return offsets

    @cached_property
    def elements(self) -> Nullable:
        return self._read_elements()

    @cached_property
    def keys(self) -> Nullable | None:
        return None if self._read_keys is None else self._read_keys()

    @property
    def sizes(self) -> Longs:
        if self._bounds.size <= MANY_ROWS:
            return np.diff(self.offsets)
        from wherecast.kernels.arithmetic import sizes_between  # noqa: PLC0415 - what only checks filters does not load Numba
        from wherecast.kernels.jit import frozen  # noqa: PLC0415 - as above

        sizes = np.empty(self._bounds.size - 1, np.int64)
        sizes_between(frozen(np.ascontiguousarray(self._bounds)), sizes)
        return sizes

    @property
    def owners(self) -> Longs:
        """The row of each element."""
        return np.repeat(np.arange(self.offsets.size - 1), self.sizes)

    def at(self, number: int) -> Nullable:
        """The element of a number in each row, counted from 0, or from the end if it is negative; NULL if there is none."""
        places = (self.offsets[:-1] if number >= 0 else self.offsets[1:]) + number
        is_there = (places >= self.offsets[:-1]) & (places < self.offsets[1:])
        return self.elements.find(np.where(is_there, places, -1))

    def by_key(self, key: Any) -> Nullable:
        """The value of a key in each map; NULL if there is none."""
        assert self.keys is not None, "these are maps"
        if self.keys.is_arrow:
            from wherecast.language.arrow_texts import are_among  # noqa: PLC0415 - Arrow is loaded where there are events

            hits = np.flatnonzero(are_among(self.keys.texts, {key}))
        else:
            hits = np.flatnonzero(self.keys.values == key)
        places = np.full(self.offsets.size - 1, -1)
        places[np.searchsorted(self.offsets, hits, side="right") - 1] = hits
        return self.elements.find(places)

    def take(self, rows: npt.NDArray[Any]) -> ListValues:
        """Some of the rows."""
        places, offsets = take_ranges(self.offsets, rows)
        keys = self.keys
        return ListValues(
            offsets, lambda: self.elements.take(places), None if keys is None else lambda: keys.take(places)
        )

    def to_python(self) -> npt.NDArray[np.object_]:
        """ListValues, or dictionaries in the order of their keys there."""
        known = zip(self.elements.values.tolist(), self.elements.valid.tolist(), strict=True)
        flat = [value if is_known else None for value, is_known in known]
        keys = None if self.keys is None else self.keys.values.tolist()
        out, start = np.empty(self.offsets.size - 1, object), 0
        for row, end in enumerate(self.offsets[1:].tolist()):
            out[row] = flat[start:end] if keys is None else dict(zip(keys[start:end], flat[start:end], strict=True))
            start = end
        return out


def as_vectors(found: Nullable) -> npt.NDArray[np.float32]:
    """Vectors of one size, one after the other; zeros where one is NULL."""
    if found.lists is None:
        if found.values.dtype != object:
            return found.values  # literals
        size = max(map(len, found.values.tolist()), default=0)
        rows = [value or [0.0] * size for value in found.values.tolist()]
        return np.array(rows, np.float32).reshape(len(rows), size)
    flat = found.lists.elements.values.astype(np.float32)
    n = found.valid.size
    sizes = found.lists.sizes
    there, size = np.flatnonzero(sizes), int(sizes.max(initial=0))
    if there.size == n:
        return flat.reshape(n, size)
    out = np.zeros((n, size), np.float32)
    out[there] = flat.reshape(there.size, size)
    return out


class _Everywhere:
    """A mask of rows that are all valid: views of one array, by which they are recognised."""

    def __init__(self) -> None:
        self.mask = np.ones(1 << 16, bool)
        self.mask.flags.writeable = False
        self.last = self.mask[:]  # batches often have the same length

    def view(self, n: int) -> Bools:
        mask = self.mask
        if n > mask.size:
            mask = np.ones(2 * n, bool)
            mask.flags.writeable = False
            self.mask = mask
        self.last = last = mask[:n]
        return last


_EVERYWHERE = _Everywhere()


def valid_everywhere(n: int) -> Bools:
    """The mask of so many rows without NULL; read only."""
    last = _EVERYWHERE.last
    return last if last.size == n else _EVERYWHERE.view(n)


def is_valid_everywhere(mask: Bools) -> bool:
    """Whether a mask is known to be that of `valid_everywhere`, or of a constant that is not NULL."""
    return mask.base is _EVERYWHERE.mask or (mask.strides == (0,) and mask.size > 0 and bool(mask[0]))


def arrow_valid(array: Any) -> Bools:
    """The validity mask of an Arrow array."""
    bitmap = array.buffers()[0] if array.null_count else None
    if bitmap is None:
        return valid_everywhere(len(array))
    first, end = array.offset, array.offset + len(array)
    bits = np.frombuffer(bitmap, np.uint8)[first >> 3 : (end + 7) >> 3]
    return np.unpackbits(bits, bitorder="little")[first & 7 : (first & 7) + len(array)].view(np.bool_)


def choose(use_first: Bools, first: Nullable, other: Nullable) -> Nullable:
    """The values of the first where the mask says so, else those of the other."""
    if first.is_arrow or other.is_arrow:
        from wherecast.language.arrow_texts import choose_texts  # noqa: PLC0415 - Arrow is loaded where there are events

        return choose_texts(use_first, first, other)
    if is_valid_everywhere(use_first):
        return first
    is_valid = is_valid_everywhere(first.valid) and is_valid_everywhere(other.valid)
    valid = valid_everywhere(use_first.size) if is_valid else (use_first & first.valid) | (~use_first & other.valid)
    return Nullable(_chosen(use_first, first, other), valid)


_CHOSEN_BY_KERNEL = (np.dtype(np.int64), np.dtype(np.float64))


def _chosen(use_first: Bools, first: Nullable, other: Nullable) -> npt.NDArray[Any]:
    a, b = first.values, other.values
    if use_first.size < MANY_ROWS or a.dtype != b.dtype or a.dtype not in _CHOSEN_BY_KERNEL:
        return np.where(use_first, a, b)
    from wherecast.kernels.conditions import choose_or_one, choose_values  # noqa: PLC0415 - it loads Numba
    from wherecast.kernels.jit import frozen  # noqa: PLC0415 - as above

    out = np.empty(use_first.size, a.dtype)
    if first.is_constant:
        a, b, use_first = b, a, ~use_first
    if b.strides == (0,):
        choose_or_one(frozen(use_first), frozen(np.ascontiguousarray(a)), b[0], out)
    else:
        choose_values(frozen(use_first), frozen(np.ascontiguousarray(a)), frozen(np.ascontiguousarray(b)), out)
    return out


def both_valid(first: Bools, other: Bools) -> Bools:
    """Where both are; a constant is valid everywhere, and NumPy is slow with an array of one value."""
    if is_valid_everywhere(other):
        return first
    return other if is_valid_everywhere(first) else first & other


def repeated(value: Any, dtype: npt.DTypeLike, length: int) -> Nullable:
    """One value in every row."""
    if isinstance(value, str):
        return Nullable(_spread_text(value, length), valid_everywhere(length))
    one = np.empty(1, dtype)
    one[0] = value
    if one.dtype == object:
        return Nullable(np.broadcast_to(one, length), valid_everywhere(length))
    return Nullable(_spread(one, length), valid_everywhere(length))


@lru_cache(maxsize=256)
def _spread_text(text: str, length: int) -> npt.NDArray[np.object_]:
    """`_spread` makes no array of objects, and NumPy takes 5 us for one."""
    return np.broadcast_to(np.array([text], object), length)


def _spread(one: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
    """An array of one value in every row: as `np.broadcast_to`, in a tenth of the time."""
    values: npt.NDArray[Any] = np.ndarray(length, one.dtype, one, strides=(0,))
    values.flags.writeable = False
    return values


def as_moments(values: npt.NDArray[Any], kind: Type, common: Type, zone: Zone) -> npt.NDArray[Any]:
    """Days, wall clocks or instants as what they are compared as."""
    if kind is common:
        return values
    walls = values * DAY_US if kind is Type.DATE else values
    return instants(zone, walls) if common is Type.TIMESTAMP else walls


def filler(kind: Type, n: int) -> npt.NDArray[Any]:
    """Values of a type for rows that are NULL, or not computed yet."""
    if kind in TEXTS:
        return np.full(n, "", object)
    if kind is Type.ARRAY:
        return np.fromiter(([] for _ in range(n)), object, n)
    if kind is Type.MAP:
        return np.fromiter(({} for _ in range(n)), object, n)
    dtypes = {Type.BOOLEAN: bool, Type.NULL: bool, Type.DECIMAL: object, Type.FLOAT: float, Type.DOUBLE: float}
    return np.zeros(n, dtypes.get(kind, np.int64))


def decimal_scale(node: Node) -> int:
    """Scale of the unscaled integers that stand for a DECIMAL (or an integer, scale 0)."""
    if node.type is not Type.DECIMAL:
        return 0
    if isinstance(node, Param) and node.digits == (0, 0):
        return MAX_PRECISION  # compared only, never computed with: any scale that holds every literal
    return digits_of(node)[1]


def to_double(node: Node, operand: Nullable) -> npt.NDArray[np.float64]:
    if node.type is Type.DECIMAL:
        scale, values = decimal_scale(node), operand.values
        if values.dtype == np.int64 and scale <= _EXACT_POWERS and _are_within(values, 2**53):
            return values / np.float64(10**scale)  # two exact doubles: the quotient is rounded once
        unit = 10**scale
        return np.array([int(v) / unit for v in values], np.float64)
    return operand.values.astype(np.float64, copy=False)


#: Powers of ten up to this exponent are doubles.
_EXACT_POWERS = 22


def _are_within(values: npt.NDArray[np.int64], limit: int) -> bool:
    return bool(values.size == 0 or (values.max() < limit and values.min() > -limit))


def rescaled(values: npt.NDArray[Any], old: int, new: int) -> npt.NDArray[Any]:
    """Unscaled decimals at another scale: integers of 64 bits where all fit and no digit is lost, else Python's."""
    if old == new:
        return values
    if values.dtype == np.int64 and old < new <= old + 18 and _are_within(values, 2**63 // 10 ** (new - old)):
        return values * np.int64(10 ** (new - old))
    return np.fromiter((rescale(int(v), old, new) for v in values), object, values.size)


def rounded(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Numbers as FLOATs: rounded once, straight to 32 bits."""
    return values.astype(np.float32).astype(np.float64)


def member_keys(node: Node, operand: Nullable, common: Type, zone: Zone) -> list[Any]:
    """Hashable stand-ins for values, equal exactly where Spark's `=` holds after casting to `common`."""
    if common in FLOATS:
        values = to_double(node, operand)
        if common is Type.FLOAT and node.type in INTEGERS:
            values = rounded(operand.values)
        return float_keys(values).tolist()  # type: ignore[no-any-return]
    if common is Type.DECIMAL:
        scale = MAX_PRECISION - decimal_scale(node)
        return [int(v) * 10**scale for v in operand.values]
    if common in MOMENTS and node.type in MOMENTS:
        return as_moments(operand.values, node.type, common, zone).tolist()  # type: ignore[no-any-return]
    return operand.values.tolist()  # type: ignore[no-any-return]


def sort_keys(operand: Nullable, kind: Type) -> npt.NDArray[Any]:
    """Values of a type in a form whose plain equality and order are Spark's."""
    return float_keys(operand.values) if kind in FLOATS else operand.values


_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock; instants get their zone


def python_value(node: Node, value: Any) -> object:
    """One value of an expression, as Python has it."""
    if node.type is Type.DECIMAL:
        return Decimal(int(value)).scaleb(-decimal_scale(node))
    if node.type is Type.DATE:
        return _EPOCH.date() + dt.timedelta(days=int(value))
    if node.type is Type.BINARY:
        return bytes.fromhex(value)
    if node.type in MOMENTS:
        wall = _EPOCH + dt.timedelta(microseconds=int(value))
        return wall.replace(tzinfo=dt.UTC) if node.type is Type.TIMESTAMP else wall
    return value.item() if isinstance(value, np.generic) else value
