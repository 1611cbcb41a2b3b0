"""What a peer is: something that is loaded with filters and matches events, checked before it is timed."""

from __future__ import annotations

import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from benchmarks.peers.workloads import PeerWorkload

Tally = npt.NDArray[np.int64]  # matches of each filter


class CannotError(Exception):
    """The peer cannot express the workload; the message says why."""


class Measured(NamedTuple):
    """What a peer needs for a workload."""

    load_s: float
    us_per_event: float
    events: int  # that it was timed on
    checked: int  # that it was checked on
    tally: Tally  # of the checked events; its sum alone where `is_total`
    is_total: bool = False


class Peer(ABC):
    """A way to match events against filters."""

    name: ClassVar[str]
    form: ClassVar[str]  # how it is used, for the page
    most: ClassVar[int] = 1_000_000  # filters that it can bear

    @abstractmethod
    def measure(self, workload: PeerWorkload, budget_s: float) -> Measured:
        """Load and match. Raises CannotError."""


def time_passes(
    run: Callable[[int], object], events: int, budget_s: float, *, whole: bool = False
) -> tuple[float, int]:
    """Median microseconds per event of a few passes, and how many events a pass had; about `budget_s` in all.

    A slow peer gets fewer events, unless it takes a batch as a `whole`, so that what a batch costs is shared by all.
    """
    n = events if whole else min(20, events)
    run(n)  # the first one loads kernels, or plans
    while True:
        taken = _seconds(run, n)
        if n == events or taken * 8 > budget_s:
            break
        n = min(n * 8, events)
    rounds = max(1, min(9, int(budget_s / max(taken, 1e-9))))
    return statistics.median(_seconds(run, n) for _ in range(rounds)) / n * 1e6, n


def _seconds(run: Callable[[int], object], n: int) -> float:
    start = time.perf_counter()
    run(n)
    return time.perf_counter() - start
