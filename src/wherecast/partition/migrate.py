"""From one plan to another: which filters go from which server to which."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Ints, Longs
from wherecast.language.filters.filters import Filters
from wherecast.partition.protocol import Placement


class Placing(Protocol):
    """A plan, or a partition."""

    def place(self, filters: Filters) -> Placement:
        """Where these filters live."""


class Migration(NamedTuple):
    """Moves of filters: from `sources[i]`, which gives the filter up or keeps a copy, to `targets[i]`.

    A target of -1: the filter is only given up; a source of -1: it comes from no server. A filter is given up by a server
    only once all its moves are done, so that at no time an event finds it nowhere.
    """

    filter_ids: Longs  # ascending
    sources: Ints
    targets: Ints
    keeps: npt.NDArray[np.bool_]  # the source keeps its copy
    share: float  # subscriptions that go to a server which did not have them, of all

    @property
    def size(self) -> int:
        return int(self.filter_ids.size)


def migrate(old: Placing, new: Placing, filters: Filters, weights: Longs) -> Migration:
    """The moves that turn the placement of one plan into that of another.

    Per filter, servers that lose it are paired with servers that gain it; a gain beyond that is a copy from the first
    server that has it, a loss beyond that is given up.
    """
    before, after = old.place(filters), new.place(filters)
    width = 1 + int(max(before.servers.max(initial=0), after.servers.max(initial=0)))
    had, has = _pairs(before, width), _pairs(after, width)
    lost, gained = np.setdiff1d(had, has, assume_unique=True), np.setdiff1d(has, had, assume_unique=True)
    loser, losing = np.divmod(lost, width)
    gainer, gaining = np.divmod(gained, width)
    # The k-th gain of a filter is paired with its k-th loss.
    lost_key, gained_key = _keys(loser), _keys(gainer)
    _, at_loss, at_gain = np.intersect1d(lost_key, gained_key, assume_unique=True, return_indices=True)
    sources = np.full(gained.size, -1, np.int64)
    first = np.append(before.servers, -1)[before.ptr[:-1]]
    held = np.diff(before.ptr) > 0
    sources[:] = np.where(held[gainer], first[gainer], -1)
    keeps = held[gainer]
    sources[at_gain], keeps[at_gain] = losing[at_loss], False
    unpaired = np.setdiff1d(np.arange(lost.size), at_loss)
    filter_ids = np.concatenate((gainer, loser[unpaired]))
    order = np.argsort(filter_ids, kind="stable")
    moved = weights[np.unique(gainer)].sum() / max(weights.sum(), 1)
    return Migration(
        filter_ids[order],
        np.concatenate((sources, losing[unpaired]))[order].astype(np.int32),
        np.concatenate((gaining, np.full(unpaired.size, -1)))[order].astype(np.int32),
        np.concatenate((keeps, np.zeros(unpaired.size, bool)))[order],
        float(moved),
    )


def _pairs(placement: Placement, width: int) -> Longs:
    """Filter and server as one number, ascending."""
    owners = np.repeat(np.arange(placement.ptr.size - 1), np.diff(placement.ptr))
    return np.sort(owners * width + placement.servers)


def _keys(owners: Longs) -> Longs:
    """A number for (owner, how many of its entries come before), for owners in order."""
    starts = np.searchsorted(owners, owners)
    return (owners << 20) | (np.arange(owners.size) - starts)
