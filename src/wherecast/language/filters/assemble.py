r"""Assembling: the bound groups of a batch become one `Filters`.

Theory of operation
-------------------
A *group* is many filters, or many terms, of one normalised shape. Its *atoms* are the shape's sets and residuals, each with one
row for each member: the atoms of a batch are numbered group after group, atom after atom, row after row. What filters are made of them
is said by templates (see `kernels.clauses`): one for all filters of a shape, or one for each filter that was put together from
terms (see `terms`). The rest is the same for both: once the strings of the batch are ranked, all atoms are resolved at
once, the kernel settles and simplifies the clauses of all filters, and digests are computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Longs
from wherecast.kernels.clauses import Atoms, Settled, Templates, settle_clauses
from wherecast.language.events.schema import Schema
from wherecast.language.events.types import Type
from wherecast.language.expression import Attr, Param, is_constant, parts_of, with_parts
from wherecast.language.filters.bind import Ragged, StringPool, resolve
from wherecast.language.filters.canonical import ResidualWords, WordRows, digest_filters, write_statements
from wherecast.language.filters.filters import Filters, LiteralValues, Program
from wherecast.language.filters.normalize import Clause, Predicate, Residual, Values
from wherecast.language.sequences import distinct, number_sequences, pointer, take_ranges
from wherecast.language.syntax.literals import Literals

#: What a shape is made of. A residual without attributes is a set, too: everything or nothing.
Atom = Predicate | Residual


class Group(NamedTuple):
    """Filters of one normalised shape, or terms, with their sets placed but not ranked."""

    rows: Longs  # which texts they are, or which terms
    atoms: tuple[Atom, ...]
    literals: Literals
    placed: list[Ragged | None]  # by atom; None: a residual
    attributes: Longs | None = None  # with which terms begin, by row, if they begin with different ones
    attribute: int = -1  # that of them which the atoms have

    @property
    def size(self) -> int:
        """Its atoms, one for each row."""
        return len(self.atoms) * self.rows.size


class FilterPart(NamedTuple):
    """Filters with their templates and the programs of their residuals."""

    texts: Longs  # (filters,) which texts they are
    template: Longs  # (filters,)
    shift: Longs  # (filters,)
    templates: Templates
    program: Longs  # (templates' clauses,) -1: no residual
    program_row: Longs  # (templates' clauses,) of a filter without a shift
    programs: list[Program]


class ShapeClauses(NamedTuple):
    """The clauses of a shape as a template of its atoms, which are numbered from 0."""

    atoms: tuple[Atom, ...]
    template: Templates
    residuals: tuple[tuple[Residual, ...], ...]  # by clause


def is_set(atom: Atom) -> bool:
    return isinstance(atom, Predicate) or is_constant(atom.node)


def column_of(atom: Atom, schema: Schema) -> int:
    """The number of an atom's column; that of constants comes after all others."""
    return schema.number_of(atom.column) if isinstance(atom, Predicate) else len(schema.columns)


def shape_of_clauses(clauses: Sequence[Clause], schema: Schema) -> ShapeClauses:
    """The template of a normal form."""
    number: dict[Atom, int] = {}
    sets: dict[Values | Residual, int] = {}
    of_clause: list[list[int]] = []
    rest: list[tuple[Residual, ...]] = []
    for clause in clauses:
        constants = [r for r in clause.residuals if is_constant(r.node)]
        found: list[Values | Residual] = [*clause.values, *constants]
        of_clause.append([sets.setdefault(each, len(sets)) for each in found])
        rest.append(tuple(r for r in clause.residuals if not is_constant(r.node)))
    members = [s.predicates if isinstance(s, Values) else (s,) for s in sets]
    atoms = [[number.setdefault(a, len(number)) for a in each] for each in members]
    residuals = [[number.setdefault(r, len(number)) for r in each] for each in rest]
    clause_sets, clause_set_ptr = _flat(of_clause)
    rest_atoms, rest_ptr = _flat(residuals)
    flat_atoms, atom_ptr = _flat(atoms)
    template = Templates(
        np.array([0, len(clauses)]),
        np.array([0, len(sets)]),
        clause_set_ptr,
        clause_sets,
        rest_ptr,
        rest_atoms,
        atom_ptr,
        flat_atoms,
        np.array([column_of(each[0], schema) for each in members], np.int64),
        np.array([isinstance(s, Values) and s.is_elements for s in sets], bool),
    )
    return ShapeClauses(tuple(number), template, tuple(rest))


