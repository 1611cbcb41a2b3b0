"""The page of the demo: what came out, then how it went, as tables and plots in one file without any script."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from wherecast.cli.demo_acts import FiredQuote, LiveEdit, SecondAct, SqlSample
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
th { text-align: left; padding: .2rem 1.2rem .2rem 0; border-bottom: 2px solid #999; } td { vertical-align: top; }
td:last-child { font-variant-numeric: tabular-nums; } .quote { white-space: nowrap; } .more { color: #777; }
code { font-size: .9em; } h3 { font-size: 1rem; margin-bottom: 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: 1rem; }
.cards div { border: 1px solid #ccc; border-radius: .5rem; padding: .8rem 1rem; } .cards b { display: block; font-size: 1.5rem; }
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
    strategy: str
    batches: Sequence[BatchProgress]
    whole: Totals
    live_after_s: Sequence[float]
    """Of each set of changes: from writing it to the first batch that was matched with it."""
    fired: Sequence[FiredQuote]
    edit: LiveEdit | None
    sql: SqlSample
    spread: SecondAct

    @property
    def sql_s(self) -> float:
        """What plain Spark SQL would take for all of it, by the sample."""
        return self.sql.scaled_s(self.subscriptions, self.whole.events)

    def figures(self) -> list[tuple[str, str]]:
        """Names and values for people."""
        whole, spread = self.whole, self.spread
        live = f"{median(self.live_after_s):.1f} s (median)" if self.live_after_s else "-"
        events = max(whole.events, 1)
        edit = (
            "no quote fired it"
            if self.edit is None
            else f"first match committed {self.edit.seconds:.1f} s after the edit"
        )
        return [
            ("rules", f"{self.subscriptions:,}; {self.changes:,} changes to them on the way"),
            ("index", f"built in {self.build_s:.1f} s; plan {self.strategy}; version {whole.version} at the end"),
            ("quotes", f"{whole.events:,} in {whole.batches:,} micro-batches"),
            ("matches", f"{whole.matches:,}, {whole.matches / events:.1f} an event"),
            (
                "throughput",
                f"{whole.events_per_s:,.0f} events/s, {whole.matches / max(whole.seconds, 1e-9):,.0f} matches/s",
            ),
            ("latency of a batch", f"{whole.median_s:.2f} s (median), {whole.slowest_s:.2f} s at most"),
            ("a rule edited live", edit),
            ("changes live after", live),
            (
                "plain Spark SQL",
                (
                    f"{self.sql.rules:,} rules on {self.sql.events:,} quotes: {self.sql.seconds:.1f} s; all of it by that rate: "
                    f"{duration(self.sql_s)}, and here {duration(whole.seconds)}"
                ),
            ),
            (
                f"on {len(spread.loads)} servers",
                (
                    f"{spread.sent:,} of {spread.events:,} quotes sent, to one server each; {spread.dropped:,} dropped by summaries; "
                    f"imbalance {spread.imbalance:.2f}"
                ),
            ),
        ]


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 2 else f"{seconds:.2f} s"


def describe_quote(quote: Mapping[str, Any]) -> str:
    """A quote in a line."""
    return f"{quote['symbol']}  {quote['price']:,.2f}  {quote['change']:+.1f} %  volume {quote['volume']:,}"


def write_page(path: Path, result: DemoResult) -> Path:
    """Write the page: what came out first, internals below. Without matplotlib it has no plots, and says so."""
    has_plots = importlib.util.find_spec("matplotlib") is not None
    if not has_plots:
        say_note("no plots: matplotlib is missing; install it with: pip install 'wherecast[lab]'")
    body = [_lead(result), _fired(result), _edited(result), _beside(result), _servers(result, has_plots)]
    rows = "".join(f"<tr><td>{escape(n)}</td><td>{escape(v)}</td></tr>" for n, v in result.figures())
    body.append(f"<h2>The run in figures</h2><table>{rows}</table>")
    body.append(_plots(result, _STREAM_PLOTS) if has_plots else "<p>No plots: matplotlib was not installed.</p>")
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Wherecast demo</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>{"".join(body)}</body></html>\n'
    )
    path.write_text(page, encoding="utf-8")
    return path


def _lead(result: DemoResult) -> str:
    whole = result.whole
    cards = (
        (f"{whole.events_per_s:,.0f}", "quotes per second"),
        (f"{whole.median_s:.2f} s", f"for a batch of {whole.events // max(whole.batches, 1):,} quotes"),
        ("-" if result.edit is None else f"{result.edit.seconds:.1f} s", "from editing a rule to its first match"),
        (duration(result.sql_s), f"in plain Spark SQL; here {duration(whole.seconds)}"),
    )
    boxes = "".join(f"<div><b>{escape(value)}</b><span>{escape(text)}</span></div>" for value, text in cards)
    return (
        f"<h1>{whole.events:,} stock quotes, {result.subscriptions:,} alerts in SQL, {whole.matches:,} matches</h1>"
        f"<p>Every quote was compared with every alert, in a Spark stream on this machine, while alerts changed.</p>"
        f'<div class="cards">{boxes}</div>'
    )


def _fired(result: DemoResult) -> str:
    rows = []
    for fired in result.fired:
        more = fired.total - len(fired.alerts)
        height = len(fired.alerts) + (more > 0)
        first = f'<td rowspan="{height}" class="quote">{escape(describe_quote(fired.quote))}</td>'
        for alert in fired.alerts:
            told = f"{alert.subscriber}, by {alert.channel}"
            rows.append(f"<tr>{first}<td><code>{escape(alert.filter)}</code></td><td>{escape(told)}</td></tr>")
            first = ""
        if more > 0:
            rows.append(f'<tr><td class="more">and {more:,} more</td><td></td></tr>')
    head = "<tr><th>quote</th><th>fired the alert</th><th>whom to tell</th></tr>"
    return f"<h2>Quotes, and the alerts they fired</h2><table>{head}{''.join(rows)}</table>"


def _edited(result: DemoResult) -> str:
    if result.edit is None:
        return "<h2>A rule edited live</h2><p>A rule was edited, and no quote has fired it since.</p>"
    edit = result.edit
    return (
        f"<h2>A rule edited live</h2><p><code>{escape(edit.before)}</code><br>became<br><code>{escape(edit.after)}</code></p>"
        f"<p>Its first match, {edit.seconds:.1f} s after the edit was written: {escape(describe_quote(edit.quote))}</p>"
    )


def _beside(result: DemoResult) -> str:
    sql, whole = result.sql, result.whole
    return (
        f"<h2>The same work in plain Spark SQL</h2><p>Spark evaluated {sql.rules:,} of the rules on {sql.events:,} of the quotes, "
        f"all in one pass over cached rows, and found the same {sql.matches:,} matches. That took {sql.seconds:.2f} s; each further "
        f"rule adds {1e3 * sql.per_rule_s:.1f} ms. For {result.subscriptions:,} rules and {whole.events:,} quotes that makes "
        f"{escape(duration(result.sql_s))}; the stream above took {escape(duration(whole.seconds))}, writing included.</p>"
        f"<p>This is a sample, scaled by the number of rules and quotes. Where all rules have one shape, their constants can be stored in "
        f"columns and joined instead, which is far quicker than this; <code>benchmarks/spark.py sql</code> compares with that.</p>"
    )


def _servers(result: DemoResult, has_plots: bool) -> str:
    spread = result.spread
    text = (
        f"<h2>Second act: {len(spread.loads)} servers</h2><p>Rules that are too many for one machine are spread by the symbols they ask "
        f"for. Of {spread.events:,} quotes, {spread.sent:,} were sent to the one server that has their rules; {spread.dropped:,} "
        f"were sent nowhere, because nobody asks for them. The busiest server has {spread.imbalance:.2f} times the work of the "
        f"idlest.</p>"
    )
    return text + (_plots(result, _SERVER_PLOTS) if has_plots else "")


def _plots(result: DemoResult, plots: Iterable[Plot]) -> str:
    return "".join(
        f"<h3>{escape(title)}</h3><figure>{draw(paint, result)}<figcaption>{escape(text)}</figcaption></figure>"
        for title, text, paint in plots
    )


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
        ("match and write", work, _BLUE, ""),
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
    numbers = list(range(len(result.spread.loads)))
    for offset, values, label, color, hatch in (
        (-0.2, result.spread.loads, "expected load", _BLUE, ""),
        (0.2, result.spread.events_per_server, "events routed", _GREEN, "//"),
    ):
        share = [100 * value / max(sum(values), 1e-9) for value in values]
        places = [n + offset for n in numbers]
        axes.bar(places, share, width=0.38, color=color, hatch=hatch, edgecolor="white", linewidth=0.3, label=label)
    axes.set(xlabel="server", ylabel="share of all servers, %", xticks=numbers)
    axes.legend(frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, 1.18))


def paint_traffic(axes: Axes, result: DemoResult) -> None:
    """Messages from the dispatcher to servers under three regimes."""
    spread, servers = result.spread, len(result.spread.loads)
    bars = (
        ("every event to every server", spread.events * servers, _GREY),
        ("every event to its server", spread.events, _ORANGE),
        ("with summaries: as measured", spread.sent, _BLUE),
    )
    names, values = [name for name, _, _ in bars], [value / 1e3 for _, value, _ in bars]
    shown = axes.barh(names, values, color=[color for _, _, color in bars], height=0.6)
    axes.bar_label(shown, labels=[f"{value:,.0f}" for value in values], padding=4)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set(xlabel="events sent to servers, thousands", xlim=(0, max(values) * 1.12))


Plot = tuple[str, str, Callable[["Axes", DemoResult], None]]

_STREAM_PLOTS: tuple[Plot, ...] = (
    (
        "Throughput",
        "Events in and matches out, by micro-batch. Dotted lines: from here on a newer version of the index is used.",
        paint_throughput,
    ),
    ("Latency", "From the trigger of a micro-batch to its commit.", paint_latency),
)
_SERVER_PLOTS: tuple[Plot, ...] = (
    ("Balance", "What the plan expects each server to do, and the quotes that were sent there.", paint_servers),
    (
        "Traffic",
        "An event goes to the server of its part of the event space, unless the summary says that nobody there wants it.",
        paint_traffic,
    ),
)
