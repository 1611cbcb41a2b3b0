"""Expression columns: what filters compute of an event, computed once per event and indexed like a value.

Theory of operation
-------------------
The naive way: what is not a set of values of one attribute (`price * volume > 1e6`, `length(cmd) > 100`, `high > low`) is a
residual, evaluated for every candidate. A thousand filters that ask for `price * volume > ?` compute the product a thousand
times.

Here a residual statement is taken apart first: it compares an *expression* with a literal, or looks it up in a list, or is
a condition as a whole. The value of the expression is a column of the index: an event has one code in it, a statement is an
interval of codes, and the box of its clause says all there is to say. Three things make that exact with little work:

- Both sides of a comparison have a form whose plain order is Spark's (`evaluate.comparable`): a key of 64 bits, or a
  text. The column holds that form of the expression, so the form of the literal is the end of the interval.
- A column is named by the canonical words of its expression and the type of the comparison. `x * 2 > ?` and `2 * x > ?`
  share one, `x * 3 > ?` has another.
- Filters stay as they are compiled. Only the index has expression columns: its boxes get more constraints, and a
  residual whose statements all became constraints is *settled*. The residual itself is kept, so that filters can be made
  again, merged and shown as before.

A text has two more kinds of columns, as an attribute has (see `columns`): the set of literals that occur in it serves
`trim(a) LIKE '%x%'` and its kin, and the set of regular expressions that match it those that have no literal to look for. A
pattern of several literals is gated by one of them and stays a residual. A vector has a column of the conditions `SIMILAR(v, ...) >= t`
that hold for it (see `similar`), but for those of clauses that leave few candidates.

Whether an expression becomes a column is a question of cost: a column is computed for every event, a residual for
candidates only. So an expression must be shared by a few clauses (`FEW_USES`), and by more if it works on texts, which
Python computes one by one. Deltas have few filters and thus few columns; when segments are merged, the count is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.index.bounds import StoredArrays
from wherecast.kernels.arrays import Bools, Longs
from wherecast.language.evaluate import comparable, comparison_scale
from wherecast.language.events.keys import KEY_MAX, KEY_MIN
from wherecast.language.events.schema import MAX_ATTRIBUTES, Schema
from wherecast.language.events.types import COLLECTIONS, INTEGERS, TEXTS, Type
from wherecast.language.events.zone import Zone
from wherecast.language.expression import (
    FLIPPED,
    Attr,
    Call,
    Compare,
    InList,
    Like,
    Node,
    Param,
    Subscript,
    attributes_of,
    is_constant,
)
from wherecast.language.filters.bind import Ragged, complement, key_bounds, merged, string_bounds
from wherecast.language.filters.canonical import WordRows, write_values
from wherecast.language.filters.columns import ANYWHERE, AT_END, AT_START, Reading, marked
from wherecast.language.filters.filters import AT, Filters, LiteralValues, Program, rank_anew
from wherecast.language.filters.normalize import Residual, Truth, literals_of
from wherecast.language.filters.similarity import element_name, find_similarity
from wherecast.language.nullable import Nullable
from wherecast.language.steps import Recipe, key_recipe
from wherecast.language.syntax.java_regex import rlike_regex
from wherecast.language.syntax.literals import ProgramScope
from wherecast.language.syntax.patterns import find_form

#: Clauses that must share an expression before it is computed for every event; of one that works on texts, more must.
FEW_USES, FEW_TEXT_USES = 8, 32
#: A column of regular expressions reads every text. Where other conditions of a clause leave few candidates, it does so for
#: nothing: such a clause counts only so much.
GUARDED_USE = 1 / 16
#: Characters of a literal, with its mark, that leaves too many candidates.
_SHORT_LITERAL = 3
#: Steps of a regular expression at most that runs with others: a set of many large ones takes longer than each by itself.
_MOST_STEPS = 500
#: Keys of decimals are bounded to this; literals beyond stay in residuals.
_FARTHEST = 2**62


class Statement(NamedTuple):
    """What a residual says of the value of an expression.

    `op` is a comparison, `in`, or `is` (of a condition); of a set, `like`, `ilike`, `rlike` or the name of a function.
    """

    of: Node
    op: str
    literals: tuple[Param, ...]
    common: Type
    scale: int
    truth: Truth
    reading: Reading = Reading.VALUE


def statement_of(residual: Residual) -> Statement | None:
    """A residual in terms of the expression that can be a column, if there is one."""
    node, truth = residual.node, residual.truth
    if residual.is_whole or is_constant(node):
        return None
    similarity = find_similarity(residual)
    if similarity is not None:
        literals = (similarity.literal, similarity.limit)
        is_set = truth is Truth.TRUE
        return (
            Statement(similarity.attr, similarity.op, literals, Type.DOUBLE, 0, truth, Reading.SIMILAR)
            if is_set
            else None
        )
    if isinstance(node, Compare):
        left, op, right = node.left, node.op, node.right
        if isinstance(left, Param):
            left, op, right = right, FLIPPED[op], left
        if isinstance(right, Param) and left.type is not Type.ARRAY:
            scale = comparison_scale(node) if node.common is Type.DECIMAL else 0
            return Statement(left, op, (right,), node.common, scale, truth)
    if isinstance(node, InList):
        # A NULL in the list makes "no" unknown; an integer looked up among FLOATs is rounded first.
        is_plain = node.common not in (Type.DECIMAL, Type.FLOAT) and (truth is Truth.TRUE or not node.has_null)
        return Statement(node.item, "in", node.values, node.common, 0, truth) if is_plain else None
    sought = _text_statement(node) if truth is Truth.TRUE else None
    if sought is not None:
        return sought
    # A pattern is cheaper on the candidates that its literals leave.
    if any(isinstance(n, Like) for n in node.walk()) or node.type is not Type.BOOLEAN:
        return None
    return Statement(node, "is", (), Type.BOOLEAN, 0, truth)


#: Functions that look for a literal, and the mark it has.
_MARKS = {"contains": ANYWHERE, "startswith": AT_START, "endswith": AT_END}


def _text_statement(node: Node) -> Statement | None:
    """A condition that looks for something in a text."""
    if isinstance(node, Like) and node.escape == "\\":
        item, op, param = node.item, node.kind, node.pattern
    elif isinstance(node, Call) and node.name in _MARKS and isinstance(node.args[1], Param):
        item, op, param = node.args[0], node.name, node.args[1]
    else:
        return None
    if param.type is not Type.STRING or item.type is not Type.STRING or is_constant(item):
        return None
    if op == "rlike":
        return Statement(item, op, (param,), Type.STRING, 0, Truth.TRUE, Reading.REGEXES)
    if literals_of(item, in_lower_case=op == "ilike") is not None:
        return None  # a column of the schema
    if op == "ilike":
        item = Call(name="lower", args=(item,), type=Type.STRING, span=item.span)
    return Statement(item, op, (param,), Type.STRING, 0, Truth.TRUE, Reading.LITERALS)


class _Sought(NamedTuple):
    """What is looked for in a text, and whether finding it is all that is asked."""

    element: str  # a literal with its mark, or a regular expression
    says_all: bool


def _sought(statement: Statement, literal: str) -> _Sought | None:
    """What a statement on a set looks for, with its literal; None if it is better left to the residual."""
    if statement.op in _MARKS:
        return _Sought(marked(_MARKS[statement.op], literal), says_all=True)
    form = find_form(statement.op, literal)
    if statement.op == "rlike":
        # An attribute is searched for the literals of its patterns already; short ones are in most texts.
        is_gated = literals_of(statement.of) is not None and len(form.literal) > _SHORT_LITERAL
        is_large = rlike_regex(literal).steps > _MOST_STEPS
        return None if is_gated or is_large else _Sought(literal, says_all=True)
    if form.name in ("exact", "prefix", "suffix", "infix"):
        return _Sought(marked(form.literal[0], form.literal[1:]), says_all=True)
    return _Sought(form.literal, says_all=False) if form.name in ("pieces", "prefixed") else None


@dataclass(frozen=True)
class ExpressionColumn:
    """A column of an index: the value of an expression with its literals, in the form that it is compared in.

    `program`, `statement` and `row` are where it was found: a snapshot keeps these.
    """

    program: int
    statement: int
    row: int
    of: Node
    common: Type
    scale: int
    literals: LiteralValues
    reading: Reading = Reading.VALUE

    @cached_property
    def attributes(self) -> frozenset[int]:
        return attributes_of(self.of)

    @property
    def is_text(self) -> bool:
        return self.common in TEXTS

    def find_key(self, schema: Schema) -> tuple[int, str | int] | None:
        """The map and the key, if the column is the value of a key as an index has it anyway."""
        of = self.of
        if not isinstance(of, Subscript) or not isinstance(of.array, Attr) or not isinstance(of.index, Param):
            return None
        attribute = schema.attributes[of.array.index]
        is_plain = of.array.key in (Type.STRING, *INTEGERS) and of.type is self.common is not Type.DECIMAL
        if attribute.value is None or not is_plain:
            return None
        (key,) = self.literals[of.index][self.row : self.row + 1].tolist()
        return of.array.index, key

    def recipe(self, zone: Zone) -> Recipe | None:
        """How a kernel computes the keys for a batch, if the expression is plain."""
        return key_recipe(self.of, self.common, self.literals, self.row, zone)

    def values(self, read: Callable[[int], Nullable], length: int, zone: Zone) -> Nullable:
        """Keys or texts, for so many events whose attributes `read` gives."""
        scope = ProgramScope(self.literals, self.row, read, zone, length)
        found = comparable(self.of, self.common, self.scale, scope)
        return found if self.is_text else Nullable(_keys(found.values), found.valid)


def _keys(values: npt.NDArray[Any]) -> Longs:
    """Numbers as 64-bit keys; decimals may be larger, and are bounded where no literal is."""
    if values.dtype == object:
        return np.fromiter((min(max(v, -_FARTHEST - 1), _FARTHEST + 1) for v in values), np.int64, values.size)
    return values.astype(np.int64, copy=False)


def column_at(programs: Sequence[Program], program: int, statement: int, row: int) -> ExpressionColumn:
    """The column that a statement of a program has with the literals of a row; ValueError if it has none."""
    found = statement_of(programs[program].residuals[statement])
    if found is None:
        raise ValueError(f"statement {statement} of program {program} has no column")
    literals = programs[program].literals
    return ExpressionColumn(program, statement, row, found.of, found.common, found.scale, literals, found.reading)


def open_expressions(arrays: Mapping[str, Any], programs: list[Program]) -> list[ExpressionColumn]:
    """Columns out of a file; raises SnapshotError if one is not the expression of a statement."""
    if not arrays:  # format 2 and older
        return []
    stored = StoredArrays(arrays, "expressions")
    flat = stored.column("places", np.int32)
    stored.require(flat.size % 3 == 0, "places", "has no whole number of columns")
    columns = []
    for program, statement, row in flat.reshape(-1, 3).tolist():
        known = 0 <= program < len(programs)
        known = known and 0 <= statement < len(programs[program].residuals) and 0 <= row < programs[program].length
        found = statement_of(programs[program].residuals[statement]) if known else None
        stored.require(found is not None, "places", f"has no statement {statement} of program {program}, row {row}")
        columns.append(column_at(programs, program, statement, row))
    return columns


# -- promotion ---------------------------------------------------------------------------------------------------------


#: What tells columns apart: canonical words, the type of the comparison, its scale and what is taken from the value.
_Name = tuple[str, Type, int, Reading]


class Promoted(NamedTuple):
    """Filters with constraints on expression columns, which are numbered after those of the schema."""

    filters: Filters
    columns: list[ExpressionColumn]
    is_settled: Bools  # (clauses,) the box says all that the residual says


class _Use(NamedTuple):
    """One statement of one program, and the clauses that have it."""

    program: int
    number: int  # of the statement
    statement: Statement
    clauses: Longs
    rows: Longs  # of the program's literals, by clause
    names: list[_Name | None]  # of the column, by clause; None: it cannot be one
    worth: npt.NDArray[np.float64]  # by clause: how much it counts


class _Constraints(NamedTuple):
    """Constraint i is one of clause `clause[i]` on column `column[i]`; the rows of `sets` are constraints."""

    clause: Longs
    column: Longs
    null: Bools  # whether NULL is allowed
    sets: Ragged


def promote(filters: Filters, schema: Schema) -> Promoted:
    """Make columns of the expressions that enough clauses share."""
    uses = _uses(filters, schema)
    number = _worthwhile(uses, MAX_ATTRIBUTES - len(schema.columns))
    columns: dict[int, ExpressionColumn] = {}
    chosen = []
    for use in uses:
        column = np.array([-1 if name is None else number.get(name, -1) for name in use.names], np.int64)
        kept = np.flatnonzero(column >= 0)
        column, rows = column[kept], use.rows[kept]
        for new, place in zip(*(a.tolist() for a in np.unique(column, return_index=True)), strict=True):
            if new not in columns:
                columns[new] = column_at(filters.programs, use.program, use.number, int(rows[place]))
        chosen.append((use._replace(clauses=use.clauses[kept], rows=rows), len(schema.columns) + column))
    if not columns:
        return Promoted(filters, [], np.zeros(filters.program.size, bool))
    values = [_literal_values(use, filters, schema.zone) for use, _ in chosen]
    filters, ranks = _with_strings(filters, schema, [v for found in values for v in found.flat])
    constraints, elements = [], []
    for (use, column), found in zip(chosen, values, strict=True):
        if use.statement.reading is Reading.VALUE:
            constraints.append(_constraints(use, column, found, ranks))
        else:
            elements.append(_elements(use, column, found, ranks))
    met = _met(constraints)
    is_settled = _settled(filters, [c.clause for c in constraints] + [e.clause[e.says_all] for e in elements], met)
    return Promoted(_with_rows(filters, _joined(met, elements)), [columns[n] for n in sorted(columns)], is_settled)


def _uses(filters: Filters, schema: Schema) -> list[_Use]:
    uses = []
    order = np.argsort(filters.program, kind="stable")
    bounds = np.searchsorted(filters.program[order], np.arange(len(filters.programs) + 1))
    for number, program in enumerate(filters.programs):
        clauses = order[bounds[number] : bounds[number + 1]]
        rows = filters.program_row[clauses].astype(np.int64)
        for at, residual in enumerate(program.residuals if clauses.size else ()):
            statement = statement_of(residual)
            if statement is not None:
                names = _names(statement, program.literals, rows)
                worth = np.ones(clauses.size)
                if statement.reading is Reading.SIMILAR:
                    few = _asks_for_values(filters)[clauses]
                    names = [None if is_few else name for name, is_few in zip(names, few.tolist(), strict=True)]
                if statement.reading is Reading.REGEXES:
                    worth[_guarded(filters, schema, clauses, attributes_of(statement.of))] = GUARDED_USE
                uses.append(_Use(number, at, statement, clauses, rows, names, worth))
    return uses


def _names(statement: Statement, literals: LiteralValues, rows: Longs) -> list[_Name | None]:
    facts = statement.common, statement.scale, statement.reading
    has_literals = any(isinstance(n, Param) for n in statement.of.walk())
    words = write_values(statement.of, WordRows(literals, rows if has_literals else rows[:1]))
    names: list[_Name | None] = [(each, *facts) for each in words]
    names *= 1 if has_literals else rows.size
    if statement.reading in (Reading.VALUE, Reading.SIMILAR):
        return names
    found = literals[statement.literals[0]][rows].tolist()
    return [None if _sought(statement, literal) is None else n for literal, n in zip(found, names, strict=True)]


def _guarded(filters: Filters, schema: Schema, clauses: Longs, attributes: frozenset[int]) -> Bools:
    """Which clauses constrain something beside these attributes."""
    read = np.array([column.attr for column in schema.columns])
    column = read[np.where(filters.attr < 0, ~filters.attr, filters.attr)]
    owner = np.repeat(np.arange(filters.program.size), np.diff(filters.row_ptr))
    beside = ~np.isin(column, list(attributes))
    return np.bincount(owner[beside], minlength=filters.program.size)[clauses] > 0


#: Values that filters name in a column before asking for one of them leaves few events.
_MANY_VALUES = 8


def _asks_for_values(filters: Filters) -> Bools:
    """Which clauses ask a column for single values, of which filters name many: few events have them."""
    column = np.where(filters.attr < 0, ~filters.attr, filters.attr).astype(np.int64)
    rows = np.flatnonzero((filters.lo == filters.hi) & ~filters.null)
    pairs = np.unique(np.stack((column[rows], filters.lo[rows])), axis=1)
    named = np.bincount(pairs[0], minlength=int(column.max(initial=0)) + 1)
    owner = np.repeat(np.arange(filters.program.size), np.diff(filters.row_ptr))
    return np.bincount(owner[rows[named[column[rows]] >= _MANY_VALUES]], minlength=filters.program.size) > 0


def _worthwhile(uses: list[_Use], most: int) -> dict[_Name, int]:
    """The columns that enough clauses use, numbered; should there be too many, the most used ones."""
    worth: dict[_Name, float] = {}
    for use in uses:
        few = least_uses(use.statement.of)
        for name, counts in zip(use.names, (use.worth / few).tolist(), strict=True):
            if name is not None:
                worth[name] = worth.get(name, 0) + counts
    chosen = [name for name in sorted(worth, key=worth.__getitem__, reverse=True)[:most] if worth[name] >= 1]
    return {name: number for number, name in enumerate(sorted(chosen))}


def least_uses(node: Node) -> int:
    """How many clauses must share an expression before it is a column."""
    return FEW_TEXT_USES if any(n.type in (*TEXTS, *COLLECTIONS) for n in node.walk()) else FEW_USES


# -- intervals ---------------------------------------------------------------------------------------------------------


class _Values(NamedTuple):
    """The literals of a use as keys or texts, `ptr[i]` .. `ptr[i + 1] - 1` those of its clause i."""

    flat: list[Any]
    ptr: Longs
    says_all: tuple[bool, ...] = ()  # of a set, by clause: whether having the element is all that is asked


def _literal_values(use: _Use, filters: Filters, zone: Zone) -> _Values:
    statement, n = use.statement, use.clauses.size
    scope = ProgramScope(filters.programs[use.program].literals, use.rows, _no_attribute, zone)
    if statement.reading is Reading.SIMILAR:
        places = [element_name(use.program, use.number, row) for row in use.rows.tolist()]
        return _Values(places, np.arange(n + 1), (True,) * n)
    if statement.reading is not Reading.VALUE:
        found = filters.programs[use.program].literals[statement.literals[0]][use.rows].tolist()
        sought = [each for literal in found if (each := _sought(statement, literal)) is not None]
        return _Values([s.element for s in sought], np.arange(n + 1), tuple(s.says_all for s in sought))
    if statement.op == "is":
        return _Values([1] * n, np.arange(n + 1))
    if statement.op == "in":
        lists = [scope.literal_keys(param, statement.common) for param in statement.literals]
        rows = [[key for keys in row for key in sorted(keys)] for row in zip(*lists, strict=True)]
        return _Values([key for row in rows for key in row], np.cumsum([0, *map(len, rows)]))
    (param,) = statement.literals
    return _Values(comparable(param, statement.common, statement.scale, scope).values.tolist(), np.arange(n + 1))


def _no_attribute(index: int) -> Nullable:
    raise AssertionError(f"a literal reads attribute {index}")


def _with_strings(filters: Filters, schema: Schema, values: list[Any]) -> tuple[Filters, dict[str, int]]:
    """The filters with more strings, ranked anew, and the ranks."""
    strings = sorted({*filters.strings, *(v for v in values if isinstance(v, str))})
    ranks = {s: i for i, s in enumerate(strings)}
    return rank_anew(filters, schema, strings, np.array([ranks[s] for s in filters.strings], np.int64)), ranks


def _constraints(use: _Use, column: Longs, values: _Values, ranks: dict[str, int]) -> _Constraints:
    """What a statement asks of its column, clause by clause; decimals that no key can hold are left out."""
    statement, is_text = use.statement, use.statement.common in TEXTS
    owner = np.repeat(np.arange(column.size), np.diff(values.ptr))
    fits = np.ones(column.size, bool)
    if is_text:
        places = 4 * np.array([ranks[v] for v in values.flat], np.int64)
    else:
        near = [abs(v) <= _FARTHEST or statement.common is not Type.DECIMAL for v in values.flat]
        fits[owner[~np.array(near, bool)]] = False
        places = np.array([int(v) if ok else 0 for v, ok in zip(values.flat, near, strict=True)], np.int64)
    op = statement.op if statement.op in ("<", "<=", ">", ">=") else "="
    sets = merged(Ragged(owner, *(string_bounds if is_text else key_bounds)(op, places)))
    is_negated = (statement.op == "<>") != (statement.truth in (Truth.FALSE, Truth.NOT_TRUE))
    if is_negated:
        sets = complement(sets, column.size)
    null = is_negated if statement.op == "<=>" else statement.truth.admits_unknown
    number = np.cumsum(fits) - 1
    kept = fits[sets.rows]
    sets = Ragged(number[sets.rows[kept]], sets.lo[kept], sets.hi[kept])
    return _Constraints(use.clauses[fits], column[fits], np.full(int(fits.sum()), null), sets)


class _Elements(NamedTuple):
    """Clause `clause[i]` asks the set of column `column[i]` for the string at position `at[i]`."""

    clause: Longs
    column: Longs
    at: Longs
    says_all: Bools  # or whether more is asked, by the residual


def _elements(use: _Use, column: Longs, values: _Values, ranks: dict[str, int]) -> _Elements:
    at = 4 * np.array([ranks[element] for element in values.flat], np.int64) + AT
    return _Elements(use.clauses, column, at, np.array(values.says_all, bool))


def _joined(met: _Constraints, elements: list[_Elements]) -> _Constraints:
    """The constraints, and one more for each element, in the order of clauses and columns."""
    if not elements:
        return met
    asked = np.unique(np.concatenate([np.stack((e.clause, e.column, e.at)) for e in elements], axis=1), axis=1)
    clause, column = np.concatenate((met.clause, asked[0])), np.concatenate((met.column, asked[1]))
    rows = np.concatenate((met.sets.rows, met.clause.size + np.arange(asked.shape[1])))
    lo, hi = (np.concatenate((ends, asked[2])) for ends in (met.sets.lo, met.sets.hi))
    order = np.lexsort((column, clause))
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size)
    null = np.concatenate((met.null, np.zeros(asked.shape[1], bool)))
    return _Constraints(clause[order], column[order], null[order], Ragged(place[rows], lo, hi))


def _met(constraints: list[_Constraints]) -> _Constraints:
    """One constraint for each clause and column: what all of its constraints allow."""
    if not constraints:
        none = np.zeros(0, np.int64)
        return _Constraints(none, none, np.zeros(0, bool), Ragged(none, none, none))
    key = np.concatenate([(c.clause << 16) | c.column for c in constraints])
    keys, number = np.unique(key, return_inverse=True)
    null = np.ones(keys.size, bool)
    null[number[~np.concatenate([c.null for c in constraints])]] = False
    gaps, base = [], 0
    for each in constraints:  # what one of them leaves out, all of them leave out
        outside = complement(each.sets, each.clause.size)
        gaps.append(outside._replace(rows=number[base + outside.rows]))
        base += each.clause.size
    left_out = merged(Ragged(*(np.concatenate(parts) for parts in zip(*gaps, strict=True))))
    return _Constraints(keys >> 16, keys & 0xFFFF, null, complement(left_out, keys.size))


def _settled(filters: Filters, clauses: list[Longs], met: _Constraints) -> Bools:
    """Which clauses, each given once per statement that is a constraint, have no other, and something can satisfy them."""
    count = np.bincount(np.concatenate(clauses), minlength=filters.program.size)
    wanted = np.array([len(p.residuals) for p in filters.programs])[filters.program]
    settled: Bools = (filters.program >= 0) & (count == wanted)
    empty = ~met.null
    empty[met.sets.rows] = False
    settled[met.clause[empty]] = False  # nothing satisfies it, and a constraint has to have a row: the residual stays
    return settled


def _with_rows(filters: Filters, met: _Constraints) -> Filters:
    """The filters with the constraints after those that they have."""
    full = np.zeros(met.clause.size, bool)
    full[met.sets.rows[(met.sets.lo == KEY_MIN) & (met.sets.hi == KEY_MAX)]] = True
    full &= met.null
    nulls = np.flatnonzero(met.null & ~full)
    kept = ~full[met.sets.rows]
    of = np.concatenate((nulls, met.sets.rows[kept]))
    lo = np.concatenate((np.zeros(nulls.size, np.int64), met.sets.lo[kept]))
    hi = np.concatenate((np.zeros(nulls.size, np.int64), met.sets.hi[kept]))
    null = np.arange(of.size) < nulls.size
    order = np.lexsort((lo, ~null, of))  # constraints are in the order of clauses and columns
    of, lo, hi, null = of[order], lo[order], hi[order], null[order]
    attr = met.column[of].astype(np.int16)
    attr[:-1] = np.where(of[1:] == of[:-1], ~attr[:-1], attr[:-1])
    owner = np.repeat(np.arange(filters.program.size), np.diff(filters.row_ptr))
    together = np.concatenate((owner, met.clause[of]))
    place = np.argsort(together, kind="stable")
    return filters._replace(
        row_ptr=np.searchsorted(together[place], np.arange(filters.program.size + 1)).astype(np.int64),
        attr=np.concatenate((filters.attr, attr))[place],
        null=np.concatenate((filters.null, null))[place],
        lo=np.concatenate((filters.lo, lo))[place],
        hi=np.concatenate((filters.hi, hi))[place],
    )
