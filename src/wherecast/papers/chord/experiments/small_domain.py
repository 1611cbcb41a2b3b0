"""Section 4.3, left open by the paper: domains with fewer values than the ring has nodes. Before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wherecast.papers.chord.experiments import PAPER
from wherecast.papers.chord.static import StaticRing
from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress
from wherecast.papers.lab.plots import PALETTE, REFERENCE
from wherecast.papers.lab.rows import Row, Rows, choose, levels, numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "chord-small-domain"


@dataclass(frozen=True, slots=True)
class SmallDomainSettings:
    """Ranges of a domain of `cells` values, on rings of 2^e."""

    exponents: tuple[int, ...] = (6, 8, 10, 12, 14, 16)
    values: tuple[int, ...] = (4, 10)
    cells: int = 16
    trials: int = 500


def run(settings: SmallDomainSettings, progress: Progress) -> list[Row]:
    """Mean messages to store a range, by each way."""
    rows: list[Row] = []
    for exponent in settings.exponents:
        progress(f"{NAME}: 2^{exponent} nodes")
        ring = StaticRing(2**exponent, 1)
        for values in settings.values:
            cost = ring.range_cost(values, settings.cells, settings.trials)
            found = {"before": cost.by_successor, "owner_to_owner": cost.by_owner, "after": cost.side_by_side}
            rows.append({"nodes": 2**exponent, "log2_nodes": exponent, "values": values, **found})
    return rows


def _judge_before(rows: Rows) -> Finding:
    """From successor to successor: every node on the arc, so in proportion to N."""
    own = choose(rows, values=max(levels(rows, "values"), key=float))
    growth = (float(own[-1]["before"]) / float(own[0]["before"])) / (float(own[-1]["nodes"]) / float(own[0]["nodes"]))
    ours = f"{own[0]['before']:.0f} at N = {own[0]['nodes']:,}, {own[-1]['before']:.0f} at {own[-1]['nodes']:,}"
    return Finding(ours, 0.5 <= growth <= 2)


def _judge_after(rows: Rows) -> Finding:
    bound = numbers(rows, "log2_nodes") / 2 + numbers(rows, "values") + 1
    gain = numbers(rows, "before") / numbers(rows, "after")
    ours = f"{(numbers(rows, 'after') / bound).max():.2f} of it at most; {gain.min():.1f} to {gain.max():.0f} times less than before"
    return Finding(ours, bool((numbers(rows, "after") <= bound).all()))


def plot(rows: Rows, axes: Axes) -> None:
    """The longest range."""
    values = max(levels(rows, "values"), key=float)
    own = choose(rows, values=values)
    x = numbers(own, "nodes")
    labels = {"before": "node to node (before)", "owner_to_owner": "owner to owner", "after": "side by side (after)"}
    for (name, label), color in zip(labels.items(), PALETTE[1:], strict=False):
        axes.plot(x, numbers(own, name), "o-", color=color, label=label)
    axes.plot(x, numbers(own, "log2_nodes") / 2 + float(values), "--", color=REFERENCE, label="1/2 log2 N + r")
    axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel=f"messages to store {values} of 16 values")


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Section 4.3: a domain of 16 values, before and after",
    {"small": SmallDomainSettings((6, 8, 10, 12), trials=200), "paper": SmallDomainSettings()},
    run,
    (
        Claim(PAPER, NAME, "With few values, a range passes all nodes between them.", "the small-domain problem", _judge_before),
        Claim(
            PAPER, NAME, "Values laid side by side bring it back to a look-up and a hop per value.", "left open",
            _judge_after,
        ),
    ),
    plot,
    seconds={"small": 2, "paper": 5},
)  # fmt: skip
