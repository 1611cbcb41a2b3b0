"""Sections 3.3 and 4.1: messages to store a range of r values, by Chord and by OPChord."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wherecast.papers.chord.experiments import PAPER
from wherecast.papers.chord.static import StaticRing
from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress
from wherecast.papers.lab.plots import PALETTE, REFERENCE
from wherecast.papers.lab.rows import Row, Rows, choose, levels, numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "chord-ranges"


@dataclass(frozen=True, slots=True)
class RangesSettings:
    """Ranges at random places of a domain, stored from random nodes of rings of 2^e."""

    exponents: tuple[int, ...] = (10, 14, 17)
    values: tuple[int, ...] = (1, 3, 10, 30, 100, 300, 1000)
    cells: int = 100_000
    trials: int = 200


def run(settings: RangesSettings, progress: Progress) -> list[Row]:
    """Mean messages of each way of storing."""
    rows: list[Row] = []
    for exponent in settings.exponents:
        ring = StaticRing(2**exponent, 1)
        look_up = float(ring.random_hops(100_000).mean())
        for values in settings.values:
            progress(f"{NAME}: 2^{exponent} nodes, {values} values")
            cost = ring.range_cost(values, settings.cells, settings.trials)
            found = {"chord": cost.by_value, "opchord": cost.by_successor, "ours": cost.side_by_side}
            rows.append({"nodes": 2**exponent, "log2_nodes": exponent, "values": values, "look_up": look_up, **found})
    return rows


def _judge_chord(rows: Rows) -> Finding:
    """A look-up is 1/2 log2 N and the last hop (`chord-hops`)."""
    ratio = numbers(rows, "chord") / (numbers(rows, "values") * numbers(rows, "look_up"))
    by_paper = numbers(rows, "chord") / (numbers(rows, "values") * numbers(rows, "log2_nodes") / 2)
    ours = f"r look-ups within {100 * np.abs(ratio - 1).max():.1f} %; {by_paper.min():.2f} to {by_paper.max():.2f} times the paper's"
    # Of single values there are as many look-ups as trials: they scatter.
    return Finding(ours, bool(np.abs(ratio[numbers(rows, "values") >= 10] - 1).max() <= 0.02))


def _judge_opchord(rows: Rows) -> Finding:
    """At most 1/2 log N + r, where the last hop of the look-up is one of the r."""
    over = numbers(rows, "ours") - (numbers(rows, "log2_nodes") / 2 + numbers(rows, "values") + 1)
    share = numbers(rows, "ours") / (numbers(rows, "log2_nodes") / 2 + numbers(rows, "values"))
    return Finding(f"{share.min():.2f} to {share.max():.2f} times that", bool(over.max() <= 0))


def _judge_cheaper(rows: Rows) -> Finding:
    many = [row for row in rows if int(row["values"]) > 1]
    ratio = numbers(many, "chord") / numbers(many, "ours")
    return Finding(f"{ratio.min():.1f} to {ratio.max():.0f} times cheaper", bool(ratio.min() > 1))


def plot(rows: Rows, axes: Axes) -> None:
    """A colour per size of ring: Chord above, OPChord below, formulas thin."""
    for nodes, color in zip(levels(rows, "nodes"), PALETTE, strict=False):
        own = choose(rows, nodes=nodes)
        x, half = numbers(own, "values"), numbers(own, "log2_nodes") / 2
        axes.plot(x, numbers(own, "chord"), "o-", color=color, label=f"N = {nodes:,}")
        axes.plot(x, numbers(own, "ours"), "s-", color=color, markerfacecolor="white")
        axes.plot(x, x * half, "--", color=color, linewidth=0.8)
        axes.plot(x, x + half, ":", color=color, linewidth=0.8)
    axes.plot([], [], "o-", color=REFERENCE, label="Chord")
    axes.plot([], [], "s-", color=REFERENCE, markerfacecolor="white", label="OPChord")
    axes.plot([], [], "--", color="black", linewidth=0.8, label="r x 1/2 log2 N")
    axes.plot([], [], ":", color="black", linewidth=0.8, label="1/2 log2 N + r")
    axes.set(xscale="log", yscale="log", xlabel="values in the range (r)", ylabel="messages to store it")


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Sections 3.3, 4.1: storing a range of a domain of 100,000 values",
    {"small": RangesSettings((10, 14, 17), (1, 10, 100), trials=100), "paper": RangesSettings()},
    run,
    (
        Claim(PAPER, NAME, "Chord stores a range by a look-up per value.", "r x 1/2 log2 N", _judge_chord),
        Claim(
            PAPER,
            NAME,
            "OPChord stores it by one look-up and a hop per value at most.",
            "1/2 log2 N + r",
            _judge_opchord,
        ),
        Claim(PAPER, NAME, "Ranges are cheaper under OPChord.", "no figure", _judge_cheaper),
    ),
    plot,
    seconds={"small": 3, "paper": 15},
)
