"""Filter-set partitioning: what it saves against filters dealt out at random, by servers and by precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wherecast.kernels.arrays import Ints
from wherecast.papers.edn.experiments.network import PAPER
from wherecast.papers.edn.experiments.spread import Spread, prepare
from wherecast.papers.lab.experiment import Claim, Drawing, Experiment, Finding, Progress
from wherecast.papers.lab.plots import PALETTE, REFERENCE, show_plain
from wherecast.papers.lab.rows import Row, Rows, choose, group, numbers
from wherecast.partition.filter_set import BOXES_PER_SERVER, FilterSet
from wherecast.partition.protocol import Routes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "edn-filter-set-traffic"
#: What the paper's partitioning saved.
PAPER_CUT = (20, 60)


@dataclass(frozen=True, slots=True)
class FilterSetTrafficSettings:
    """Section III.C: the paper gives a range of savings, not what it spread over how many servers."""

    workloads: tuple[str, ...] = ("places", "range", "stock")
    scale: float = 1.0  # of the workloads
    servers: tuple[int, ...] = (4, 10, 25, 50)
    boxes: tuple[int, ...] = (1, 3, BOXES_PER_SERVER, 32)


def run(settings: FilterSetTrafficSettings, progress: Progress) -> list[Row]:
    """Servers per event: by likeness, at random, and what exact routing would send for the same two placements."""
    rows: list[Row] = []
    for workload in settings.workloads:
        for n in settings.servers:
            progress(f"{NAME}: {workload} on {n} servers")
            rows += _compare(workload, prepare(workload, settings.scale), n, settings.boxes)
    return rows


def _compare(workload: str, spread: Spread, n: int, precisions: tuple[int, ...]) -> list[Row]:
    """Both placements at every precision."""
    alike = spread.build(n)
    placed = alike.place(spread.filters).servers
    dealt = np.random.default_rng(0).permutation(spread.filters.n_filters).astype(np.int32) % n
    needed, needed_dealt = spread.needed(placed, n), spread.needed(dealt, n)
    rows: list[Row] = []
    for boxes in precisions:
        made, random = (_summarise(alike, spread, servers, boxes) for servers in (placed, dealt))
        routes, by_chance = made.route(spread.events), random.route(spread.events)
        n_events, exact = len(spread.events), needed.servers.size
        rows.append({
            "workload": workload,
            "servers": n,
            "boxes": boxes,
            "filters": spread.filters.n_filters,
            "sent": routes.servers.size / n_events,
            "exact": exact / n_events,
            "sent_random": by_chance.servers.size / n_events,
            "exact_random": needed_dealt.servers.size / n_events,
            "cut_percent": 100 * (1 - routes.servers.size / by_chance.servers.size),
            "false_positive_percent": 100 * (routes.servers.size - exact) / (n * n_events - exact),
            "lost": _count_missing(needed, routes, n) + _count_missing(needed_dealt, by_chance, n),
            "imbalance": made.stats()["imbalance"],
            "summary_bytes": made.stats()["summary_bytes"],
        })  # fmt: skip
    return rows


def _summarise(alike: FilterSet, spread: Spread, servers: Ints, boxes: int) -> FilterSet:
    return FilterSet.of_placement(alike.axes, spread.filters, spread.weights, servers, alike.n_servers, boxes)


def _count_missing(needed: Routes, routes: Routes, n: int) -> int:
    """Pairs of event and server that are needed and not routed."""
    wanted, sent = (r.event_ids * n + r.servers for r in (needed, routes))
    return int(np.setdiff1d(wanted, sent).size)


def _judge_cut(rows: Rows) -> Finding:
    """On rectangles and ranges, which the paper speaks of, at every number of servers."""
    found = numbers([row for row in choose(rows, boxes=BOXES_PER_SERVER) if row["workload"] != "stock"], "cut_percent")
    return Finding(f"{found.min():.0f} % to {found.max():.0f} %", bool(found.min() >= PAPER_CUT[0]))


def _judge_precision(rows: Rows) -> Finding:
    """No more boxes may let more through, in any case; the figure is of the most servers."""
    falls = all(
        bool((np.diff(numbers(own, "false_positive_percent")) <= 0).all())
        for _, of_workload in group(rows, "workload")
        for _, own in group(of_workload, "servers")
    )
    most = choose(rows, servers=max(numbers(rows, "servers")))
    ends = [numbers(own, "false_positive_percent") for _, own in group(most, "workload")]
    names = [str(name) for name, _ in group(most, "workload")]
    ours = ", ".join(f"{name} {own[0]:.2g} % to {own[-1]:.2g} %" for name, own in zip(names, ends, strict=True))
    return Finding(ours, falls)


def _judge_lost(rows: Rows) -> Finding:
    lost = int(numbers(rows, "lost").sum())
    return Finding(str(lost), lost == 0)


def plot(rows: Rows, axes: Axes) -> None:
    """The saving over the number of servers; the paper's range as a band."""
    axes.axhspan(*PAPER_CUT, color=REFERENCE, alpha=0.15, linewidth=0, label="the paper")
    for (name, own), color in zip(group(choose(rows, boxes=BOXES_PER_SERVER), "workload"), PALETTE, strict=False):
        axes.plot(numbers(own, "servers"), numbers(own, "cut_percent"), "o-", color=color, label=str(name))
    axes.set(xscale="log", xlabel="servers", ylabel="less traffic than at random (%)", ylim=(0, 100))
    show_plain(axes.xaxis, tuple(sorted(set(numbers(rows, "servers").tolist()))))


