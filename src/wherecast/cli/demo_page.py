"""The page of the demo: what was measured, as a table and as plots, in one file without any script."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from wherecast.cli.report import say_note
from wherecast.spark.progress import BatchProgress, Totals

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours that people with any kind of colour blindness can tell apart (Okabe and Ito).
_BLUE, _ORANGE, _GREEN, _RED, _GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#777777"

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; } td { padding: .2rem 1.2rem .2rem 0; border-bottom: 1px solid #ddd; }
td:last-child { font-variant-numeric: tabular-nums; }
figure { margin: 1rem 0; } figure svg { width: 100%; height: auto; } figcaption { color: #555; }
@media (prefers-color-scheme: dark) { figure { background: #fff; padding: .5rem; } figcaption { color: #333; }
  body { background: #16181c; color: #ddd; } td { border-color: #444; } }
"""


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demo measured."""

    subscriptions: int
    changes: int
    build_s: float
    batches: Sequence[BatchProgress]
    whole: Totals
    loads: Sequence[float]
    """Of each server, as the plan expects them."""
    events_per_server: Sequence[int]
    """As routed by the last plan."""
    live_after_s: Sequence[float]
    """Of each set of changes: from writing it to the first batch that was matched with it."""

    def figures(self) -> list[tuple[str, str]]:
        """Names and values for people."""
        whole, servers = self.whole, len(self.loads)
        live = f"{median(self.live_after_s):.1f} s (median)" if self.live_after_s else "-"
        events = max(whole.events, 1)
        return [
            ("subscriptions", f"{self.subscriptions:,}; {self.changes:,} changes to them on the way"),
            ("index", f"built in {self.build_s:.1f} s on {servers} servers; version {whole.version} at the end"),
            ("events", f"{whole.events:,} in {whole.batches:,} micro-batches"),
            ("matches", f"{whole.matches:,}, {whole.matches / events:.1f} an event"),
            (
                "throughput",
                f"{whole.events_per_s:,.0f} events/s, {whole.matches / max(whole.seconds, 1e-9):,.0f} matches/s",
            ),
            ("latency of a batch", f"{whole.median_s:.2f} s (median), {whole.slowest_s:.2f} s at most"),
            ("imbalance", f"{whole.imbalance:.2f}, largest expected load of a server by the smallest"),
            ("dropped by the summaries", f"{whole.dropped:,} events, {whole.dropped / events:.0%} of the traffic"),
            ("sent", f"{whole.sent:,} of the {events * servers:,} that sending to all servers would take"),
            ("changes live after", live),
        ]


def write_page(path: Path, result: DemoResult) -> Path:
    """Write the page; without matplotlib it has no plots, and says so."""
    rows = "".join(f"<tr><td>{escape(n)}</td><td>{escape(v)}</td></tr>" for n, v in result.figures())
    if importlib.util.find_spec("matplotlib") is None:
        say_note("no plots: matplotlib is missing; install it with: pip install 'wherecast[lab]'")
        plots = "<p>No plots: matplotlib was not installed.</p>"
    else:
        plots = "".join(
            f"<h2>{escape(title)}</h2><figure>{draw(paint, result)}<figcaption>{escape(text)}</figcaption></figure>"
            for title, text, paint in _PLOTS
        )
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Wherecast demo</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<h1>Wherecast demo: stock quotes to the alerts they match, on Spark</h1><table>{rows}</table>{plots}</body></html>\n"
    )
    path.write_text(page, encoding="utf-8")
    return path


def draw(paint: Callable[[Axes, DemoResult], None], result: DemoResult) -> str:
    """One plot as the text of an SVG element."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    paint(axes, result)
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def paint_throughput(axes: Axes, result: DemoResult) -> None:
    """Events and matches per second of each batch; where a new version of the index came into use."""
    numbers = [batch.batch for batch in result.batches]
    rates = [batch.events_per_s / 1e3 for batch in result.batches]
    found = [b.report.matches / b.seconds / 1e3 if b.report and b.seconds else 0.0 for b in result.batches]
    axes.plot(numbers, rates, color=_BLUE, marker="o", markersize=4, label="events")
    axes.plot(numbers, found, color=_ORANGE, marker="s", markersize=4, label="matches")
    versions = [batch.report.version if batch.report else 0 for batch in result.batches]
    changed = [n for n, old, new in zip(numbers[1:], versions, versions[1:], strict=False) if old != new]
    for position, number in enumerate(changed):
        label = "new index version" if position == 0 else None
        axes.axvline(number - 0.5, color=_GREY, linestyle=":", linewidth=1.2, label=label)
    axes.set(xlabel="micro-batch", ylabel="thousand per second", ylim=(0, None))
    axes.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.18))


