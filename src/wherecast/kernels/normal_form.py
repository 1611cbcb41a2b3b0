"""The normal form of many filters at once: ANDs and ORs of sets and residuals, multiplied out to clauses.

Theory of operation
-------------------
This is what `language.filters.normalize` does for one shape (`group_sets`, `expand`), for filters whose shapes do not
repeat. A filter comes as a postfix program over its terms ("all of the last n", "any of the last n"), and each term as such a
program over its atoms: sets of one column's values, and residuals. Nodes are built bottom up. A connective inside one of its kind
is flattened, alternatives of one column become one set, and what is always or never true disappears. Then clauses
are multiplied out, children before parents.

Where there would be more clauses than the limit the kernel gives up: such a filter needs a cover, which `normalize` makes.
Equal parts that `normalize` leaves out are found here only if they are atoms without literals. More clauses are counted then, so
the kernel gives up rather too early than too late; of equal clauses one is left when they are simplified.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wherecast.kernels.arrays import Bools, Longs
from wherecast.kernels.clauses import NONE, Templates, grown, wider
from wherecast.kernels.late import apart, late, late_hot

#: Steps of a postfix program, and kinds of nodes.
SET, RESIDUAL, ALL, ANY, TERM = range(5)
_MOST_ITEMS = 1 << 16


class Programs(NamedTuple):
    """Postfix programs: of filters over terms, or of terms over atoms."""

    ptr: Longs  # (programs + 1,)
    kind: Longs  # (steps,)
    arg: Longs  # (steps,) how many, or the number of the term among all of the batch, or of the atom in its form


class Forms(NamedTuple):
    """The atoms of terms' forms: atom k of a form is number `ptr[form] + k` here."""

    ptr: Longs  # (forms + 1,)
    column: Longs  # (atoms,)
    reading: Longs  # what is taken from the term's attribute, -1: its column is the one above
    is_element: Bools
    shared: Longs  # equal for equal atoms without literals, -1: it has some
    base: Longs  # the atom of the form's first term; the next one's is one more
    numbers: Longs  # (readings, attributes) the columns


class TermTable(NamedTuple):
    """The terms of all filters."""

    form: Longs  # -1: it has none
    row: Longs  # its number among the terms of its form
    attribute: Longs  # with which it begins; see `Forms.reading`


def expand_filters(
    filters: Programs, terms: TermTable, programs: Programs, forms: Forms, limit: int
) -> tuple[Templates, Bools]:
    """The templates of filters, and for which of them the kernel gave up; those have no clauses.

    `programs` are those of the forms.
    """
    run = _expand.for_size(terms.form.size)
    sizes, arrays, is_left = run(tuple(filters), tuple(terms), tuple(programs), tuple(forms), limit)
    clauses, sets, n_in, n_rest, atoms = sizes
    ends = None, None, clauses + 1, n_in, clauses + 1, n_rest, sets + 1, atoms, sets, sets
    return Templates(*(array[:end].copy() for array, end in zip(arrays, ends, strict=True))), is_left


# -- nodes --------------------------------------------------------------------------------------------------------------
#
# `nodes` has a row for each node: kind, first and end of its items, column, whether its set is of elements, and what it shares
# with equal ones. Items are nodes, or the atoms of a set or residual.


@late_hot
def _leaf(
    nodes: Any, items: Any, n: Any, n_items: Any, kind: Any, atom: Any, column: Any, is_element: Any, shared: Any
) -> Any:
    """A node of one atom; one that is there already, if it has no literals. Returns its number, and the numbers of both."""
    if shared >= 0:
        for i in range(n):
            if nodes[i, 5] == shared and nodes[i, 0] == kind and nodes[i, 3] == column:
                return i, n, n_items
    items[n_items] = atom
    nodes[n, 0], nodes[n, 1], nodes[n, 2] = kind, n_items, n_items + 1
    nodes[n, 3], nodes[n, 4], nodes[n, 5] = column, is_element, shared
    return n, n + 1, n_items + 1


@late_hot
def _gathered(nodes: Any, items: Any, stack: Any, first: Any, end: Any, kind: Any, out: Any) -> Any:
    """The operands of a connective, flattened, each once; -1 if one of them decides it all."""
    count = 0
    for s in range(first, end):
        node = stack[s]
        own = nodes[node, 0]
        if own != kind and own >= ALL and nodes[node, 1] == nodes[node, 2]:
            return -1
        size = nodes[node, 2] - nodes[node, 1] if own == kind else 1
        for i in range(size):
            part = items[nodes[node, 1] + i] if own == kind else node
            is_known = False
            for j in range(count):
                if out[j] == part:
                    is_known = True
                    break
            if not is_known:
                out[count] = part
                count += 1
    return count


