"""Figure 4: how even the greedy assignment is, by the number of buckets per server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wherecast.papers.edn.experiments.network import PAPER, Network
from wherecast.papers.edn.workload import PAPER_MARKET, Market
from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress, show_spread
from wherecast.papers.lab.plots import REFERENCE, draw_spread, show_plain
from wherecast.papers.lab.rows import Row, Rows, choose, group, numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "edn-overpartitioning"


@dataclass(frozen=True, slots=True)
class OverpartitioningSettings:
    """Figure 4, and the sentence on other numbers of servers below it."""

    market: Market = PAPER_MARKET
    n_servers: int = 50
    ratios: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20)
    other_servers: tuple[int, ...] = (5, 10, 20, 30, 40, 60, 80, 100)
    seeds: int = 20


def run(settings: OverpartitioningSettings, progress: Progress) -> list[Row]:
    """Imbalance after the greedy assignment: over the ratio, and over the number of servers at ratio 10."""
    cases = [(settings.n_servers, ratio) for ratio in settings.ratios]
    cases += [(n_servers, 10) for n_servers in settings.other_servers]
    rows: list[Row] = []
    for seed in range(settings.seeds):
        progress(f"{NAME}: seed {seed + 1} of {settings.seeds}")
        for n_servers, ratio in cases:
            found = Network(settings.market, n_servers, ratio, seed).imbalance()
            rows.append({"seed": seed, "servers": n_servers, "ratio": ratio, "imbalance": found})
    return rows


def _judge_ratio_10(rows: Rows) -> Finding:
    found = numbers(choose(rows, servers=50, ratio=10), "imbalance")
    return Finding(show_spread(found), bool(np.median(found) <= 1.20))


def _medians(rows: Rows, by: str) -> dict[float, float]:
    return {float(x): float(np.median(numbers(found, "imbalance"))) for x, found in group(rows, by)}


def _judge_saturation(rows: Rows) -> Finding:
    medians = _medians(choose(rows, servers=50), "ratio")
    first, tenth, last = medians[1], medians[10], medians[max(medians)]
    ours = f"{first:.1f} at R = 1, {tenth:.2f} at 10, {last:.2f} at {max(medians):g}"
    return Finding(ours, tenth < min(first / 2, 1.1 * last))


def _judge_servers(rows: Rows) -> Finding:
    medians = _medians(choose(rows, ratio=10), "servers")
    beyond = [n for n, median in medians.items() if median > 1.20]
    ours = f"{max(medians.values()):.2f} at most; beyond 1.20 at {', '.join(f'{n:g}' for n in beyond) or 'none'}"
    return Finding(ours, not beyond)


def plot(rows: Rows, axes: Axes) -> None:
    """The imbalance is logarithmic, so that both the fall and the floor are seen."""
    draw_spread(axes, choose(rows, servers=50), "ratio", "imbalance", label="50 servers: median and quartiles")
    axes.axhline(1.2, linestyle="--", color=REFERENCE, label="the paper's bound at R = 10")
    axes.set(yscale="log", xlabel="overpartitioning ratio R (buckets per server)", ylabel="imbalance (max / min load)")
    show_plain(axes.yaxis, (1, 1.2, 1.5, 2, 3, 5))
    show_plain(axes.xaxis, (1, 2, 4, 6, 8, 10, 12, 15, 20))


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Figure 4: imbalance over the overpartitioning ratio",
    {"small": OverpartitioningSettings(seeds=2), "paper": OverpartitioningSettings()},
    run,
    (
        Claim(PAPER, NAME, "At R = 10 and 50 servers the load is even.", "<= 1.20", _judge_ratio_10),
        Claim(
            PAPER,
            NAME,
            "A larger R helps much at first, then no more from about R = 10.",
            "figure 4",
            _judge_saturation,
        ),
        Claim(
            PAPER,
            NAME,
            "R = 10 is enough for a wide range of servers.",
            "<= 1.20",
            _judge_servers,
            why_not="The bucket of the most popular symbol cannot be split. With 80 servers it alone is more than a server's "
            "share, whatever R is.",
        ),
    ),
    plot,
    seconds={"small": 1, "paper": 4},
)