def _flat(lists: Iterable[Sequence[int]]) -> tuple[Longs, Longs]:
    """Lists one after the other, and where each begins."""
    lists = list(lists)
    ptr = np.array([0, *accumulate(map(len, lists))], np.int64)
    return np.array([item for each in lists for item in each], np.int64), ptr


def part_of_group(group: Group, shape: ShapeClauses, base: int) -> FilterPart:
    """Filters of one shape, the first atom of which has the number `base`."""
    n, programs = group.rows.size, list[Program]()
    known: dict[tuple[Residual, ...], int] = {(): -1}
    for residuals in shape.residuals:
        if residuals not in known:
            known[residuals] = len(programs)
            programs.append(Program(residuals, group.literals.take([r.node for r in residuals]), n))
    t = shape.template
    templates = t._replace(atoms=base + n * t.atoms, rest=base + n * t.rest)
    program = np.array([known[residuals] for residuals in shape.residuals], np.int64)
    return FilterPart(
        group.rows, np.zeros(n, np.int64), np.arange(n), templates, program, np.zeros(program.size, np.int64), programs
    )


def assemble(
    groups: Sequence[Group], parts: Sequence[FilterPart], pool: StringPool, schema: Schema
) -> tuple[Filters, Longs]:
    """One `Filters` of all parts, and the text that each of its filters came from. Groups are those of the atoms, in order."""
    strings, ranks = pool.ranked()
    words, word_of = _words(groups)
    atoms = Atoms(*_resolved(groups, ranks, schema), word_of)
    whole = join_parts(parts)
    is_boolean = np.array([*(c.type is Type.BOOLEAN and not c.is_array for c in schema.attributes)], bool)
    is_boolean = np.append(is_boolean, np.zeros(len(schema.columns) + 1 - is_boolean.size, bool))
    found = settle_clauses(whole.template, whole.shift, whole.templates, atoms, is_boolean)
    shift = np.repeat(whole.shift, np.diff(found.clause_ptr))
    program = whole.program[found.source]
    filters = Filters(
        found.clause_ptr,
        found.row_ptr,
        found.attr,
        found.null,
        found.lo,
        found.hi,
        program.astype(np.int32),
        np.where(program < 0, 0, whole.program_row[found.source] + shift).astype(np.int32),
        strings,
        whole.programs,
        b"",
    )
    residuals = _residual_words(found, shift, whole.templates, word_of, words)
    return filters._replace(digests=digest_filters(filters, schema, residuals)), whole.texts


def join_parts(parts: Sequence[FilterPart]) -> FilterPart:
    """All filters of several parts."""
    if len(parts) == 1:
        return parts[0]
    none = np.zeros(0, np.int64)
    n_templates = np.cumsum([0, *(p.templates.clause_ptr.size - 1 for p in parts)])
    n_programs = np.cumsum([0, *(len(p.programs) for p in parts)])
    return FilterPart(
        np.concatenate([none, *(p.texts for p in parts)]),
        np.concatenate([none, *(p.template + first for p, first in zip(parts, n_templates, strict=False))]),
        np.concatenate([none, *(p.shift for p in parts)]),
        _join_templates([p.templates for p in parts]),
        np.concatenate(
            [none, *(np.where(p.program < 0, -1, p.program + f) for p, f in zip(parts, n_programs, strict=False))]
        ),
        np.concatenate([none, *(p.program_row for p in parts)]),
        [program for p in parts for program in p.programs],
    )


def _join_templates(found: Sequence[Templates]) -> Templates:
    none = np.zeros(0, np.int64)
    n_sets = np.cumsum([0, *(t.column.size for t in found)])
    ptrs = {name: _join_ptrs([getattr(t, name) for t in found]) for name in Templates._fields if name.endswith("_ptr")}
    return Templates(
        **ptrs,
        clause_sets=np.concatenate([none, *(t.clause_sets + first for t, first in zip(found, n_sets, strict=False))]),
        rest=np.concatenate([none, *(t.rest for t in found)]),
        atoms=np.concatenate([none, *(t.atoms for t in found)]),
        column=np.concatenate([none, *(t.column for t in found)]),
        is_element=np.concatenate([np.zeros(0, bool), *(t.is_element for t in found)]),
    )


