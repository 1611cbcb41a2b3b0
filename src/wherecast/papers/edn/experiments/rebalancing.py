"""Online repartitioning: what it takes to keep the balance while subscriptions grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wherecast.papers.edn.experiments.network import MILLION, PAPER, NetworkSettings
from wherecast.papers.edn.workload import continuation
from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress, show_spread
from wherecast.papers.lab.plots import PALETTE, REFERENCE, show_plain
from wherecast.papers.lab.rows import Row, Rows, group, numbers
from wherecast.partition.balance import rebalance

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "edn-rebalancing"


@dataclass(frozen=True, slots=True)
class RebalancingSettings(NetworkSettings):
    """Online repartitioning in the worst case of figure 5."""

    continuation: str = "uniform"
    threshold: float = 2.0
    n_new: int = 100 * MILLION
    steps: int = 200


def run(settings: RebalancingSettings, progress: Progress) -> list[Row]:
    """The imbalance after each step, before and after buckets moved, if any did."""
    rows: list[Row] = []
    for seed, network in settings.networks(NAME, progress):
        chances = continuation(settings.continuation, settings.market, network.rng)
        for step in range(1, settings.steps + 1):
            network.grow(chances, settings.n_new // settings.steps)
            before = network.imbalance()
            moved = network.move(rebalance(network.weights(), network.table, network.n_servers, settings.threshold))
            new = step * (settings.n_new // settings.steps)
            rows.append({"seed": seed, "new": new, "before": before, "imbalance": network.imbalance(), **moved})
    return rows


def _invocations(rows: Rows) -> Rows:
    return [row for row in rows if row["buckets_moved"]]


def _judge_invocations(rows: Rows) -> Finding:
    found = np.array([len(_invocations(own)) for _, own in group(rows, "seed")], np.float64)
    return Finding(show_spread(found), bool(np.median(found) <= 5))


def _judge_buckets_moved(rows: Rows) -> Finding:
    found = numbers(_invocations(rows), "buckets_moved")
    return Finding(show_spread(found), bool(np.median(found) <= 3))


def _judge_migrated(rows: Rows) -> Finding:
    found = numbers(_invocations(rows), "migrated_percent")
    return Finding(show_spread(found, " %"), bool(np.median(found) < 0.75))


def _judge_kept(rows: Rows) -> Finding:
    found = numbers(rows, "imbalance")
    return Finding(f"at most {found.max():.2f}", bool(found.max() <= 2.0))


def plot(rows: Rows, axes: Axes) -> None:
    """One line per seed, and a point where buckets moved."""
    for seed, own in group(rows, "seed"):
        (line,) = axes.plot(numbers(own, "new") / MILLION, numbers(own, "imbalance"), color=PALETTE[0])
        line.set(linewidth=0.8, alpha=0.5, label=None if seed else "one line per seed")
    moved = _invocations(rows)
    at = numbers(moved, "new") / MILLION
    axes.scatter(at, numbers(moved, "before"), s=6 * numbers(moved, "buckets_moved"), color=PALETTE[1], zorder=3)
    axes.scatter([], [], s=18, color=PALETTE[1], label="rebalanced; the area is the number of buckets")
    axes.axhline(2.0, linestyle="--", color=REFERENCE, label="threshold")
    axes.set(xscale="log", xlabel="new subscriptions, uniform (millions)", ylabel="imbalance (max / min load)")
    show_plain(axes.xaxis, (0.5, 1, 2, 5, 10, 20, 50, 100))


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Rebalancing under uniform new subscriptions",
    {
        "small": RebalancingSettings(seeds=2, n_new=20 * MILLION, steps=40),
        "paper": RebalancingSettings(),
    },
    run,
    (
        Claim(PAPER, NAME, "It is seldom called.", "5 times", _judge_invocations),
        Claim(PAPER, NAME, "It moves few buckets each time.", "3", _judge_buckets_moved),
        Claim(PAPER, NAME, "Few subscriptions migrate each time.", "0.7 %", _judge_migrated),
        Claim(PAPER, NAME, "The imbalance stays within the threshold.", "<= 2.0", _judge_kept),
    ),
    plot,
    seconds={"small": 1, "paper": 35},
)
