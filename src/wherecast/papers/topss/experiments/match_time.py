"""Table 1: time to match one event with the database, with bits and with lists."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress, show_number
from wherecast.papers.lab.rows import Row, Rows, choose, levels, numbers
from wherecast.papers.topss.experiments.cases import (
    MILLION,
    PAPER,
    PAPER_SIZES,
    MatchingSettings,
    at_size,
    draw_curves,
    largest_size,
    measure_matching,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "topss-match-time"
_MATCHERS = ("lists", "bits", "database", "adaptive")
#: Milliseconds; sizes are PAPER_SIZES.
PRINTED = {
    "lists": np.array([0.10, 0.27, 0.63, 3.85, 8.10, 79.0, 190.7, 1056.0]),
    "bits": np.array([0.3, 1.9, 3.8, 20.0, 40.4, 264.0, 562.4, 1555.7]),
    "database": np.array([89.3, 206.4, 397.4, 1800.3, 3451.2, 17299.7, 33473.1, 338166.1]),
}


def run(settings: MatchingSettings, progress: Progress) -> list[Row]:
    """Times and operations of the paper's three ways, and of the adaptive matcher."""
    return measure_matching(NAME, settings, progress)


def _judge_lists(rows: Rows) -> Finding:
    """20 ms at a million, where the paper has 191; the same share of its figure at any other size."""
    n = min(largest_size(rows, "lists"), MILLION)
    printed, ours = PRINTED["lists"][PAPER_SIZES.index(n)], at_size(rows, n, "ms_per_event")["lists"]
    return Finding(f"{ours:.3g} ms at {n:,} (paper {printed:g})", bool(ours < printed * 20 / 190.7))


def _judge_order(rows: Rows, quicker: str, slower: str) -> Finding:
    """At every size that both were run with."""
    sizes = levels(choose(rows, matcher=slower), "subscriptions")
    found = [at_size(rows, n, "ms_per_event") for n in sizes]
    ratios = np.array([times[slower] / times[quicker] for times in found])
    at = sizes[int(ratios.argmin())]
    return Finding(
        f"{show_number(ratios.min())} (at {at:,}) to {show_number(ratios.max())} times", bool(ratios.min() > 1)
    )


def plot(rows: Rows, axes: Axes) -> None:
    """Ours and the paper's in the same colours."""
    draw_curves(axes, rows, "ms_per_event", PRINTED)
    axes.set_ylabel("time for one event (ms)")
    axes.set_xlim(right=1.5 * max(PAPER_SIZES[-1], numbers(rows, "subscriptions").max()))


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Table 1: time for one event of W4",
    {
        "small": MatchingSettings(_MATCHERS, (1_000, 10_000, 100_000), rounds=3, n_events=10),
        "paper": MatchingSettings(_MATCHERS, n_events=10, rounds=3),
        "large": MatchingSettings(_MATCHERS, (MILLION, 5 * MILLION, 10 * MILLION), n_events=10, rounds=3),
    },
    run,
    (
        Claim(
            PAPER, NAME, "Lists: under 20 ms at a million, or as small a part of the paper's time.",
            "191 ms at 1,000,000", _judge_lists,
        ),
        Claim(
            PAPER, NAME, "Lists are faster than bits at every size.", "1.5 to 7 times",
            partial(_judge_order, quicker="lists", slower="bits"),
            why_not="With a thousand subscriptions a row of bits is 16 words, and adding one to 64 counters at once "
            "takes about as long as one hit of a list.",
        ),
        Claim(
            PAPER, NAME, "The database is slowest at every size.", "59 to 298 times bits",
            partial(_judge_order, quicker="bits", slower="database"),
        ),
        Claim(
            PAPER, NAME, "The adaptive matcher is faster than lists at every size.", "not there",
            partial(_judge_order, quicker="adaptive", slower="lists"),
        ),
    ),
    plot,
    seconds={"small": 5, "paper": 110},
)  # fmt: skip
