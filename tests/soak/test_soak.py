"""The soak in short; `make soak` is the long one."""

from __future__ import annotations

import pytest
from tests.soak.library import soak_library

pytestmark = pytest.mark.slow


def test_library() -> None:
    """Readers, writers and upkeep at the same time, faults in every write call: no difference, nobody dies."""
    tally = soak_library(15, seed=1, round_s=4)
    assert not tally.differences, tally.differences[0]
    assert tally.counts["checks"] > 0


@pytest.mark.spark
def test_stream() -> None:
    """A process that streams, follows changes, compacts and cleans is killed: nothing lost, nothing doubled."""
    from tests.soak.stream import soak_stream

    tally = soak_stream(3600, seed=1, lives=1)
    assert not tally.differences, tally.differences[0]
    assert tally.counts["batches"] > 0
