"""Figure 3: time to match over the number of subscriptions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress, Scale
from wherecast.papers.lab.plots import draw_spread
from wherecast.papers.lab.rows import Row, Rows, choose, levels
from wherecast.papers.rapidmatch.experiments.contenders import (
    COLORS,
    PAPER,
    Contenders,
    Model,
    column_of,
    draw,
    ratios,
    show_range,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_CACHES = (
    "In nodes it does. Small trees are read from the caches: with 10,000 subscriptions a node of the tree takes half "
    "as long as with 200,000, one of RAPIDMatch, whose trees are many, two thirds."
)


@dataclass(frozen=True, slots=True)
class SizeSettings:
    """One model of events at several sizes."""

    model: Model
    parameter: float
    sizes: tuple[int, ...] = (10_000, 20_000, 50_000, 100_000, 200_000)
    n_events: int = 1_000
    seeds: int = 3
    rounds: int = 3


def run(settings: SizeSettings, progress: Progress) -> list[Row]:
    """Times and counts by size, seed and matcher."""
    rows: list[Row] = []
    for n in settings.sizes:
        for seed in range(settings.seeds):
            progress(f"rapidmatch-size-{settings.model}: {n:,} of {settings.sizes[-1]:,}, seed {seed + 1}")
            drawn, sample = draw(settings.model, settings.parameter, n, settings.n_events, seed)
            contenders = Contenders(drawn.subscriptions, sample, counting=True)
            rows += [{"seed": seed, **row} for row in contenders.measure(drawn.events, settings.rounds)]
    return rows


def _both(rows: Rows) -> tuple[dict[float, float], str]:
    """How many times the tree's time is that of RAPIDMatch, by size, and the same in nodes, as text."""
    times, nodes = (dict(ratios(rows, "subscriptions", c)) for c in ("us_per_event", "visits_per_event"))
    return times, f"{show_range(times)} in time, {show_range(nodes)} in nodes"


def _judge_eight(rows: Rows) -> Finding:
    times, ours = _both(rows)
    return Finding(ours, min(times.values()) > 8)


def _judge_four(rows: Rows) -> Finding:
    times, ours = _both(rows)
    return Finding(ours, min(times.values()) >= 4)


def _judge_little(rows: Rows) -> Finding:
    times, ours = _both(rows)
    return Finding(ours, min(times.values()) >= 1.1 and max(times.values()) <= 1.4)


def _judge_flat(rows: Rows, column: str) -> Finding:
    found = ratios(rows, "subscriptions", column).values()
    varies = max(found) / min(found) - 1
    return Finding(f"{100 * varies:.0f} %", varies < 0.3)


def _judge_levels(rows: Rows) -> Finding:
    """Blocks are whole, so that an event may skip up to one level more or less."""
    skipped, light = (column_of(rows, "rapid", f"{c}_per_event") for c in ("levels_skipped", "light_levels"))
    ours = f"{skipped.mean():.1f} of 100, k/(t + 1) is {light.mean():.1f}"
    return Finding(ours, bool(np.abs(skipped - light).max() < 1))


def _judge_faster(rows: Rows, quicker: str, slower: str) -> Finding:
    times = ratios(rows, "subscriptions", "us_per_event", slower, quicker)
    return Finding(f"{show_range(times)} times", min(times.values()) > 1)


def plot(rows: Rows, axes: Axes) -> None:
    """Times of all, and at each point of RAPIDMatch how many times longer the tree takes."""
    for matcher, color in COLORS.items():
        draw_spread(axes, choose(rows, matcher=matcher), "subscriptions", "us_per_event", color=color, label=matcher)
    for n, ratio in ratios(rows, "subscriptions", "us_per_event").items():
        at = n, float(np.median(column_of(choose(rows, subscriptions=int(n)), "rapid", "us_per_event")))
        axes.annotate(f"tree / {ratio:.1f}", at, xytext=(0, -12), textcoords="offset points", fontsize=8, ha="center")
    axes.set(xscale="log", yscale="log", xlabel="subscriptions", ylabel="time for one event (microseconds)")
    axes.margins(x=0.08)
    sizes = [int(n) for n in levels(rows, "subscriptions")]
    axes.set_xticks(sizes, labels=[f"{n:,}" for n in sizes])
    axes.set_xticks([], minor=True)


def _experiment(
    name: str, title: str, model: Model, parameter: float, claims: tuple[Claim, ...]
) -> Experiment[SizeSettings]:
    stable = "The ratio hardly depends on the number of subscriptions, in {}: it varies by less than 30 %."
    common = (
        Claim(PAPER, name, stable.format("nodes"), "stable", partial(_judge_flat, column="visits_per_event")),
        Claim(PAPER, name, stable.format("time"), "stable", partial(_judge_flat, column="us_per_event"), _CACHES),
        Claim(PAPER, name, "An event with t ones skips k/(t + 1) levels.", "k/(t + 1)", _judge_levels),
        Claim(
            PAPER, name, "Counting is slower than the tree.", "slower",
            partial(_judge_faster, quicker="tree", slower="counting"),
        ),
        Claim(
            PAPER, name, "The adaptive matcher is faster than RAPIDMatch.", "not there",
            partial(_judge_faster, quicker="adaptive", slower="rapid"),
        ),
    )  # fmt: skip
    settings: dict[Scale, SizeSettings] = {
        "small": SizeSettings(model, parameter, (10_000, 50_000), n_events=300, seeds=2),
        "paper": SizeSettings(model, parameter),
        "large": SizeSettings(model, parameter, (200_000, 500_000, 1_000_000), seeds=1),
    }
    return Experiment(name, PAPER, title, settings, run, claims + common, plot, seconds={"small": 5, "paper": 150})


_ZIPF, _EXPONENTIAL = "rapidmatch-size-zipf", "rapidmatch-size-exponential"
ZIPF = _experiment(
    _ZIPF,
    "Figure 3a: time over subscriptions, Zipf, a = 2",
    "zipf",
    2.0,
    (
        Claim(
            PAPER, _ZIPF, "RAPIDMatch is more than 8 times as fast as the tree.", "> 8 times", _judge_eight,
            why_not="The ratio depends on the tail of the distribution, whose end the paper does not print. An event "
            "with one 1 takes a fifteenth of the tree's nodes, but the 5 % with more than ten ones take them all.",
        ),
        Claim(
            PAPER, _ZIPF, "RAPIDMatch is at least 4 times as fast as the tree.", "> 8 times", _judge_four,
            why_not=_CACHES,
        ),
    ),
)  # fmt: skip
EXPONENTIAL = _experiment(
    _EXPONENTIAL,
    "Figure 3b: time over subscriptions, exponential, p = 0.1",
    "exponential",
    0.1,
    (Claim(PAPER, _EXPONENTIAL, "RAPIDMatch is about 1.2 times as fast as the tree.", "1.2 times", _judge_little),),
)
