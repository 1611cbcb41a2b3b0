"""Text tests of residuals: LIKE and its kin on an attribute, for all (event, residual) pairs of a batch at once.

Theory of operation
-------------------
Rules differ in shape, so evaluating residuals program by program means one evaluation for a few pairs each, and Python for
every text and pattern. But most residuals are conjunctions of the same kind of test: "this text is, or is not, like that
pattern". Such tests are taken out of all programs when residuals are first used. Residual r has the tests `ptr[r]:ptr[r + 1]`:
a column (an attribute, or its text in lower case), a pattern, and the truth that is asked for. What is left of a program is
evaluated as before, on the pairs whose tests hold.

Pairs of a batch are then gathered by column, and one kernel call per column decides them (`kernels.patterns`); a pair
that several residuals ask for is decided once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.index.strings import join_texts
from wherecast.index.text_columns import laid_out
from wherecast.kernels.arrays import Bools, Bytes, Ints, Longs
from wherecast.kernels.jit import frozen
from wherecast.kernels.patterns import ANY, NO, ONE, UNKNOWN, YES, match_texts
from wherecast.language.events.events import EventBatch
from wherecast.language.events.types import Type
from wherecast.language.events.values import Stored
from wherecast.language.expression import Call, Like, Param
from wherecast.language.filters.columns import Reading
from wherecast.language.filters.filters import Program
from wherecast.language.filters.normalize import Residual, Truth, literals_of
from wherecast.language.sequences import take_ranges
from wherecast.language.syntax.patterns import like_parts

#: Bytes of a pattern at most; longer ones are left to the evaluator, which runs them in linear time.
_MOST_BYTES = 64

_WILDCARDS = {"%": bytes([ANY]), "_": bytes([ONE])}
#: Which answers each truth admits.
_ADMITS = {
    Truth.TRUE: (YES,),
    Truth.FALSE: (NO,),
    Truth.NOT_TRUE: (NO, UNKNOWN),
    Truth.NOT_FALSE: (YES, UNKNOWN),
}
_TRUTHS = list(_ADMITS)
ADMITTED = np.array([[answer in _ADMITS[truth] for answer in (NO, YES, UNKNOWN)] for truth in _TRUTHS])


class TextTest(NamedTuple):
    """A residual that is one test of one text."""

    attr: int
    fold: bool  # of the text in lower case
    kind: str  # like, ilike, or a function's name
    param: Param
    truth: Truth

    def pattern(self, literal: str) -> bytes:
        """A literal as the kernel reads it."""
        if self.kind in ("like", "ilike"):
            parts = like_parts(literal.lower() if self.kind == "ilike" else literal)
            return b"".join(_WILDCARDS[text] if is_wildcard else text.encode() for is_wildcard, text in parts)
        before, behind = _AROUND[self.kind]
        return before + literal.encode() + behind


_AROUND = {
    "startswith": (b"", bytes([ANY])),
    "endswith": (bytes([ANY]), b""),
    "contains": (bytes([ANY]), bytes([ANY])),
}


def find_test(residual: Residual) -> TextTest | None:
    """The test that a residual is, if it is one."""
    node = residual.node
    if isinstance(node, Like) and node.kind in ("like", "ilike") and node.escape == "\\":
        item, kind, param = node.item, node.kind, node.pattern
    elif isinstance(node, Call) and node.name in _AROUND and isinstance(node.args[1], Param):
        item, kind, param = node.args[0], node.name, node.args[1]
    else:
        return None
    column = literals_of(item, in_lower_case=kind == "ilike")
    if column is None or param.type is not Type.STRING:
        return None
    return TextTest(column.attr, column.reading is Reading.LOWER_LITERALS, kind, param, residual.truth)


class TextTests:
    """The text tests of all residuals of an index."""

    def __init__(
        self, ptr: Longs, column: Ints, pattern: Ints, truth: Bytes, pool: _Pool, columns: list[tuple[int, bool]]
    ) -> None:
        self._ptr, self._column, self._pattern, self._truth = ptr, column, pattern, truth
        self._pattern_ptr, self._patterns = (frozen(a) for a in join_texts(list(pool.numbers)))
        self._columns = columns

    @property
    def n_columns(self) -> int:
        """How many texts are tested."""
        return len(self._columns)

    def arrays(self) -> tuple[Longs, Ints, Ints, Bytes, Bools, Longs, Bytes]:
        """As the kernels for one event want them: `ptr` and what follows in `kernels.patterns.Tests`."""
        own = self._ptr, self._column, self._pattern, self._truth, ADMITTED
        return *own, self._pattern_ptr, self._patterns

    def texts_of(self, values: Mapping[int, Stored], columns: list[int]) -> tuple[list[int], bytes]:
        """The texts of some columns in one event: where each begins and ends (-1 for NULL), and all of them."""
        bounds: list[int] = []
        texts: list[bytes] = []
        end = 0
        for column in columns:
            attr, fold = self._columns[column]
            value = values.get(attr)
            if value is None:
                bounds += (-1, -1)
                continue
            assert isinstance(value, str)
            texts.append((value.lower() if fold else value).encode())
            bounds += (end, end + len(texts[-1]))
            end += len(texts[-1])
        return bounds, b"".join(texts)

    def hold(self, events: EventBatch, event_ids: npt.NDArray[Any], residual_ids: npt.NDArray[Any]) -> Bools:
        """Of which (event, residual) pairs all tests hold."""
        places, ptr = take_ranges(self._ptr, residual_ids.astype(np.int64))
        out = np.ones(event_ids.size, bool)
        if not places.size:
            return out
        owner = np.repeat(np.arange(event_ids.size), np.diff(ptr))
        key = self._column[places].astype(np.int64) << 32 | self._pattern[places]
        order = np.lexsort((event_ids[owner], key))
        key, row = key[order], event_ids[owner[order]].astype(np.int64)
        fresh = np.ones(order.size, bool)
        fresh[1:] = (key[1:] != key[:-1]) | (row[1:] != row[:-1])
        answers = self._decide(events, row[fresh], (key[fresh] >> 32), (key[fresh] & 0xFFFFFFFF).astype(np.int32))
        held = ADMITTED[self._truth[places[order]], answers[np.cumsum(fresh) - 1]]
        out[owner[order[~held]]] = False
        return out

    def _decide(self, events: EventBatch, rows: Longs, columns: Longs, patterns: Ints) -> Bytes:
        """Whether texts are like patterns, sorted by column."""
        out = np.empty(rows.size, np.uint8)
        starts = np.flatnonzero(np.concatenate(([True], columns[1:] != columns[:-1]))).tolist()
        for a, b in zip(starts, [*starts[1:], rows.size], strict=True):
            attr, fold = self._columns[int(columns[a])]
            texts, fold = laid_out(events, attr, lower=fold)
            match_texts(*texts, fold, rows[a:b], self._pattern_ptr, self._patterns, patterns[a:b], out[a:b])
        return out


class _Pool:
    """Patterns, each once."""

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}

    def add(self, pattern: bytes) -> int:
        return self.numbers.setdefault(pattern, len(self.numbers))


def take_tests(programs: list[Program], program: Ints, rows: Ints) -> tuple[TextTests, list[tuple[Residual, ...]]]:
    """The text tests of residuals (row `rows[r]` of program `program[r]`), and what they leave of each program."""
    pool, columns = _Pool(), dict[tuple[int, bool], int]()
    owners, of_column, of_pattern, of_truth = [np.zeros(0, np.int64)], [], [], []
    rest: list[tuple[Residual, ...]] = [p.residuals for p in programs]
    order = np.argsort(program, kind="stable")
    bounds = np.searchsorted(program[order], np.arange(len(programs) + 1))
    for number in np.flatnonzero(np.diff(bounds)).tolist():
        mine = order[bounds[number] : bounds[number + 1]]
        left = []
        for residual in programs[number].residuals:
            test = find_test(residual)
            found = None if test is None else _patterns(test, programs[number], rows[mine], pool)
            if test is None or found is None:
                left.append(residual)
                continue
            owners.append(mine)
            of_column += [columns.setdefault((test.attr, test.fold), len(columns))] * mine.size
            of_truth += [_TRUTHS.index(test.truth)] * mine.size
            of_pattern += found
        rest[number] = tuple(left)
    owner = np.concatenate(owners)
    by_owner = np.argsort(owner, kind="stable")
    ptr = np.searchsorted(owner[by_owner], np.arange(program.size + 1)).astype(np.int64)
    column, pattern = np.array(of_column, np.int32)[by_owner], np.array(of_pattern, np.int32)[by_owner]
    return TextTests(ptr, column, pattern, np.array(of_truth, np.uint8)[by_owner], pool, list(columns)), rest


def _patterns(test: TextTest, program: Program, rows: Ints, pool: _Pool) -> list[int] | None:
    """The numbers of a test's patterns, by row; None if one is too long."""
    patterns = [test.pattern(literal) for literal in program.literals[test.param][rows].tolist()]
    return None if any(len(p) > _MOST_BYTES for p in patterns) else [pool.add(p) for p in patterns]
