"""How far the head of the popularity curve is bent: which `bend` comes closest to the paper's figure 5.

The paper shows that the head of figure 3 lies below the line, not how far. All that depends on the largest buckets depends
on it, so it is fitted: by the root mean square of log(ours / paper) over the four figures that figure 5 ends with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from wherecast.papers.edn.experiments import growth
from wherecast.papers.edn.experiments.network import PAPER
from wherecast.papers.edn.workload import PAPER_MARKET
from wherecast.papers.lab.experiment import Experiment, Progress
from wherecast.papers.lab.plots import PALETTE, REFERENCE, draw_spread, show_plain
from wherecast.papers.lab.rows import Row, Rows, choose, group

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "edn-bend"


@dataclass(frozen=True, slots=True)
class BendSettings:
    """The bends to try."""

    bends: tuple[float, ...] = (10, 11, 12, 13, 14, 15, 16, 18, 20)
    seeds: int = 60
    n_new: int = growth.GrowthSettings().n_new


def run(settings: BendSettings, progress: Progress) -> list[Row]:
    """Figure 5 for each bend: the imbalance before and after the new subscriptions."""
    rows: list[Row] = []
    for number, bend in enumerate(settings.bends, 1):
        progress(f"{NAME}: bend {number} of {len(settings.bends)}")
        market = replace(PAPER_MARKET, bend=bend)
        case = growth.GrowthSettings(market=market, seeds=settings.seeds, n_new=settings.n_new, steps=1)
        rows += [{"bend": bend, **row} for row in growth.run(case, lambda _: None)]
    return rows


def distances(rows: Rows) -> dict[float, float]:
    """How far the medians of each bend are from the paper's figures."""
    found = {}
    for bend, own in group(rows, "bend"):
        ratios = [np.median(growth.last_imbalance(own, name)) / paper for name, paper in growth.PAPER_FIGURES.items()]
        found[float(bend)] = float(np.sqrt((np.log(ratios) ** 2).mean()))
    return found


def plot(rows: Rows, axes: Axes) -> None:
    """Ours over the bend, the paper's figure as a broken line of the same colour."""
    last = [row for row in rows if row["new"]]
    for (name, paper), color in zip(growth.PAPER_FIGURES.items(), PALETTE[1:], strict=False):
        draw_spread(axes, choose(last, continuation=name), "bend", "imbalance", color=color, label=name)
        axes.axhline(paper, color=color, linestyle="--", linewidth=1)
    axes.plot([], [], "--", color=REFERENCE, label="the paper")
    axes.set(yscale="log", xlabel="bend of the head", ylabel="imbalance after all new subscriptions")
    show_plain(axes.yaxis, (1, 1.5, 2, 3, 5, 10, 20, 40))


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Figure 5 for different bends of the head",
    {"small": BendSettings((8, 12), seeds=2, n_new=growth.GrowthSettings().n_new // 20), "paper": BendSettings()},
    run,
    (),
    plot,
    seconds={"small": 1, "paper": 25},
)
