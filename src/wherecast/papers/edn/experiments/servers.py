"""Servers that join and leave: what moves, and how even the load stays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from wherecast.papers.edn.experiments.network import PAPER, Network, NetworkSettings
from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress, show_spread
from wherecast.papers.lab.plots import REFERENCE, draw_spread, show_plain
from wherecast.papers.lab.rows import Row, Rows, choose, numbers
from wherecast.partition.balance import add_server, remove_server

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "edn-servers"


@dataclass(frozen=True, slots=True)
class ServersSettings(NetworkSettings):
    """Some servers join, one after another, then as many leave, whichever."""

    changes: int = 10


def run(settings: ServersSettings, progress: Progress) -> list[Row]:
    """What each change moves, and the imbalance after it."""
    rows: list[Row] = []
    for seed, network in settings.networks(NAME, progress):
        for number, change in enumerate(["join"] * settings.changes + ["leave"] * settings.changes, 1):
            moved = _join(network) if change == "join" else _leave(network)
            found = {"servers": network.n_servers, "imbalance": network.imbalance(), **moved}
            rows.append({"seed": seed, "number": number, "change": change, **found})
    return rows


def _join(network: Network) -> dict[str, float]:
    moves = add_server(network.weights(), network.table, network.n_servers)
    network.n_servers += 1
    return network.move(moves)


def _leave(network: Network) -> dict[str, float]:
    server = int(network.rng.integers(network.n_servers))
    moved = network.move(remove_server(network.weights(), network.table, network.n_servers, server))
    network.table -= network.table > server  # the numbers above go down by one
    network.n_servers -= 1
    return moved


def _judge_change(rows: Rows, change: str) -> Finding:
    """It does if the load stays within the threshold at which the paper rebalances."""
    own = choose(rows, change=change)
    migrated, even = numbers(own, "migrated_percent"), numbers(own, "imbalance")
    ours = f"{show_spread(migrated, ' %')} migrate, imbalance {show_spread(even)}"
    return Finding(ours, bool(np.median(even) <= 2.0))


def plot(rows: Rows, axes: Axes) -> None:
    """Joins on the left, leaves on the right."""
    draw_spread(axes, rows, "number", "imbalance", label="median and quartiles")
    joins = numbers(choose(rows, change="join"), "number").max()
    axes.axvline(joins + 0.5, linestyle="--", color=REFERENCE, label="servers join before, leave after")
    axes.set(xlabel="number of the change", ylabel="imbalance (max / min load)", ylim=(1, None))
    show_plain(axes.xaxis, tuple(range(2, int(2 * joins) + 1, 2)))


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Servers join and leave",
    {"small": ServersSettings(seeds=2), "paper": ServersSettings()},
    run,
    (
        Claim(PAPER, NAME, "The table follows when servers join.", "no figure", partial(_judge_change, change="join")),
        Claim(
            PAPER, NAME, "The table follows when servers leave.", "no figure", partial(_judge_change, change="leave")
        ),
    ),
    plot,
    seconds={"small": 1, "paper": 1},
)
