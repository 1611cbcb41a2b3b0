"""Figures 5 and 6: time per match, over the number of matches of an event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress
from wherecast.papers.lab.rows import Row, Rows, choose, group, numbers
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
class OutputSettings:
    """Events of one model, in groups of equal size by how much they match."""

    model: Model
    parameter: float
    n: int = 100_000
    n_events: int = 2_000
    groups: int = 10
    seeds: int = 3
    rounds: int = 3


def run(settings: OutputSettings, progress: Progress) -> list[Row]:
    """Time and nodes per match, by group, seed and matcher; group 0 matches least."""
    rows: list[Row] = []
    for seed in range(settings.seeds):
        progress(f"rapidmatch-output-{settings.model}: seed {seed + 1} of {settings.seeds}")
        drawn, sample = draw(settings.model, settings.parameter, settings.n, settings.n_events, seed)
        contenders = Contenders(drawn.subscriptions, sample)
        order = np.argsort(contenders.count_matches(drawn.events), kind="stable")
        for number, chosen in enumerate(np.array_split(order, settings.groups)):
            for row in contenders.measure(drawn.events[chosen], settings.rounds):
                matches = float(row["matches_per_event"])
                each = {"ns_per_match": 1e3 * float(row["us_per_event"]) / matches}
                each["visits_per_match"] = float(row["visits_per_event"]) / matches
                rows.append({"seed": seed, "group": number, **row, **each})
    return rows


def _ends(rows: Rows, matcher: str, column: str) -> tuple[float, float]:
    """Medians over seeds, with fewest and with most matches."""
    found = [np.median(column_of(own, matcher, column)) for _, own in group(rows, "group")]
    return float(found[0]), float(found[-1])


def _judge_falls(rows: Rows) -> Finding:
    ends = {matcher: _ends(rows, matcher, "ns_per_match") for matcher in ("rapid", "tree")}
    ours = ", ".join(f"{matcher} {first:.3g} to {last:.3g} ns" for matcher, (first, last) in ends.items())
    return Finding(ours, all(last < first for first, last in ends.values()))


def _judge_always(rows: Rows) -> Finding:
    times, nodes = (ratios(rows, "group", c) for c in ("ns_per_match", "visits_per_match"))
    return Finding(f"{show_range(times)} times in time, {show_range(nodes)} in nodes", min(times.values()) > 1)


def _judge_small(rows: Rows) -> Finding:
    found = list(ratios(rows, "group", "visits_per_match").values())
    return Finding(f"{found[0]:.3g} times in nodes with few matches, {found[-1]:.3g} with many", found[0] > found[-1])


def _judge_adaptive(rows: Rows) -> Finding:
    found = ratios(rows, "group", "ns_per_match", "rapid", "adaptive")
    return Finding(f"{show_range(found)} times", min(found.values()) > 1)


def plot(rows: Rows, axes: Axes) -> None:
    """A line for each seed: how much events match depends on its subscriptions."""
    for matcher in _SHOWN:
        for seed, own in group(choose(rows, matcher=matcher), "seed"):
            label = None if seed else f"{matcher}, a line per seed"
            points = numbers(own, "matches_per_event"), numbers(own, "ns_per_match")
            axes.plot(*points, ".-", color=COLORS[matcher], linewidth=1, label=label)
    axes.set(yscale="log", xlabel="matches of an event", ylabel="time per match (ns)")


def _experiment(name: str, title: str, model: Model, parameter: float) -> Experiment[OutputSettings]:
    few = (
        "The number of matches hardly varies in this model, since nine tenths of all matches are of subscriptions "
        "without a 1; and events with few matches are those with many ones."
    )
    claims = (
        Claim(
            PAPER, name, "Both spend less time per match when there are more matches.", "decreases", _judge_falls, few
        ),
        Claim(PAPER, name, "RAPIDMatch is always better than the tree.", "always", _judge_always),
        Claim(PAPER, name, "Its advantage is greater where there are fewer matches.", "greater", _judge_small, few),
        Claim(PAPER, name, "The adaptive matcher is faster than RAPIDMatch.", "not there", _judge_adaptive),
    )
    return Experiment(
        name,
        PAPER,
        title,
        {
            "small": OutputSettings(model, parameter, 10_000, 500, groups=4, seeds=2),
            "paper": OutputSettings(model, parameter),
            "large": OutputSettings(model, parameter, 500_000, seeds=1),
        },
        run,
        claims,
        plot,
        seconds={"small": 5, "paper": 40},
    )


ZIPF = _experiment("rapidmatch-output-zipf", "Figure 5: time per match, Zipf, a = 2", "zipf", 2.0)
EXPONENTIAL = _experiment(
    "rapidmatch-output-exponential", "Figure 6: time per match, exponential, p = 0.05", "exponential", 0.05
)
