"""How figures of the lab look: one palette, medians with the spread over seeds, labelled axes."""

from __future__ import annotations

from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from wherecast.papers.lab.experiment import Drawing, Experiment
from wherecast.papers.lab.rows import Rows, group, numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Eight colours that people with any kind of colour vision tell apart (Okabe and Ito).
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
#: What is not data: lines of reference, the paper's figures.
REFERENCE = "#666666"


def draw_spread(axes: Axes, rows: Rows, x: str, y: str, *, color: str = PALETTE[0], label: str | None = None) -> None:
    """The median of y over seeds as a line, and its quartiles as a band."""
    xs, bands = [], []
    for place, found in group(rows, x):
        xs.append(float(place))
        bands.append(np.percentile(numbers(found, y), (25, 50, 75)))
    low, middle, high = np.array(bands).T
    axes.plot(xs, middle, color=color, label=label)
    axes.fill_between(xs, low, high, color=color, alpha=0.2, linewidth=0)


def show_plain(axis: Any, ticks: tuple[float, ...]) -> None:
    """Label an axis at these numbers, as people write them."""
    axis.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)


def save_plot(drawing: Experiment[Any] | Drawing, rows: Rows, file: Path | IO[bytes], form: str | None = None) -> None:
    """Draw rows into a file, in the format of its suffix or in `form`. The same rows give the same bytes."""
    from matplotlib import rc_context  # noqa: PLC0415 - an extra
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(7, 4.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.grid(visible=True, color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    drawing.plot(rows, axes)
    axes.set_title(drawing.title, loc="left", fontsize=11)
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    form = form or Path(str(file)).suffix[1:]
    with rc_context({"svg.hashsalt": drawing.name}):
        figure.savefig(file, format=form, metadata={"Date": None} if form == "svg" else None)
