"""Numbers of changes: which of them an index has, so that a change that comes again is told from one that comes too late.

A change has a number, and an index has the changes up to some number, its `sequence`, except for some *gaps*: numbers that
never came, or whose change was refused. What comes with a number

- above `sequence` is new;
- up to `sequence` and in no gap is a *replay*: the index has it;
- in a gap is *late*: later changes are in, perhaps to the same id, so it can neither be applied nor be called a replay.

Most logs have few gaps. Of a log with many, the oldest gaps are joined: then a change that the index has may be called late,
but none that it lacks is called a replay.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Longs

Gaps = tuple[tuple[int, int], ...]

#: Gaps that an index remembers; a manifest has some twenty bytes for each.
MOST_GAPS = 10_000


def find_replays(numbers: Longs, sequence: int, gaps: Gaps) -> npt.NDArray[np.bool_]:
    """Which numbers an index has."""
    ends = np.array(gaps, np.int64).reshape(-1, 2)
    place = np.searchsorted(ends[:, 0], numbers, side="right") - 1
    late = np.zeros(numbers.size, bool)
    if len(ends):
        late = (place >= 0) & (numbers <= ends[np.maximum(place, 0), 1])
    return np.asarray((numbers >= 1) & (numbers <= sequence) & ~late)


def extend(sequence: int, gaps: Gaps, applied: Longs) -> tuple[int, Gaps]:
    """Sequence and gaps of an index once it has new changes, whose numbers rise."""
    before = np.concatenate([np.array([sequence], np.int64), applied[:-1]])
    holes = np.flatnonzero(applied - before > 1)
    found = zip((before[holes] + 1).tolist(), (applied[holes] - 1).tolist(), strict=True)
    all_gaps = (*gaps, *found)
    surplus = len(all_gaps) - MOST_GAPS
    if surplus > 0:
        all_gaps = ((all_gaps[0][0], all_gaps[surplus][1]), *all_gaps[surplus + 1 :])
    return int(applied[-1]) if applied.size else sequence, all_gaps