def plot_precision(rows: Rows, axes: Axes) -> None:
    """Servers per event over the boxes of each, with what exact routing would send; most servers."""
    most = choose(rows, servers=max(numbers(rows, "servers")))
    for (name, own), color in zip(group(most, "workload"), PALETTE, strict=False):
        boxes = numbers(own, "boxes")
        axes.plot(boxes, numbers(own, "sent"), "o-", color=color, label=str(name))
        axes.plot(boxes, numbers(own, "sent_random"), ":", color=color)
        axes.plot(boxes, numbers(own, "exact"), "--", color=color)
    axes.plot([], [], ":", color=REFERENCE, label="dealt out at random")
    axes.plot([], [], "--", color=REFERENCE, label="exact routing")
    axes.set(xscale="log", yscale="log", xlabel="boxes per server")
    axes.set_ylabel(f"servers per event, of {most[0]['servers']}")
    show_plain(axes.xaxis, tuple(sorted(set(numbers(rows, "boxes").tolist()))))
    show_plain(axes.yaxis, (0.2, 0.5, 1, 2, 5, 10, 20, 50))


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    f"Filter-set partitioning: traffic saved, {BOXES_PER_SERVER} boxes per server",
    {
        "small": FilterSetTrafficSettings(workloads=("places", "range"), scale=0.02, servers=(4, 50), boxes=(1, BOXES_PER_SERVER)),
        "paper": FilterSetTrafficSettings(),
        "large": FilterSetTrafficSettings(servers=(4, 10, 25, 50, 100, 200)),
    },
    run,
    (
        Claim(PAPER, NAME, "Spreading filters by likeness cuts the traffic.", "20 % to 60 %", _judge_cut),
        Claim(
            PAPER, NAME, "More boxes per server let fewer events through in vain.", "no figure", _judge_precision,
            why_not="Boxes are joined greedily, for the shares of a sample of events: more of them may fit other events a little worse.",
        ),
        Claim(PAPER, NAME, "No event is lost.", "0", _judge_lost),
    ),
    plot,
    more_drawings=(Drawing(f"{NAME}-precision", "Filter-set partitioning: traffic by precision", plot_precision),),
    seconds={"small": 5, "paper": 180},
)  # fmt: skip
