"""Figure 2: time and memory to find the predicates that hold, by ordered lists and by tables, on W0 to W3.

The first stage of counting alone. The adaptive matcher has no such stage: its time is that of whole matches, its memory
everything it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from wherecast.bench.measure import Contestant, time_in_turns
from wherecast.index.boxes import EventCodes
from wherecast.papers.lab.experiment import Claim, Drawing, Experiment, Finding, Progress, show_number
from wherecast.papers.lab.plots import PALETTE, REFERENCE
from wherecast.papers.lab.rows import Row, Rows, choose, group, levels, numbers
from wherecast.papers.lab.timing import Subject, check_matches
from wherecast.papers.topss.experiments.cases import PAPER, MatchingCase
from wherecast.papers.topss.workload import SPECIFICATIONS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "topss-predicates"
WORKLOADS = ("W0", "W1", "W2", "W3")
INDEXES = {"lists": "counting", "tables": "counting-table", "adaptive": "adaptive"}
_STYLES = {"lists": "-", "tables": "--", "adaptive": ":"}


@dataclass(frozen=True, slots=True)
class PredicateSettings:
    """W0 to W3 with so many subscriptions of one to twenty predicates."""

    sizes: tuple[int, ...] = (100, 1_000, 3_000, 10_000, 30_000, 100_000)
    n_events: int = 100
    rounds: int = 3


def run(settings: PredicateSettings, progress: Progress) -> list[Row]:
    """Time of the predicate stage, and the entries that it passes, by workload, size and index."""
    rows: list[Row] = []
    for name in WORKLOADS:
        for n in settings.sizes:
            progress(f"{NAME}: {name}, {n:,} of {settings.sizes[-1]:,} subscriptions")
            rows += _measure(name, MatchingCase.draw(SPECIFICATIONS[name], n, settings.n_events), settings)
    return rows


def _measure(name: str, case: MatchingCase, settings: PredicateSettings) -> list[Row]:
    built: dict[str, Any] = {index: case.build(matcher) for index, matcher in INDEXES.items()}
    whole = {index: Subject.of(index, live, case.events) for index, live in built.items()}
    for subject in whole.values():
        check_matches(subject, case.workload.truth())
    stages = [Contestant(index, partial(_mark, built[index], case.events)) for index in ("lists", "tables")]
    contestants = [*stages, Contestant("adaptive", whole["adaptive"].run)]
    timings = time_in_turns(contestants, settings.n_events, rounds=settings.rounds, budget_s=0.5)
    satisfied = float(built["lists"].tally(case.events).satisfied.mean())
    passed = {
        "lists": satisfied,
        "tables": float((2 * case.boxes.widths.astype(np.int64) - 1).sum()),  # whatever the event
        "adaptive": float(built["adaptive"].stats(case.events)["candidates_per_event"]),
    }
    facts = {index: live.stats() for index, live in built.items()}
    sizes = {index: facts[index]["parts"]["index"] for index in ("lists", "tables")}
    sizes["adaptive"] = facts["adaptive"]["bytes"]
    common = {"workload": name, "subscriptions": len(case.workload), "predicates": facts["lists"]["predicates"]}
    return [
        {
            **common,
            "index": index,
            "us_per_event": timing.us_per_event,
            "satisfied_per_event": satisfied,
            "entries_per_event": passed[index],
            "mb": sizes[index] / 1e6,
        }
        for index, timing in timings.items()
    ]


def _mark(live: Any, events: EventCodes, n: int) -> int:
    """The first stage alone, for the first n events."""
    return len(live.mark(events._replace(codes=events.codes[:n])))


def _times(rows: Rows, index: str, workloads: tuple[str, ...] = WORKLOADS) -> dict[str, float]:
    """Time by workload, at the largest size."""
    own = choose(rows, index=index, subscriptions=max(levels(rows, "subscriptions"), key=float))
    return {name: float(choose(own, workload=name)[0]["us_per_event"]) for name in workloads}


def _judge_domain(rows: Rows) -> Finding:
    """At the smallest size, where all have as many predicates; W3's domains lie between those of W1 and W2."""
    first = min(levels(rows, "subscriptions"), key=float)
    found = numbers(choose(rows, index="tables", subscriptions=first), "us_per_event")
    small, medium, big, mixed = found
    ours = ", ".join(f"{name} {time:,.0f} us" for name, time in zip(WORKLOADS, found, strict=True))
    return Finding(ours, bool(small < medium < mixed < big))


def _judge_lists(rows: Rows) -> Finding:
    """W0 is left out: it has far fewer different predicates."""
    found = list(_times(rows, "lists", WORKLOADS[1:]).values())
    return Finding(f"largest / smallest {max(found) / min(found):.2f} over W1 to W3", max(found) / min(found) < 1.5)


