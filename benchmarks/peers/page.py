"""The page about peers: what was measured, in a table and a plot."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt
from benchmarks.peers.workloads import NAMES

SUMMARIES = {
    "topss": "10 integers, 1 to 5 of `= <> < >`; 18 % match",
    "stock": "a symbol and 1 or 2 bounds",
    "light": "100 binary properties, 10 tested",
    "gryphon": "30 attributes of 5 values, equality",
    "range": "2 to 4 ranges over 6 floats",
    "rules": "LIKE, =, IN, OR, NOT over a log",
    "wide": "3 of = and BETWEEN over 200 optional attributes",
    "either": "an OR of four ANDs, some with <>",
    "words": "2 to 4 words of a text of 200",
    "topics": "topics with `+` and `#`",
}
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

Results = dict[tuple[str, int, str], dict[str, Any]]


def write(results: Path, docs: Path, readme: Path, peers: dict[str, tuple[str, str]]) -> None:
    """Put the tables into the guide, the smallest size into the README, and the plot among the assets."""
    found = {(r["workload"], r["size"], r["peer"]): r for r in map(json.loads, results.read_text().splitlines())}
    sizes = sorted({size for _, size, _ in found})
    parts = [f"### {size:,} filters\n\n{table(found, size, peers)}" for size in sizes]
    insert(docs / "guides" / "peers.md", [*parts, reasons(found, peers)])
    insert(readme, [table(found, sizes[0], peers)])
    draw(found, peers, docs / "assets" / "peers.svg")


def insert(page: Path, parts: list[str]) -> None:
    """Replace what stands between the two marks of a page."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text("\n".join([before.rstrip(), "", BEGIN, "", *parts, END]) + after)


def table(found: Results, size: int, peers: dict[str, tuple[str, str]]) -> str:
    """Microseconds per event with so many filters."""
    used = [peer for peer in peers if any(key[1:] == (size, peer) for key in found)]
    days = sorted({r["when"][:10] for (_, s, _), r in found.items() if s == size})
    lines = [
        f"Microseconds per event with {size:,} filters, measured on {' and '.join(days)}; in brackets how many times as long as `{peers['wherecast'][0]}`.",
        "",
        f"| workload | matches per event | {' | '.join(peers[p][0] for p in used)} |",
        f"|---|---|{'---|' * len(used)}",
    ]
    for name in NAMES:
        own = found.get((name, size, "wherecast"))
        if own is None:
            continue
        cells = [cell(found.get((name, size, p)), own["us_per_event"] if p != "wherecast" else 0.0) for p in used]
        lines.append(f"| {name} | {own['matches_per_event']:,.2f} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def cell(result: dict[str, Any] | None, own: float) -> str:
    if result is None:
        return ""
    if "cannot" in result:
        return "cannot" if is_language(result["cannot"]) else "too large"
    value = result["us_per_event"]
    return show(value) + (f" ({show(value / own)}x)" if own else "")


def is_language(reason: str) -> bool:
    """Whether the reason is that the peer cannot say it, not that there is too much of it."""
    return reason.startswith("a rule cannot")


def show(value: float) -> str:
    """Two digits that count."""
    digits = 1 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{round(value, digits):,.{max(0, min(digits, 2))}f}"


def reasons(found: Results, peers: dict[str, tuple[str, str]]) -> str:
    """Why a cell has no time."""
    told: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (name, size, peer), result in found.items():
        if "cannot" in result:
            told[peer, result["cannot"]].append(f"{name} ({size:,})")
    lines = [f"- {peers[peer][0]}, {', '.join(where)}: {why}." for (peer, why), where in told.items()]
    return "\n".join(["Without a time:", "", *lines, ""]) if lines else ""


def draw(found: Results, peers: dict[str, tuple[str, str]], path: Path) -> None:
    """Time against filters, a panel per workload."""
    plt.rcParams["svg.hashsalt"] = "wherecast"
    figure, panels = plt.subplots(2, 5, figsize=(12, 5), sharey=True)
    for name, axes in zip(NAMES, panels.flat, strict=True):
        for peer, (title, _) in peers.items():
            rows = [
                (s, r["us_per_event"])
                for (w, s, p), r in sorted(found.items())
                if (w, p) == (name, peer) and "us_per_event" in r
            ]
            filters, times = zip(*rows, strict=True) if rows else ((), ())  # without rows: for the legend
            axes.loglog(filters, times, marker="o", markersize=3, label=title)
        axes.set_title(name, fontsize=9)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
    for axes in panels[1]:
        axes.set_xlabel("filters", fontsize=8)
    for axes in panels[:, 0]:
        axes.set_ylabel("us per event", fontsize=8)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(peers), fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
