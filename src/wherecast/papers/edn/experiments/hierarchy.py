"""A tree of dispatchers: what travels on its links, by the precision of the route updates at each level.

Section II of the paper has the two ends: updates so imprecise that every event goes everywhere, and so precise that no server
receives an event in vain. Here 50 servers are below 5 regions, and these below the edge; the summaries of servers and those of regions
have each a precision of their own, in boxes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from wherecast.papers.edn.experiments.network import PAPER
from wherecast.papers.edn.experiments.spread import Spread, prepare
from wherecast.papers.lab.experiment import Claim, Drawing, Experiment, Finding, Progress
from wherecast.papers.lab.plots import PALETTE, REFERENCE, show_plain
from wherecast.papers.lab.rows import Row, Rows, choose, group, numbers
from wherecast.partition.filter_set import FilterSet
from wherecast.partition.hierarchy import Hierarchy
from wherecast.partition.protocol import Routes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "edn-hierarchy"
LEVELS = ("servers", "regions")


@dataclass(frozen=True, slots=True)
class HierarchySettings:
    """The tree, and the precisions to try at both levels."""

    workloads: tuple[str, ...] = ("places", "range")
    scale: float = 1.0
    n_servers: int = 50
    fanout: int = 10  # servers per region
    boxes: tuple[int, ...] = (1, 4, 16, 64)


def run(settings: HierarchySettings, progress: Progress) -> list[Row]:
    """Events per level of links, for every pair of precisions."""
    rows: list[Row] = []
    for workload in settings.workloads:
        spread = prepare(workload, settings.scale)
        placed = spread.build(settings.n_servers)
        servers = placed.place(spread.filters).servers
        needed = spread.needed(servers, settings.n_servers)
        finest = FilterSet.of_placement(
            placed.axes, spread.filters, spread.weights, servers, settings.n_servers, max(settings.boxes)
        )
        covers = [finest.cover(server) for server in range(settings.n_servers)]
        for precision in product(settings.boxes, settings.boxes):
            progress(f"{NAME}: {workload}, {precision[0]} boxes a server and {precision[1]} a region")
            tree = Hierarchy(covers, [settings.fanout], precision)
            rows += [{"workload": workload, **row} for row in _count(tree, spread, needed)]
    return rows


def _count(tree: Hierarchy, spread: Spread, needed: Routes) -> list[Row]:
    """A row for each level of links."""
    traffic = tree.simulate(spread.events, needed)
    arrived = tree.deliver(spread.events)[0]
    lost = int((~arrived[needed.servers, needed.event_ids]).sum())
    rows: list[Row] = []
    for level, name in enumerate(LEVELS):
        totals = traffic.totals(level)
        rows.append({
            "server_boxes": int(tree.precision[0] or 0),
            "region_boxes": int(tree.precision[1] or 0),
            "links_to": name,
            **totals,
            "sent_percent": 100 * totals["sent"] / totals["flooded"],
            "needed_percent": 100 * totals["needed"] / totals["flooded"],
            "lost": lost,
        })  # fmt: skip
    return rows


def _even(rows: Rows) -> Rows:
    """Those with the same precision at both levels."""
    return [row for row in rows if row["server_boxes"] == row["region_boxes"]]


def _judge_flooding(rows: Rows) -> Finding:
    """At the highest precision, on all links of a workload together."""
    most = max(numbers(rows, "server_boxes"))
    shares = {}
    for name, own in group(choose(_even(rows), server_boxes=most), "workload"):
        sent, flooded, needed = (numbers(own, column).sum() for column in ("sent", "flooded", "needed"))
        shares[str(name)] = 100 * sent / flooded, 100 * needed / flooded
    ours = "; ".join(f"{name} {sent:.3g} % of flooding, exact {exact:.3g} %" for name, (sent, exact) in shares.items())
    return Finding(ours, all(sent < 50 for sent, _ in shares.values()))


def _judge_trade(rows: Rows) -> Finding:
    """More boxes: less traffic on the links to servers in every step, and more bytes."""
    falls, ours = True, []
    for name, own in group(choose(_even(rows), links_to="servers"), "workload"):
        sent, nbytes = numbers(own, "sent_percent"), numbers(own, "nbytes")
        falls &= bool((np.diff(sent) <= 0).all() and (np.diff(nbytes) >= 0).all())
        ours.append(f"{name} {sent[0]:.3g} % with {nbytes[0]:,.0f} bytes to {sent[-1]:.3g} % with {nbytes[-1]:,.0f}")
    return Finding("; ".join(ours), falls)


def _judge_lost(rows: Rows) -> Finding:
    lost = int(numbers(rows, "lost").sum())
    return Finding(str(lost), lost == 0)


def plot(rows: Rows, axes: Axes) -> None:
    """Traffic over the precision, the same at both levels; exact routing as broken lines. Logarithmic."""
    lines = [
        (f"{workload}, {links}", cells)
        for workload, own in group(_even(rows), "workload")
        for links, cells in group(own, "links_to")
    ]
    for (label, own), color in zip(lines, PALETTE, strict=False):
        boxes = numbers(own, "server_boxes")
        axes.plot(boxes, numbers(own, "sent_percent"), "o-", color=color, label=label)
        axes.plot(boxes, numbers(own, "needed_percent"), "--", color=color)
    axes.plot([], [], "--", color=REFERENCE, label="exact routing")
    _label(axes, rows, "boxes of a summary, at both levels", "events on links to these (% of flooding)")


def plot_regions(rows: Rows, axes: Axes) -> None:
    """What the regions' precision does to their own links and, below, to the servers'; servers at their finest."""
    finest = choose(rows, server_boxes=max(numbers(rows, "server_boxes")))
    for (workload, of_workload), color in zip(group(finest, "workload"), PALETTE, strict=False):
        for (links, own), style in zip(group(of_workload, "links_to"), ("o-", "s:"), strict=True):
            label = f"{workload}, {links}"
            axes.plot(numbers(own, "region_boxes"), numbers(own, "sent_percent"), style, color=color, label=label)
    _label(axes, rows, "boxes of a region's summary", "events on links to these (% of flooding)")


def _label(axes: Axes, rows: Rows, x: str, y: str) -> None:
    axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    show_plain(axes.xaxis, tuple(sorted(set(numbers(rows, "server_boxes").tolist()))))
    show_plain(axes.yaxis, (0.5, 1, 2, 5, 10, 20, 50, 100))


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "A tree of dispatchers: traffic by precision",
    {
        "small": HierarchySettings(workloads=("places",), scale=0.02, boxes=(1, 16)),
        "paper": HierarchySettings(),
        "large": HierarchySettings(n_servers=200, boxes=(1, 4, 16, 64, 256)),
    },
    run,
    (
        Claim(PAPER, NAME, "Route updates by content spare most of flooding.", "no figure", _judge_flooding),
        Claim(PAPER, NAME, "Precision trades size for traffic.", "no figure", _judge_trade),
        Claim(PAPER, NAME, "No event is lost, whatever the precision.", "0", _judge_lost),
    ),
    plot,
    more_drawings=(Drawing(f"{NAME}-regions", "A tree of dispatchers: the regions' precision", plot_regions),),
    seconds={"small": 3, "paper": 60},
)
