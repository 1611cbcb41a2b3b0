"""The matching tree finds what the definition of a clause says, has the paper's shape, and stays under its bound."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import log

import numpy as np
import pytest
from tests.unit.boxes import Constraint, make_boxes, make_events, random_case, truth
from tests.unit.tree_settings import SETTINGS

from wherecast.bench.workloads.form import Workload
from wherecast.bench.workloads.reference import make_workload
from wherecast.errors import MatcherError
from wherecast.index.boxes import FAR, Boxes, EventCodes, walk_constraints
from wherecast.matchers.scan import ScanMatcher
from wherecast.papers.gryphon.bound import bound_exponent, bound_visits
from wherecast.papers.gryphon.matcher import GeneralTreeMatcher, PlainTreeMatcher, Settings, TreeMatcher
from wherecast.papers.gryphon.workload import Simulation, event_codes

pytestmark = pytest.mark.slow  # kernels of a paper's matcher are compiled for nothing else

ALL = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
UNFACTORED = pytest.mark.parametrize(
    "settings", [s for s in SETTINGS.values() if s.factors == 0], ids=[n for n, s in SETTINGS.items() if s.factors == 0]
)
LEVEL_TREES = pytest.mark.parametrize(
    "settings", [s for s in SETTINGS.values() if not s.general], ids=[n for n, s in SETTINGS.items() if not s.general]
)


def found(matcher: TreeMatcher, events: EventCodes) -> list[list[int]]:
    """What the matcher answers, sorted."""
    ptr, ids = matcher.match(events)
    assert ptr.size == events.n_events + 1
    return [sorted(ids[ptr[e] : ptr[e + 1]].tolist()) for e in range(events.n_events)]


def take(boxes: Boxes, clauses: list[int]) -> Boxes:
    """Some of the clauses."""
    rows = np.concatenate([np.zeros(0, int), *(np.arange(boxes.ptr[c], boxes.ptr[c + 1]) for c in clauses)])
    ptr = np.cumsum([0, *(np.diff(boxes.ptr)[clauses])])
    ids, none = np.arange(len(clauses), dtype=np.int32), np.full(len(clauses), -1, np.int32)
    return Boxes(ids, ptr, boxes.attr[rows], boxes.lo[rows], boxes.hi[rows], none, len(clauses), boxes.widths)


def simulate(simulation: Simulation, size: int, n_events: int = 200) -> tuple[Workload, Boxes, EventCodes]:
    workload = simulation.workload(size, n_events)
    return workload, simulation.boxes(workload.predicates), event_codes(workload.events)


def visits_each(matcher: TreeMatcher, events: EventCodes) -> list[float]:
    """Nodes visited, event by event."""
    return [matcher.tally(events._replace(codes=events.codes[e : e + 1])).nodes for e in range(events.n_events)]


@ALL
@pytest.mark.parametrize(
    ("widths", "arrays", "tested"),
    [
        ([5] * 8, [], 0.4),
        ([11] * 4, [], 0.6),
        ([40, 300, 7], [], 0.7),
        ([9, 30, 8], [0, 1], 0.6),
        ([1, 2, 20], [2], 0.7),
    ],
)
def test_sets_of_every_kind(widths: list[int], arrays: list[int], tested: float, settings: Settings) -> None:
    """Points, ranges, lists of intervals, NULL and arrays agree with the definition."""
    boxes, events = random_case(np.random.default_rng(len(widths)), 150, 12, widths, arrays, tested)
    matcher = TreeMatcher.build(boxes, events, settings=settings)
    assert found(matcher, events) == truth(boxes, events)
    assert matcher.weigh(events, np.arange(151, dtype=np.int32)).tolist() == np.diff(matcher.match(events)[0]).tolist()


@ALL
def test_empty_and_unconstrained(settings: Settings) -> None:
    """No clauses match nothing; clauses without constraints match everything; zero events give zero rows."""
    events = make_events([[0, 0], [3, 1]], 2)
    assert found(TreeMatcher.build(make_boxes([], [4, 4]), settings=settings), events) == [[], []]
    free = make_boxes([[], [(0, [(3, 3)])], [(1, [(0, int(FAR))])], []], [4, 4])
    assert found(TreeMatcher.build(free, settings=settings), events) == [[0, 2, 3], [0, 1, 2, 3]]
    assert found(TreeMatcher.build(free, settings=settings), make_events([], 2)) == []


@ALL
def test_output_grows(settings: Settings) -> None:
    """Far more matches than first reserved come back complete and in event order."""
    boxes = make_boxes([[(0, [(2, 3)])]] * 5000, [9])
    ptr, ids = TreeMatcher.build(boxes, settings=settings).match(make_events([[2], [5], [3]], 1))
    assert ptr.tolist() == [0, 5000, 5000, 10000]
    assert np.array_equal(np.sort(ids[:5000]), np.arange(5000))


@ALL
def test_large_sets(settings: Settings) -> None:
    """Thousands of clauses of the simulation agree with the scan."""
    _, boxes, events = simulate(Simulation(12, 4), 3000, 30)
    expected = ScanMatcher(boxes).match(events)
    matcher = TreeMatcher.build(boxes, settings=settings)
    assert found(matcher, events) == [
        expected.clause_ids[a:b].tolist() for a, b in zip(expected.event_ptr[:-1], expected.event_ptr[1:], strict=True)
    ]


# --- the shape of the tree -------------------------------------------------------------------------------------------


def test_plain_tree_is_the_papers() -> None:
    """One level per attribute, `*` edges included, shared beginnings shared (the example of section 4)."""
    clauses: list[list[Constraint]] = [
        [(0, [(1, 1)]), (1, [(2, 2)]), (2, [(3, 3)])],
        [(0, [(1, 1)]), (2, [(3, 3)])],
        [(0, [(1, 1)]), (1, [(2, 2)]), (2, [(2, 2)])],
    ]
    plain = PlainTreeMatcher.build(make_boxes(clauses, [4, 4, 4]))
    # root, 1, then 1.2 and 1.*, then 1.2.3, 1.2.2 and 1.*.3; attributes 0 and 2 are the popular ones and come first
    assert plain.stats()["levels"] == 3
    assert plain.stats()["nodes"] == 1 + 1 + 2 + 3
    assert plain.tally(make_events([[1, 2, 3]], 3)).nodes == 1 + 1 + 1 + 2
    assert plain.tally(make_events([[2, 2, 3]], 3)).nodes == 1


def test_star_chains_collapse() -> None:
    """A clause costs a node per constraint, not one per attribute; the plain tree has them all."""
    clauses: list[list[Constraint]] = [[(a, [(1, 1)])] for a in range(10)]
    boxes = make_boxes(clauses, [3] * 10)
    assert (
        TreeMatcher.build(boxes, settings=SETTINGS["plain"]).stats()["nodes"]
        == 1 + sum(11 - a for a in range(1, 11)) + 9
    )
    assert TreeMatcher.build(boxes, settings=SETTINGS["collapsed"]).stats()["nodes"] == 10 + 10
    lonely = TreeMatcher.build(
        make_boxes([*clauses[:1], [(0, [(1, 1)]), (9, [(1, 1)])]], [3] * 10), settings=SETTINGS["collapsed"]
    )
    assert lonely.stats()["nodes"] == 3


def test_implied_tests_are_not_repeated() -> None:
    """`x = 3` goes where `2 <= x <= 9` holds, `x = 12` where it does not; neither is behind a `*` edge."""
    clauses: list[list[Constraint]] = [[(0, [(2, 9)])], [(0, [(3, 3)])], [(0, [(12, 12)])], [(0, [(4, 8)])]]
    matcher = GeneralTreeMatcher.build(make_boxes(clauses, [20]))
    # root (2..9?); inside: x?, 3, * (4..8?), inside; outside: x?, 12
    assert matcher.stats()["nodes"] == 1 + 4 + 2
    events = make_events([[3], [5], [12], [15]], 1)
    assert found(matcher, events) == [[0, 1], [0, 3], [2], []]
    # an event inside never meets x = 12, one outside never x = 3 or 4..8
    assert visits_each(matcher, events) == [4, 4, 3, 2]


def test_a_constraint_that_follows_is_done() -> None:
    """Where the codes outside a set all satisfy a constraint, its clause hangs there without a test of its own."""
    clauses: list[list[Constraint]] = [[(0, [(0, 1)])], [(0, [(2, 2)])], [(0, [(1, 2)])]]
    matcher = GeneralTreeMatcher.build(make_boxes(clauses, [3]))
    # root (0..1?), inside, outside is x = 2 itself; 1..2 overlaps and is a test of its own behind *
    assert matcher.stats()["nodes"] == 1 + 2 + 2
    assert found(matcher, make_events([[0], [1], [2]], 1)) == [[0], [0, 2], [1, 2]]
    wide = GeneralTreeMatcher.build(make_boxes([[(0, [(0, 4)])], [(0, [(3, 9)])], [(0, [(5, 9)])]], [10]))
    assert wide.stats()["nodes"] == 1 + 2 + 2


def test_implied_in_arrays() -> None:
    """An array may hold elements inside and outside of a set; clauses on both are found."""
    clauses: list[list[Constraint]] = [
        [(0, [(2, 4)])], [(0, [(3, 3)]), (0, [(7, 7)])], [(0, [(7, 9)])], [(0, [(3, 3)]), (0, [(3, 3)])],
    ]  # fmt: skip
    boxes = make_boxes(clauses, [12])
    events = make_events([[[1, 3, 7]], [[1, 3]], [[1, 7]], [[0]], [[1]], [[1, 3, 3, 8]]], 1)
    assert found(GeneralTreeMatcher.build(boxes), events) == truth(boxes, events)


@LEVEL_TREES
def test_shape_depends_on_the_clauses_alone(settings: Settings) -> None:
    """After removals, and insertions in another order, a level tree has as many nodes as one built afresh."""
    rng = np.random.default_rng(5)
    boxes, events = random_case(rng, 120, 5, [5, 4, 6, 9, 3], [], 0.5)
    matcher = TreeMatcher.build(boxes, settings=replace(settings, factors=0))
    fresh = matcher.stats()
    gone = rng.permutation(120)[:60].astype(np.int32)
    matcher.remove(gone)
    kept = TreeMatcher.build(
        take(boxes, sorted(set(range(120)) - set(gone.tolist()))), settings=replace(settings, factors=0)
    )
    same_order = kept._levels.attribute.tolist() == matcher._levels.attribute.tolist()
    assert not same_order or kept.stats()["nodes"] == matcher.stats()["nodes"]
    for clause in rng.permutation(gone).tolist():
        matcher.insert(take(boxes, [clause]))
    assert [matcher.stats()[k] for k in ("nodes", "entries", "sets")] == [
        fresh[k] for k in ("nodes", "entries", "sets")
    ]
    assert [len(row) for row in found(matcher, events)] == [len(row) for row in truth(boxes, events)]


def test_equal_clauses_share_a_node() -> None:
    """Identical subscriptions are one path."""
    boxes = make_boxes([[(0, [(1, 2)]), (1, [(3, 3)])]] * 50, [5, 5])
    assert [m.build(boxes).stats()["nodes"] for m in (TreeMatcher, PlainTreeMatcher, GeneralTreeMatcher)] == [
        TreeMatcher.build(make_boxes([[(0, [(1, 2)]), (1, [(3, 3)])]], [5, 5])).stats()["nodes"], 3, 3,
    ]  # fmt: skip


# --- changes ---------------------------------------------------------------------------------------------------------


@ALL
def test_nothing_is_left(settings: Settings) -> None:
    """After all clauses are removed there is no node, entry or set; what comes next uses the same rows and ids."""
    boxes, events = random_case(np.random.default_rng(8), 80, 5, [9, 5, 30, 4], [1], 0.6)
    matcher = TreeMatcher.build(boxes, settings=settings)
    for clause in np.random.default_rng(1).permutation(80).astype(np.int32):
        matcher.remove(np.array([clause]))
    assert [matcher.stats()[k] for k in ("clauses", "nodes", "entries", "sets", "subtrees")] == [0] * 5
    rows = len(matcher.arrays()["tree_nodes"])
    ids = matcher.insert(boxes)
    assert sorted(ids.tolist()) == list(range(80))
    if not settings.general:
        assert len(matcher.arrays()["tree_nodes"]) <= rows
    assert found(matcher, events) == [sorted(ids[row].tolist()) for row in truth(boxes, events)]


@ALL
def test_new_columns_come_last(settings: Settings) -> None:
    """Clauses on attributes that no clause had, and on further elements of an array, are inserted."""
    matcher = TreeMatcher.build(make_boxes([[(0, [(2, 2)])]], [9, 9, 9]), settings=settings)
    more: list[list[Constraint]] = [[(2, [(1, 4)])], [(1, [(2, 2)]), (1, [(3, 3)])], [(0, [(1, 2)]), (2, [(5, 5)])]]
    assert matcher.insert(make_boxes(more, [9, 9, 9])).tolist() == [1, 2, 3]
    events = make_events([[2, [1, 2, 3], 5], [2, [1, 2], 3], [1, [0], 5]], 3)
    assert found(matcher, events) == [[0, 2, 3], [0, 1], [3]]


def test_a_cell_may_be_split_later() -> None:
    """A clause that comes later may tell codes apart that a factored tree took to be alike."""
    matcher = TreeMatcher.build(make_boxes([[(0, [(2, 6)])], [(0, [(7, 7)])]], [9]), settings=Settings(factors=1))
    assert matcher.stats()["subtrees"] == 2
    matcher.insert(make_boxes([[(0, [(4, 7)])], [], [(0, [(0, 0)])]], [9]))
    events = make_events([[code] for code in range(9)], 1)
    expected = [[3, 4], [3], [0, 3], [0, 3], [0, 2, 3], [0, 2, 3], [0, 2, 3], [1, 2, 3], [3]]
    assert found(matcher, events) == expected


def test_ids_of_removed_clauses_come_first() -> None:
    """Insertion fills the gaps before it takes new ids."""
    boxes = make_boxes([[(0, [(c, c)])] for c in range(6)], [9])
    matcher = TreeMatcher.build(boxes)
    matcher.remove(np.array([1, 4], np.int32))
    ids = matcher.insert(make_boxes([[(0, [(7, 7)])]] * 3, [9]))
    assert sorted(ids.tolist()) == [1, 4, 6]
    assert found(matcher, make_events([[7], [1]], 1)) == [[1, 4, 6], []]
    assert matcher.n_clauses == 7


def test_successors_are_found_again() -> None:
    """A change discards successors; the answers stay right without, and with those that `analyse` finds."""
    _, boxes, events = simulate(Simulation(8, 3), 400, 40)
    matcher = TreeMatcher.build(boxes, settings=SETTINGS["collapsed, successors"])
    assert matcher.stats()["successors"] > 0
    matcher.remove(np.arange(0, 400, 3, dtype=np.int32))
    expected = [[c for c in row if c % 3] for row in truth(boxes, events)]
    assert matcher.stats()["successors"] == 0
    assert found(matcher, events) == expected
    matcher.analyse()
    assert matcher.stats()["successors"] > 0
    assert found(matcher, events) == expected


@ALL
def test_stored_form(settings: Settings) -> None:
    """A matcher opened from read-only arrays answers the same, and copies them when it changes."""
    boxes, events = random_case(np.random.default_rng(2), 60, 6, [9, 5, 30], [0], 0.6)
    arrays = {k: v.copy() for k, v in TreeMatcher.build(boxes, settings=settings).arrays().items()}
    for array in arrays.values():
        array.flags.writeable = False
    opened = TreeMatcher.from_arrays(arrays)
    assert found(opened, events) == truth(boxes, events)
    opened.insert(boxes)
    opened.remove(np.arange(60, dtype=np.int32))
    assert found(opened, events) == [[c + 60 for c in row] for row in truth(boxes, events)]
    assert found(TreeMatcher.from_arrays(arrays), events) == truth(boxes, events)


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ([70, 70], "4,900 subtrees, at most 4,096; factor 1"),
        ([9000, 70], "9,000 codes, at most 4,096 are cut into cells; factor 0"),
    ],
)
def test_too_many_subtrees(widths: list[int], message: str) -> None:
    """Factoring that would explode is refused, with the number that would not; the default does with less."""
    boxes = make_boxes([[(0, [(c, c)]), (1, [(c, c)])] for c in range(1, 70)], widths)
    with pytest.raises(MatcherError, match=message):
        TreeMatcher.build(boxes, settings=Settings(factors=2))
    assert TreeMatcher.build(boxes).stats()["factors"] <= 1


def test_too_many_copies() -> None:
    """Factoring that copies clauses too often is refused."""
    clauses: list[list[Constraint]] = [[(0, [(c, c)])] for c in range(1, 80)]
    boxes = make_boxes([*clauses, *([[(1, [(1, 1)])]] * 78)], [80, 3])
    with pytest.raises(MatcherError, match=r"a clause would be in 40\.2 subtrees on average, at most 32; factor 0"):
        TreeMatcher.build(boxes, settings=Settings(factors=1))
    assert TreeMatcher.build(boxes).stats()["factors"] == 0


def test_further_elements_are_not_factored() -> None:
    """An array asked for two elements is factored on the first at most."""
    boxes = make_boxes([[(0, [(1, 1)]), (0, [(2, 2)])]] * 3, [4])
    with pytest.raises(MatcherError, match="several elements"):
        TreeMatcher.build(boxes, settings=Settings(factors=2))


def test_removals_are_all_or_nothing() -> None:
    """An id that is not there, or is there twice, is named, and nothing changes."""
    matcher = TreeMatcher.build(make_boxes([[(0, [(1, 1)])]] * 3, [3]))
    for ids, message in (([0, 7], "no clause 7"), ([-1], "no clause -1"), ([2, 0, 2], "clause 2 .* twice")):
        with pytest.raises(MatcherError, match=message):
            matcher.remove(np.array(ids, np.int32))
    assert found(matcher, make_events([[1]], 1)) == [[0, 1, 2]]
    matcher.remove(np.array([1], np.int32))
    with pytest.raises(MatcherError, match="no clause 1"):
        matcher.remove(np.array([1], np.int32))


def test_other_codes_are_refused() -> None:
    """Clauses over other codes cannot be inserted."""
    matcher = TreeMatcher.build(make_boxes([[(0, [(1, 1)])]], [3]))
    with pytest.raises(MatcherError, match="other attributes or codes"):
        matcher.insert(make_boxes([[(0, [(1, 1)])]], [4]))


# --- what it costs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("attributes", "values"), [(30, 5), (6, 3), (4, 10), (12, 2)])
@pytest.mark.parametrize("falloff", [1.0, 0.85, 0.5])
@pytest.mark.parametrize("popularity", [0.98, 0.3])
def test_visits_stay_under_the_bound(attributes: int, values: int, popularity: float, falloff: float) -> None:
    """Whatever the subscriptions, uniform events visit fewer nodes than C * S^(1 - lambda)."""
    for size in (10, 300, 3000):
        _, boxes, events = simulate(Simulation(attributes, values, popularity, falloff), size, 100)
        for settings in (SETTINGS["plain"], SETTINGS["collapsed"], SETTINGS["collapsed, successors"]):
            visits = TreeMatcher.build(boxes, settings=settings).tally(events).nodes
            assert visits <= bound_visits(size, attributes, values)


def test_the_bound_is_the_papers() -> None:
    """The exponent is 1 - ln V / (ln V + ln K), and the constant is what the sum over all nodes allows."""
    assert bound_exponent(30, 5) == pytest.approx(1 - log(5) / (log(5) + log(30)))
    assert bound_visits(1000, 30, 5) == pytest.approx(4977, rel=1e-3)
    # one subscription is one path: at most K + 1 nodes
    assert bound_visits(1, 30, 5) >= 31
    with pytest.raises(ValueError, match="at least 2"):
        bound_visits(10, 1, 5)


def test_visits_grow_slower_and_space_no_faster_than_subscriptions() -> None:
    """Ten times the subscriptions: visits by at most 10^(1 - lambda), nodes and bytes by at most ten."""
    for settings in (SETTINGS["plain"], SETTINGS["collapsed"]):
        facts = []
        for size in (1_000, 10_000):
            _, boxes, events = simulate(Simulation(), size)
            facts.append(TreeMatcher.build(boxes, settings=settings).stats(events))
            assert facts[-1]["nodes"] <= size * 31 + 1
        assert facts[1]["nodes_per_event"] <= 10 ** bound_exponent(30, 5) * facts[0]["nodes_per_event"]
        assert facts[1]["nodes"] <= 10 * facts[0]["nodes"]


@ALL
def test_visits_are_fewer_than_counter_updates(settings: Settings) -> None:
    """Counting adds one to a clause's counter per satisfied predicate; the tree visits fewer nodes, on every event."""
    _, boxes, events = simulate(Simulation(), 600, 12)
    updates = [
        sum(held for c in range(boxes.n_clauses) for _, _, held in walk_constraints(boxes, c, events, e))
        for e in range(events.n_events)
    ]
    visits = visits_each(TreeMatcher.build(boxes, settings=settings), events)
    assert all(seen <= updated for seen, updated in zip(visits, updates, strict=True))


