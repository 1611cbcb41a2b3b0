"""Text tests of residuals: LIKE and its kin on an attribute, for all (event, residual) pairs of a batch at once.

Theory of operation
-------------------
Rules differ in shape, so evaluating residuals program by program means one evaluation for a few pairs each, and Python for
every text and pattern. But most residuals are conjunctions of the same kind of test: "this text is, or is not, like that
pattern". Such tests are taken out of all programs when residuals are first used. Residual r has the tests `ptr[r]:ptr[r + 1]`:
a column (an attribute, or its text in lower case), a pattern, and the truth that is asked for. What is left of a program is
evaluated as before, on the pairs whose tests hold.

*By codes.* Most patterns are one literal, and the automaton of a column of literals has told already whether it is in the text. So `code_filters` enters the
literals of such tests in these columns, too (`literals_of_tests`). A test is then a look into the event's codes, about 10 ns instead of a
search in the text, and it comes first. Of a pattern of several literals, and of a regular expression like `x.*y`, all literals must be there: that
is asked first, and the rest only of the texts that have them all.

*Topics and words.* A negated `MATCHES` or `KEYWORDS` is such a test, too: its pattern or word is an element of the column of topics or words. A
phrase is asked for all of its words first.

*By text.* Pairs of a batch are then gathered by column, and one kernel call per column decides them (`kernels.patterns`); a pair
that several residuals ask for is decided once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.index.codes import Codebook
from wherecast.index.strings import join_texts
from wherecast.index.text_columns import laid_out
from wherecast.kernels.arrays import Bools, Bytes, Ints, Longs
from wherecast.kernels.jit import frozen
from wherecast.kernels.patterns import ANY, NO, ONE, UNKNOWN, YES, CodeTests, match_texts
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.events.types import Type
from wherecast.language.events.values import Stored
from wherecast.language.expression import Attr, Call, Like, Param
from wherecast.language.filters.columns import ANYWHERE, AT_END, AT_START, SETS_OF_CALLS, Column, Reading, marked
from wherecast.language.filters.filters import Filters, Program
from wherecast.language.filters.normalize import Residual, Truth, literals_of
from wherecast.language.sequences import take_ranges
from wherecast.language.syntax.patterns import find_form, like_parts
from wherecast.language.syntax.words import longest_word, words_of

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

    column: Column  # whose codes may answer it
    kind: str  # like, ilike, rlike, or a function's name
    param: Param
    truth: Truth

    def literal(self, text: str) -> str | None:
        """The element of the column for which a text asks, if that is all it asks."""
        if self.kind in SETS_OF_CALLS:
            return longest_word(text) if self.column.reading is Reading.WORDS else text
        if self.kind not in ("like", "ilike"):
            return marked(_MARKS[self.kind], text)
        form = find_form(self.kind, text)
        return form.literal if form.name in _SINGLE else None

    def pieces(self, text: str) -> list[str]:
        """Elements of the column that a text must have for the test to be true; there may be more."""
        if self.truth not in (Truth.TRUE, Truth.NOT_FALSE):
            return []
        if self.kind == "phrase":
            return words_of(text)
        if self.kind == "rlike":
            plain = [piece for piece in text.split(".*") if piece] if _PLAIN_REGEX.fullmatch(text) else []
            return [ANYWHERE + piece for piece in plain]
        if self.kind not in ("like", "ilike"):
            return []
        parts = like_parts(text.lower() if self.kind == "ilike" else text)
        return [ANYWHERE + piece for is_wildcard, piece in parts if not is_wildcard]

    def pattern(self, literal: str) -> bytes | None:
        """A literal as the kernel reads it; None if no kernel does."""
        if self.kind in SETS_OF_CALLS:
            return None
        if self.kind in ("like", "ilike"):
            parts = like_parts(literal.lower() if self.kind == "ilike" else literal)
            return b"".join(_WILDCARDS[text] if is_wildcard else text.encode() for is_wildcard, text in parts)
        before, behind = _AROUND[self.kind]
        return before + literal.encode() + behind


_MARKS = {"startswith": AT_START, "endswith": AT_END, "contains": ANYWHERE}
#: Words one after the other, with anything between them.
_PLAIN_REGEX = re.compile(r"(?:\.\*)?[\w /:-]+(?:\.\*[\w /:-]+)*(?:\.\*)?", re.ASCII)
#: Forms of patterns that are one literal.
_SINGLE = ("exact", "prefix", "suffix", "infix")
_AROUND = {
    "startswith": (b"", bytes([ANY])),
    "endswith": (bytes([ANY]), b""),
    "contains": (bytes([ANY]), bytes([ANY])),
}


def find_test(residual: Residual) -> TextTest | None:
    """The test that a residual is, if it is one."""
    node = residual.node
    if isinstance(node, Call) and node.name in SETS_OF_CALLS:
        return _set_test(node, SETS_OF_CALLS[node.name], residual.truth)
    if isinstance(node, Like) and node.kind in ("like", "ilike") and node.escape == "\\":
        item, kind, param = node.item, node.kind, node.pattern
    elif isinstance(node, Call) and node.name in _AROUND and isinstance(node.args[1], Param):
        item, kind, param = node.args[0], node.name, node.args[1]
    else:
        return None
    column = literals_of(item, in_lower_case=kind == "ilike")
    if column is None or param.type is not Type.STRING:
        return None
    return TextTest(column, kind, param, residual.truth)


def _set_test(node: Call, reading: Reading, truth: Truth) -> TextTest | None:
    """A test of an element of an attribute's topics or words."""
    item, param = node.args[:2]
    if not isinstance(item, Attr) or not isinstance(param, Param):
        return None
    return TextTest(Column(item.index, reading), node.name, param, truth)


