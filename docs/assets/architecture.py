"""Draw the pictures of the architecture page from the code, light and dark: `python docs/assets/architecture.py`.

The layers are those that import-linter enforces, with the first words of each package's docstring. The code space is what the compiler makes of three filters
and what the codebook makes of four events.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

from picture import COLOURS, text

from wherecast import Schema
from wherecast.index.build import code_filters
from wherecast.language.events.events import EventBatch
from wherecast.language.filters.compile import Compiler

ROOT = Path(__file__).parents[2]
FILTERS = {
    "ann": "symbol = 'IBM' AND price < 120",
    "bob": "price BETWEEN 100 AND 500",
    "cid": "symbol = 'SAP' AND price >= 500",
}
EVENTS = [("IBM", 110.0), ("SAP", 600.0), ("XYZ", 300.0), ("IBM", 550.0)]


def picture(width: int, height: int, title: str, colours: dict[str, str], parts: list[str]) -> str:
    c = colours
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">',
            (
                "<style>text{font-family:system-ui,sans-serif}"
                f".title{{font-size:15px;font-weight:600;fill:{c['ink']}}}.body{{font-size:13px;fill:{c['soft']}}}"
                f".card{{fill:{c['card']};stroke:{c['line']}}}.grid{{stroke:{c['line']};stroke-width:0.5}}"
                f".box{{fill:{c['accent']};fill-opacity:0.22;stroke:{c['accent']}}}.point{{fill:{c['ink']}}}</style>"
            ),
            f'<rect width="{width}" height="{height}" rx="10" fill="{c["paper"]}"/>',
            *parts,
            "</svg>",
        ]
    )


def layers(colours: dict[str, str]) -> str:
    """A row per layer; packages beside each other do not import each other."""
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (contract,) = (one for one in configured if one["id"] == "layers")
    parts, y = [], 16
    for row in contract["layers"]:
        names = [name.strip(" ()").removeprefix("wherecast.") for name in row.split("|")]
        width = (848 - 16 * (len(names) - 1)) // len(names)
        for place, name in enumerate(names):
            x = 16 + place * (width + 16)
            parts += [
                f'<rect x="{x}" y="{y}" width="{width}" height="46" rx="8" class="card"/>',
                text(x + 12, y + 19, name, "title"),
                text(x + 12, y + 37, summary(name, width // 8), "body"),
            ]
        y += 54
    return picture(880, y + 8, "The layers of Wherecast; imports go down only", colours, parts)


def summary(package: str, most: int) -> str:
    """The first sentence of a docstring, as far as it fits."""
    folder = ROOT / "src" / "wherecast" / package
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    said = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    first = re.split(r"[.;]\s|[.;]$|\n", said)[0].replace("`", "")
    return first if len(first) <= most else first[: first.rindex(" ", 0, most)] + " …"


def codes(colours: dict[str, str]) -> str:
    """Three filters as boxes and four events as points, in codes."""
    schema = Schema.of({"price": "double", "symbol": "string"})
    compiled = Compiler(schema).compile_many(list(FILTERS.values()))
    coded = code_filters(compiled.filters, schema)
    columns, rows = coded.codebook.widths.tolist()
    size_x, size_y, left, top = 640 // columns, 180 // rows, 120, 36

    def point(price: float | None, symbol: str | None) -> tuple[int, int]:
        batch = EventBatch.read(schema, [{"price": price, "symbol": symbol}])
        x, y = coded.codebook.encode(batch).codes[0].tolist()
        return x, y

    parts = []
    prices: dict[float | None, str] = {
        None: "NULL",
        99: "< 100",
        100: "100 to < 120",
        120: "120 to < 500",
        500: "500",
        501: "> 500",
    }
    symbols = {None: "NULL", "XYZ": "others", "IBM": "IBM", "SAP": "SAP"}
    for price, label in prices.items():
        parts.append(text(left + point(price, None)[0] * size_x + size_x // 2, 24, label, "body", "middle"))
    for symbol, label in symbols.items():
        parts.append(text(left - 10, top + point(None, symbol)[1] * size_y + size_y // 2 + 4, label, "body", "end"))
    parts += [
        f'<rect x="{left + x * size_x}" y="{top + y * size_y}" width="{size_x}" height="{size_y}" fill="none" class="grid"/>'
        for x in range(columns)
        for y in range(rows)
    ]
    for name, ((low_x, high_x), (low_y, high_y)) in boxes(coded, compiled, [columns, rows]).items():
        x, y = left + low_x * size_x, top + low_y * size_y
        wide, high = (high_x - low_x + 1) * size_x, (high_y - low_y + 1) * size_y
        parts.append(
            f'<rect x="{x + 3}" y="{y + 3}" width="{wide - 6}" height="{high - 6}" rx="6" class="box"/>'
            + text(x + 10, y + 18, name, "title")
        )
    for symbol, price in EVENTS:
        x, y = point(price, symbol)
        middle, line = left + x * size_x + size_x // 2, top + y * size_y + size_y // 2 + 6
        parts.append(f'<circle cx="{middle}" cy="{line - 4}" r="4" class="point"/>')
        parts.append(text(middle + 9, line, f"{symbol} {price:g}", "body"))
    for number, (name, sql) in enumerate(FILTERS.items()):
        parts.append(text(left, top + rows * size_y + 26 + 20 * number, f"{name}: {sql}", "body"))
    title = "Filters are boxes and events are points in a grid of codes"
    return picture(880, top + rows * size_y + 90, title, colours, parts)


def boxes(coded: Any, compiled: Any, widths: list[int]) -> dict[str, list[tuple[int, int]]]:
    """For each filter its interval of codes in each column; all of them where it does not constrain one."""
    found = {}
    for name, filter in zip(FILTERS, compiled.filter_of.tolist(), strict=True):
        sides = [(0, width - 1) for width in widths]
        for row in range(coded.boxes.ptr[filter], coded.boxes.ptr[filter + 1]):
            sides[coded.boxes.attr[row]] = (
                int(coded.boxes.lo[row]),
                min(int(coded.boxes.hi[row]), sides[coded.boxes.attr[row]][1]),
            )
        found[name] = sides
    return found


PICTURES = {"layers": layers, "codes": codes}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        for theme, colours in COLOURS.items():
            Path(__file__).with_name(f"{name}-{theme}.svg").write_text(draw(colours) + "\n", "utf-8")
