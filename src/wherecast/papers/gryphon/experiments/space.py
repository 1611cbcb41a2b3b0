"""The simulation's curve of space: edges and successors of the tree over the number of subscriptions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from wherecast.matchers.adaptive import AdaptiveMatcher
from wherecast.papers.gryphon.experiments.trees import COLORS, MILLION, PAPER, TREES, TreeCurveSettings, fit_power
from wherecast.papers.gryphon.matcher import TreeMatcher
from wherecast.papers.lab.experiment import Claim, Drawing, Experiment, Finding, Progress
from wherecast.papers.lab.plots import REFERENCE, draw_spread
from wherecast.papers.lab.rows import Row, Rows, choose, levels, numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "gryphon-space"


def run(settings: TreeCurveSettings, progress: Progress) -> list[Row]:
    """Edges plus successors, as the paper counts space, and bytes, by size, seed and matcher."""
    rows: list[Row] = []
    bound = settings.simulation.attributes + 1
    for n, seed, grown, case in settings.cases(NAME, progress):
        built: dict[str, Any] = {tree: TreeMatcher.build(case.boxes, settings=how) for tree, how in grown.items()}
        built["adaptive"] = AdaptiveMatcher.build(case.boxes, case.sample)
        for name, matcher in built.items():
            facts = matcher.stats()
            edges = facts["nodes"] - 1 + facts.get("successors", 0)
            counts = {"edges": edges, "most_nodes": n * bound, "bytes": facts["bytes"], "mb": facts["bytes"] / 1e6}
            rows.append({"subscriptions": n, "seed": seed, "matcher": name, **counts})
    return rows


def _judge_linear(rows: Rows, column: str) -> Finding:
    powers = {str(m): fit_power(choose(rows, matcher=m), column) for m in levels(rows, "matcher") if m in TREES}
    ours = f"by S^{min(powers.values()):.2f} to S^{max(powers.values()):.2f}"
    return Finding(ours, max(powers.values()) <= 1.05)


def _judge_lemma(rows: Rows) -> Finding:
    own = choose(rows, matcher="plain")
    share = (numbers(own, "edges") + 1) / numbers(own, "most_nodes")
    return Finding(f"{share.max():.2f} of S (K + 1)", bool(share.max() <= 1))


def _draw(rows: Rows, axes: Axes, column: str) -> None:
    for matcher in levels(rows, "matcher"):
        own, color = choose(rows, matcher=matcher), COLORS[str(matcher)]
        draw_spread(axes, own, "subscriptions", column, color=color, label=str(matcher))
    axes.set(xscale="log", yscale="log", xlabel="subscriptions")


def plot_edges(rows: Rows, axes: Axes) -> None:
    """The paper's measure of space."""
    _draw([row for row in rows if row["matcher"] != "adaptive"], axes, "edges")
    sizes = sorted({int(row["subscriptions"]) for row in rows})
    axes.plot(sizes, [10 * n for n in sizes], "--", color=REFERENCE, label="10 for each subscription")
    axes.set_ylabel("edges and successors")


def plot_memory(rows: Rows, axes: Axes) -> None:
    """All arrays."""
    _draw(rows, axes, "mb")
    axes.set_ylabel("memory (MB)")


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Space of the matching tree in the paper's simulation",
    {
        "small": TreeCurveSettings(sizes=(1_000, 5_000, 25_000), n_events=50, seeds=2),
        "paper": TreeCurveSettings(n_events=50),
        "large": TreeCurveSettings(sizes=(100_000, 300_000, MILLION), n_events=50, seeds=1),
    },
    run,
    (
        Claim(
            PAPER, NAME, "Space grows linearly at most, in edges and successors.", "S^1",
            partial(_judge_linear, column="edges"),
        ),
        Claim(PAPER, NAME, "Space grows linearly at most, in bytes.", "S^1", partial(_judge_linear, column="bytes")),
        Claim(PAPER, NAME, "A tree has at most K + 1 nodes for each subscription.", "S (K + 1)", _judge_lemma),
    ),
    plot_edges,
    (Drawing(f"{NAME}-memory", "Memory of the matching tree", plot_memory),),
    seconds={"small": 5, "paper": 17},
)  # fmt: skip
