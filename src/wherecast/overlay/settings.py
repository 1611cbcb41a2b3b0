"""What all nodes of a ring agree on."""

from __future__ import annotations

from dataclasses import dataclass

from wherecast.errors import LimitError
from wherecast.overlay.positions import HASH_BITS, Mode


@dataclass(frozen=True, slots=True)
class RingSettings:
    """Sizes and periods. Bits, nodes, mode and subscriptions must be the same at every node; the rest should be."""

    bits: int = 160  # m
    successors: int = 8  # r: the ring survives r - 1 neighbours failing at once, and starts with r + 1 nodes
    copies: int = 4  # of every list entry and of all metadata: the owner's and those of its next successors
    nodes: int = 1  # for which the ring is laid out: domains with fewer values keep to that many neighbours
    subscriptions: int = 2**20  # clauses that one node can number (c2)
    mode: Mode = "opchord"
    stabilise_ms: int = 1000
    fix_fingers_ms: int = 2000
    repair_ms: int = 5000
    misses: int = 3  # unanswered questions in a row after which a neighbour is taken for dead
    hop_timeout_ms: int = 600
    retry_ms: int = 2500
    tries: int = 40  # of an operation before it is given up
    lease: int = 12  # repair rounds for which a copy is kept that no owner has asked about

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= HASH_BITS:
            raise LimitError(f"ids of {self.bits} bits; SHA-1 gives 1 to {HASH_BITS}")
        if not 1 <= self.copies <= self.successors + 1:
            raise LimitError(
                f"{self.copies} copies with successor lists of {self.successors}: "
                f"an owner knows 1 to {self.successors + 1} places for them; lengthen the lists or keep fewer copies"
            )
