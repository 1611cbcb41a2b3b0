"""Figure 3: how many subscriptions the symbols have, by rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wherecast.papers.edn.experiments.network import PAPER
from wherecast.papers.edn.workload import PAPER_MARKET, Market, count_subscriptions
from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress, show_spread
from wherecast.papers.lab.plots import PALETTE, REFERENCE, draw_spread
from wherecast.papers.lab.rows import Row, Rows, choose, group, levels, numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "edn-popularity"
#: Ranks between which the curve is taken to be straight.
MIDDLE = (100, 3000)


@dataclass(frozen=True, slots=True)
class PopularitySettings:
    """Figure 3."""

    market: Market = PAPER_MARKET
    seeds: int = 20
    points: int = 150


def run(settings: PopularitySettings, progress: Progress) -> list[Row]:
    """Subscriptions and filters of symbols over their rank, at ranks evenly spaced on a logarithmic scale."""
    ranks = np.unique(np.geomspace(1, settings.market.asked, settings.points).astype(int))
    rows: list[Row] = []
    for seed in range(settings.seeds):
        progress(f"{NAME}: seed {seed + 1} of {settings.seeds}")
        counts = count_subscriptions(settings.market, np.random.default_rng(seed))
        order = np.argsort(-counts.subscriptions, kind="stable")[ranks - 1]
        for rank, symbol in zip(ranks.tolist(), order.tolist(), strict=True):
            subscriptions, filters = (int(column[symbol]) for column in counts)
            rows.append({"seed": seed, "rank": rank, "subscriptions": subscriptions, "filters": filters})
    return rows


def fit_line(rows: Rows) -> tuple[float, float]:
    """Slope and height of the straight line through the middle, on logarithms."""
    middle = [row for row in rows if MIDDLE[0] <= float(row["rank"]) <= MIDDLE[1]]
    slope, height = np.polyfit(np.log(numbers(middle, "rank")), np.log(numbers(middle, "subscriptions")), 1)
    return float(slope), float(height)


def _judge_slope(rows: Rows) -> Finding:
    slopes = np.array([fit_line(found)[0] for _, found in group(rows, "seed")])
    return Finding(show_spread(slopes), bool(abs(np.median(slopes) + 1.07) <= 0.02))


def _judge_end(rows: Rows, rank: int) -> Finding:
    slope, height = fit_line(rows)
    line = np.exp(height) * rank**slope
    share = float(100 * np.median(numbers(choose(rows, rank=rank), "subscriptions")) / line)
    return Finding(f"{share:.0f} % of the line at rank {rank:,}", share < 50)


def plot(rows: Rows, axes: Axes) -> None:
    """Both axes logarithmic, as in the paper."""
    slope, height = fit_line(rows)
    ranks = np.array(levels(rows, "rank"), np.float64)
    draw_spread(axes, rows, "rank", "subscriptions", label="subscriptions")
    draw_spread(axes, rows, "rank", "filters", color=PALETTE[1], label="distinct filters")
    axes.plot(ranks, np.exp(height) * ranks**slope, "--", color=REFERENCE, label=f"slope {slope:.2f}")
    axes.set(xscale="log", yscale="log", xlabel="rank of the symbol", ylabel="number per symbol", ylim=(0.7, None))


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Figure 3: popularity of symbols",
    {"small": PopularitySettings(seeds=2), "paper": PopularitySettings()},
    run,
    (
        Claim(PAPER, NAME, "The middle of the curve fits a straight line.", "slope -1.07", _judge_slope),
        Claim(PAPER, NAME, "The head lies below the line.", "figure 3", lambda rows: _judge_end(rows, 1)),
        Claim(
            PAPER,
            NAME,
            "The tail lies below the line.",
            "figure 3",
            lambda rows: _judge_end(rows, int(numbers(rows, "rank").max())),
        ),
    ),
    plot,
    seconds={"small": 1, "paper": 1},
)
