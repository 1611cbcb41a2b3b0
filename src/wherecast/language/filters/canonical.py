"""Canonical forms: what two filters have in common that differ in order, spelling or repetition only, and its digest.

A residual is put in canonical words: those of the statement "node is truth" with its literals. NOT is pushed down to the
leaves as in `normalize`, the parts of AND and OR are sorted and stand once, comparisons have their sides in one order. The
words are for comparing and for digests, not for people. A program serves many clauses that differ in literals, so the words of all
of them are written together, part by part of the expression.

A digest is a short name for the canonical form of a whole filter. Strings enter it by their own digest, not by their rank,
so that it does not depend on the batch a filter came with. It is a cryptographic hash, because a subscriber who could make
two filters collide would receive another's events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Longs
from wherecast.kernels.blake2 import Bytes, Hash
from wherecast.kernels.row_words import ROW_WORDS, write_rows
from wherecast.language.events.schema import Schema
from wherecast.language.events.types import Type
from wherecast.language.expression import (
    FLIPPED,
    And,
    Arith,
    Attr,
    Call,
    CaseWhen,
    Cast,
    Compare,
    Const,
    Elapsed,
    Element,
    InList,
    IntervalLiteral,
    Invert,
    IsNull,
    IsTruth,
    Like,
    Negate,
    Node,
    Not,
    Or,
    Param,
    Quantified,
    Shift,
    Subscript,
)
from wherecast.language.filters.filters import Filters, LiteralValues, Program
from wherecast.language.filters.normalize import Residual, Truth, plain_truth
from wherecast.language.sequences import pointer, take_ranges


class WordRows(NamedTuple):
    """For which rows words are written: one text for each."""

    literals: LiteralValues
    rows: Longs  # of the literals
    attribute: int = -1  # in place of which each row has one of its own
    attributes: Longs | None = None  # (rows,)

    @property
    def size(self) -> int:
        return int(self.rows.size)


def _write_residuals(program: Program, rows: Longs) -> list[frozenset[str]]:
    """The residuals of clauses in words, by the rows of their literals."""
    columns = [write_statements(residual, WordRows(program.literals, rows)) for residual in program.residuals]
    return [frozenset(words) for words in zip(*columns, strict=True)]


def write_statements(residual: Residual, rows: WordRows) -> list[str]:
    """A residual in words."""
    return _statement(residual.node, residual.truth, rows)


def _statement(node: Node, truth: Truth, rows: WordRows) -> list[str]:
    if isinstance(node, Not):
        return _statement(node.item, truth.of_negation, rows)
    if isinstance(node, (And, Or)):
        is_all = isinstance(node, And) == (truth in (Truth.TRUE, Truth.NOT_FALSE))
        return _unordered("ALL" if is_all else "ANY", [_statement(item, truth, rows) for item in node.items])
    if isinstance(node, IsTruth):
        wanted = truth in (Truth.TRUE, Truth.NOT_FALSE)
        found = (
            (Truth.TRUE if wanted else Truth.NOT_TRUE) if node.truth else (Truth.FALSE if wanted else Truth.NOT_FALSE)
        )
        return _statement(node.item, found, rows)
    node, truth = plain_truth(node, truth)
    return _sequence(str(truth), [write_values(node, rows)])


def write_values(node: Node, rows: WordRows) -> list[str]:
    """The words of an expression, whatever its truth."""
    if isinstance(node, Attr):
        if node.index == rows.attribute and rows.attributes is not None:
            return [f"#{index}" for index in rows.attributes.tolist()]
        return [f"#{node.index}"] * rows.size
    if isinstance(node, Param):
        return _literals(node, rows)
    if isinstance(node, Const):
        return [str(node.value)] * rows.size
    if isinstance(node, Compare):
        return _comparison(node, rows)
    if isinstance(node, InList):
        return _membership(node, rows)
    if isinstance(node, (And, Or)):
        return _unordered(type(node).__name__, [write_values(item, rows) for item in node.items])
    if isinstance(node, Arith) and node.op in "+*":
        return _pair(node.op, [write_values(node.left, rows), write_values(node.right, rows)])
    parts = [write_values(child, rows) for child in node.children()]
    return _sequence(_head(node), parts) if parts else [f"{_head(node)}()"] * rows.size


def _literals(node: Param, rows: WordRows) -> list[str]:
    values = rows.literals[node][rows.rows]
    if node.type is Type.VECTOR:
        return [f"vector:{vector.tobytes().hex()}" for vector in values]
    kind = f"{node.type}{node.digits if node.type is Type.DECIMAL else ''}"
    return [f"{kind}:{value!r}" for value in values.tolist()]


def _head(node: Node) -> str:
    """What an ordered node is, apart from its parts."""
    if isinstance(node, Call):
        return f"{node.name} {node.unit}" if node.unit else node.name
    if isinstance(node, Like):
        return f"{node.kind} {node.escape!r}"
    if isinstance(node, Arith):
        return node.op
    if isinstance(node, IsTruth):
        return f"is {node.truth}"
    if isinstance(node, (IsNull, Not, Negate, Invert)):
        return type(node).__name__
    assert isinstance(node, _FORMS), f"no canonical form for {type(node).__name__}"
    own = [getattr(node, name, "") for name in ("type", "digits", "op", "name", "variable", "is_all", "units")]
    return f"{type(node).__name__} {own!r}"


_FORMS = (CaseWhen, Cast, Elapsed, Element, IntervalLiteral, Subscript, Quantified, Shift)


def _comparison(node: Compare, rows: WordRows) -> list[str]:
    left, right, op = write_values(node.left, rows), write_values(node.right, rows), node.op
    if op in (">", ">="):
        left, right, op = right, left, FLIPPED[op]
    head = f"{op} {node.common}"
    return _sequence(head, [left, right]) if op in ("<", "<=") else _pair(head, [left, right])


def _membership(node: InList, rows: WordRows) -> list[str]:
    lists = [rows.literals[value, node.common][rows.rows].tolist() for value in node.values]
    head = f"in {node.common} {node.has_null}"
    out = []
    for item, *several in zip(write_values(node.item, rows), *lists, strict=True):
        members = sorted({repr(key) for keys in several for key in keys})
        out.append(f"{head}({item};{','.join(members)})")
    return out


def _sequence(head: str, parts: list[list[str]]) -> list[str]:
    return [f"{head}({','.join(words)})" for words in zip(*parts, strict=True)]


def _pair(head: str, parts: list[list[str]]) -> list[str]:
    return [f"{head}({','.join(sorted(words))})" for words in zip(*parts, strict=True)]


def _unordered(head: str, parts: list[list[str]]) -> list[str]:
    """Order and repetition do not matter; one part alone stands for the whole."""
    found = (sorted(set(words)) for words in zip(*parts, strict=True))
    return [words[0] if len(words) == 1 else f"{head}({','.join(words)})" for words in found]


# -- digests -----------------------------------------------------------------------------------------------------------


#: Filters that are worth the calls of NumPy that they need together.
_MANY = 16
_BOX, _WHOLE, _CLAUSE, _CLAUSES, _STRING = Hash(b"box"), Hash(b"whole"), Hash(b"clause"), Hash(b"clauses"), Hash()


class ResidualWords(NamedTuple):
    """The residuals of clauses in canonical words."""

    texts: list[bytes]  # each once
    of_clause: Longs  # (clauses,) -1: it has none

    def of(self, clause: int) -> bytes:
        number = int(self.of_clause[clause])
        return self.texts[number] if number >= 0 else b""


def digest_filters(filters: Filters, schema: Schema, residuals: ResidualWords | None = None) -> bytes:
    """16 bytes per filter: the same for two filters exactly if their canonical forms are the same.

    `residuals` are the words of the clauses that have some, if they are known.
    """
    data, at = _row_bytes(filters, schema), filters.row_ptr * (4 * ROW_WORDS)
    residuals = _residual_words(filters) if residuals is None else residuals
    has_words = np.append(residuals.of_clause >= 0, False)  # one more, for filters without clauses at the end
    first, sizes = filters.clause_ptr[:-1], np.diff(filters.clause_ptr)
    kind = np.where((sizes == 1) & ~has_words[first], 0, 1)
    kind[_are_whole(filters)] = 2
    boxes, others = np.flatnonzero(kind == 0), np.flatnonzero(kind == 1)
    out = np.empty((filters.n_filters, 16), np.uint8)
    out[boxes] = _BOX.many(data, at[first[boxes]], at[first[boxes] + 1])
    if others.size >= _MANY:
        out[others] = _digest_clauses(filters, others, data, at, residuals)
    else:
        for number in others.tolist():
            words = [(data[at[c] : at[c + 1]].tobytes(), residuals.of(c)) for c in filters.clauses_of(number)]
            marks = {_CLAUSE.one(_clause_head(len(box)) + box + rest) for box, rest in words}
            out[number] = np.frombuffer(_CLAUSES.one(b"".join(sorted(marks))), np.uint8)
    for number in np.flatnonzero(kind == 2).tolist():
        # The boxes of a cover say nothing that the residual does not.
        out[number] = np.frombuffer(_WHOLE.one(residuals.of(int(first[number]))), np.uint8)
    return out.tobytes()


def _clause_head(size: int) -> bytes:
    """What the words of a clause begin with: the bytes of its box, so that no residual can be taken for rows."""
    return b"%d:" % size


def _digest_clauses(filters: Filters, chosen: Longs, data: Bytes, at: Longs, residuals: ResidualWords) -> Bytes:
    """Digests of filters with several clauses, or with residuals: those of the sets of their clauses' digests.

    This is what `digest_filters` does for one filter, for many at once.
    """
    clauses, ptr = take_ranges(filters.clause_ptr, chosen)
    marks = _digest_each_clause(clauses, data, at, residuals)
    owner = np.repeat(np.arange(chosen.size), np.diff(ptr))
    order = _order_marks(owner, marks)
    owner, marks = owner[order], marks[order]
    is_new = np.ones(owner.size, bool)
    is_new[1:] = (owner[1:] != owner[:-1]) | (marks[1:] != marks[:-1]).any(axis=1)
    ends = 16 * np.concatenate(([0], np.cumsum(np.bincount(owner[is_new], minlength=chosen.size))))
    return _CLAUSES.many(marks[is_new].reshape(-1), ends[:-1], ends[1:])


def _order_marks(owner: Longs, marks: Bytes) -> Longs:
    """Sorts digests by owner and then by their bytes. Their first bytes nearly always tell, and one number is sorted in a third of the time."""
    halves = marks.view(">u8").astype(np.uint64)
    bits = np.uint64(int(owner[-1]).bit_length() if owner.size else 0)
    first = (owner.astype(np.uint64) << (np.uint64(64) - bits)) | (halves[:, 0] >> bits) if bits else halves[:, 0]
    order = np.argsort(first)
    alike = np.flatnonzero(first[order[1:]] == first[order[:-1]])
    if (marks[order[alike]] == marks[order[alike + 1]]).all():
        return order
    return np.lexsort((halves[:, 1], halves[:, 0], owner))


def _digest_each_clause(clauses: Longs, data: Bytes, at: Longs, residuals: ResidualWords) -> Bytes:
    """(clauses, 16): a clause is its head, the bytes of its rows and the words of its residuals."""
    sizes, of_size = np.unique(at[clauses + 1] - at[clauses], return_inverse=True)
    parts = [_clause_head(size) for size in sizes.tolist()]
    rests = [b"", *residuals.texts]
    pool = np.concatenate([np.frombuffer(b"".join([*parts, *rests]), np.uint8), data])
    ptr = pointer(map(len, [*parts, *rests]), len(parts) + len(rests))
    rest = len(parts) + 1 + residuals.of_clause[clauses]
    shift = ptr[-1]
    first = np.stack([ptr[of_size], shift + at[clauses], ptr[rest]], axis=1).reshape(-1)
    end = np.stack([ptr[of_size + 1], shift + at[clauses + 1], ptr[rest + 1]], axis=1).reshape(-1)
    return _CLAUSE.many(pool, first, end, parts=3)


def _row_bytes(filters: Filters, schema: Schema) -> Bytes:
    """The rows with digests in place of the ranks of strings."""
    is_text = np.array(schema.are_texts or (False,))
    out = np.empty((filters.attr.size, ROW_WORDS), np.uint32)
    marks = _string_marks(filters.strings).view(np.int64)
    write = write_rows.for_size(filters.attr.size)
    write(filters.attr, filters.null, filters.lo, filters.hi, is_text, marks, out)
    return out.view(np.uint8).reshape(-1)


def _string_marks(strings: list[str]) -> npt.NDArray[np.uint64]:
    words = [s.encode("utf-8", "surrogatepass") for s in strings]
    ptr = pointer(map(len, words), len(words))
    return _STRING.many(np.frombuffer(b"".join(words), np.uint8), ptr[:-1], ptr[1:]).view(np.uint64)


def _are_whole(filters: Filters) -> Longs:
    """The filters that are kept whole, as the residuals of boxes that cover them."""
    whole = [number for number, program in enumerate(filters.programs) if program.residuals[0].is_whole]
    if not whole:
        return np.zeros(0, np.int64)
    return np.searchsorted(filters.clause_ptr, np.flatnonzero(np.isin(filters.program, whole)), "right") - 1


def words_of_clauses(filters: Filters) -> Iterator[tuple[int, frozenset[str]]]:
    """The clauses that have residuals, and these in words."""
    clauses = np.flatnonzero(filters.program >= 0)
    order = clauses[np.argsort(filters.program[clauses], kind="stable")]
    for own in np.split(order, np.flatnonzero(np.diff(filters.program[order])) + 1) if order.size else ():
        program = filters.programs[int(filters.program[own[0]])]
        yield from zip(own.tolist(), _write_residuals(program, filters.program_row[own].astype(np.int64)), strict=True)


def _residual_words(filters: Filters) -> ResidualWords:
    """The residual of each clause that has one, in canonical words."""
    number: dict[bytes, int] = {}
    out = np.full(filters.program.size, -1, np.int64)
    for clause, words in words_of_clauses(filters):
        out[clause] = number.setdefault("\0".join(sorted(words)).encode(), len(number))
    return ResidualWords(list(number), out)
