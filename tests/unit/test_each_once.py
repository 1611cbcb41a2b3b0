"""Hits of several clauses of one filter count once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from wherecast.kernels.arrays import Ints, Longs
from wherecast.matchers.protocol import Hits, each_once


def distinct(ptr: Longs, ids: Ints) -> list[list[int]]:
    """The ids of each event without repetitions; the first of equal ones stays."""
    return [list(dict.fromkeys(ids[first:end].tolist())) for first, end in pairwise(ptr)]


@pytest.mark.parametrize("n_owners", [1, 63, 64, 65, 5_000])
@pytest.mark.parametrize("most", [3, 8, 9, 400])
def test_each_owner_once_per_event(n_owners: int, most: int) -> None:
    """Few hits are compared and many are marked; marks of one event do not hide hits of the next."""
    rng = np.random.default_rng(most)
    ptr = np.concatenate([[0], np.cumsum(rng.integers(0, most + 1, 200))])
    owner = rng.integers(0, n_owners, 1_000).astype(np.int32)
    ids = rng.integers(0, 1_000, ptr[-1]).astype(np.int32)
    for n_ids, owners, wanted in ((n_owners, owner, owner[ids]), (1_000, owner[:0], ids)):
        event_ptr, found = each_once(Hits(ptr.copy(), ids.copy()), n_ids, owners)
        assert [found[first:end].tolist() for first, end in pairwise(event_ptr)] == distinct(ptr, wanted)


def test_no_hits() -> None:
    """Nothing to do, with or without events."""
    for ptr in (np.zeros(1, np.int64), np.zeros(5, np.int64)):
        assert each_once(Hits(ptr, np.zeros(0, np.int32)), 10).event_ptr.tolist() == ptr.tolist()
