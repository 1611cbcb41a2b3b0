"""The experiments on matching (TOPSS, Gryphon, RAPIDMatch) at tiny sizes, and how the lab times a matcher."""

import json

import numpy as np
import pytest
from matplotlib.figure import Figure

from wherecast.bench.measure import WrongCountError
from wherecast.bench.workloads.form import OPERATORS
from wherecast.bench.workloads.truth import GroundTruth
from wherecast.matchers.scan import ScanMatcher
from wherecast.papers.gryphon.experiments import bound, space
from wherecast.papers.gryphon.experiments import time as gryphon_time
from wherecast.papers.gryphon.experiments.trees import TreeCurveSettings, fit_power
from wherecast.papers.lab.experiment import EXPERIMENTS, load_experiment, show_number
from wherecast.papers.lab.rows import choose, group, levels, numbers
from wherecast.papers.lab.timing import Subject, check_matches, time_subjects
from wherecast.papers.rapidmatch.binary import naive_matches
from wherecast.papers.rapidmatch.experiments import ones, output, size
from wherecast.papers.rapidmatch.experiments.contenders import Contenders, code_events, code_subscriptions, draw
from wherecast.papers.topss.experiments import load, match_time, matching, memory, predicates
from wherecast.papers.topss.experiments.cases import PAPER_SIZES, W4, MatchingCase, MatchingSettings

pytestmark = pytest.mark.slow

TINY = {
    "topss-predicates": predicates.PredicateSettings((30, 60), n_events=5, rounds=1),
    "topss-matching": MatchingSettings(("lists", "bits", "bytes", "adaptive"), (1_000, 2_000), rounds=1, n_events=5),
    "topss-memory": MatchingSettings(("lists", "bits", "bytes", "database", "adaptive"), (100, 1_000)),
    "topss-match-time": MatchingSettings(match_time._MATCHERS, (1_000, 5_000), most_costly=1_000, rounds=1, n_events=5),
    "topss-load": MatchingSettings(load._MATCHERS, (1_000, 5_000), rounds=2, n_events=5),
    "gryphon-time": TreeCurveSettings(sizes=(100, 1_000, 2_000), most_plain=1_000, n_events=30, seeds=2, rounds=1),
    "gryphon-space": TreeCurveSettings(sizes=(100, 1_000), n_events=5, seeds=2),
    "gryphon-bound": bound.BoundSettings((100, 1_000), n_events=100, seeds=2),
    "rapidmatch-size-zipf": size.SizeSettings("zipf", 2.0, (200, 1_000), n_events=30, seeds=2, rounds=1),
    "rapidmatch-size-exponential": size.SizeSettings("exponential", 0.1, (200, 1_000), n_events=30, seeds=2, rounds=1),
    "rapidmatch-ones-zipf": ones.OnesSettings("zipf", (2.0, 4.0), 1_000, 30, seeds=2, rounds=1),
    "rapidmatch-ones-exponential": ones.OnesSettings("exponential", (0.01, 0.2), 1_000, 30, seeds=2, rounds=1),
    "rapidmatch-output-zipf": output.OutputSettings("zipf", 2.0, 1_000, 40, groups=2, seeds=2, rounds=1),
    "rapidmatch-output-exponential": output.OutputSettings("exponential", 0.05, 1_000, 40, groups=2, seeds=2, rounds=1),
}
TIMES = ("us_per_event", "ms_per_event", "ns_per_match", "load_s")


def silent(_):
    """Progress that nobody watches."""


@pytest.fixture(scope="module")
def found():
    """Rows of every experiment at its tiny scale."""
    return {name: load_experiment(name).run(settings, silent) for name, settings in TINY.items()}


# -- every experiment -------------------------------------------------------------------------------------------------


def test_every_experiment_of_the_three_papers_is_tested():
    """The tiny settings leave none out."""
    papers = ("topss-", "gryphon-", "rapidmatch-")
    assert list(TINY) == [name for name in EXPERIMENTS if name.startswith(papers)]


@pytest.mark.parametrize("name", TINY)
def test_every_scale_has_settings_of_one_kind(name):
    """Small, paper and large differ in figures only."""
    experiment = load_experiment(name)
    assert list(experiment.settings) == ["small", "paper", "large"]
    assert {type(settings) for settings in experiment.settings.values()} == {type(TINY[name])}


@pytest.mark.parametrize("name", TINY)
def test_rows_are_flat_and_alike(found, name):
    """Every row has the same columns, of JSON's scalar types; JSON gives them back as they were."""
    rows = found[name]
    assert len({tuple(row) for row in rows}) == 1
    assert json.loads(json.dumps(rows)) == rows


