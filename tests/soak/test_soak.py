"""The soak in short; `make soak` is the long one."""

from __future__ import annotations

import random

import pytest
from tests.soak.library import soak_library

pytestmark = pytest.mark.slow


def test_library() -> None:
    """Readers, writers and upkeep at the same time, faults in every write call: no difference, nobody dies."""
    tally = soak_library(15, seed=random.randrange(10**6), round_s=4)
    assert not tally.differences, tally.differences[0]
    assert tally.counts["checks"] > 0
