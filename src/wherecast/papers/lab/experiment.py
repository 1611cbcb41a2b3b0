"""An experiment: a paper's figure or table, with what it takes to run, judge and draw it.

What a paper says is data (`Claim`): a sentence, the paper's figure, and how to tell from our rows whether it holds here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from wherecast.errors import WherecastError
from wherecast.kernels.arrays import Floats
from wherecast.papers.lab.rows import Row, Rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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


Scale = Literal["small", "paper", "large"]
Settings = TypeVar("Settings")
#: Takes a line that says how far a run is.
Progress = Callable[[str], None]
#: Draws rows on labelled axes.
Plot: TypeAlias = "Callable[[Rows, Axes], None]"


class LabError(WherecastError):
    """An experiment that does not exist, or has no settings for a scale."""


class Drawing(NamedTuple):
    """A further figure of an experiment."""

    name: str  # of its files: that of the experiment, and what is different
    title: str
    plot: Plot


@dataclass(frozen=True, slots=True)
class Experiment(Generic[Settings]):
    """One figure or table. The settings of scale `paper` are the paper's own; `small` takes seconds."""

    name: str
    paper: str
    title: str
    settings: Mapping[Scale, Settings]
    run: Callable[[Settings, Progress], list[Row]]
    claims: tuple[Claim, ...]
    plot: Plot
    more_drawings: tuple[Drawing, ...] = ()
    seconds: Mapping[Scale, float] = field(default_factory=dict)  # roughly; for those who wait the first time

    @property
    def drawings(self) -> tuple[Drawing, ...]:
        """Every figure, the main one first."""
        return Drawing(self.name, self.title, self.plot), *self.more_drawings

    def at(self, scale: Scale) -> Settings:
        """The settings of a scale."""
        if scale not in self.settings:
            raise LabError(f"{self.name} has no scale {scale!r}; there are: {', '.join(self.settings)}")
        return self.settings[scale]

    def judge(self, rows: Rows) -> list[tuple[Claim, Finding]]:
        """Every claim beside what the rows say of it."""
        return [(claim, claim.predicate(rows)) for claim in self.claims]


#: Every experiment by name, as `paper.module:attribute`; a module is imported when it is needed.
EXPERIMENTS: dict[str, str] = {
    "edn-popularity": "edn.popularity:EXPERIMENT",
    "edn-overpartitioning": "edn.overpartitioning:EXPERIMENT",
    "edn-bend": "edn.bend:EXPERIMENT",
    "edn-growth": "edn.growth:EXPERIMENT",
    "edn-rebalancing": "edn.rebalancing:EXPERIMENT",
    "edn-bloom": "edn.bloom:EXPERIMENT",
    "edn-servers": "edn.servers:EXPERIMENT",
    "edn-filter-set-traffic": "edn.filter_set_traffic:EXPERIMENT",
    "edn-dispatcher-cost": "edn.dispatcher_cost:EXPERIMENT",
    "edn-dictionary-or-bloom": "edn.dictionary_or_bloom:EXPERIMENT",
    "edn-hierarchy": "edn.hierarchy:EXPERIMENT",
    "edn-models": "edn.models:EXPERIMENT",
    "topss-predicates": "topss.predicates:EXPERIMENT",
    "topss-matching": "topss.matching:EXPERIMENT",
    "topss-memory": "topss.memory:EXPERIMENT",
    "topss-match-time": "topss.match_time:EXPERIMENT",
    "topss-load": "topss.load:EXPERIMENT",
    "gryphon-time": "gryphon.time:EXPERIMENT",
    "gryphon-space": "gryphon.space:EXPERIMENT",
    "gryphon-bound": "gryphon.bound:EXPERIMENT",
    "rapidmatch-size-zipf": "rapidmatch.size:ZIPF",
    "rapidmatch-size-exponential": "rapidmatch.size:EXPONENTIAL",
    "rapidmatch-ones-zipf": "rapidmatch.ones:ZIPF",
    "rapidmatch-ones-exponential": "rapidmatch.ones:EXPONENTIAL",
    "rapidmatch-output-zipf": "rapidmatch.output:ZIPF",
    "rapidmatch-output-exponential": "rapidmatch.output:EXPONENTIAL",
    "chord-hops": "chord.hops:EXPERIMENT",
    "chord-ranges": "chord.ranges:EXPERIMENT",
    "chord-operations": "chord.operations:EXPERIMENT",
    "chord-membership": "chord.membership:EXPERIMENT",
    "chord-small-domain": "chord.small_domain:EXPERIMENT",
    "chord-balance": "chord.balance:EXPERIMENT",
}


def load_experiment(name: str) -> Experiment[Any]:
    """The experiment of this name."""
    if name not in EXPERIMENTS:
        raise LabError(f"no experiment {name!r}; there are: {', '.join(EXPERIMENTS)}")
    paper, module, attribute = EXPERIMENTS[name].replace(":", ".").split(".")
    found = getattr(import_module(f"wherecast.papers.{paper}.experiments.{module}"), attribute)
    assert isinstance(found, Experiment)
    return found