@late_hot
def _unite(nodes: Any, items: Any, n: Any, n_items: Any, out: Any, count: Any) -> Any:
    """Alternatives of one column made one set; sets come first. Returns how many there are now, and the used nodes and items.

    `out` has room for as many again: the others wait there.
    """
    apart()
    n_sets, n_others = 0, 0
    for i in range(count):
        node = out[i]
        if node < 0:
            continue
        if nodes[node, 0] != SET:
            out[count + n_others] = node
            n_others += 1
            continue
        start, is_alone = n_items, True
        for j in range(i + 1, count):
            other = out[j]
            if (
                other >= 0
                and nodes[other, 0] == SET
                and nodes[other, 3] == nodes[node, 3]
                and nodes[other, 4] == nodes[node, 4]
            ):
                if is_alone:
                    is_alone = False
                    for k in range(nodes[node, 1], nodes[node, 2]):
                        items[n_items] = items[k]
                        n_items += 1
                for k in range(nodes[other, 1], nodes[other, 2]):
                    items[n_items] = items[k]
                    n_items += 1
                out[j] = -1
        if not is_alone:
            nodes[n, 0], nodes[n, 1], nodes[n, 2] = SET, start, n_items
            nodes[n, 3], nodes[n, 4], nodes[n, 5] = nodes[node, 3], nodes[node, 4], -1
            node = n
            n += 1
        out[n_sets] = node
        n_sets += 1
    for i in range(n_others):
        out[n_sets + i] = out[count + i]
    return n_sets + n_others, n, n_items


@late_hot
def _connect(
    nodes: Any, items: Any, n: Any, n_items: Any, stack: Any, first: Any, end: Any, kind: Any, out: Any
) -> Any:
    """A connective of the nodes on top of the stack. Returns its number, and the used nodes and items."""
    apart()
    count = _gathered(nodes, items, stack, first, end, kind, out)
    own = kind
    if count < 0:
        own, count = (ANY if kind == ALL else ALL), 0
    elif kind == ANY:
        count, n, n_items = _unite(nodes, items, n, n_items, out, count)
    if count == 1:
        return out[0], n, n_items
    nodes[n, 0], nodes[n, 1], nodes[n, 2] = own, n_items, n_items + count
    nodes[n, 3], nodes[n, 4], nodes[n, 5] = -1, 0, -1
    for i in range(count):
        items[n_items + i] = out[i]
    return n, n + 1, n_items + count


# -- clauses ------------------------------------------------------------------------------------------------------------
#
# `found` has a row for each clause: first and end of its parts, which are numbers of sets and residuals. `span` has the first and end of
# the clauses of each node.


@late_hot
def _multiply(
    node: Any,
    nodes: Any,
    items: Any,
    span: Any,
    found: Any,
    n_found: Any,
    parts: Any,
    n_parts: Any,
    order: Any,
    limit: Any,
) -> Any:
    """The clauses of a conjunction: first what has one clause only, then the others, the shorter ones first."""
    apart()
    first, end = nodes[node, 1], nodes[node, 2]
    start, n_order = n_parts, 0
    for i in range(first, end):
        child = items[i]
        if span[child, 1] - span[child, 0] == 1:
            clause = span[child, 0]
            for k in range(found[clause, 0], found[clause, 1]):
                parts[n_parts] = parts[k]
                n_parts += 1
            continue
        j = n_order
        while j > 0 and span[order[j - 1], 1] - span[order[j - 1], 0] > span[child, 1] - span[child, 0]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = child
        n_order += 1
    found[n_found, 0], found[n_found, 1] = start, n_parts
    begin, n_found = n_found, n_found + 1
    for i in range(n_order):
        child = order[i]
        count, more = n_found - begin, span[child, 1] - span[child, 0]
        if count * more > limit:
            return -1, n_found, n_parts
        next_begin = n_found
        for a in range(begin, begin + count):
            for b in range(span[child, 0], span[child, 1]):
                size = found[a, 1] - found[a, 0] + found[b, 1] - found[b, 0]
                if n_parts + size > _MOST_ITEMS or n_found + 1 >= found.shape[0]:
                    return -1, n_found, n_parts
                found[n_found, 0] = n_parts
                for source in (a, b):
                    for k in range(found[source, 0], found[source, 1]):
                        parts[n_parts] = parts[k]
                        n_parts += 1
                found[n_found, 1] = n_parts
                n_found += 1
        begin = next_begin
    return begin, n_found, n_parts


