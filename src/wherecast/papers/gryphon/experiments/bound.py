"""The closed-form bound of section 4: what a uniform event visits at most on average, whatever the subscriptions are.

The bound is for any set of subscriptions, so three are tried: the paper's simulation, one where all attributes are
equally popular, and one where subscriptions test nearly everything. Nothing is timed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wherecast.matchers.adaptive import AdaptiveMatcher
from wherecast.papers.gryphon.bound import bound_exponent, bound_visits
from wherecast.papers.gryphon.experiments.trees import MILLION, PAPER, SIMULATION, TreeCase, fit_power
from wherecast.papers.gryphon.matcher import PlainTreeMatcher
from wherecast.papers.gryphon.workload import Simulation
from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress
from wherecast.papers.lab.plots import PALETTE, REFERENCE, draw_spread
from wherecast.papers.lab.rows import Row, Rows, choose, group, levels, numbers
from wherecast.papers.lab.timing import Subject, check_matches

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "gryphon-bound"
#: By name; K and V are the same in all.
SIMULATIONS = {
    "paper's simulation": SIMULATION,
    "all alike": Simulation(popularity=0.15, falloff=1.0),
    "nearly all tested": Simulation(popularity=0.9, falloff=1.0),
}


@dataclass(frozen=True, slots=True)
class BoundSettings:
    """Sizes; a tree without optimisations has up to K + 1 nodes for each subscription."""

    sizes: tuple[int, ...] = (1_000, 3_000, 10_000, 30_000, 100_000)
    n_events: int = 500
    seeds: int = 3


def run(settings: BoundSettings, progress: Progress) -> list[Row]:
    """Visits of the plain tree beside the bound, by kind of subscriptions, size and seed."""
    rows: list[Row] = []
    for kind, simulation in SIMULATIONS.items():
        for n in settings.sizes:
            progress(f"{NAME}: {kind}, {n:,} of {settings.sizes[-1]:,}")
            for seed in range(settings.seeds):
                row = _visit(simulation, n, settings.n_events, seed)
                rows.append({"kind": kind, "seed": seed, **row})
    return rows


def _visit(simulation: Simulation, n: int, n_events: int, seed: int) -> Row:
    case = TreeCase.draw(simulation, n, n_events, seed)
    tree, adaptive = PlainTreeMatcher.build(case.boxes), AdaptiveMatcher.build(case.boxes, case.sample)
    for name, matcher in (("tree-plain", tree), ("adaptive", adaptive)):
        check_matches(Subject.of(name, matcher, case.events), case.workload.truth())
    nodes, edges = tree.tally(case.events)
    facts = adaptive.stats(case.events)
    return {
        "subscriptions": n,
        "visits_per_event": nodes,
        "edges_per_event": edges,
        "bound": bound_visits(n, simulation.attributes, simulation.values),
        "power_of_bound": bound_exponent(simulation.attributes, simulation.values),
        "adaptive_visits_per_event": float(facts["nodes_per_event"] + facts["leaves_per_event"]),
    }


def _judge_bound(rows: Rows) -> Finding:
    share = numbers(rows, "visits_per_event") / numbers(rows, "bound")
    return Finding(f"at most {100 * share.max():.2g} % of it", bool(share.max() <= 1))


def _powers(rows: Rows) -> dict[str, float]:
    return {str(kind): fit_power(own, "visits_per_event") for kind, own in group(rows, "kind")}


def _judge_sublinear(rows: Rows) -> Finding:
    powers = _powers(rows)
    ours = ", ".join(f"S^{power:.2f} ({kind})" for kind, power in powers.items())
    return Finding(ours, max(powers.values()) < 1)


def _judge_power(rows: Rows) -> Finding:
    powers, allowed = _powers(rows), float(rows[0]["power_of_bound"])
    return Finding(f"S^{max(powers.values()):.2f} at most", max(powers.values()) <= allowed)


def plot(rows: Rows, axes: Axes) -> None:
    """Measured visits of each kind, the bound, and a straight line for what a scan does."""
    for kind, color in zip(levels(rows, "kind"), PALETTE, strict=False):
        draw_spread(axes, choose(rows, kind=kind), "subscriptions", "visits_per_event", color=color, label=str(kind))
    sizes = np.array(sorted({int(row["subscriptions"]) for row in rows}))
    first = choose(rows, kind=rows[0]["kind"], seed=0)
    axes.plot(numbers(first, "subscriptions"), numbers(first, "bound"), "--", color="black", label="bound")
    axes.plot(sizes, sizes, ":", color=REFERENCE, label="one per subscription")
    axes.set(xscale="log", yscale="log", xlabel="subscriptions", ylabel="nodes visited by one event")


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Visited nodes and the closed-form bound (30 attributes of 5 values)",
    {
        "small": BoundSettings((1_000, 5_000, 20_000), n_events=200, seeds=2),
        "paper": BoundSettings(),
        "large": BoundSettings((100_000, 300_000, MILLION), seeds=1),
    },
    run,
    (
        Claim(PAPER, NAME, "Visits stay under the closed-form bound.", "C S^(1 - lambda)", _judge_bound),
        Claim(PAPER, NAME, "Visits grow less than linearly.", "S^0.68 at most", _judge_sublinear),
        Claim(
            PAPER, NAME, "Visits grow with no higher power than the bound.", "S^0.68 at most", _judge_power,
            why_not="The bound limits visits, not how they grow below it: they start at a tenth of it and may rise a "
            "little faster for a while.",
        ),
    ),
    plot,
    seconds={"small": 5, "paper": 45},
)  # fmt: skip
