"""Section 4.3, left open by the paper: load under order-preserving hashing when values crowd. Before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Floats
from wherecast.language.events.values import float_key
from wherecast.overlay.positions import Line, line_of
from wherecast.papers.chord.balance import equi_depth
from wherecast.papers.chord.churn import SCHEMA
from wherecast.papers.chord.experiments import PAPER
from wherecast.papers.chord.static import BITS, imbalance, virtual_load
from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress, show_spread
from wherecast.papers.lab.plots import PALETTE, show_plain
from wherecast.papers.lab.rows import Row, Rows, choose, levels, numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "chord-balance"
HASHED, STRAIGHT, BENT = "SHA-1", "order-preserving", "equi-depth"


@dataclass(frozen=True, slots=True)
class BalanceSettings:
    """Log-normal prices on peers that are one or several nodes each; the line is bent by a sample of other prices."""

    seeds: int = 20
    peers: int = 1000
    prices: int = 200_000
    sample: int = 20_000
    nodes_per_peer: tuple[int, ...] = (1, 2, 4, 8)
    sigma: float = 0.7


def run(settings: BalanceSettings, progress: Progress) -> list[Row]:
    """The highest load and the 99th percentile, as multiples of the mean."""
    rows: list[Row] = []
    straight = line_of(SCHEMA["price"], BITS, 1)
    assert straight is not None
    for seed in range(settings.seeds):
        progress(f"{NAME}: seed {seed}")
        rng = np.random.default_rng(seed)
        drawn = np.minimum(rng.lognormal(3, settings.sigma, settings.sample + settings.prices), 1000).round(2)
        sample, prices = drawn[: settings.sample], drawn[settings.sample :]
        bent = line_of(SCHEMA["price"], BITS, 1, equi_depth(straight, [float_key(p) for p in sample.tolist()]))
        assert bent is not None
        positions = {
            HASHED: rng.integers(0, 2**64, settings.prices, np.uint64),
            STRAIGHT: _places(straight, prices),
            BENT: _places(bent, prices),
        }
        for name, places in positions.items():
            for each in settings.nodes_per_peer:
                highest, high = imbalance(virtual_load(settings.peers, each, places, seed))
                rows.append({"seed": seed, "hash": name, "nodes_per_peer": each, "highest": highest, "high": high})
    return rows


def _places(line: Line, prices: Floats) -> npt.NDArray[np.uint64]:
    distinct, inverse = np.unique(prices, return_inverse=True)
    places = [(line.base + line.place(float_key(p))) % 2**BITS for p in distinct.tolist()]
    return np.array(places, np.uint64)[inverse]


def _highest(rows: Rows, name: str, each: int = 1) -> Floats:
    return numbers(choose(rows, hash=name, nodes_per_peer=each), "highest")


def _judge_before(rows: Rows) -> Finding:
    worse = _highest(rows, STRAIGHT) / _highest(rows, HASHED)
    return Finding(f"{show_spread(worse)} times SHA-1's highest load", bool(np.median(worse) >= 2))


def _judge_after(rows: Rows) -> Finding:
    """As even as SHA-1: within a quarter of its highest load."""
    ratio = _highest(rows, BENT) / _highest(rows, HASHED)
    gain = _highest(rows, STRAIGHT) / _highest(rows, BENT)
    ours = f"{show_spread(ratio)} times SHA-1's, {np.median(gain):.0f} times less than before"
    return Finding(ours, bool(np.median(ratio) <= 1.25))


def _judge_virtual(rows: Rows) -> Finding:
    most = max(int(each) for each in levels(rows, "nodes_per_peer"))
    both, alone = _highest(rows, BENT, most), _highest(rows, BENT)
    ours = f"{show_spread(both)} times the mean with {most} nodes a peer, {np.median(alone):.2g} with one"
    return Finding(ours, bool(np.median(both) < np.median(alone)))


def plot(rows: Rows, axes: Axes) -> None:
    """A group of bars per number of nodes a peer is."""
    each = [int(n) for n in levels(rows, "nodes_per_peer")]
    for number, (name, color) in enumerate(zip((HASHED, STRAIGHT, BENT), PALETTE, strict=False)):
        medians = [float(np.median(_highest(rows, name, n))) for n in each]
        axes.bar(np.arange(len(each)) + (number - 1) * 0.27, medians, 0.25, color=color, label=name)
    axes.set(yscale="log", xlabel="nodes per peer", ylabel="highest load (multiples of the mean)", ylim=(1, None))
    axes.set_xticks(range(len(each)), labels=[str(n) for n in each])
    show_plain(axes.yaxis, (1, 2, 5, 10, 20, 50, 100))


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Section 4.3: load of peers when prices crowd, before and after",
    {"small": BalanceSettings(2, prices=50_000, sample=10_000, nodes_per_peer=(1, 8)), "paper": BalanceSettings()},
    run,
    (
        Claim(PAPER, NAME, "Order-preserving hashing keeps the crowds of values.", "left open", _judge_before),
        Claim(PAPER, NAME, "A line bent by a sample is as even as SHA-1.", "left open", _judge_after),
        Claim(PAPER, NAME, "Several nodes per peer even it out further.", "left open", _judge_virtual),
    ),
    plot,
    seconds={"small": 2, "paper": 30},
)
