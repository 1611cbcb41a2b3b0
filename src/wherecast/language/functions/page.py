"""The parts of docs/language.md that follow from the table: `python -m wherecast.language.functions.page docs/language.md`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from wherecast.language.functions.refused import REFUSED
from wherecast.language.functions.row import Function
from wherecast.language.functions.table import FAMILIES


def write_functions() -> str:
    """A table and examples for each family."""
    parts = []
    for family, rows in FAMILIES.items():
        lines = [f"### {family}", "", "| | |", "|---|---|", *map(_line, rows), ""]
        parts += [*lines, "```sql", *(row.example for row in rows), "```", ""]
    return "\n".join(parts).rstrip()


def _line(row: Function) -> str:
    others = f" (also {', '.join(f'`{name}`' for name in row.aliases)})" if row.aliases else ""
    return f"| `{row.name}({row.signature})` | {row.says}{others} |"


def write_refused() -> str:
    """What Spark has and a filter may not call, by the reason."""
    lines = ["| why | functions of Spark |", "|---|---|"]
    lines += [f"| {group.why} | {', '.join(f'`{name}`' for name in group.names)} |" for group in REFUSED]
    return "\n".join(lines)


def rewrite(page: str) -> str:
    """The page with its generated parts, which stand between comments, as they must be now."""
    for name, text in (("functions", write_functions()), ("refused functions", write_refused())):
        found = re.search(rf"<!-- {name}: [^\n]* -->\n(.*?)<!-- end of {name} -->", page, re.DOTALL)
        if found is None:
            raise ValueError(f"the page has no part {name!r}")
        page = f"{page[: found.start(1)]}\n{text}\n\n{page[found.end(1) :]}"
    return page


def main() -> None:
    path = Path(sys.argv[1])
    path.write_text(rewrite(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