def _join_ptrs(ptrs: Sequence[Longs]) -> Longs:
    return np.cumsum(np.concatenate([np.zeros(1, np.int64), *(np.diff(p) for p in ptrs)]))


# -- atoms --------------------------------------------------------------------------------------------------------------


def _resolved(
    groups: Sequence[Group], ranks: Longs, schema: Schema
) -> tuple[Longs, Longs, Longs, npt.NDArray[np.bool_]]:
    """The sets of all atoms: pointer, intervals, and which have NULL."""
    piles: list[Ragged] = []
    flags: list[tuple[bool, bool, bool]] = []  # of a text, complement, NULL
    sizes: list[int] = []
    base = 0
    for group in groups:
        n = group.rows.size
        for atom, sets in zip(group.atoms, group.placed, strict=True):
            if sets is not None:
                piles.append(Ragged(base + sets.rows, sets.lo, sets.hi))
            if isinstance(atom, Predicate):
                is_text = schema.attributes[atom.column.attr].is_text and atom.op != "all"
                flags.append((is_text, atom.complement and atom.op != "true", atom.null))
            else:
                flags.append((False, False, False))
            sizes.append(n)
            base += n
    none = np.zeros(0, np.int64)
    pile = Ragged(*(np.concatenate(a) for a in zip(*piles, strict=True))) if piles else Ragged(none, none, none)
    is_text, is_complement, null = np.repeat(np.array(flags, bool).reshape(-1, 3), sizes, axis=0).T
    constants = [g for g in groups if any(isinstance(a, Residual) and is_set(a) for a in g.atoms)]
    null = np.ascontiguousarray(null)
    sets = resolve(pile, is_text, is_complement, ranks, base)
    if constants:  # a constant that holds admits everything, one that does not nothing
        _admit_null(groups, sets, null)
    ptr = np.zeros(base + 1, np.int64)
    np.cumsum(np.bincount(sets.rows, minlength=base), out=ptr[1:])
    return ptr, sets.lo, sets.hi, null


def _admit_null(groups: Sequence[Group], sets: Ragged, null: npt.NDArray[np.bool_]) -> None:
    there = np.zeros(null.size, bool)
    there[sets.rows] = True
    base = 0
    for group in groups:
        for atom in group.atoms:
            if isinstance(atom, Residual) and is_set(atom):
                null[base : base + group.rows.size] = there[base : base + group.rows.size]
            base += group.rows.size


def _words(groups: Sequence[Group]) -> tuple[list[str], Longs]:
    """The canonical words of all residuals, in order, and the rank of each atom's."""
    found: list[tuple[int, list[str]]] = []
    base = 0
    for group in groups:
        for atom in group.atoms:
            if isinstance(atom, Residual) and not is_set(atom):
                each = np.arange(group.rows.size)
                rows = WordRows(group.literals.take([atom.node]), each, group.attribute, group.attributes)
                found.append((base, write_statements(atom, rows)))
            base += group.rows.size
    words = sorted({each for _, several in found for each in several})
    rank = {each: number for number, each in enumerate(words)}
    out = np.full(base, -1, np.int64)
    for first, several in found:
        out[first : first + len(several)] = [rank[each] for each in several]
    return words, out


def _residual_words(
    found: Settled, shift: Longs, templates: Templates, word_of: Longs, words: list[str]
) -> ResidualWords:
    """The residuals of each clause, in canonical words: in order, each once."""
    out = np.full(found.source.size, -1, np.int64)
    some = np.flatnonzero(np.diff(templates.rest_ptr)[found.source])
    if not some.size:
        return ResidualWords([], out)
    places, ptr = take_ranges(templates.rest_ptr, found.source[some])
    owner = np.repeat(np.arange(some.size), np.diff(ptr))
    both = distinct(owner << 32 | word_of[templates.rest[places] + shift[some][owner]])
    ranks = both & 0xFFFFFFFF
    ptr = np.searchsorted(both, np.arange(some.size + 1) << 32)
    out[some], first = number_sequences(ptr, ranks)
    spans = zip(ptr[first].tolist(), ptr[first + 1].tolist(), strict=True)
    return ResidualWords(["\0".join([words[r] for r in ranks[a:b].tolist()]).encode() for a, b in spans], out)


# -- programs of clauses that were put together -------------------------------------------------------------------------


