"""What the site has beyond its pages: every decision in the menu and in a list, and the notebook of the examples as a page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

DECISIONS = "decisions/index.md"
NOTEBOOK = "guides/code-space.md"
METRICS = "<!-- metrics of the broker: the site fills this in from the code, see docs/hooks.py -->"


def titles(docs: str) -> list[tuple[str, str]]:
    """Title and path of every decision, the latest first."""
    pages = sorted(Path(docs, "decisions").glob("[0-9]*.md"), reverse=True)
    return [(page.read_text("utf-8").splitlines()[0].removeprefix("# "), f"decisions/{page.name}") for page in pages]


def on_config(config: Any) -> Any:
    """Put the decisions below their entry in the menu."""
    found = [{title: path} for title, path in titles(config["docs_dir"])]
    for part in config["nav"]:
        for entries in part.values():
            if isinstance(entries, list):
                for entry in entries:
                    if entry.get("Decisions") == DECISIONS:
                        entry["Decisions"] = [DECISIONS, *found]
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Fill in what comes from elsewhere: decisions, the notebook, metrics. Blocks keep their language only.

    The second word of a fence, as in `python spark`, tells a test what the block needs; the site does not understand it.
    """
    markdown = re.sub(r"^( *```\w+) \w+$", r"\1", markdown, flags=re.MULTILINE)
    if page.file.src_uri == NOTEBOOK:
        path = Path(config["docs_dir"]).parent / "examples" / "code_space" / "code_space.ipynb"
        return show_notebook(json.loads(path.read_text("utf-8")))
    if METRICS in markdown:
        return markdown.replace(METRICS, list_metrics())
    if page.file.src_uri != DECISIONS:
        return markdown
    lines = [f"- [{title}]({path.removeprefix('decisions/')})" for title, path in titles(config["docs_dir"])]
    return "\n".join([markdown, "", *lines, ""])


def show_notebook(notebook: dict[str, Any]) -> str:
    """The cells of a notebook and what they printed and drew."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```py\n{text}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                parts.append(f'<img alt="what the cell draws" src="data:image/png;base64,{data["image/png"].strip()}">')
            else:
                parts.append("```text\n" + "".join(output.get("text", data.get("text/plain", ""))).rstrip() + "\n```")
    return "\n\n".join(parts)


def list_metrics() -> str:
    """The figures of the broker as a table."""
    from wherecast.broker.metrics import Metrics  # noqa: PLC0415 - only for its page

    rows = [
        f"| `{family.name}{'_total' if family.type == 'counter' else ''}` | {family.type} | {family.documentation} |"
        for family in Metrics().registry.collect()
    ]
    return "\n".join(["| figure | kind | meaning |", "|---|---|---|", *rows])
