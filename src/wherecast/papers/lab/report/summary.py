"""Rows for people: the median over seeds of whatever differs between them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wherecast.papers.lab.rows import Cell, Row, Rows, group, numbers


class RowTable(NamedTuple):
    """A table of texts."""

    columns: list[str]
    lines: list[list[str]]
    note: str  # how it came about


def summarize(rows: Rows, at_most: int) -> RowTable:
    """Rows as a table of at most so many lines.

    If every seed has the same points in the same order, a line is one point: columns that are alike for all seeds
    stay, of the others it has the median.
    """
    points, n_seeds = _merge_seeds(rows)
    notes = [f"medians over {n_seeds} seeds"] if n_seeds > 1 else []
    shown = points
    if len(points) > at_most:
        shown = [points[i] for i in np.linspace(0, len(points) - 1, at_most).round().astype(int)]
        notes.append(f"{at_most} of {len(points):,} rows, evenly spaced")
    columns = list(points[0])
    return RowTable(columns, [[show_cell(row[name]) for name in columns] for row in shown], "; ".join(notes))


def _merge_seeds(rows: Rows) -> tuple[Rows, int]:
    seeds = [own for _, own in group(rows, "seed")] if "seed" in rows[0] else [rows]
    if len(seeds) < 2 or len({len(own) for own in seeds}) > 1:
        return rows, 1
    merged: list[dict[str, Cell]] = [{} for _ in seeds[0]]
    for name in rows[0]:
        if name == "seed":
            continue
        by_seed = [[row[name] for row in own] for own in seeds]
        if all(cells == by_seed[0] for cells in by_seed):
            column: list[Cell] = by_seed[0]
        elif any(isinstance(cell, str | bool) for cell in by_seed[0]):
            return rows, 1  # no median of texts
        else:
            column = np.median([numbers(own, name) for own in seeds], axis=0).tolist()
        for point, cell in zip(merged, column, strict=True):
            point[name] = cell
    found: list[Row] = [*merged]
    return found, len(seeds)


def show_cell(cell: Cell) -> str:
    """Three digits that matter, or all of a whole number."""
    if isinstance(cell, bool | str):
        return str(cell)
    return f"{cell:,.0f}" if isinstance(cell, int) or 1000 <= abs(cell) < 1e12 else f"{cell:.3g}"
