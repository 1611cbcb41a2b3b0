"""What the site has beyond its pages: every decision in the menu, and a list of them all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

DECISIONS = "decisions/index.md"


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
    """List the decisions on their page."""
    if page.file.src_uri != DECISIONS:
        return markdown
    lines = [f"- [{title}]({path.removeprefix('decisions/')})" for title, path in titles(config["docs_dir"])]
    return "\n".join([markdown, "", *lines, ""])
