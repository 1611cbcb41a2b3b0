"""Figure 4: time to match over the parameter of the event model, that is over the number of ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress
from wherecast.papers.lab.plots import draw_spread
from wherecast.papers.lab.rows import Row, Rows, choose, group, levels
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

_SHOWN = ("rapid", "tree", "adaptive")


@dataclass(frozen=True, slots=True)
class OnesSettings:
    """One model of events with several parameters."""

    model: Model
    parameters: tuple[float, ...]
    n: int = 100_000
    n_events: int = 1_000
    seeds: int = 3
    rounds: int = 3


def run(settings: OnesSettings, progress: Progress) -> list[Row]:
    """Times and counts by parameter, seed and matcher."""
    rows: list[Row] = []
    for parameter in settings.parameters:
        for seed in range(settings.seeds):
            progress(f"rapidmatch-ones-{settings.model}: {parameter:g} to {settings.parameters[-1]:g}, seed {seed + 1}")
            drawn, sample = draw(settings.model, parameter, settings.n, settings.n_events, seed)
            found = Contenders(drawn.subscriptions, sample).measure(drawn.events, settings.rounds)
            rows += [{"seed": seed, "parameter": parameter, **row} for row in found]
    return rows


def _medians(rows: Rows, matcher: str, column: str) -> list[float]:
    """By parameter, fewest ones first."""
    found = [(column_of(own, "rapid", "ones_per_event").mean(), own) for _, own in group(rows, "parameter")]
    ordered = sorted(found, key=lambda pair: float(pair[0]))
    return [float(np.median(column_of(own, matcher, column))) for _, own in ordered]


def _judge_rapid(rows: Rows) -> Finding:
    times, nodes = (_medians(rows, "rapid", c) for c in ("us_per_event", "visits_per_event"))
    ours = f"{times[0]:.3g} to {times[-1]:.3g} us, {nodes[0]:,.0f} to {nodes[-1]:,.0f} nodes"
    return Finding(ours, all(a < b for a, b in pairwise(nodes)) and times[0] < times[-1])


def _judge_tree(rows: Rows, column: str) -> Finding:
    found = _medians(rows, "tree", column)
    return Finding(f"largest / smallest {max(found) / min(found):.2f}", max(found) / min(found) < 1.2)


def _judge_never_worse(rows: Rows) -> Finding:
    times, nodes = (ratios(rows, "parameter", c) for c in ("us_per_event", "visits_per_event"))
    ours = f"{show_range(times)} times in time, {show_range(nodes)} in nodes"
    return Finding(ours, min(nodes.values()) >= 1 and min(times.values()) >= 0.95)


def _judge_flattens(rows: Rows) -> Finding:
    """It does if from 3 on it rises by less than 15 %."""
    found = ratios(rows, "parameter", "visits_per_event")
    last, half = max(found), min(found, key=lambda a: abs(a - 3))
    return Finding(
        f"{found[half]:.3g} in nodes at {half:g}, {found[last]:.3g} at {last:g}", found[last] < 1.15 * found[half]
    )


def _judge_adaptive(rows: Rows) -> Finding:
    found = ratios(rows, "parameter", "us_per_event", "rapid", "adaptive")
    return Finding(f"{show_range(found)} times", min(found.values()) > 1)


def plot(rows: Rows, axes: Axes) -> None:
    """Times over the parameter; below each, how many ones an event has."""
    for matcher in _SHOWN:
        own = choose(rows, matcher=matcher)
        draw_spread(axes, own, "parameter", "us_per_event", color=COLORS[matcher], label=matcher)
    parameters = [float(parameter) for parameter in levels(rows, "parameter")]
    ones = [column_of(own, "rapid", "ones_per_event").mean() for _, own in group(rows, "parameter")]
    axes.set(yscale="log", ylabel="time for one event (microseconds)")
    axes.set_xticks(parameters, labels=[f"{p:g}\n{mean:.1f}" for p, mean in zip(parameters, ones, strict=True)])
    name = "exponent a of Zipf's law" if max(parameters) > 1 else "chance p of a one"
    axes.set_xlabel(f"{name}; below it, ones of an event")


def _claims(name: str) -> tuple[Claim, ...]:
    return (
        Claim(PAPER, name, "With fewer ones, RAPIDMatch takes less time.", "decreases", _judge_rapid),
        Claim(
            PAPER, name, "The tree does not profit: it visits as many nodes.", "constant",
            partial(_judge_tree, column="visits_per_event"),
        ),
        Claim(
            PAPER, name, "The tree does not profit: it takes as long.", "constant",
            partial(_judge_tree, column="us_per_event"),
            why_not="The nodes are as many; events with very few ones take nearly the same way through them each time.",
        ),
        Claim(PAPER, name, "RAPIDMatch is never worse than the tree.", "never", _judge_never_worse),
        Claim(PAPER, name, "The adaptive matcher is faster than RAPIDMatch.", "not there", _judge_adaptive),
    )  # fmt: skip


_ZIPF, _EXPONENTIAL = "rapidmatch-ones-zipf", "rapidmatch-ones-exponential"
_A, _P = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0), (0.01, 0.02, 0.05, 0.1, 0.15, 0.2)
ZIPF = Experiment(
    _ZIPF,
    PAPER,
    "Figure 4a: time over the exponent of Zipf's law",
    {
        "small": OnesSettings("zipf", (1.0, 2.0, 3.0, 4.0), 10_000, 300, seeds=2),
        "paper": OnesSettings("zipf", _A),
        "large": OnesSettings("zipf", _A, 500_000, seeds=1),
    },
    run,
    (
        *_claims(_ZIPF),
        Claim(
            PAPER, _ZIPF, "The ratio flattens out with a above 3.", "flat from 3 on", _judge_flattens,
            why_not="It still rises towards that of events with a single 1: at a = 3 the few events with several ones "
            "take a good part of the time of all.",
        ),
    ),
    plot,
    seconds={"small": 5, "paper": 130},
)  # fmt: skip
EXPONENTIAL = Experiment(
    _EXPONENTIAL,
    PAPER,
    "Figure 4b: time over the chance of a one, exponential",
    {
        "small": OnesSettings("exponential", (0.01, 0.05, 0.1, 0.2), 10_000, 300, seeds=2),
        "paper": OnesSettings("exponential", _P),
        "large": OnesSettings("exponential", _P, 500_000, seeds=1),
    },
    run,
    _claims(_EXPONENTIAL),
    plot,
    seconds={"small": 5, "paper": 160},
)
