"""Draw the picture of the README and the home page, light and dark: `python docs/assets/picture.py`."""

from __future__ import annotations

from pathlib import Path

COLOURS = {
    "light": {"ink": "#1f2430", "soft": "#5b6475", "line": "#9aa3b5", "card": "#f4f6fb", "accent": "#3f51b5", "paper": "#ffffff"},
    "dark": {"ink": "#e6e9f2", "soft": "#a6afc2", "line": "#5d677c", "card": "#262b38", "accent": "#8c9eff", "paper": "#1b1f2a"},
}  # fmt: skip

FILTERS = [("ann", "symbol = 'IBM' AND price < 120"), ("bob", "price > 500 OR volume >= 10000"), ("cid", "lower(note) LIKE '%merger%'")]  # fmt: skip
EVENTS = ["IBM   119.50     200", "SAP   181.25   20000", "IBM   121.00     500"]
MATCHES = ["IBM 119.50  → ann", "SAP 181.25  → bob"]


def text(x: int, y: int, words: str, kind: str = "body", anchor: str = "start") -> str:
    safe = words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}" xml:space="preserve">{safe}</text>'


def card(x: int, y: int, width: int, height: int, title: str, lines: list[str]) -> list[str]:
    rows = [text(x + 14, y + 52 + 22 * k, line, "code") for k, line in enumerate(lines)]
    return [f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" class="card"/>', text(x + 14, y + 25, title, "title"), *rows]  # fmt: skip


def arrow(x1: int, y1: int, x2: int, y2: int) -> str:
    return f'<path d="M{x1} {y1} L{x2} {y2}" class="arrow" marker-end="url(#head)"/>'


def draw(colours: dict[str, str]) -> str:
    c = colours
    parts = [
        ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 300" role="img" '
        'aria-label="Filters are indexed; each event is looked up and reaches exactly the subscribers whose filter it satisfies">'),
        ("<style>"
        "text{font-family:system-ui,sans-serif}"
        f".title{{font-size:15px;font-weight:600;fill:{c['ink']}}}.body{{font-size:13px;fill:{c['soft']}}}"
        f".code{{font-family:ui-monospace,monospace;font-size:12.5px;fill:{c['ink']}}}"
        f".big{{font-size:17px;font-weight:700;fill:{c['paper']}}}.on{{font-size:12.5px;fill:{c['paper']}}}"
        f".card{{fill:{c['card']};stroke:{c['line']}}}.core{{fill:{c['accent']}}}"
        f".arrow{{stroke:{c['line']};stroke-width:2;fill:none}}"
        "</style>"),
        f'<defs><marker id="head" markerWidth="9" markerHeight="9" refX="7" refY="4" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{c["line"]}"/></marker></defs>',
        f'<rect width="880" height="300" rx="10" fill="{c["paper"]}"/>',
        *card(16, 16, 330, 124, "Subscriptions: millions of filters", [f"{who}  {what}" for who, what in FILTERS]),
        *card(16, 160, 330, 124, "Events: rows, JSON, Arrow, a stream", EVENTS),
        '<rect x="416" y="92" width="190" height="116" rx="10" class="core"/>',
        text(511, 124, "Wherecast", "big", "middle"),
        text(511, 148, "indexes all filters,", "on", "middle"),
        text(511, 166, "looks each event up", "on", "middle"),
        text(511, 192, "Python · Spark · broker", "on", "middle"),
        *card(668, 96, 196, 108, "Matches, exactly", MATCHES),
        arrow(348, 92, 412, 122),
        arrow(348, 214, 412, 182),
        arrow(608, 150, 662, 150),
        text(511, 240, "A change takes effect at the next match.", "body", "middle"),
        text(511, 260, "Nothing evaluates every filter on every event.", "body", "middle"),
        "</svg>",
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    for name, colours in COLOURS.items():
        Path(__file__).with_name(f"flow-{name}.svg").write_text(draw(colours), "utf-8")
