"""Messages of a join and of a leave, which Chord bounds by O(log^2 N)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from wherecast.papers.chord.experiments import PAPER
from wherecast.papers.chord.static import BITS, StaticRing
from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress
from wherecast.papers.lab.plots import PALETTE, REFERENCE
from wherecast.papers.lab.rows import Row, Rows, choose, numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "chord-membership"


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """Nodes that join and leave rings of 2^e at rest."""

    exponents: tuple[int, ...] = tuple(range(4, 21, 2))
    trials: int = 300


def run(settings: MembershipSettings, progress: Progress) -> list[Row]:
    """Mean messages, a question and an answer per step."""
    rows: list[Row] = []
    for exponent in settings.exponents:
        progress(f"{NAME}: 2^{exponent} nodes")
        ring = StaticRing(2**exponent, 1)
        scratch, chained = ring.join_cost(settings.trials)
        kinds = {"join, fingers from scratch": scratch, "join": chained, "leave": _leave_cost(ring, settings.trials)}
        for kind, messages in kinds.items():
            rows.append({"nodes": 2**exponent, "log2_nodes": exponent, "kind": kind, "messages": messages})
    return rows


def _leave_cost(ring: StaticRing, trials: int) -> float:
    """A word to both neighbours, and a new look-up of every finger that pointed to the node which left.

    The finger of x for 2^e is the owner of x + 2^e: it was that node for the x between its predecessor and itself, moved back by 2^e.
    """
    total = 0
    for node in ring.rng.integers(0, ring.count, trials).tolist():
        sources, positions = [], []
        for exponent in range(BITS):
            step = np.uint64(1 << exponent)
            first, end = np.searchsorted(ring.ids, ring.ids[[node - 1, node]] - step, "right").tolist()
            behind = np.arange(first, end if end >= first else end + ring.count) % ring.count
            behind = behind[behind != node]
            # Those for whom it is the first successor hear of it by stabilising.
            behind = behind[(behind + 1) % ring.count != node]
            sources.append(behind)
            positions.append(ring.ids[behind] + step)
        hops = ring.hops(np.concatenate(sources), np.concatenate(positions))
        total += 2 + 2 * int(hops.sum())
    return total / trials


def _judge(rows: Rows, kind: str) -> Finding:
    """Bounded: the ratio does not grow with N. From 2^8 on, smaller rings being mostly constants."""
    own = [row for row in choose(rows, kind=kind) if int(row["log2_nodes"]) >= 8]
    ratio = numbers(own, "messages") / numbers(own, "log2_nodes") ** 2
    return Finding(f"{ratio.min():.2f} to {ratio.max():.2f} log2^2 N", bool(ratio[-1] <= ratio[0] * 1.1))


def plot(rows: Rows, axes: Axes) -> None:
    """Messages against log2^2 N: a straight line is the bound."""
    for kind, color in zip(("join, fingers from scratch", "join", "leave"), PALETTE, strict=False):
        own = choose(rows, kind=kind)
        axes.plot(numbers(own, "log2_nodes") ** 2, numbers(own, "messages"), "o-", color=color, label=kind)
    x = np.array([0.0, (numbers(rows, "log2_nodes") ** 2).max()])
    axes.plot(x, x, "--", color=REFERENCE, label="log2^2 N")
    axes.set(xlabel="log2^2 of the number of nodes", ylabel="messages", xlim=(0, None), ylim=(0, None))


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Messages of a join and of a leave",
    {"small": MembershipSettings(tuple(range(4, 19, 2)), 60), "paper": MembershipSettings()},
    run,
    (
        Claim(PAPER, NAME, "A join takes O(log^2 N) messages.", "O(log^2 N)", partial(_judge, kind="join")),
        Claim(
            PAPER, NAME, "So it does if every finger is looked up from scratch.", "O(log^2 N)",
            partial(_judge, kind="join, fingers from scratch"),
        ),
        Claim(PAPER, NAME, "A leave takes O(log^2 N) messages.", "O(log^2 N)", partial(_judge, kind="leave")),
    ),
    plot,
    seconds={"small": 3, "paper": 10},
)  # fmt: skip
