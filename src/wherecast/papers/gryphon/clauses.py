"""Boxes as a matching tree takes them: constraints by level, most popular level first.

Theory of operation
-------------------
A *column* is an attribute; the second and further constraints of a clause on one array attribute have columns of
their own. A *level* is a column's place in the order of tests: columns that more clauses constrain are tested first,
because a test that few clauses skip leaves few `*` edges. Columns that no clause constrains have no level.

Factoring takes the most popular columns out of this order. The clauses' own bounds cut a column's codes into cells,
within which all codes are alike; those that no clause asks for are one cell.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from wherecast.errors import MatcherError
from wherecast.index.bounds import StoredArrays
from wherecast.index.boxes import Boxes
from wherecast.kernels.arrays import Ints, Longs
from wherecast.papers.gryphon.kernels.grow import Clauses, Levels, Workspace

#: Most subtrees of one tree.
MOST_SUBTREES = 4096
#: Most codes of a factored column, so that a clause's cells are found by counting.
MOST_CODES = 4096
#: Most copies of a clause, on average, that factoring may make.
MOST_COPIES = 32.0
#: The same limits, and one for the factors, where nobody said how many attributes to factor. Each copy costs memory,
#: and each subtree a copy of every clause to come that does not care. On a million clauses of `gryphon`, a third
#: factor makes matching slower.
PAYING_FACTORS, PAYING_SUBTREES, PAYING_COPIES = 3, 256, 2.5

#: How many constraints of each clause `order_clauses` looks at.
ORDERED = 6


class TreeConstraints(NamedTuple):
    """Constraints that not every code satisfies, in the order of the boxes."""

    clause: Longs  # (constraints,)
    attribute: Ints  # (constraints,)
    nth: Ints  # (constraints,) 0 for the clause's first on this attribute
    row_ptr: Longs  # (constraints + 1,) rows of lo and hi
    lo: Ints
    hi: Ints

    @property
    def column(self) -> Longs:
        """Attribute and number as one key."""
        return self.attribute.astype(np.int64) << 32 | self.nth


def read_constraints(boxes: Boxes) -> TreeConstraints:
    """The constraints of boxes, with intervals cut off at the attribute's last code."""
    last = boxes.attr >= 0
    attribute = np.where(last, boxes.attr, ~boxes.attr).astype(np.int32)
    top = np.maximum(boxes.widths, 1)[attribute] - 1
    lo, hi = np.minimum(boxes.lo, top), np.minimum(boxes.hi, top)
    first = np.ones(last.size, bool)
    first[1:] = last[:-1]
    real = ~(first & last & (lo <= 0) & (hi >= top))
    clause = np.repeat(np.arange(boxes.n_clauses), np.diff(boxes.ptr))[real]
    attribute, lo, hi, first = attribute[real], lo[real], hi[real], first[real]
    begin = np.flatnonzero(first)
    clause, attribute = clause[begin], attribute[begin]
    position = np.arange(begin.size)
    fresh = np.ones(begin.size, bool)
    fresh[1:] = (clause[1:] != clause[:-1]) | (attribute[1:] != attribute[:-1])
    nth = position - np.maximum.accumulate(np.where(fresh, position, 0))
    row_ptr = np.append(begin, lo.size).astype(np.int64)
    return TreeConstraints(clause, attribute, nth.astype(np.int32), row_ptr, lo.astype(np.int32), hi.astype(np.int32))


def choose_levels(given: TreeConstraints, n_clauses: int, widths: Ints, factors: int | None) -> Levels:
    """Order the columns by popularity; factor the first ones.

    With a number of factors, so many columns are factored or a MatcherError says why not; with None, as many as
    `find_factors` finds to pay.
    """
    columns, uses = np.unique(given.column, return_counts=True)
    columns = columns[np.argsort(-uses, kind="stable")]
    cells = find_factors(given, n_clauses, columns, widths, factors)
    columns = np.concatenate([columns[len(cells) :], columns[: len(cells)]])
    attribute = (columns >> 32).astype(np.int32)
    n_cells = [int(c.max()) + 1 for c in cells]
    most = max(n_cells, default=1)
    return Levels(
        attribute,
        np.maximum(widths[attribute], 1).astype(np.int32),
        np.arange(columns.size - len(cells), columns.size, dtype=np.int32),
        np.array(n_cells, np.int32),
        np.cumsum([0, *(c.size for c in cells)]),
        np.concatenate([np.zeros(0, np.int32), *cells]),
        np.concatenate([np.zeros(0, np.int32), *(np.bincount(c, minlength=most).astype(np.int32) for c in cells)]),
    )


def find_factors(
    given: TreeConstraints, n_clauses: int, columns: Longs, widths: Ints, factors: int | None
) -> list[Ints]:
    """Cells of the most popular columns: the cell of each code, for every column that is factored."""
    limits = (PAYING_SUBTREES, PAYING_COPIES) if factors is None else (MOST_SUBTREES, MOST_COPIES)
    found: list[Ints] = []
    subtrees, copies = 1, np.ones(n_clauses)
    for column in columns[: PAYING_FACTORS if factors is None else factors].tolist():
        attribute, nth = divmod(column, 1 << 32)
        cell, met = cut_cells(given, n_clauses, column, max(int(widths[attribute]), 1))
        subtrees, copies = subtrees * (int(cell.max()) + 1), copies * met
        refusal = refuse_factor(nth, cell.size, subtrees, float(copies.mean()), *limits)
        if refusal and factors is not None:
            message = f"cannot factor {factors} attributes: at attribute {attribute}, {refusal}"
            raise MatcherError(f"{message}; factor {len(found)}, or use the matcher 'adaptive'")
        if refusal:
            break
        found.append(cell)
    return found


