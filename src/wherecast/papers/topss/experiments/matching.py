"""Figure 3: time to match the subscriptions of W4, by how predicates and subscriptions are associated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress
from wherecast.papers.lab.rows import Row, Rows, levels
from wherecast.papers.topss.experiments.cases import (
    MILLION,
    PAPER,
    MatchingSettings,
    at_size,
    draw_curves,
    largest_size,
    measure_matching,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "topss-matching"
_MATCHERS = ("lists", "bits", "bytes", "adaptive")
#: Smaller sets fit the caches, whatever they are.
_MANY = 100_000


def run(settings: MatchingSettings, progress: Progress) -> list[Row]:
    """Times and operations of the three associations, and of the adaptive matcher."""
    return measure_matching(NAME, settings, progress)


def _judge_order(rows: Rows) -> Finding:
    largest = largest_size(rows, "bytes")
    sizes = [n for n in levels(rows, "subscriptions") if min(_MANY, largest) <= int(n) <= largest]
    found = [at_size(rows, n, "ms_per_event") for n in sizes]
    ours = ", ".join(f"{found[-1][m]:.3g}" for m in ("lists", "bits", "bytes"))
    return Finding(f"{ours} ms at {sizes[-1]:,}", all(t["lists"] < t["bits"] < t["bytes"] for t in found))


def _judge_reading(rows: Rows) -> Finding:
    n = largest_size(rows, "lists", "bits", "bytes")
    read = at_size(rows, n, "entries_per_event")
    ours = f"{read['lists']:,.0f} ids, {read['bits']:,.0f} words, {read['bytes']:,.0f} bytes at {n:,}"
    return Finding(ours, read["lists"] < read["bits"] < read["bytes"])


def _judge_bytes(rows: Rows) -> Finding:
    n = largest_size(rows, "bits", "bytes")
    times = at_size(rows, n, "ms_per_event")
    ratio = times["bytes"] / times["bits"]
    return Finding(f"{ratio:.1f} times at {n:,}", 2 <= ratio <= 4.5)


def _judge_adaptive(rows: Rows) -> Finding:
    found = [at_size(rows, n, "ms_per_event") for n in levels(rows, "subscriptions")]
    ratios = np.array([times["lists"] / times["adaptive"] for times in found])
    return Finding(f"{ratios.min():.0f} to {ratios.max():.0f} times as fast as lists", bool(ratios.min() > 1))


def plot(rows: Rows, axes: Axes) -> None:
    """The paper's figure has no numbers to draw."""
    draw_curves(axes, rows, "ms_per_event", {})
    axes.set_ylabel("time for one event (ms)")


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Figure 3: matching the subscriptions of W4",
    {
        "small": MatchingSettings(_MATCHERS, (10_000, 100_000), rounds=3),
        "paper": MatchingSettings(_MATCHERS, (10_000, 20_000, 50_000, 100_000, 200_000, 500_000, MILLION)),
        "large": MatchingSettings(_MATCHERS, (100_000, MILLION, 5 * MILLION, 10 * MILLION)),
    },
    run,
    (
        Claim(
            PAPER, NAME, "Lists are faster than bits, bits than bytes, from 100,000 subscriptions on.", "in this order",
            _judge_order,
        ),
        Claim(PAPER, NAME, "Lists read fewest entries for an event, bytes most.", "in this order", _judge_reading),
        Claim(
            PAPER, NAME, "Bits outperform bytes by about a factor of 3.", "about 3 times", _judge_bytes,
            why_not="The ratio grows with the byte matrix, which is 40 MB at 100,000 subscriptions and 400 MB, more "
            "than the caches hold, at a million.",
        ),
        Claim(
            PAPER, NAME, "The adaptive matcher is faster than all three at every size.", "not there", _judge_adaptive,
        ),
    ),
    plot,
    seconds={"small": 5, "paper": 30},
)  # fmt: skip
