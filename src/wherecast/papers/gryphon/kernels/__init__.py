"""Numba functions over arrays, for this paper only."""
