"""Section 3.3: what storing, updating and matching cost on the protocol itself, message by message."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from wherecast.language.filters.compile import Compiler
from wherecast.overlay.messages import Route
from wherecast.overlay.placement import RingPlacement
from wherecast.overlay.pubsub import RingNode
from wherecast.overlay.settings import RingSettings
from wherecast.papers.chord.churn import SCHEMA
from wherecast.papers.chord.experiments import PAPER
from wherecast.papers.chord.simulate import SimulatedNetwork
from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress
from wherecast.papers.lab.plots import PALETTE, REFERENCE, show_plain
from wherecast.papers.lab.rows import Row, Rows, choose, group, levels, numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "chord-operations"
#: Look-ups that the paper counts for each, with N_a-event = 3: a string is looked up in two lists here, so 4.
LOOK_UPS = {"store an equality": 1, "update an equality": 2, "match an event": 4}
RANGES = ("store a range", "move a range")
#: Of the domain of prices: the width of a range, and by how much it is moved.
WIDTH, STEP = 0.1, 0.04


@dataclass(frozen=True, slots=True)
class OperationsSettings:
    """Operations at random nodes of a ring at rest, without copies and without batching, as in the paper."""

    nodes: tuple[int, ...] = (32, 64, 128, 256)
    seeds: int = 6  # rings of each size
    trials: int = 25  # on each ring


def run(settings: OperationsSettings, progress: Progress) -> list[Row]:
    """Routing messages of each operation, one row each."""
    rows: list[Row] = []
    for nodes, seed in product(settings.nodes, range(settings.seeds)):
        progress(f"{NAME}: {nodes} nodes, seed {seed}")
        trial = _Trial(nodes, seed)
        # Ranges after the events, which would satisfy them.
        for operations in (trial.equalities, trial.ranges):
            for _ in range(settings.trials):
                rows += [{"nodes": nodes, "seed": seed, "operation": o, "messages": n} for o, n in operations()]
    return rows


class _Trial:
    """A ring whose fingers stand."""

    def __init__(self, nodes: int, seed: int) -> None:
        placement = RingPlacement(SCHEMA, RingSettings(bits=64, successors=1, copies=1, fix_fingers_ms=500))
        self.network = SimulatedNetwork(placement, seed, is_batching=False)
        self.nodes = self.network.found(nodes)
        self.network.run(nodes * 25 + 50_000)  # until fingers stand, look-ups go round
        self.compiler = Compiler(SCHEMA)
        self.rng = random.Random(seed)  # noqa: S311 - reproducible, not secret

    def equalities(self) -> Iterator[tuple[str, int]]:
        """Store a symbol nobody asks for, change it to another, publish an event."""
        node, rng = self.rng.choice(self.nodes), self.rng
        old, new = (self.compiler.compile(f"symbol = '{rng.random()}'") for _ in range(2))
        operation, registration = node.subscribe(0, old, 0)
        yield "store an equality", self._messages(node, operation)
        yield "update an equality", self._messages(node, node.update(registration, new)[0])
        event = {"symbol": f"Z{rng.random()}", "price": rng.uniform(0, 1000), "volume": rng.randrange(100_000)}
        yield "match an event", self._messages(node, node.publish(event))

    def ranges(self) -> Iterator[tuple[str, int]]:
        """Store a range of prices, and move it."""
        node, low = self.rng.choice(self.nodes), self.rng.uniform(0, 1000 * (1 - WIDTH - STEP))
        operation, registration = node.subscribe(0, self.compiler.compile(_between(low)), 0)
        yield "store a range", self._messages(node, operation)
        moved = self.compiler.compile(_between(low + 1000 * STEP))
        yield "move a range", self._messages(node, node.update(registration, moved)[0])

    def _messages(self, node: RingNode, operation: int) -> int:
        """Routing messages until an operation that a node has begun is over."""
        before = self.network.sent[Route]
        self.network.settle(node)
        assert self.network.run_until([(node.ring.me.address, operation)], 600_000)
        return self.network.sent[Route] - before


def _between(low: float) -> str:
    return f"price BETWEEN {low:.2f} AND {low + 1000 * WIDTH:.2f}"


def _formula(operation: str, nodes: int) -> float:
    """The paper's: look-ups of 1/2 log2 N, and for a range the nodes it lies on."""
    half = np.log2(nodes) / 2
    if operation == "store a range":
        return float(half + WIDTH * nodes)
    if operation == "move a range":
        return float(2 * (half + STEP * nodes))
    return float(LOOK_UPS[operation] * half)


def _means(rows: Rows, operation: str) -> list[tuple[int, float]]:
    return [
        (int(n), float(numbers(own, "messages").mean())) for n, own in group(choose(rows, operation=operation), "nodes")
    ]


def _claim(operation: str, sentence: str, figure: str) -> Claim:
    """It holds if the mean is the formula, and at most a hop beyond for every look-up: the last one.

    Give or take two standard errors of the means of rings, which differ more than trials on one of them do.
    """
    look_ups = LOOK_UPS.get(operation, 2 if operation == "move a range" else 1)

    def judge(rows: Rows) -> Finding:
        holds, ratios, beyond = True, [], []
        for nodes, own in group(choose(rows, operation=operation), "nodes"):
            formula = _formula(operation, int(nodes))
            means = np.array([numbers(ring, "messages").mean() for _, ring in group(own, "seed")])
            mean, slack = means.mean(), 2 * means.std(ddof=1) / np.sqrt(means.size)
            holds &= bool(formula - slack <= mean <= formula + look_ups + slack)
            ratios.append(mean / formula)
            beyond.append((mean - formula) / look_ups)
        ours = f"{min(ratios):.2f} to {max(ratios):.2f} times that: {min(beyond):+.2f} to {max(beyond):+.2f} hops a look-up"
        return Finding(ours, holds)

    return Claim(PAPER, NAME, sentence, figure, judge)


def plot(rows: Rows, axes: Axes) -> None:
    """Means over trials, formulas dashed."""
    for operation, color in zip([*LOOK_UPS, *RANGES], PALETTE, strict=False):
        means = _means(rows, operation)
        axes.plot(*zip(*means, strict=True), "o-", color=color, label=operation)
        axes.plot([n for n, _ in means], [_formula(operation, n) for n, _ in means], "--", color=color, linewidth=0.8)
    axes.plot([], [], "--", color=REFERENCE, linewidth=0.8, label="the paper's formula")
    axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel="routing messages per operation")
    show_plain(axes.xaxis, tuple(float(n) for n in levels(rows, "nodes")))
    show_plain(axes.yaxis, (2, 3, 5, 10, 20, 30))


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Section 3.3: storing, updating and matching, message by message",
    {"small": OperationsSettings((16, 64), 3, 10), "paper": OperationsSettings()},
    run,
    (
        _claim("store an equality", "Storing an equality is a look-up.", "1/2 log2 N"),
        _claim("update an equality", "Updating an equality takes two.", "log2 N"),
        _claim("match an event", "Matching is a look-up per list.", "N_a x 1/2 log2 N, here 4 lists of 3 values"),
        _claim("store a range", "A range is a look-up and the nodes it lies on.", "1/2 log2 N + N / 10"),
        _claim("move a range", "Moving a range costs its two changed ends.", "log2 N + 2 x N / 25"),
    ),
    plot,
    seconds={"small": 5, "paper": 60},
)
