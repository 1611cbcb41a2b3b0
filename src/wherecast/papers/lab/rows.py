"""What an experiment finds: flat rows, one per point and seed, that go into Parquet, plots and claims alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from wherecast.kernels.arrays import Floats

Cell: TypeAlias = str | int | float | bool
Row: TypeAlias = Mapping[str, Cell]
Rows: TypeAlias = Sequence[Row]


def choose(rows: Rows, **cells: Cell) -> Rows:
    """The rows that have all these cells."""
    return [row for row in rows if all(row[name] == cell for name, cell in cells.items())]


def numbers(rows: Rows, name: str) -> Floats:
    """One column of numbers."""
    return np.array([row[name] for row in rows], np.float64)


def levels(rows: Rows, name: str) -> list[Cell]:
    """The different cells of one column, in the order of their first row."""
    return list(dict.fromkeys(row[name] for row in rows))


def group(rows: Rows, name: str) -> Iterable[tuple[Cell, Rows]]:
    """The rows of each cell of one column."""
    found: dict[Cell, list[Row]] = {}
    for row in rows:
        found.setdefault(row[name], []).append(row)
    return found.items()
