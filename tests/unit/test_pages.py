"""Arrays side by side in memory: the same arrays, and one piece of memory that begins with a page."""

from __future__ import annotations

import numpy as np

from wherecast.index.pages import side_by_side


def test_arrays_are_the_same_and_side_by_side() -> None:
    """Types, shapes and values stay; arrays of a middling size follow each other from the beginning of a page of 2 MB, each in a cache line of its own."""
    large = np.arange(1 << 20)  # 8 MB
    given = [
        np.arange(1_000_001, dtype=np.int16),
        np.arange(6),
        np.arange(300_000, dtype=np.uint64).reshape(-1, 3),
        large,
    ]
    found = side_by_side(given)
    for before, after in zip(given, found, strict=True):
        assert (before.dtype, before.shape) == (after.dtype, after.shape)
        assert np.array_equal(before, after)
        assert after.flags.c_contiguous
        assert after.flags.aligned
    assert found[0].ctypes.data % (1 << 21) == 0
    assert 0 <= found[2].ctypes.data - found[0].ctypes.data - found[0].nbytes < 64
    assert found[1] is given[1]
    assert found[3] is large


def test_few_bytes_stay_where_they_are() -> None:
    """Nothing is copied that does not fill a page."""
    given = [np.arange(50_000), np.zeros(0)]
    assert all(a is b for a, b in zip(given, side_by_side(given), strict=True))