@late_hot
def _clauses(root: Any, nodes: Any, items: Any, span: Any, found: Any, parts: Any, order: Any, limit: Any) -> Any:
    """Multiply out from the leaves up to the root; False: too many."""
    apart()
    n_found, n_parts = NONE, NONE
    for node in range(root + 1):
        span[node, 0] = -1 if node < root else 0  # -1: not needed
    for node in range(root, -1, -1):
        if span[node, 0] == 0 and nodes[node, 0] >= ALL:
            for i in range(nodes[node, 1], nodes[node, 2]):
                span[items[i], 0] = 0
    for node in range(root + 1):
        if span[node, 0] < 0:
            continue
        kind = nodes[node, 0]
        if n_found + limit + 2 > found.shape[0] or n_parts + root + 2 > _MOST_ITEMS:
            return False
        if kind < ALL:
            found[n_found, 0], found[n_found, 1] = n_parts, n_parts + 1
            parts[n_parts] = node
            span[node, 0], span[node, 1] = n_found, n_found + 1
            n_found, n_parts = n_found + 1, n_parts + 1
        elif kind == ANY:
            begin = n_found
            for i in range(nodes[node, 1], nodes[node, 2]):
                child = items[i]
                if n_found - begin + span[child, 1] - span[child, 0] > limit:
                    return False
                for clause in range(span[child, 0], span[child, 1]):
                    found[n_found, 0], found[n_found, 1] = found[clause, 0], found[clause, 1]
                    n_found += 1
            span[node, 0], span[node, 1] = begin, n_found
        else:
            begin, n_found, n_parts = _multiply(node, nodes, items, span, found, n_found, parts, n_parts, order, limit)
            if begin < 0:
                return False
            span[node, 0], span[node, 1] = begin, n_found
    return True


@late_hot
def _room(filters: Any, form_of: Any, program_ptr: Any, f: Any) -> Any:
    """Steps of a filter with its terms' programs in place of the terms; -1: a term has none."""
    ptr, kind, arg = filters
    count = 0
    for s in range(ptr[f], ptr[f + 1]):
        if kind[s] == TERM:
            form = form_of[arg[s]]
            if form < 0:
                return -1
            count += program_ptr[form + 1] - program_ptr[form]
        else:
            count += 1
    return count


@late_hot
def _build(
    f: Any, filters: Any, terms: Any, programs: Any, forms: Any, nodes: Any, items: Any, stack: Any, out: Any
) -> Any:
    """The nodes of a filter; returns its root."""
    apart()
    ptr, kind, arg = filters
    first_atom, columns, reading, is_element, shared, base, numbers = forms
    n, n_items, top = NONE, NONE, NONE
    for s in range(ptr[f], ptr[f + 1]):
        if kind[s] != TERM:
            node, n, n_items = _connect(nodes, items, n, n_items, stack, top - arg[s], top, kind[s], out)
            top -= arg[s]
            stack[top] = node
            top += 1
            continue
        form, row, attribute = terms[0][arg[s]], terms[1][arg[s]], terms[2][arg[s]]
        for step in range(programs[0][form], programs[0][form + 1]):
            what, number = programs[1][step], programs[2][step]
            if what >= ALL:
                node, n, n_items = _connect(nodes, items, n, n_items, stack, top - number, top, what, out)
                top -= number
            else:
                a = first_atom[form] + number
                column = columns[a] if reading[a] < 0 else numbers[reading[a], attribute]
                node, n, n_items = _leaf(
                    nodes, items, n, n_items, what, base[a] + row, column, is_element[a], shared[a]
                )
            stack[top] = node
            top += 1
    return stack[0]


@late_hot
def _take_residual(atom: Any, rest: Any, first: Any, n_rest: Any) -> Any:
    """Add a residual to those of a clause unless it is there; returns how many there are then."""
    for j in range(first, n_rest):
        if rest[j] == atom:
            return n_rest
    rest[n_rest] = atom
    return n_rest + 1


@late_hot
def _parts_of(found: Any, first: Any, end: Any) -> Any:
    """Parts of some clauses."""
    size = 0
    for c in range(first, end):
        size += found[c, 1] - found[c, 0]
    return size