def find_gate(residual: Residual) -> TextTest | None:
    """A test without which a residual cannot be true, if it is a pattern: see `TextTest.pieces`."""
    node = residual.node
    if isinstance(node, Call) and node.name == "phrase":
        return _set_test(node, Reading.WORDS, residual.truth)
    if not isinstance(node, Like) or node.escape != "\\" or node.pattern.type is not Type.STRING:
        return None
    column = literals_of(node.item, in_lower_case=node.kind == "ilike")
    return None if column is None else TextTest(column, node.kind, node.pattern, residual.truth)


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


class TakenTests(NamedTuple):
    """The text tests of residuals, and what they leave."""

    coded: CodeTests  # those that the codes of an event answer
    tests: TextTests  # the others, but for patterns that are too long
    left: list[tuple[Residual, ...]]  # by program: all that is not coded
    rest: list[tuple[Residual, ...]]  # by program: what is neither
    is_left: Bools  # (residuals,) whether anything is left after the coded ones


def take_tests(
    programs: list[Program], program: Ints, rows: Ints, chosen: Longs, codebook: Codebook | None
) -> TakenTests:
    """The text tests of the chosen residuals (row `rows[r]` of program `program[r]`)."""
    pool, columns = _Pool(), dict[tuple[int, bool], int]()
    coded, others = _Pile(), _Pile()
    left, rest = [p.residuals for p in programs], [p.residuals for p in programs]
    order = chosen[np.argsort(program[chosen], kind="stable")]
    bounds = np.searchsorted(program[order], np.arange(len(programs) + 1))
    for number in np.flatnonzero(np.diff(bounds)).tolist():
        mine = order[bounds[number] : bounds[number + 1]]
        own_left, own_rest = [], []
        for residual in programs[number].residuals:
            test, gate = find_test(residual), find_gate(residual)
            asked = test or gate
            texts = [] if asked is None else programs[number].literals[asked.param][rows[mine]].tolist()
            if test is not None and coded.add(mine, test, [test.literal(text) for text in texts], codebook):
                continue
            if gate is not None:
                for literals in _in_step(gate, texts):
                    coded.add(mine, gate, literals, codebook)
            own_left.append(residual)
            patterns = None if test is None else _patterns(test, texts, pool)
            if test is None or patterns is None:
                own_rest.append(residual)
            else:
                place = test.column.attr, test.column.reading is Reading.LOWER_LITERALS
                others.append(mine, columns.setdefault(place, len(columns)), patterns, test.truth)
        left[number], rest[number] = tuple(own_left), tuple(own_rest)
    is_left = np.array([bool(each) for each in left], bool)[program] if programs else np.zeros(0, bool)
    own = CodeTests(*coded.sorted(program.size), frozen(ADMITTED))
    tests = TextTests(*others.sorted(program.size), pool, list(columns))
    return TakenTests(own, tests, left, rest, is_left)