def test_each_optimisation_saves_visits() -> None:
    """On the paper's simulation: collapsing, then successors, then factoring each visit fewer nodes."""
    _, boxes, events = simulate(Simulation(), 3000)
    names = "plain", "collapsed", "collapsed, successors", "all"
    visits = [TreeMatcher.build(boxes, settings=SETTINGS[name]).tally(events).nodes for name in names]
    assert visits == sorted(visits, reverse=True)
    assert len(set(visits)) == 4


def test_stats_and_plan() -> None:
    """The plan names the parts, statistics add up, and a sample shows what an event visits."""
    _, boxes, events = simulate(Simulation(), 500)
    matcher = TreeMatcher.build(boxes, events)
    stats = matcher.stats()
    assert stats["bytes"] == sum(v.nbytes for v in matcher.arrays().values())
    assert stats["entries"] >= stats["clauses"] == 500
    assert (stats["nodes_per_event"], stats["edges_per_event"]) == matcher.tally(events)
    assert "subtrees by the values of the attributes 0, 1" in matcher.explain_plan()
    assert "an event visits" in matcher.explain_plan()
    assert "general tree" in GeneralTreeMatcher.build(boxes).explain_plan()


def test_threads_share_a_matcher() -> None:
    """Batches matched at the same time by several threads give what one thread gives."""
    _, boxes, events = simulate(Simulation(), 2000, 64)
    matcher = TreeMatcher.build(boxes)
    parts = [events._replace(codes=events.codes[i : i + 8]) for i in range(0, 64, 8)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda part: matcher.match(part)[1].tolist(), parts))
    assert [i for ids in together for i in ids] == matcher.match(events)[1].tolist()


# --- the simulation --------------------------------------------------------------------------------------------------


def test_simulation_is_the_reference_workload() -> None:
    """With its defaults, the simulation is the workload `gryphon`, and its boxes mean what its predicates say."""
    workload, boxes, events = simulate(Simulation(), 1000, 2000)
    reference = make_workload("gryphon", 0.01)
    assert np.array_equal(workload.events, reference.events)
    assert workload.filter_texts() == reference.filter_texts()
    few = events._replace(codes=events.codes[:50])
    assert np.diff(ScanMatcher(boxes).match(few).event_ptr).tolist() == workload.truth().counts.tolist()
