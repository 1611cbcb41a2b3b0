"""Tables of patterns: the keys that are in use, by number, and the patterns themselves, as arrays that grow."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from wherecast.engine.checks import SubscriptionId
from wherecast.kernels.arrays import Bools, Ints, Longs
from wherecast.kernels.sequences import NEVER, PatternArrays
from wherecast.language.events.arrow import canonical_type
from wherecast.language.events.schema import Attribute
from wherecast.language.syntax.sequence import SequencePattern

#: Bytes that a key takes beside its text.
_KEY_BYTES = 120


def _written_as(kind: pa.DataType) -> pa.DataType:
    """The type in which values become texts: moments as numbers, which are read back whatever the year."""
    return pa.int64() if pa.types.is_timestamp(kind) else pa.int32() if pa.types.is_date32(kind) else kind


class KeyTable:
    """The values of a PARTITION BY attribute that are in use, by number. Number 0 is NULL."""

    def __init__(self, attribute: Attribute | None, limit_bytes: int) -> None:
        self.attribute = attribute
        self.values: list[Any] = [None]
        self._numbers: dict[Any, int] = {None: 0}
        self._free: list[int] = []
        self._limit = limit_bytes
        self._bytes = 0

    def __len__(self) -> int:
        return len(self.values)

    @property
    def in_use(self) -> int:
        return len(self._numbers)

    @property
    def is_tight(self) -> bool:
        """Whether half of the bytes that it may have are in use."""
        return 2 * self._bytes > self._limit

    def number(self, column: pa.Array) -> Ints:
        """The number of each value; new values get one, or -1 if there is no room."""
        coded = column.dictionary_encode()
        values = coded.dictionary.to_pylist()
        numbers = list(map(self._numbers.get, values))
        for at, number in enumerate(numbers):
            if number is None:
                numbers[at] = self._add(values[at])
        table = np.array([*numbers, 0], np.int32)
        found: Ints = table[coded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)]
        return found

    def _add(self, value: Any) -> int:
        size = _KEY_BYTES + (len(value) if isinstance(value, str) else 8)
        if self._bytes + size > self._limit:
            return -1
        self._bytes += size
        if self._free:
            number = self._free.pop()
            self.values[number] = value
        else:
            number = len(self.values)
            self.values.append(value)
        self._numbers[value] = number
        return number

    def keep(self, is_used: Bools) -> None:
        """Forget all values but those that are used."""
        for number in np.flatnonzero(~is_used[1:]).tolist():
            value = self.values[number + 1]
            if value is not None:
                del self._numbers[value]
                self.values[number + 1] = None
                self._free.append(number + 1)
                self._bytes -= _KEY_BYTES + (len(value) if isinstance(value, str) else 8)

    def shown(self, number: int) -> Any:
        """A value as it came in an event."""
        value = self.values[number]
        attribute = self.attribute
        return value if value is None or attribute is None else attribute.row.load(value, attribute)

    def array(self) -> pa.Array:
        """The values as texts: snapshots have no other arrays with NULLs."""
        assert self.attribute is not None
        values = pa.array(self.values, canonical_type(self.attribute))
        return values.cast(_written_as(values.type)).cast(pa.string())

    @classmethod
    def of(cls, attribute: Attribute, texts: pa.Array, limit_bytes: int) -> KeyTable:
        """The table whose `array` this is. Raises ArrowInvalid."""
        made, kind = cls(attribute, limit_bytes), canonical_type(attribute)
        values = texts.cast(_written_as(kind)).cast(kind).to_pylist()
        for number, value in enumerate(values[1:], 1):
            made.values.append(value)
            if value is None:
                made._free.append(number)
            else:
                made._numbers[value] = number
                made._bytes += _KEY_BYTES + (len(value) if isinstance(value, str) else 8)
        return made


class RegisteredPattern(NamedTuple):
    """A pattern that the engine watches for."""

    id: SubscriptionId
    text: str
    read: SequencePattern
    filters: tuple[int, ...]  # numbers in the index of steps, step by step
    part: int
    born: int


class PatternColumns:
    """Patterns and the filters that they use, as arrays that grow: a change costs what it changes."""

    _DEAD = (0, 0, 0, 0, 0, NEVER, -1)

    def __init__(self) -> None:
        self._patterns = np.zeros((0, len(self._DEAD)), np.int64)
        self._uses = np.zeros((0, 4), np.int64)  # level, filter, pattern, and the generation of the pattern
        self._size = self._used = self._generation = 0

    def put(self, number: int, found: RegisteredPattern) -> None:
        """A pattern; `number` is that of a removed one, or the next."""
        read = found.read
        self._patterns = _grown(self._patterns, number + 1)
        self._size = max(self._size, number + 1)
        self._generation += 1
        steps = 0 if read.wanted else read.found
        self._patterns[number] = (
            steps,
            read.has_not,
            read.wanted,
            read.window_us,
            found.part,
            found.born,
            self._generation,
        )
        self._uses = _grown(self._uses, self._used + len(found.filters))
        for level, step in enumerate(found.filters):
            self._uses[self._used] = level, step, number, self._generation
            self._used += 1

    def remove(self, number: int) -> None:
        """Nothing counts for it any more, but its states are still read: what it was stays."""
        self._patterns[number, 5:] = NEVER, -1

    def arrays(self, filters: int) -> PatternArrays:
        """What the kernel reads, given how many numbers filters have had."""
        uses = self._uses[: self._used]
        use = self._uses[: np.count_nonzero(self._patterns[uses[:, 2], 6] == uses[:, 3])]
        use[:] = uses[self._patterns[uses[:, 2], 6] == uses[:, 3]]
        self._used = len(use)
        levels = int(use[:, 0].max(initial=0)) + 1
        place = use[:, 0] * filters + use[:, 1]
        order = np.argsort(place, kind="stable")
        starts = np.searchsorted(place[order], np.arange(levels * filters + 1))
        ptr = np.stack([starts[level * filters : (level + 1) * filters + 1] for level in range(levels)])
        steps, has_not, wanted, window, part, born, _ = (np.array(column) for column in self._patterns[: self._size].T)
        return PatternArrays(
            steps.astype(np.int32), has_not.astype(bool), wanted, window, part.astype(np.int32), born,
            np.ascontiguousarray(ptr, np.int64), use[order, 2].astype(np.int32),
        )  # fmt: skip


def _grown(table: Longs, rows: int) -> Longs:
    """A table with room for so many rows."""
    if rows <= len(table):
        return table
    larger = np.zeros((max(rows, 2 * len(table), 16), table.shape[1]), np.int64)
    larger[: len(table)] = table
    return larger