@late_hot
def _write_clauses(
    first: Any,
    end: Any,
    nodes: Any,
    items: Any,
    found: Any,
    parts: Any,
    number: Any,
    sizes: Any,
    arrays: Any,
) -> Any:
    """Write the clauses of a filter, and its sets, each once, behind those that are there; returns the new sizes."""
    apart()
    n_clauses, n_sets, n_in, n_rest, n_atoms = sizes
    clause_set_ptr, clause_sets, rest_ptr, rest, atom_ptr, atoms, column, is_element = arrays
    for c in range(first, end):
        first_rest = n_rest
        for k in range(found[c, 0], found[c, 1]):
            node = parts[k]
            if nodes[node, 0] == RESIDUAL:
                n_rest = _take_residual(items[nodes[node, 1]], rest, first_rest, n_rest)
                continue
            if number[node] < 0:
                number[node] = n_sets
                column[n_sets], is_element[n_sets] = nodes[node, 3], nodes[node, 4] > 0
                for i in range(nodes[node, 1], nodes[node, 2]):
                    atoms[n_atoms] = items[i]
                    n_atoms += 1
                n_sets += 1
                atom_ptr[n_sets] = n_atoms
            clause_sets[n_in] = number[node]
            n_in += 1
        n_clauses += 1
        clause_set_ptr[n_clauses], rest_ptr[n_clauses] = n_in, n_rest
    return n_clauses, n_sets, n_in, n_rest, n_atoms


@late
def _expand(filters: Any, terms: Any, programs: Any, forms: Any, limit: Any) -> Any:
    n = filters[0].size - 1
    is_left = np.zeros(n, np.bool_)
    clause_ptr, set_ptr = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    clause_set_ptr, clause_sets = np.zeros(n + 1, np.int64), np.empty(n, np.int64)
    rest_ptr, rest = np.zeros(n + 1, np.int64), np.empty(n, np.int64)
    atom_ptr, atoms = np.zeros(n + 1, np.int64), np.empty(n, np.int64)
    # As long as `atom_ptr`, which alone is asked whether there is room.
    column, is_element = np.empty(n + 1, np.int64), np.empty(n + 1, np.bool_)
    nodes, items = np.empty((64, 6), np.int64), np.empty(256, np.int64)
    stack, out = np.empty(64, np.int64), np.empty(64, np.int64)
    span, number = np.empty((64, 2), np.int64), np.empty(64, np.int64)
    found, parts = np.empty((8 * limit + 4096, 2), np.int64), np.empty(_MOST_ITEMS, np.int64)
    n_clauses, n_sets, n_in, n_rest, n_atoms = NONE, NONE, NONE, NONE, NONE
    for f in range(n):
        room, root = _room(filters, terms[0], programs[0], f), NONE
        good = 0 <= room <= _MOST_ITEMS // 64
        if good:
            most = 2 * room + 2
            if most > nodes.shape[0] or 2 * room * room + 16 > items.size:  # the calls take longer than most filters do
                nodes, span, number = wider(nodes, most), wider(span, most), grown(number, most)
                stack, out, items = grown(stack, most), grown(out, most), grown(items, 2 * room * room + 16)
            root = _build(f, filters, terms, programs, forms, nodes, items, stack, out)
            good = _clauses(root, nodes, items, span, found, parts, out, limit)
        if good:
            first, end = span[root, 0], span[root, 1]
            size = _parts_of(found, first, end)
            if n_clauses + end - first + 1 > clause_set_ptr.size or max(n_in, n_rest) + size > clause_sets.size:
                clause_set_ptr = grown(clause_set_ptr, n_clauses + end - first + 1)
                rest_ptr = grown(rest_ptr, n_clauses + end - first + 1)
                clause_sets, rest = grown(clause_sets, max(n_in, n_rest) + size), grown(rest, max(n_in, n_rest) + size)
            if n_sets + root + 2 > atom_ptr.size or n_atoms + items.size > atoms.size:
                atom_ptr, atoms = grown(atom_ptr, n_sets + root + 2), grown(atoms, n_atoms + items.size)
                column, is_element = grown(column, n_sets + root + 2), grown(is_element, n_sets + root + 2)
            for node in range(root + 1):
                number[node] = -1
            n_clauses, n_sets, n_in, n_rest, n_atoms = _write_clauses(
                first, end, nodes, items, found, parts, number,
                (n_clauses, n_sets, n_in, n_rest, n_atoms),
                (clause_set_ptr, clause_sets, rest_ptr, rest, atom_ptr, atoms, column, is_element),
            )  # fmt: skip
        is_left[f] = not good
        clause_ptr[f + 1], set_ptr[f + 1] = n_clauses, n_sets
    sizes = n_clauses, n_sets, n_in, n_rest, n_atoms
    arrays = clause_ptr, set_ptr, clause_set_ptr, clause_sets, rest_ptr, rest, atom_ptr, atoms, column, is_element
    return sizes, arrays, is_left