@pytest.mark.parametrize("name", TINY)
def test_every_claim_can_be_judged(found, name):
    """A claim names its experiment; its finding is a figure and a truth value."""
    experiment = load_experiment(name)
    assert experiment.name == name
    assert experiment.claims
    for claim, finding in experiment.judge(found[name]):
        assert claim.name == name
        assert isinstance(finding.ours, str)
        assert type(finding.holds) is bool


@pytest.mark.parametrize("name", TINY)
def test_every_drawing_has_labelled_axes_and_a_legend(found, name):
    """Both axes say what they show."""
    for drawing in load_experiment(name).drawings:
        axes = Figure().add_subplot()
        drawing.plot(found[name], axes)
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        assert "adaptive" in " ".join(axes.get_legend_handles_labels()[1]) or drawing.name in {
            "gryphon-bound",
            "gryphon-space",
        }


@pytest.mark.parametrize("name", ["topss-match-time", "gryphon-bound", "rapidmatch-size-zipf"])
def test_the_same_settings_give_the_same_counts(found, name):
    """Only what is read from a clock differs from run to run."""
    again = load_experiment(name).run(TINY[name], silent)
    for one, two in zip(found[name], again, strict=True):
        assert {k: v for k, v in one.items() if k not in TIMES} == {k: v for k, v in two.items() if k not in TIMES}


# -- timing -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def case():
    """A little of W4."""
    return MatchingCase.draw(W4, 300, 20)


def test_events_are_matched_in_calls_of_the_size_asked_for(case):
    """Seven at a time, the last call with what is left; the matches are those of one batch."""
    scan, calls = ScanMatcher.build(case.boxes), []

    class Watched:
        def match(self, events):
            calls.append(events.n_events)
            return scan.match(events)

    whole = Subject.of("scan", scan, case.events)
    assert whole.at_once == 20
    assert Subject.of("scan", Watched(), case.events, 7).run(17) == whole.run(17)
    assert calls == [7, 7, 3]


def test_times_are_of_the_matches_that_were_checked(case):
    """One subject, and its matches per event, from brute force."""
    truth = case.workload.truth()
    timings = time_subjects([Subject.of("scan", ScanMatcher.build(case.boxes), case.events)], 20, truth, rounds=1)
    assert timings["scan"].us_per_event > 0
    assert timings["scan"].matches_per_event == truth.counts.mean()


@pytest.mark.parametrize("wrong", ["count", "id"])
def test_a_matcher_that_is_wrong_is_not_timed(case, wrong):
    """A match too few is told, and so is another id."""
    subject, truth = Subject.of("scan", ScanMatcher.build(case.boxes), case.events), case.workload.truth()
    check_matches(subject, truth)
    counts, sums = truth.counts.copy(), truth.id_sums.copy()
    (counts if wrong == "count" else sums)[3] += 1
    with pytest.raises(WrongCountError, match=f"scan, event 3: {truth.counts[3]} matches .* nothing is timed"):
        time_subjects([subject], 20, GroundTruth(counts, sums))


# -- counts -----------------------------------------------------------------------------------------------------------


def test_hits_of_counting_are_the_predicates_that_hold(found):
    """Counted one by one, from the workload as numbers; lists read an id for each, bytes a row for each predicate."""
    rows = choose(found["topss-matching"], subscriptions=1_000)
    workload = MatchingCase.draw(W4, 1_000, 5).workload
    compare = dict(zip(OPERATORS, (np.equal, np.not_equal, np.less, np.greater), strict=True))
    x = workload.events[:, workload.predicates.attr]
    holds = np.zeros(x.shape, bool)
    for op, name in enumerate(OPERATORS):
        mine = workload.predicates.op == op
        holds[:, mine] = compare[name](x[:, mine], workload.predicates.value[mine])
    hits = holds.sum(axis=1).mean()
    by_matcher = {row["matcher"]: row for row in rows}
    assert [by_matcher[m]["updates_per_event"] for m in ("lists", "bits", "bytes")] == [hits] * 3
    assert by_matcher["lists"]["entries_per_event"] == hits
    assert by_matcher["bytes"]["entries_per_event"] % 1_000 == pytest.approx(0, abs=1e-6)
    assert len({row["matches_per_event"] for row in rows}) == 1


def test_what_is_too_costly_is_left_out(found):
    """The database and the plain tree stop where their settings say."""
    rows = found["topss-match-time"]
    assert levels(choose(rows, matcher="database"), "subscriptions") == [1_000]
    assert levels(choose(rows, matcher="lists"), "subscriptions") == [1_000, 5_000]
    assert levels(choose(found["gryphon-time"], matcher="plain"), "subscriptions") == [100, 1_000]


def test_each_optimisation_of_the_tree_saves_visits(found):
    """In the order of the paper, at a size where all are grown."""
    rows = choose(found["gryphon-time"], subscriptions=1_000)
    visits = {name: numbers(own, "visits_per_event").mean() for name, own in group(rows, "matcher")}
    assert visits["plain"] > visits["collapsed"] > visits["successors"]
    assert visits["collapsed"] > visits["3 factors"] > visits["all three"]


