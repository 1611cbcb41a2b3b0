"""Section 3.3: hops per look-up, on rings of 16 to a million nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wherecast.papers.chord.experiments import PAPER
from wherecast.papers.chord.static import StaticRing, fit_hops
from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress
from wherecast.papers.lab.plots import PALETTE, REFERENCE
from wherecast.papers.lab.rows import Row, Rows, numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "chord-hops"


@dataclass(frozen=True, slots=True)
class HopsSettings:
    """Rings of 2^e nodes; look-ups of random positions from random nodes."""

    exponents: tuple[int, ...] = tuple(range(4, 21))
    look_ups: int = 400_000
    rings: int = 400  # at most: small rings differ, and are averaged over many


def run(settings: HopsSettings, progress: Progress) -> list[Row]:
    """Mean and most hops of each size of ring."""
    rows: list[Row] = []
    for exponent in settings.exponents:
        progress(f"{NAME}: 2^{exponent} nodes")
        rings = max(1, min(settings.rings, 2**14 >> exponent))
        each = settings.look_ups // rings
        hops = np.concatenate([StaticRing(2**exponent, seed).random_hops(each) for seed in range(rings)])
        rows.append(
            {"nodes": 2**exponent, "log2_nodes": exponent, "hops": float(hops.mean()), "most_hops": int(hops.max())}
        )
    return rows


def _fit(rows: Rows) -> tuple[float, float]:
    return fit_hops([int(row["nodes"]) for row in rows], numbers(rows, "hops").tolist())


def _judge_slope(rows: Rows) -> Finding:
    slope, constant = _fit(rows)
    return Finding(f"{slope:.4f} log2 N + {constant:.2f}", abs(slope / 0.5 - 1) <= 0.02)


def _judge_constant(rows: Rows) -> Finding:
    last = rows[-1]
    beyond = float(last["hops"]) - float(last["log2_nodes"]) / 2
    ours = f"1/2 log2 N + {beyond:.2f} with the last hop, {beyond - 1:+.2f} without it, at N = {last['nodes']:,}"
    return Finding(ours, beyond < 1)


def _judge_most(rows: Rows) -> Finding:
    """With ids at random, log2 N is exceeded only by the spread of the ids."""
    over = numbers(rows, "most_hops") - numbers(rows, "log2_nodes")
    return Finding(f"log2 N {over.min():+.0f} to {over.max():+.0f}", bool(over.max() <= 2))


def plot(rows: Rows, axes: Axes) -> None:
    """Mean and most, and the paper's line."""
    x = numbers(rows, "log2_nodes")
    axes.plot(x, numbers(rows, "hops"), "o-", color=PALETTE[0], label="mean, last hop counted")
    axes.plot(x, numbers(rows, "most_hops"), "s:", color=PALETTE[1], label="most of all look-ups")
    axes.plot(x, x / 2, "--", color=REFERENCE, label="the paper: 1/2 log2 N")
    axes.set(xlabel="log2 of the number of nodes", ylabel="hops per look-up", ylim=(0, None))


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Section 3.3: hops per look-up",
    {"small": HopsSettings(tuple(range(4, 21, 2)), 100_000, 200), "paper": HopsSettings()},
    run,
    (
        Claim(
            PAPER, NAME, "A look-up takes half as many hops as log2 N: slope within 2 %.", "0.5 log2 N", _judge_slope
        ),
        Claim(PAPER, NAME, "Beyond that, less than one hop.", "1/2 log2 N", _judge_constant),
        Claim(PAPER, NAME, "No look-up takes many more than log2 N hops.", "O(log N)", _judge_most),
    ),
    plot,
    seconds={"small": 3, "paper": 20},
)