def _judge_table_memory(rows: Rows) -> Finding:
    """The bytes of a table are its domain's, with one predicate or all."""
    found = [numbers(choose(rows, index="tables", workload=name), "mb") for name in WORKLOADS]
    small, medium, big, mixed = (mb.mean() for mb in found)
    ours = ", ".join(f"{name} {mb.mean():.3g} MB" for name, mb in zip(WORKLOADS, found, strict=True))
    return Finding(ours, bool(small < medium < mixed < big) and all(mb.max() < 1.1 * mb.min() for mb in found))


def _judge_list_memory(rows: Rows) -> Finding:
    """Bytes for each predicate, at the largest size: there are enough to outweigh the heads of the lists."""
    own = choose(rows, index="lists", subscriptions=max(levels(rows, "subscriptions"), key=float))
    each = 1e6 * numbers(own, "mb") / numbers(own, "predicates")
    return Finding(f"{each.min():.1f} to {each.max():.1f} bytes a predicate", bool(each.max() < 1.2 * each.min()))


def _judge_mixed(rows: Rows, column: str, *, many: bool) -> Finding:
    """W3: lists are better with the fewest predicates, tables with the most."""
    found = [
        (int(n), float(choose(own, index="tables")[0][column]) / float(choose(own, index="lists")[0][column]))
        for n, own in group(choose(rows, workload="W3"), "predicates")
    ]
    ours = ", ".join(f"tables {show_number(ratio)} times lists with {n:,}" for n, ratio in (found[0], found[-1]))
    return Finding(ours, found[-1][1] < 1 if many else found[0][1] > 1)


def _draw_workloads(rows: Rows, axes: Axes, column: str, adaptive: str) -> None:
    """A colour for each workload, a line style for each index; `adaptive` is the label of the adaptive matcher."""
    for name, color in zip(WORKLOADS, PALETTE, strict=False):
        for index, style in _STYLES.items():
            own = choose(rows, workload=name, index=index)
            axes.plot(numbers(own, "predicates"), numbers(own, column), style, color=color)
        low, high = SPECIFICATIONS[name].bounds()
        domain = "mixed" if name == "W3" else f"{low.min():,} to {high.max():,}"
        axes.plot([], [], color=color, label=f"{name}: {domain}")
    for index, style in _STYLES.items():
        axes.plot([], [], style, color=REFERENCE, label=adaptive if index == "adaptive" else index)
    axes.set(xscale="log", yscale="log", xlabel="distinct predicates")


def plot_time(rows: Rows, axes: Axes) -> None:
    """Panels 1 to 3 of the paper's figure."""
    _draw_workloads(rows, axes, "us_per_event", "adaptive, whole match")
    axes.set_ylabel("time for one event (microseconds)")


def plot_memory(rows: Rows, axes: Axes) -> None:
    """Panels 4 to 6."""
    _draw_workloads(rows, axes, "mb", "adaptive, everything")
    axes.set_ylabel("memory (MB)")


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Figure 2: time to find the predicates that hold",
    {
        "small": PredicateSettings((100, 1_000), n_events=10),
        "paper": PredicateSettings(),
        "large": PredicateSettings((100_000, 300_000, 1_000_000)),
    },
    run,
    (
        Claim(PAPER, NAME, "The time of tables grows with the domain.", "grows", _judge_domain),
        Claim(
            PAPER, NAME, "The time of lists hardly depends on the domain.", "nearly independent", _judge_lists,
            why_not="It follows the number of predicates that hold, and fewer predicates are shared where the domain is "
            "large: W3 has 700,000 distinct ones, W2 a million.",
        ),
        Claim(
            PAPER, NAME, "On W3, lists are faster with few predicates.", "faster",
            partial(_judge_mixed, column="us_per_event", many=False),
        ),
        Claim(
            PAPER, NAME, "On W3, tables are faster with many predicates.", "faster",
            partial(_judge_mixed, column="us_per_event", many=True),
            why_not="The paper's lists are linked and searched from the front; ours are sorted arrays, searched by "
            "halving, and read only what holds. A table is passed over its whole domain.",
        ),
        Claim(PAPER, NAME, "Tables take the memory of their domain.", "grows with it", _judge_table_memory),
        Claim(PAPER, NAME, "Lists take the memory of their predicates.", "only of these", _judge_list_memory),
        Claim(
            PAPER, NAME, "On W3, lists take less memory with few predicates.", "less",
            partial(_judge_mixed, column="mb", many=False),
        ),
        Claim(
            PAPER, NAME, "On W3, tables take less memory with many predicates.", "less",
            partial(_judge_mixed, column="mb", many=True),
            why_not="An entry of our lists takes 16 bytes, a slot of a table 4 whether it is used or not: tables take "
            "less from about 4,000,000 predicates on, which 100,000 subscriptions do not have.",
        ),
    ),
    plot_time,
    (Drawing(f"{NAME}-memory", "Figure 2: memory of the predicates", plot_memory),),
    seconds={"small": 5, "paper": 110},
)  # fmt: skip
