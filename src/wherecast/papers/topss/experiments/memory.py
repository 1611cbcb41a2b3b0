"""Figure 4: memory of the subscriptions of W4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress
from wherecast.papers.lab.plots import PALETTE, REFERENCE
from wherecast.papers.lab.rows import Row, Rows, choose, numbers
from wherecast.papers.topss.experiments.cases import (
    COLORS,
    MATCHERS,
    MILLION,
    PAPER,
    MatchingSettings,
    at_size,
    draw_curves,
    largest_size,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "topss-memory"
_MATCHERS = ("lists", "bits", "bytes", "database", "adaptive")
#: MB, at a thousand and at five million subscriptions: what the text says.
PRINTED = {"bits": (0.122, 248.0), "database": (4.4, 1000.0)}


def run(settings: MatchingSettings, progress: Progress) -> list[Row]:
    """Bytes of each matcher, and how many of them only deletion needs."""
    rows: list[Row] = []
    for n, chosen, case in settings.cases(NAME, progress):
        for matcher in chosen:
            facts: Any = case.build(MATCHERS[matcher]).stats()
            deletion = int(facts.get("parts", {}).get("deletion", 0))
            found = {"mb": facts["bytes"] / 1e6, "deletion_mb": deletion / 1e6, "bytes": int(facts["bytes"])}
            rows.append({"subscriptions": n, "matcher": matcher, **found})
    return rows


def _sizes(rows: Rows) -> tuple[int, dict[str, float]]:
    """MB at the largest size with all, and `pure`: lists without what deletion needs."""
    n = largest_size(rows, *_MATCHERS)
    found = at_size(rows, n, "mb")
    return n, {**found, "pure": found["lists"] - at_size(rows, n, "deletion_mb")["lists"]}


def _judge_pure(rows: Rows) -> Finding:
    n, mb = _sizes(rows)
    least = min(mb[m] for m in ("bits", "bytes", "database"))
    return Finding(f"{mb['pure']:.3g} MB, the next {least:.3g} at {n:,}", mb["pure"] < least)


def _judge_deletion(rows: Rows) -> Finding:
    n, mb = _sizes(rows)
    return Finding(f"lists {mb['lists']:.3g} MB, bits {mb['bits']:.3g} at {n:,}", mb["bits"] < mb["lists"])


def _judge_bits(rows: Rows) -> Finding:
    n = largest_size(rows, "bits")
    each = at_size(rows, n, "bytes")["bits"] / n
    return Finding(f"{each:.1f} at {n:,}", bool(abs(each / 49.6 - 1) < 0.1))


def _judge_database(rows: Rows) -> Finding:
    n, mb = _sizes(rows)
    return Finding(f"{mb['database'] / mb['bits']:.2g} times at {n:,}", mb["database"] > 2 * mb["bits"])


def plot(rows: Rows, axes: Axes) -> None:
    """Crosses are the figures that the paper's text has."""
    draw_curves(axes, rows, "mb", {})
    lists = choose(rows, matcher="lists")
    pure = numbers(lists, "mb") - numbers(lists, "deletion_mb")
    axes.plot(numbers(lists, "subscriptions"), pure, ":", color=PALETTE[0], label="lists without deletion")
    for matcher, printed in PRINTED.items():
        axes.plot((1_000, 5 * MILLION), printed, "x", color=COLORS[matcher])
    axes.plot([], [], "x", color=REFERENCE, label="the paper, 2002")
    axes.set_ylabel("memory (MB)")


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Figure 4: memory of the subscriptions of W4",
    {
        "small": MatchingSettings(_MATCHERS, (1_000, 10_000, 100_000)),
        "paper": MatchingSettings(_MATCHERS),
        "large": MatchingSettings(_MATCHERS, (MILLION, 5 * MILLION, 10 * MILLION)),
    },
    run,
    (
        Claim(PAPER, NAME, "Lists without what deletion needs take least.", "the least", _judge_pure),
        Claim(
            PAPER, NAME, "With it, bits take less than lists.", "less", _judge_deletion,
            why_not="A subscription, of three predicates on average, takes 13 bytes in lists and 28 more for deletion; "
            "its column of 400 bits takes 50.",
        ),
        Claim(
            PAPER, NAME, "A subscription takes about 50 bytes of bit matrix.", "49.6 (248 MB for 5,000,000)",
            _judge_bits,
        ),
        Claim(
            PAPER, NAME, "The database takes several times as much as bits.", "4 times at 5,000,000", _judge_database,
            why_not="A subscription is four rows of two four-byte integers on average, 32 bytes of DuckDB's columns; "
            "what Kdb keeps besides is not known.",
        ),
    ),
    plot,
    seconds={"small": 5, "paper": 65},
)  # fmt: skip