def refuse_factor(nth: int, codes: int, subtrees: int, copies: float, most_subtrees: int, most_copies: float) -> str:
    """Why a column cannot be factored, or why the tree would be too large with it; empty if it can."""
    if nth:
        return "clauses ask for several elements of its array"
    if codes > MOST_CODES:
        return f"there are {codes:,} codes, at most {MOST_CODES:,} are cut into cells"
    if subtrees > most_subtrees:
        return f"there would be {subtrees:,} subtrees, at most {most_subtrees:,}"
    if copies > most_copies:
        return f"a clause would be in {copies:.1f} subtrees on average, at most {most_copies:g}"
    return ""


def cut_cells(given: TreeConstraints, n_clauses: int, column: int, width: int) -> tuple[Ints, Longs]:
    """Cell of each code of a column, and the number of cells that each clause meets."""
    mine = np.flatnonzero(given.column == column)
    sizes = np.diff(given.row_ptr)[mine]
    rows = np.arange(sizes.sum()) + np.repeat(given.row_ptr[mine] - np.cumsum(sizes) + sizes, sizes)
    lo, hi = given.lo[rows], given.hi[rows]
    starts, ends = np.bincount(lo, minlength=width), np.bincount(hi + 1, minlength=width + 1)[:width]
    asked = np.cumsum(starts - ends) > 0
    fresh = (starts > 0) | (ends > 0) | (np.diff(asked, prepend=False) != 0)
    cell = np.where(asked, np.cumsum(fresh & asked), 0)
    cell -= int(asked.all())
    met = np.full(n_clauses, cell.max() + 1)
    met[given.clause[mine]] = 0
    np.add.at(met, given.clause[np.repeat(mine, sizes)], cell[hi] - cell[lo] + 1)
    return cell.astype(np.int32), met


def extend_levels(levels: Levels, given: TreeConstraints, widths: Ints) -> Levels:
    """The same levels, and new ones at the end for columns that had none."""
    new = np.setdiff1d(given.column, level_columns(levels))
    if not new.size:
        return levels
    attribute = np.concatenate([levels.attribute, (new >> 32).astype(np.int32)])
    return levels._replace(attribute=attribute, width=np.maximum(widths[attribute], 1).astype(np.int32))


def check_levels(stored: StoredArrays, widths: Ints) -> int:
    """That stored levels look at attributes of these widths and cut all their codes into cells; the number of levels."""
    attribute = stored.column("level_attribute", np.int32)
    n = attribute.size
    stored.within(attribute, 0, widths.size, "level_attribute")
    width = stored.column("level_width", np.int32, size=n)
    stored.require(np.array_equal(width, np.maximum(widths[attribute], 1)), "level_width", "is not that of the codes")
    factored = stored.column("level_factored", np.int32)
    stored.within(factored, 0, n, "level_factored")
    cells = stored.column("level_n_cells", np.int32, size=factored.size)
    stored.within(cells, 1, MOST_SUBTREES + 1, "level_n_cells")
    stored.require(prod(cells.tolist()) <= MOST_SUBTREES, "level_n_cells", "makes too many subtrees")
    cell_ptr, cell = (
        stored.column("level_cell_ptr", np.int64, size=factored.size + 1),
        stored.column("level_cell", np.int32),
    )
    stored.offsets(cell_ptr, cell.size, "level_cell_ptr")
    stored.require(np.array_equal(np.diff(cell_ptr), width[factored]), "level_cell_ptr", "leaves out codes of a level")
    inside = (cell >= 0) & (cell < np.repeat(cells, np.diff(cell_ptr)))
    stored.require(inside.all(), "level_cell", "has a cell that there is not")
    most = int(cells.max(initial=1))
    stored.column("level_cell_size", np.int32, size=factored.size * most)
    return n


def level_columns(levels: Levels) -> Longs:
    """The column of each level: of levels on one attribute, the one that came first has its first constraint."""
    order = np.argsort(levels.attribute, kind="stable")
    attribute = levels.attribute[order]
    nth = np.empty(order.size, np.int64)
    nth[order] = np.arange(order.size) - np.searchsorted(attribute, attribute)
    return levels.attribute.astype(np.int64) << 32 | nth


def arrange(levels: Levels, given: TreeConstraints, labels: Ints, n_clauses: int) -> Clauses:
    """Labelled constraints in the order of levels."""
    columns = level_columns(levels)
    order = np.argsort(columns)
    level = order[np.searchsorted(columns[order], given.column)]
    by_level = np.lexsort((level, given.clause))
    ptr = np.searchsorted(given.clause, np.arange(n_clauses + 1))
    return Clauses(ptr, level[by_level].astype(np.int32), labels[by_level])


def order_clauses(clauses: Clauses) -> Longs:
    """Clauses by their first constraints: neighbours in this order are neighbours in the tree, and then in memory.

    A level tree is the same in any order. A million clauses of `gryphon` inserted in this one are matched in 87 us
    instead of 122.
    """
    sizes = np.diff(clauses.ptr)
    path = clauses.level.astype(np.int64) << 32 | clauses.label.astype(np.int64) & 0xFFFFFFFF
    keys = []
    for depth in range(ORDERED):
        key = np.full(sizes.size, -1)
        deep = sizes > depth
        key[deep] = path[clauses.ptr[:-1][deep] + depth]
        keys.append(key)
    return np.lexsort(keys[::-1])


def make_workspace(levels: Levels) -> Workspace:
    n, factors, most = levels.attribute.size + 1, levels.factored.size + 1, max(levels.n_cells, default=1)
    line, cells, per_factor = (np.zeros(shape, np.int32) for shape in (n, (factors, most), factors))
    return Workspace(line, line.copy(), line.copy(), cells, cells.copy(), per_factor, per_factor.copy())