def test_binary_workloads_mean_the_same_in_code_space():
    """The scan over boxes finds what the definition of a match says."""
    drawn, _ = draw("exponential", 0.1, 400, 10, seed=3)
    ptr, ids = ScanMatcher.build(code_subscriptions(drawn.subscriptions)).match(code_events(drawn.events))
    for e, event in enumerate(drawn.events):
        assert sorted(ids[ptr[e] : ptr[e + 1]]) == np.flatnonzero(naive_matches(drawn.subscriptions, event)).tolist()


def test_events_are_grouped_by_what_they_match(found):
    """Group 0 matches least, for every seed."""
    for _, own in group(choose(found["rapidmatch-output-zipf"], matcher="tree"), "seed"):
        matches = numbers(own, "matches_per_event")
        assert (np.diff(matches) >= 0).all()
    drawn, sample = draw("zipf", 2.0, 200, 10, seed=1)
    counts = Contenders(drawn.subscriptions, sample).count_matches(drawn.events)
    assert counts.tolist() == [int(naive_matches(drawn.subscriptions, event).sum()) for event in drawn.events]


def test_a_power_law_has_the_power_it_was_made_with():
    """Whatever its factor; the median of seeds counts."""
    rows = [
        {"subscriptions": n, "seed": seed, "visits": 7 * n**0.68 * (1, 1, 9)[seed]}
        for n in (100, 1_000, 9_000)
        for seed in range(3)
    ]
    assert fit_power(rows, "visits") == pytest.approx(0.68)


@pytest.mark.parametrize(("value", "shown"), [(0.2134, "0.21"), (5.44, "5.4"), (99.0, "99"), (1068.4, "1,068")])
def test_numbers_are_shown_without_exponents(value, shown):
    """For a person."""
    assert show_number(value) == shown


# -- claims -----------------------------------------------------------------------------------------------------------


def columns(matchers, **rest):
    """Rows of one size, one for each matcher and its figure."""
    return [{"matcher": m, **{k: v[m] if isinstance(v, dict) else v for k, v in rest.items()}} for m in matchers]


def topss_rows(lists, bits, third, name, value, n=1_000_000):
    """Rows of W4 with the same figure for times and entries."""
    figures = {"lists": lists, "bits": bits, name: third, "adaptive": 1e-6}
    return columns(figures, subscriptions=n, entries_per_event=figures, **{value: figures})


def tree_rows(power, factor):
    """Figures that grow with a power, a better tree always having the smaller."""
    names = ("plain", "collapsed", "successors", "3 factors", "all three", "adaptive")
    return [
        {"matcher": m, "subscriptions": n, "us_per_event": f, "visits_per_event": f, "counting_updates_per_event": 1e9}
        for n in (1_000, 25_000)
        for f, m in ((n**power * factor**i, m) for i, m in enumerate(names))
    ]


def binary_rows(rapid, tree, x="subscriptions", skipped=40.0):
    """Figures of RAPIDMatch and the tree by x."""
    return [
        {"matcher": m, x: at, "us_per_event": f, "visits_per_event": f, "levels_skipped_per_event": skipped,
         "light_levels_per_event": 40.0, "ones_per_event": 5 - at if x == "parameter" else 3.0, "ns_per_match": f,
         "visits_per_match": f}
        for at, (r, t) in enumerate(zip(rapid, tree, strict=True), 1)
        for m, f in (("rapid", r), ("tree", t), ("adaptive", r / 9), ("counting", 2 * t))
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("experiment", "rows", "holds"),
    [
        (matching.EXPERIMENT, topss_rows(2.0, 4.0, 12.0, "bytes", "ms_per_event"), [1, 1, 1, 1]),
        (matching.EXPERIMENT, topss_rows(4.0, 2.0, 1.0, "bytes", "ms_per_event"), [0, 0, 0, 1]),
        (match_time.EXPERIMENT, topss_rows(19.0, 30.0, 144.0, "database", "ms_per_event"), [1, 1, 1, 1]),
        (match_time.EXPERIMENT, topss_rows(21.0, 20.0, 19.0, "database", "ms_per_event"), [0, 0, 0, 1]),
        (load.EXPERIMENT, topss_rows(9.0, 1.0, 2.0, "database", "load_s"), [1, 1, 1]),
        (load.EXPERIMENT, topss_rows(11.0, 12.0, 13.0, "database", "load_s"), [0, 0, 0]),
        (gryphon_time.EXPERIMENT, tree_rows(0.6, 0.9), [1] * 11),
        (gryphon_time.EXPERIMENT, tree_rows(1.2, 1.1), [0] * 9 + [1, 0]),
        (size.ZIPF, binary_rows((1, 2), (9, 18)), [1, 1, 1, 1, 1, 1, 1]),
        (size.ZIPF, binary_rows((1, 2), (5, 10)), [0, 1, 1, 1, 1, 1, 1]),
        (size.ZIPF, binary_rows((1, 2), (3, 10), skipped=38.0), [0, 0, 0, 0, 0, 1, 1]),
        (size.EXPONENTIAL, binary_rows((10, 20), (12, 26)), [1, 1, 1, 1, 1, 1]),
        (size.EXPONENTIAL, binary_rows((10, 20), (10, 60)), [0, 0, 0, 1, 1, 1]),
        (ones.ZIPF, binary_rows((9, 5, 1, 0.9), (10, 10, 10, 10), "parameter"), [1, 1, 1, 1, 1, 1]),
        (ones.ZIPF, binary_rows((1, 5, 9, 11), (10, 10, 10, 30), "parameter"), [0, 0, 0, 1, 1, 0]),
        (output.ZIPF, binary_rows((10, 9), (50, 30), "group"), [1, 1, 1, 1]),
        (output.ZIPF, binary_rows((10, 40), (9, 50), "group"), [0, 0, 0, 1]),
    ],
)  # fmt: skip
def test_claims_tell_good_figures_from_bad(experiment, rows, holds):
    """Made-up rows on either side of the papers' figures."""
    rows = [{"seed": 0, **row} for row in rows]
    assert [finding.holds for _, finding in experiment.judge(rows)] == [bool(each) for each in holds]


