"""The kernel that multiplies filters out has room for whatever they add up to."""

from __future__ import annotations

import numpy as np
import pytest

from wherecast.kernels.normal_form import ALL, SET, TERM, Forms, Programs, TermTable, expand_filters

COLUMNS = 12


def conjunctions(n: int, size: int) -> tuple[Programs, TermTable, Programs, Forms]:
    """`n` filters, each of `size` conditions on columns of their own."""
    numbers = np.arange(COLUMNS)
    none = np.full(COLUMNS, -1)
    forms = Forms(np.arange(COLUMNS + 1), numbers, none, none > 0, none, numbers * n, none[:0].reshape(0, 0))
    of_forms = Programs(np.arange(COLUMNS + 1), np.full(COLUMNS, SET), np.zeros(COLUMNS, np.int64))
    kind, arg = [TERM] * size + [ALL], np.tile(np.arange(size + 1), (n, 1)) + size * np.arange(n)[:, None]
    arg[:, size] = size
    filters = Programs((size + 1) * np.arange(n + 1), np.array(kind * n), arg.ravel())
    terms = TermTable(np.tile(np.arange(size), n), np.repeat(np.arange(n), size), np.zeros(n * size, np.int64))
    return filters, terms, of_forms, forms


@pytest.mark.parametrize("size", range(1, COLUMNS + 1))
def test_all_sets_are_there(size: int) -> None:
    """Arrays grow from a place per filter, some of them from one more; the sets of nine filters of eight conditions once did not fit."""
    for n in range(1, 40):
        templates, is_left = expand_filters(*conjunctions(n, size), 64)
        assert not is_left.any()
        assert templates.column.tolist() == [*range(size)] * n
        assert templates.atom_ptr.tolist() == [*range(n * size + 1)]
        assert not templates.is_element.any()
