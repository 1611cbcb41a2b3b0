"""What a paper says, as data: a sentence, the paper's figure, and how to tell from our rows whether it holds here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wherecast.kernels.arrays import Floats
from wherecast.papers.lab.rows import Rows


class Finding(NamedTuple):
    """Our side of a claim."""

    ours: float | str  # the figure to stand beside the paper's
    holds: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a paper about one experiment."""

    paper: str
    name: str  # of the experiment
    claim: str  # a sentence
    paper_figure: str
    predicate: Callable[[Rows], Finding]
    why_not: str = ""  # where it does not hold with us: the reason, for the reader of the report


def show_number(value: float) -> str:
    """Two digits at least, and no exponent, for a person: `0.21`, `5.4`, `1,068`."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2g}"


def show_spread(values: Floats, unit: str = "") -> str:
    """Median and range over seeds, for a person: `1.02 (1.01 to 1.29)`."""
    return f"{np.median(values):.3g}{unit} ({values.min():.3g} to {values.max():.3g})"