def paint_latency(axes: Axes, result: DemoResult) -> None:
    """What the time of a batch goes into."""
    numbers = [batch.batch for batch in result.batches]
    ours = [batch.report.overhead_ms / 1e3 if batch.report else 0.0 for batch in result.batches]
    body = [batch.durations_ms.get("addBatch", 0) / 1e3 for batch in result.batches]
    work = [max(b - o, 0.0) for b, o in zip(body, ours, strict=True)]
    rest = [max(batch.seconds - b, 0.0) for batch, b in zip(result.batches, body, strict=True)]
    parts = (
        ("route, match and write", work, _BLUE, ""),
        ("Spark's logs and planning", rest, _ORANGE, "//"),
        ("pinning the index version", ours, _RED, "xx"),
    )
    below = [0.0] * len(numbers)
    for label, values, color, hatch in parts:
        axes.bar(numbers, values, bottom=below, color=color, hatch=hatch, edgecolor="white", linewidth=0.3, label=label)
        below = [a + b for a, b in zip(below, values, strict=True)]
    axes.set(xlabel="micro-batch", ylabel="seconds")
    axes.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.18))


def paint_servers(axes: Axes, result: DemoResult) -> None:
    """Shares of the servers: the load that the plan expects, and the events that were routed there."""
    numbers = list(range(len(result.loads)))
    for offset, values, label, color, hatch in (
        (-0.2, result.loads, "expected load", _BLUE, ""),
        (0.2, result.events_per_server, "events routed", _GREEN, "//"),
    ):
        share = [100 * value / max(sum(values), 1e-9) for value in values]
        places = [n + offset for n in numbers]
        axes.bar(places, share, width=0.38, color=color, hatch=hatch, edgecolor="white", linewidth=0.3, label=label)
    axes.set(xlabel="server", ylabel="share of all servers, %", xticks=numbers)
    axes.legend(frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, 1.18))


def paint_traffic(axes: Axes, result: DemoResult) -> None:
    """Messages from the dispatcher to servers under three regimes."""
    whole, servers = result.whole, len(result.loads)
    bars = (
        ("every event to every server", whole.events * servers, _GREY),
        ("every event to its server", whole.events, _ORANGE),
        ("with summaries: as measured", whole.sent, _BLUE),
    )
    names, values = [name for name, _, _ in bars], [value / 1e3 for _, value, _ in bars]
    shown = axes.barh(names, values, color=[color for _, _, color in bars], height=0.6)
    axes.bar_label(shown, labels=[f"{value:,.0f}" for value in values], padding=4)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set(xlabel="events sent to servers, thousands", xlim=(0, max(values) * 1.12))


_PLOTS = (
    (
        "Throughput",
        "Events in and matches out, by micro-batch. Dotted lines: from here on a newer version of the index is used.",
        paint_throughput,
    ),
    ("Latency", "From the trigger of a micro-batch to its commit.", paint_latency),
    (
        "Balance",
        "What the plan expects each server to do, and the events that the plan at the end sends there.",
        paint_servers,
    ),
    (
        "Traffic",
        "An event goes to the server of its part of the event space, unless the summary says that nobody there wants it.",
        paint_traffic,
    ),
)