def programs_of_clauses(templates: Templates, groups: Sequence[Group]) -> tuple[Longs, Longs, list[Program]]:
    """Program, row and programs of clauses whose residuals come from several groups."""
    n = templates.rest_ptr.size - 1
    program, row = np.full(n, -1, np.int64), np.zeros(n, np.int64)
    some = np.flatnonzero(np.diff(templates.rest_ptr))
    if not some.size:
        return program, row, []
    owners = [(g, a) for g in groups for a in g.atoms]
    first_atom = pointer((g.rows.size for g, _ in owners), len(owners))
    places, ptr = take_ranges(templates.rest_ptr, some)
    # Clauses of one filter often have the same residuals: they share a row.
    of_clause, first = number_sequences(ptr, templates.rest[places])
    places, ptr = take_ranges(templates.rest_ptr, some[first])
    atoms = templates.rest[places]
    owner = np.searchsorted(first_atom, atoms, "right") - 1
    rows = atoms - first_atom[owner]
    attr = _attributes_of(owners, owner, rows)
    kinds, _ = number_sequences(ptr, (owner << 16) | (attr + 1))
    order = np.argsort(kinds, kind="stable")
    starts = pointer(np.bincount(kinds), int(kinds.max()) + 1)
    row_of = np.empty(order.size, np.int64)
    row_of[order] = np.arange(order.size) - starts[kinds[order]]
    program[some], row[some] = kinds[of_clause], row_of[of_clause]
    members = np.split(order, starts[1:-1])
    return program, row, _programs(owners, members, ptr, owner, attr, rows)


def _attributes_of(owners: Sequence[tuple[Group, Atom]], owner: Longs, rows: Longs) -> Longs:
    """The attribute with which the term of each residual begins; -1: that of its group."""
    attr = np.full(owner.size, -1, np.int64)
    for number in distinct(owner).tolist():
        attributes = owners[number][0].attributes
        if attributes is not None:
            mine = np.flatnonzero(owner == number)
            attr[mine] = attributes[rows[mine]]
    return attr


def _programs(
    owners: Sequence[tuple[Group, Atom]], members: Sequence[Longs], ptr: Longs, owner: Longs, attr: Longs, rows: Longs
) -> list[Program]:
    """One program for the members of each list, which differ in literals only: `ptr` says which residuals a member has."""
    taken = {n: owners[n][0].literals.take([owners[n][1].node]) for n in distinct(owner).tolist()}
    known: dict[tuple[int, int, int], _Part] = {}
    programs = []
    for own in members:
        at, used, parts = ptr[own], 0, []
        for place in range(int(at[0]), int(ptr[own[0] + 1])):
            key = int(owner[place]), int(attr[place]), used
            if key not in known:
                known[key] = _part(*owners[key[0]], taken[key[0]], *key[1:])
            parts.append((known[key], rows[at + (place - at[0])]))
            used += known[key].slots
        literals = {key: values[own_rows] for part, own_rows in parts for key, values in part.literals.items()}
        programs.append(Program(tuple(part.residual for part, _ in parts), literals, own.size))
    return programs


class _Part(NamedTuple):
    """A residual of a term in a program, where it has slots of its own."""

    residual: Residual
    literals: LiteralValues
    slots: int


def _part(group: Group, atom: Atom, literals: LiteralValues, attr: int, used: int) -> _Part:
    """A residual with its own attribute, and with slots behind those that are used."""
    assert isinstance(atom, Residual)
    slots = 1 + max((n.slot for n in atom.node.walk() if isinstance(n, Param)), default=-1)
    renamed = (group.attribute, attr) if group.attributes is not None else (-1, -1)
    own = {
        _rewritten(key, used) if isinstance(key, Param) else (_rewritten(key[0], used), key[1]): values
        for key, values in literals.items()
    }
    return _Part(Residual(_rewritten(atom.node, used, renamed), atom.truth, atom.is_whole), own, slots)


def _rewritten(node: Any, by: int, renamed: tuple[int, int] = (-1, -1)) -> Any:
    """An expression whose slots are numbered from another one on, and that has another attribute in place of one."""
    if isinstance(node, Param):
        return with_parts(node, {"slot": node.slot + by}) if by else node
    if isinstance(node, Attr):
        return with_parts(node, {"index": renamed[1]}) if node.index == renamed[0] else node
    if isinstance(node, tuple):
        return tuple(_rewritten(each, by, renamed) for each in node)
    return with_parts(node, {name: _rewritten(getattr(node, name), by, renamed) for name in parts_of(type(node))})
