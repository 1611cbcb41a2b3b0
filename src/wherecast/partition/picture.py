"""Load per server, before and after rebalancing: as a PNG, or as a page without any script."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np

from wherecast.errors import PlanError
from wherecast.kernels.arrays import Floats
from wherecast.partition.balance import imbalance
from wherecast.partition.event_space import EventSpace
from wherecast.partition.plan import Plan


class Picture(NamedTuple):
    """What there is to draw."""

    title: str
    before: Floats  # (servers,) load
    after: Floats | None  # None: this strategy has no buckets to move
    moved: int  # buckets

    @property
    def caption(self) -> str:
        """One line under the title."""
        before = f"largest / smallest load {imbalance(self.before):.2f}"
        if self.after is None:
            return before
        if not self.moved:
            return f"{before}; rebalancing would move nothing"
        return f"{before}; after moving {self.moved} buckets {imbalance(self.after):.2f}"


def picture_loads(plan: Plan, threshold: float) -> Picture:
    """The loads of a plan, and what rebalancing would make of them; the plan stays as it is."""
    title, before = f"{plan.strategy}, {plan.n_servers:,} servers", plan.partition.loads()
    if not isinstance(plan.partition, EventSpace):
        return Picture(title, before, None, 0)
    copy = plan.copy()
    moves = copy.rebalance(threshold)
    return Picture(title, before, copy.partition.loads(), moves.buckets.size)


def save_picture(picture: Picture, path: Path) -> None:
    """Write a picture, in the format of the suffix. Raises PlanError for another suffix, or without matplotlib."""
    writers = {".png": _write_png, ".svg": _write_png, ".html": _write_html}
    writer = writers.get(path.suffix.lower())
    if writer is None:
        raise PlanError(f"'{path}': unknown suffix {path.suffix!r}; name it one of {', '.join(writers)}")
    writer(picture, path)


def _write_png(picture: Picture, path: Path) -> None:
    try:
        from matplotlib.figure import Figure  # in the extra `lab`
    except ImportError:
        raise PlanError(
            "a PNG needs matplotlib; install it with: pip install 'wherecast[lab]', or write .html"
        ) from None
    servers = np.arange(picture.before.size)
    figure = Figure(figsize=(max(6.0, min(16.0, 0.2 * servers.size)), 4.0), layout="constrained")
    axes = figure.subplots()
    if picture.after is None:
        axes.bar(servers, picture.before, 0.8, color="tab:blue")
    else:
        axes.bar(servers - 0.2, picture.before, 0.4, label="before", color="tab:gray")
        axes.bar(servers + 0.2, picture.after, 0.4, label="after rebalancing", color="tab:blue")
        axes.legend()
    axes.axhline(picture.before.mean(), color="black", linewidth=0.8, linestyle=":")
    axes.set(xlabel="server", ylabel="expected load", title=f"{picture.title}\n{picture.caption}")
    figure.savefig(path, dpi=150)


_PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 14px system-ui, sans-serif; margin: 2em; color: #222; }}
td, th {{ padding: 1px 8px; text-align: right; }}
td.bar {{ width: 30em; text-align: left; }}
td.bar div {{ height: 8px; margin: 1px 0; }}
.before {{ background: #999; }}
.after {{ background: #1f77b4; }}
</style>
<h1>{title}</h1>
<p>{caption}</p>
<table>
<tr><th>server</th><th>before</th><th>after</th><th></th></tr>
{rows}
</table>
</html>
"""


def _write_html(picture: Picture, path: Path) -> None:
    after = picture.before if picture.after is None else picture.after
    most = max(float(picture.before.max()), float(after.max())) or 1.0
    rows = "\n".join(
        f"<tr><td>{server}</td><td>{old:,.0f}</td><td>{new:,.0f}</td><td class='bar'>"
        f"<div class='before' style='width:{100 * old / most:.1f}%'></div>"
        f"<div class='after' style='width:{100 * new / most:.1f}%'></div></td></tr>"
        for server, (old, new) in enumerate(zip(picture.before.tolist(), after.tolist(), strict=True))
    )
    path.write_text(
        _PAGE.format(title=escape(picture.title), caption=escape(picture.caption), rows=rows), encoding="utf-8"
    )
