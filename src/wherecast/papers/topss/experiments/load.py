"""Table 2: loading all subscriptions at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from wherecast.bench.measure import timed
from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress
from wherecast.papers.lab.rows import Row, Rows
from wherecast.papers.topss.experiments.cases import (
    MATCHERS,
    MILLION,
    PAPER,
    PAPER_SIZES,
    W4,
    MatchingCase,
    MatchingSettings,
    at_size,
    draw_curves,
    largest_size,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "topss-load"
_MATCHERS = ("lists", "bits", "database", "adaptive")
#: Seconds; sizes are PAPER_SIZES. The last of lists is printed as "<".
PRINTED = {
    "lists": np.array([6, 28, 58, 353, 862, 16093, 97746, 2678858]) / 1e3,
    "bits": np.array([6, 26, 52, 261, 523, 2712, 5428, 26976]) / 1e3,
    "database": np.array([52, 84, 196, 706, 1699, 6976, 15658, 69811]) / 1e3,
}


def run(settings: MatchingSettings, progress: Progress) -> list[Row]:
    """Seconds to build each matcher from boxes: the median of all rounds. Kernels are compiled before."""
    first = MatchingCase.draw(W4, 100, 10)
    for matcher in settings.matchers:
        first.build(MATCHERS[matcher])
    rows: list[Row] = []
    for n, chosen, case in settings.cases(NAME, progress):
        associations = case.workload.predicates.attr.size
        for matcher in chosen:
            build = partial(case.build, MATCHERS[matcher])
            taken = [timed(build)[1] for _ in range(settings.rounds)]
            found = {"load_s": float(np.median(taken)), "associations": associations}
            rows.append({"subscriptions": n, "matcher": matcher, **found})
    return rows


def _judge_lists(rows: Rows) -> Finding:
    """10 s at a million, where the paper has 98; the same share of its figure at any other size."""
    n = min(largest_size(rows, "lists"), MILLION)
    printed, ours = PRINTED["lists"][PAPER_SIZES.index(n)], at_size(rows, n, "load_s")["lists"]
    return Finding(f"{ours:.2g} s at {n:,} (paper {printed:.3g})", bool(ours < printed * 10 / 97.7))


def _judge_bits(rows: Rows) -> Finding:
    n = largest_size(rows, "lists", "bits", "database")
    taken = at_size(rows, n, "load_s")
    ours = ", ".join(f"{m} {taken[m]:.2g} s" for m in PRINTED)
    return Finding(f"{ours} at {n:,}", taken["bits"] == min(taken[m] for m in PRINTED))


def _judge_database(rows: Rows) -> Finding:
    n = largest_size(rows, "lists", "database")
    taken = at_size(rows, n, "load_s")
    return Finding(f"{taken['lists'] / taken['database']:.2g} times at {n:,}", taken["database"] < taken["lists"])


def plot(rows: Rows, axes: Axes) -> None:
    """Ours and the paper's in the same colours."""
    draw_curves(axes, rows, "load_s", PRINTED)
    axes.set_ylabel("time to load all (s)")


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Table 2: bulk load of W4",
    {
        "small": MatchingSettings(_MATCHERS, (1_000, 10_000, 100_000), rounds=3),
        "paper": MatchingSettings(_MATCHERS, rounds=3),
        "large": MatchingSettings(_MATCHERS, (MILLION, 5 * MILLION, 10 * MILLION), rounds=3),
    },
    run,
    (
        Claim(
            PAPER, NAME, "Lists: under 10 s at a million, or as small a part of the paper's time.", "98 s at 1,000,000",
            _judge_lists,
        ),
        Claim(
            PAPER, NAME, "Bits load fastest.", "5.4 s at 1,000,000", _judge_bits,
            why_not="Filling lists and setting bits take about as long here; the paper's lists are copied as they "
            "grow.",
        ),
        Claim(
            PAPER, NAME, "The database loads many subscriptions faster than lists do.", "6.2 times at 1,000,000",
            _judge_database,
            why_not="The paper's lists grow by a constant amount and are copied each time; ours are laid out at their "
            "final size.",
        ),
    ),
    plot,
    seconds={"small": 5, "paper": 240},
)  # fmt: skip
