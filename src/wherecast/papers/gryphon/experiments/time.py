"""The simulation's curve of time: one event against a growing number of subscriptions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from wherecast.matchers.adaptive import AdaptiveMatcher
from wherecast.papers.gryphon.experiments.trees import (
    COLORS,
    MILLION,
    PAPER,
    TreeCase,
    TreeCurveSettings,
    fit_power,
    medians,
)
from wherecast.papers.gryphon.matcher import TreeMatcher, TreeSettings
from wherecast.papers.lab.experiment import Claim, Drawing, Experiment, Finding, Progress, show_number
from wherecast.papers.lab.plots import draw_spread
from wherecast.papers.lab.rows import Row, Rows, choose, levels, numbers
from wherecast.papers.lab.timing import Subject, time_subjects
from wherecast.papers.topss.matcher import CountingMatcher

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "gryphon-time"
#: What is known of the paper's prototype, in Java on a Pentium of 200 MHz: subscriptions, and time for an event.
PROTOTYPE = 25_000, 4_000.0
_WHY_NO_TIME = {
    "successors": "They save a tenth of the visits, mostly near the root; each visit then reads a list of successors "
    "besides its node.",
    "3 factors": "Subscriptions that do not care are in several subtrees: with very many of them the tree is larger.",
}


def run(settings: TreeCurveSettings, progress: Progress) -> list[Row]:
    """Time, visited nodes and followed edges, by size, seed and matcher."""
    rows: list[Row] = []
    for n, seed, grown, case in settings.cases(NAME, progress):
        rows += [{"subscriptions": n, "seed": seed, **row} for row in _measure(case, grown, settings.rounds)]
    return rows


def _measure(case: TreeCase, grown: dict[str, TreeSettings], rounds: int) -> list[Row]:
    trees = {tree: TreeMatcher.build(case.boxes, settings=how) for tree, how in grown.items()}
    adaptive = AdaptiveMatcher.build(case.boxes, case.sample)
    built: dict[str, Any] = {**trees, "adaptive": adaptive}
    subjects = [Subject.of(name, matcher, case.events) for name, matcher in built.items()]
    timings = time_subjects(subjects, case.events.n_events, case.workload.truth(), rounds=rounds)
    counts = {tree: matcher.tally(case.events)._asdict() for tree, matcher in trees.items()}
    facts = adaptive.stats(case.events)
    visited = facts["nodes_per_event"] + facts["leaves_per_event"]
    counts["adaptive"] = {"nodes": visited, "edges": facts["candidates_per_event"]}
    updates = float(CountingMatcher.build(case.boxes).tally(case.events).updates.mean())
    return [
        {
            "matcher": name,
            "us_per_event": timing.us_per_event,
            "visits_per_event": float(counts[name]["nodes"]),
            "edges_per_event": float(counts[name]["edges"]),  # of the adaptive matcher: clauses that are compared
            "counting_updates_per_event": updates,  # what counting would do for the same events
            "matches_per_event": timing.matches_per_event,
        }
        for name, timing in timings.items()
    ]


def _judge_prototype(rows: Rows) -> Finding:
    """At the size nearest to the prototype's."""
    n = min(levels(rows, "subscriptions"), key=lambda n: abs(float(n) - PROTOTYPE[0]))
    ours = medians(rows, "collapsed", "us_per_event")[int(n)]
    return Finding(f"{show_number(ours)} us at {n:,}", ours < PROTOTYPE[1])


def _judge_sublinear(rows: Rows, column: str) -> Finding:
    power = fit_power(choose(rows, matcher="all three"), column)
    return Finding(f"by S^{power:.2f}", power < 1)


def _judge_better(rows: Rows, tree: str, than: str, column: str) -> Finding:
    """At the largest size that both were grown with."""
    ours, theirs = medians(rows, tree, column), medians(rows, than, column)
    n = max(ours.keys() & theirs.keys())
    return Finding(f"{show_number(ours[n])} instead of {show_number(theirs[n])} at {n:,}", ours[n] < theirs[n])


def _judge_counting(rows: Rows) -> Finding:
    own = choose(rows, matcher="collapsed")
    ratios = numbers(own, "counting_updates_per_event") / numbers(own, "visits_per_event")
    return Finding(f"{ratios.min():.0f} to {ratios.max():.0f} times fewer", bool(ratios.min() > 1))


def plot_time(rows: Rows, axes: Axes) -> None:
    """Time over subscriptions."""
    _draw(rows, axes, "us_per_event")
    axes.plot(*PROTOTYPE, "x", color="black", label="the paper's prototype, 1999")
    axes.set_ylabel("time for one event (microseconds)")


def plot_visits(rows: Rows, axes: Axes) -> None:
    """Visited nodes over subscriptions."""
    _draw(rows, axes, "visits_per_event")
    axes.set_ylabel("nodes visited by one event")


def _draw(rows: Rows, axes: Axes, column: str) -> None:
    for matcher in levels(rows, "matcher"):
        own, color = choose(rows, matcher=matcher), COLORS[str(matcher)]
        draw_spread(axes, own, "subscriptions", column, color=color, label=str(matcher))
    axes.set(xscale="log", yscale="log", xlabel="subscriptions")


EXPERIMENT = Experiment(
    NAME,
    PAPER,
    "Time of the matching tree in the paper's simulation",
    {
        "small": TreeCurveSettings(sizes=(1_000, 5_000, 25_000), n_events=500, seeds=2),
        "paper": TreeCurveSettings(),
        "large": TreeCurveSettings(sizes=(100_000, 300_000, MILLION), seeds=1),
    },
    run,
    (
        Claim(
            PAPER, NAME, "About 25,000 subscriptions take no longer than in the paper's prototype.",
            "about 4 ms (200 MHz, Java)", _judge_prototype,
        ),
        Claim(
            PAPER, NAME, "Visits grow less than linearly.", "S^0.68 at most",
            partial(_judge_sublinear, column="visits_per_event"),
        ),
        Claim(
            PAPER, NAME, "Time grows less than linearly.", "S^0.68 at most",
            partial(_judge_sublinear, column="us_per_event"),
            why_not="Visits do. A visit takes longer in a larger tree, of which less is in the caches.",
        ),
        *(
            Claim(
                PAPER, NAME, f"{what} saves {noun}.", "saves",
                partial(_judge_better, tree=tree, than=than, column=column), why,
            )
            for what, tree, than in (
                ("Collapsing `*` chains", "collapsed", "plain"),
                ("Adding successors", "successors", "collapsed"),
                ("Adding three factors", "3 factors", "collapsed"),
            )
            for noun, column, why in (
                ("visits", "visits_per_event", ""),
                ("time", "us_per_event", _WHY_NO_TIME.get(tree, "")),
            )
        ),
        Claim(PAPER, NAME, "The tree visits fewer nodes than counting updates counters.", "not there", _judge_counting),
        Claim(
            PAPER, NAME, "The adaptive matcher takes less time than the tree.", "not there",
            partial(_judge_better, tree="adaptive", than="3 factors", column="us_per_event"),
        ),
    ),
    plot_time,
    (Drawing(f"{NAME}-visits", "Nodes visited in the paper's simulation", plot_visits),),
    seconds={"small": 5, "paper": 40},
)  # fmt: skip