def test_the_claims_on_memory_tell_good_figures_from_bad():
    """Lists with and without what deletion needs, bits of 50 bytes, a database of several times that."""
    good = {"lists": 60.0, "bits": 50.0, "bytes": 400.0, "database": 200.0, "adaptive": 10.0}
    bad = {"lists": 40.0, "bits": 41.0, "bytes": 400.0, "database": 20.0, "adaptive": 10.0}
    for mb, holds in ((good, [True] * 4), (bad, [False] * 4)):
        sizes = {name: int(1e6 * value) for name, value in mb.items()}
        rows = columns(mb, subscriptions=1_000_000, mb=mb, bytes=sizes, deletion_mb=30.0 if mb is good else 0.0)
        assert [finding.holds for _, finding in memory.EXPERIMENT.judge(rows)] == holds


def test_the_claims_on_space_and_the_bound_tell_good_figures_from_bad():
    """Linear or worse; under the bound or over it; with its power or a higher one."""
    for power, holds in ((1.0, [True] * 3), (1.5, [False] * 3)):
        rows = [
            {"matcher": "plain", "subscriptions": n, "edges": 20 * n**power, "bytes": n**power, "most_nodes": 31 * n}
            for n in (1_000, 100_000)
        ]
        assert [finding.holds for _, finding in space.EXPERIMENT.judge(rows)] == holds
    for power, holds in ((0.6, [True] * 3), (0.8, [True, True, False]), (1.5, [False] * 3)):
        rows = [
            {
                "kind": "k",
                "subscriptions": n,
                "visits_per_event": n**power,
                "bound": 45 * n**0.68,
                "power_of_bound": 0.68,
            }
            for n in (1_000, 100_000)
        ]
        assert [finding.holds for _, finding in bound.EXPERIMENT.judge(rows)] == holds


def test_the_claims_on_predicates_tell_good_figures_from_bad():
    """Tables that grow with the domain and win on W3 in the end; or neither."""

    def rows_of(tables, lists, mb):
        return [
            {
                "workload": w,
                "subscriptions": n,
                "predicates": 10_000 * n,
                "index": index,
                "us_per_event": us[i] * n,
                "mb": m,
            }
            for n in (1, 9)
            for i, w in enumerate(predicates.WORKLOADS)
            for index, us, m in (("tables", tables, mb[i]), ("lists", lists, 0.16 * n))
        ]

    good = rows_of((1, 2, 9, 4), (3, 3, 3, 3), (0.1, 0.2, 2.0, 1.0))
    for row in good:  # tables do not depend on the number of predicates
        row["us_per_event"] /= row["subscriptions"] if row["index"] == "tables" else 1
    assert [finding.holds for _, finding in predicates.EXPERIMENT.judge(good)] == [True] * 8
    bad = rows_of((9, 4, 2, 3), (9, 1, 9, 3), (2.0, 1.0, 0.1, 0.05))
    held = [finding.holds for _, finding in predicates.EXPERIMENT.judge(bad)]
    assert held == [False, False, False, False, False, True, False, True]


def test_the_printed_tables_are_as_long_as_the_papers():
    """Eight sizes in each column."""
    for printed in (match_time.PRINTED, load.PRINTED):
        assert [column.size for column in printed.values()] == [len(PAPER_SIZES)] * 3