class _Pile:
    """Tests as they are found: owner, column, what is asked for, truth."""

    def __init__(self) -> None:
        self._owners = [np.zeros(0, np.int64)]
        self._columns: list[int] = []
        self._asked: list[int] = []
        self._truths: list[int] = []

    def add(self, owners: Longs, test: TextTest, literals: list[str | None], codebook: Codebook | None) -> bool:
        """Ask for the codes of elements of the test's column, by owner, if all of them have one."""
        number = -1 if codebook is None else codebook.schema.number_of(test.column)
        known = None if codebook is None else codebook.literals(number)
        codes = [] if known is None else [known.get(literal or "", -1) for literal in literals]
        if known is None or -1 in codes:
            return False
        self.append(owners, number, codes, test.truth)
        return True

    def append(self, owners: Longs, column: int, asked: list[int], truth: Truth) -> None:
        self._owners.append(owners)
        self._columns += [column] * owners.size
        self._asked += asked
        self._truths += [_TRUTHS.index(truth)] * owners.size

    def sorted(self, n: int) -> tuple[Longs, Ints, Ints, Bytes]:
        """By owner, of which there are n: pointer, columns, what is asked for, truths."""
        owner = np.concatenate(self._owners)
        order = np.argsort(owner, kind="stable")
        ptr = np.searchsorted(owner[order], np.arange(n + 1)).astype(np.int64)
        asked = np.array(self._asked, np.int32)[order]
        column, truth = np.array(self._columns, np.int32)[order], np.array(self._truths, np.uint8)[order]
        return frozen(ptr), frozen(column), frozen(asked), frozen(truth)


def _in_step(gate: TextTest, texts: list[str]) -> list[list[str | None]]:
    """The first, second .. piece of every text, as far as all of them have one."""
    return [list(pieces) for pieces in zip(*map(gate.pieces, texts), strict=False)]


def _patterns(test: TextTest, texts: list[str], pool: _Pool) -> list[int] | None:
    """The numbers of a test's patterns, by row; None if one is too long, or not for the kernel."""
    patterns = [test.pattern(text) for text in texts]
    return (
        None
        if any(p is None or len(p) > _MOST_BYTES for p in patterns)
        else [pool.add(p) for p in patterns if p is not None]
    )


def literals_of_tests(filters: Filters, schema: Schema, chosen: Longs) -> list[tuple[int, Longs, list[str]]]:
    """The elements of columns that text tests in the residuals of the chosen clauses ask for: column, clauses, and elements, each once."""
    found = []
    order = chosen[np.argsort(filters.program[chosen], kind="stable")]
    bounds = np.searchsorted(filters.program[order], np.arange(len(filters.programs) + 1))
    for number in np.flatnonzero(np.diff(bounds)).tolist():
        clauses = order[bounds[number] : bounds[number + 1]]
        for residual in filters.programs[number].residuals:
            test, gate = find_test(residual), find_gate(residual)
            asked = test or gate
            if asked is None:
                continue
            texts = list(set(filters.programs[number].literals[asked.param][filters.program_row[clauses]].tolist()))
            literals = [None if test is None else test.literal(text) for text in texts]
            several = [literals] if None not in literals else [] if gate is None else _in_step(gate, texts)
            found += [(schema.number_of(asked.column), clauses, each) for each in several]
    return found  # type: ignore[return-value]
