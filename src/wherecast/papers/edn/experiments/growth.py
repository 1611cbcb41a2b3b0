"""Figure 5: what a hundred million new subscriptions do to the balance if no bucket moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wherecast.kernels.arrays import Floats
from wherecast.papers.edn.experiments.network import MILLION, PAPER, NetworkSettings
from wherecast.papers.edn.workload import CONTINUATIONS, continuation
from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress, show_spread
from wherecast.papers.lab.plots import PALETTE, draw_spread, show_plain
from wherecast.papers.lab.rows import Row, Rows, choose, levels, numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "edn-growth"
#: The imbalance that the paper ends with.
PAPER_FIGURES = {"anticipated": 1.41, "perturb100": 2.83, "permute7": 4.18, "uniform": 6.66}


@dataclass(frozen=True, slots=True)
class GrowthSettings(NetworkSettings):
    """Figure 5."""

    n_new: int = 100 * MILLION
    steps: int = 20


def run(settings: GrowthSettings, progress: Progress) -> list[Row]:
    """Imbalance while new subscriptions arrive and no bucket moves, for each continuation."""
    rows: list[Row] = []
    for seed, network in settings.networks(NAME, progress):
        existing = network.subscriptions
        for name in CONTINUATIONS:
            network.subscriptions = existing
            chances = continuation(name, settings.market, network.rng)
            for step in range(settings.steps + 1):
                if step:
                    network.grow(chances, settings.n_new // settings.steps)
                new = int(network.subscriptions.sum() - existing.sum())
                rows.append({"seed": seed, "continuation": name, "new": new, "imbalance": network.imbalance()})
    return rows


def last_imbalance(rows: Rows, name: str) -> Floats:
    """The imbalance after all new subscriptions, by seed."""
    found = choose(rows, continuation=name)
    return numbers(choose(found, new=max(levels(found, "new"), key=float)), "imbalance")


def _judge_flat(rows: Rows) -> Finding:
    found = last_imbalance(rows, "actual") / numbers(choose(rows, continuation="actual", new=0), "imbalance")
    return Finding(f"{show_spread(found)} times the first", bool(np.median(found) <= 1.1))


def _judge_anticipated(rows: Rows) -> Finding:
    found = last_imbalance(rows, "anticipated")
    return Finding(show_spread(found), bool(np.median(found) <= PAPER_FIGURES["anticipated"]))


def _claim_seen(name: str, sentence: str, why_not: str = "") -> Claim:
    """The paper's figure is one draw: it is reproduced if it lies among ours."""

    def judge(rows: Rows) -> Finding:
        found = last_imbalance(rows, name)
        return Finding(show_spread(found), bool(found.min() <= PAPER_FIGURES[name] <= found.max()))

    return Claim(PAPER, NAME, sentence, f"{PAPER_FIGURES[name]:g}", judge, why_not)


def _judge_order(rows: Rows) -> Finding:
    medians = {name: float(np.median(last_imbalance(rows, name))) for name in PAPER_FIGURES}
    order = sorted(medians, key=lambda name: medians[name])
    return Finding(" < ".join(order), order == list(PAPER_FIGURES))


def plot(rows: Rows, axes: Axes) -> None:
    """The paper's last points stand at the right margin."""
    shown = [dict(row, new=float(row["new"]) / MILLION) for row in rows]
    for name, color in zip(CONTINUATIONS, PALETTE, strict=False):
        found = choose(shown, continuation=name)
        draw_spread(axes, found, "new", "imbalance", color=color, label=name)
        if name in PAPER_FIGURES:
            axes.plot([max(numbers(found, "new"))], [PAPER_FIGURES[name]], "o", color=color, markeredgecolor="black")
    axes.plot([], [], "o", color="white", markeredgecolor="black", label="the paper, at the end")
    axes.set(yscale="log", xlabel="new subscriptions (millions)", ylabel="imbalance (max / min load)")
    show_plain(axes.yaxis, (1, 1.5, 2, 3, 5, 10, 20, 40))


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Figure 5: imbalance while subscriptions grow",
    {
        "small": GrowthSettings(seeds=2, n_new=5 * MILLION, steps=5),
        "paper": GrowthSettings(),
        "large": GrowthSettings(n_new=1000 * MILLION),
    },
    run,
    (
        Claim(PAPER, NAME, "If popularity stays, so does the imbalance.", "flat", _judge_flat),
        Claim(PAPER, NAME, "Less popular new symbols do little harm.", "<= 1.41", _judge_anticipated),
        _claim_seen("perturb100", "Popularity changed by up to 100 % raises the imbalance."),
        _claim_seen(
            "permute7",
            "Popularity permuted within 7 chunks raises the imbalance.",
            "It does, by more than in the paper. All depends on where the few most popular symbols land; the paper shows one "
            "draw, and does not print how popular they are.",
        ),
        _claim_seen("uniform", "Uniform popularity raises the imbalance."),
        Claim(
            PAPER,
            NAME,
            "Of these, uniform raises it most.",
            " < ".join(PAPER_FIGURES),
            _judge_order,
            why_not="Permuting within 7 chunks raises it more, if it moves the most popular symbols to servers that have "
            "enough already; in some draws it does not.",
        ),
    ),
    plot,
    seconds={"small": 1, "paper": 12},
)
