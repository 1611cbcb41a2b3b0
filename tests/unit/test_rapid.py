"""RAPIDMatch: its sets, blocks and trees in the binary model, typed filters as binary properties, refusals."""

from __future__ import annotations

import json
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest

from wherecast.bench.workloads.form import WorkloadError
from wherecast.engine.engine import Engine
from wherecast.errors import MatcherError
from wherecast.index.boxes import FAR, Boxes, EventCodes
from wherecast.matchers.scan import ScanMatcher
from wherecast.papers.rapidmatch.binary import (
    STAR,
    BinaryIndex,
    Forest,
    naive_matches,
    pack_events,
    pack_subscriptions,
)
from wherecast.papers.rapidmatch.matcher import RapidMatcher
from wherecast.papers.rapidmatch.partial_match import naive_partial_match, reduce_matching, reduce_partial_match
from wherecast.papers.rapidmatch.partition import MOST_PROPERTIES
from wherecast.papers.rapidmatch.workload import draw_exponential, draw_light

pytestmark = pytest.mark.slow  # kernels of a paper's matcher are compiled for nothing else

TABLES = sorted(Path(__file__).parents[1].glob("cases/*.json"))


def subscriptions(*texts: str) -> np.ndarray:
    """Subscriptions written as 0, 1 and *."""
    return np.array([[STAR if c == "*" else int(c) for c in text] for text in texts], np.int8)


def lists(hits: tuple[np.ndarray, np.ndarray]) -> list[list[int]]:
    ptr, ids = hits
    return [sorted(ids[a:b].tolist()) for a, b in pairwise(ptr)]


def box(*clauses: list[tuple[int, list[tuple[int, int]]]], widths: list[int]) -> Boxes:
    """Boxes from clauses given as lists of (attribute, intervals)."""
    rows = [
        (a if i == len(intervals) - 1 else ~a, lo, hi)
        for clause in clauses
        for a, intervals in clause
        for i, (lo, hi) in enumerate(intervals)
    ]
    attr, lo, hi = np.array(rows, np.int64).reshape(-1, 3).T
    ptr = np.cumsum([0, *(sum(len(intervals) for _, intervals in clause) for clause in clauses)])
    n = len(clauses)
    return Boxes(
        np.arange(n, dtype=np.int32), ptr, attr.astype(np.int16), lo.astype(np.int32), hi.astype(np.int32),
        np.full(n, -1, np.int32), n, np.array(widths, np.int32),
    )  # fmt: skip


def points(*codes: list[int]) -> EventCodes:
    """Events with one code per attribute."""
    return EventCodes(np.array(codes, np.int32), np.zeros(1, np.int64), np.zeros(0, np.int32))


def arrays(*codes: list[int]) -> EventCodes:
    """Events whose only attribute is an array."""
    ptr = np.cumsum([0, *map(len, codes)])
    return EventCodes(~np.arange(len(codes), dtype=np.int32)[:, None], ptr, np.array([*chain(*codes)], np.int32))


# --- the binary model -------------------------------------------------------------------------------------------------


def test_sets_are_those_of_the_paper() -> None:
    """A tree holds s if n1(s) <= t <= n1*(s) and s has no 1 in the block; the last if n1*(s) >= c + 1 (the erratum)."""
    k, c = 7, 4
    rng = np.random.default_rng(5)
    values = rng.choice(np.array([0, 1, STAR], np.int8), (200, k), p=[0.5, 0.2, 0.3])
    ones, open_ = (values == 1).sum(axis=1), (values != 0).sum(axis=1)
    for s in range(200):
        index = BinaryIndex.build(pack_subscriptions(values[s : s + 1]), k, c)
        expected = sum(
            not (values[s, j * k // (t + 1) : (j + 1) * k // (t + 1)] == 1).any()
            for t in range(c + 1)
            if ones[s] <= t <= open_[s]
            for j in range(t + 1)
        )
        assert index.count_slots() == expected + (open_[s] >= c + 1)


@pytest.mark.parametrize(("k", "c"), [(12, 3), (100, 10), (7, 7), (1, 1), (5, -1)])
def test_blocks_cover_the_properties(k: int, c: int) -> None:
    """The t + 1 blocks of each t are consecutive, cover all k properties, and differ in length by at most one."""
    forest = Forest.plan(k, c)
    assert len(forest.trees) == (c + 1) * (c + 2) // 2 + 1
    for t in range(c + 1):
        blocks = forest.trees[forest.first_tree[t] : forest.first_tree[t] + t + 1, :2]
        assert blocks[0, 0] == 0
        assert blocks[-1, 1] == k
        assert np.array_equal(blocks[1:, 0], blocks[:-1, 1])
        assert np.ptp(np.diff(blocks)) <= 1


@pytest.mark.parametrize("t", range(1, 8))
def test_light_events_skip_their_block(t: int) -> None:
    """An event with t <= c ones is spared k/(t + 1) levels, a heavier one none; c = -1 is the plain tree."""
    k, c = 60, 5
    w = draw_light(400, k=k, n_events=1, seed=2)
    events = np.zeros((20, k), np.int8)
    for e in range(20):
        events[e, np.random.default_rng(e).choice(k, t, replace=False)] = 1
    rows, bits = pack_subscriptions(w.subscriptions), pack_events(events)
    tally, plain = BinaryIndex.build(rows, k, c).tally(bits), BinaryIndex.build(rows, k, -1).tally(bits)
    assert plain.levels_skipped == 0
    if t > c:
        assert tally == plain
    else:
        assert 20 * (k // (t + 1)) <= tally.levels_skipped <= 20 * -(-k // (t + 1))
        assert tally.nodes < plain.nodes
    assert tally.matches == plain.matches


def count_operations(values: np.ndarray, order: list[int], event: np.ndarray) -> tuple[int, int]:
    """Nodes and edges that the paper's tree search meets: prefixes over {0, 1, *} whose values all match the event."""
    paths = {tuple(row[order]) for row in values}
    prefixes = {path[:i] for path in paths for i in range(len(order) + 1)}
    visited = [p for p in prefixes if all(v in {STAR, event[order[i]]} for i, v in enumerate(p))]
    nodes = sum(len(p) < len(order) for p in visited)
    return nodes, len(visited) - (1 if paths else 0)


@pytest.mark.parametrize("c", [-1, 0, 2, 4])
def test_operations_are_those_of_uncollapsed_trees(c: int) -> None:
    """Nodes and edges are counted as in trees that store every node of every path."""
    rng, k = np.random.default_rng(c + 9), 9
    for _ in range(20):
        values = rng.choice(np.array([0, 1, STAR], np.int8), (int(rng.integers(1, 30)), k), p=[0.2, 0.2, 0.6])
        event = (rng.random(k) < 0.3).astype(np.int8)
        t, order, members = int(event.sum()), list(range(k)), (values != 0).sum(axis=1) >= c + 1
        if t <= c:
            blocks = [(j * k // (t + 1), (j + 1) * k // (t + 1)) for j in range(t + 1)]
            first, end = next(b for b in blocks if not event[slice(*b)].any())
            order = [*range(end, k), *range(first)]
            members = ((values == 1).sum(axis=1) <= t) & ((values != 0).sum(axis=1) >= t)
            members &= ~(values[:, first:end] == 1).any(axis=1)
        tally = BinaryIndex.build(pack_subscriptions(values), k, c).tally(pack_events(event[None]))
        assert (tally.nodes, tally.edges) == count_operations(values[members], order, event)


def test_alike_outside_the_block() -> None:
    """Subscriptions that differ only where a tree does not look, or not at all, are found and removed one by one."""
    values = subscriptions("0***1*", "****1*", "*0**1*", "****1*", "00**1*", "***01*")
    index = BinaryIndex.build(pack_subscriptions(values), 6, 1)
    event = pack_events(np.array([[0, 0, 0, 0, 1, 0]], np.int8))
    left = set(range(6))
    for dead in (3, 0, 5, 1, 2, 4):
        assert lists(index.match(event)) == [sorted(left)]
        index.remove(np.array([dead], np.int32))
        left.remove(dead)
    assert lists(index.match(event)) == [[]]
    assert index.count_slots() == 0


def test_ids_are_used_again() -> None:
    """New subscriptions get the ids of removed ones first; removing what is not there changes nothing."""
    index = BinaryIndex.build(pack_subscriptions(subscriptions("1**", "0**", "*1*")), 3, 2)
    index.remove(np.array([1], np.int32))
    for ids in ([1], [0, 1], [0, 3], [-1], [0, 0]):
        with pytest.raises(MatcherError):
            index.remove(np.array(ids, np.int32))
    assert len(index) == 2
    assert index.insert(pack_subscriptions(subscriptions("**1", "**0"))).tolist() == [1, 3]
    assert lists(index.match(pack_events(np.array([[1, 0, 1]], np.int8)))) == [[0, 1]]


@pytest.mark.parametrize("draw", [draw_light, draw_exponential])
def test_workloads_of_the_paper(draw) -> None:
    """On the paper's workloads RAPIDMatch, the plain tree and the definition agree; so does the workload as predicates."""
    w = draw(2_000, n_events=40, seed=1)
    rows, bits = pack_subscriptions(w.subscriptions), pack_events(w.events)
    expected = [np.flatnonzero(naive_matches(w.subscriptions, e)).tolist() for e in w.events]
    for c in (6, -1):
        assert lists(BinaryIndex.build(rows, 100, c).match(bits)) == expected
    truth = w.workload("w").truth()
    assert truth.counts.tolist() == [len(ids) for ids in expected][: len(truth.counts)]
    assert np.array_equal(draw(2_000, n_events=40, seed=1).events, w.events)


def test_draws_have_the_parameters_asked_for() -> None:
    """Tests of 0 and of 1 are a twentieth each; Zipf events have 1 to c - 1 ones, about 3 on average; p is p."""
    w = draw_light(20_000, n_events=5_000)
    assert [(w.subscriptions == v).mean() for v in (0, 1)] == pytest.approx([0.05, 0.05], rel=0.15)
    assert w.events.sum(axis=1).mean() == pytest.approx(3.17, rel=0.1)
    ones = draw_light(10, c=4, n_events=2_000).events.sum(axis=1)
    assert (ones.min(), ones.max()) == (1, 3)
    assert (ones == 1).mean() == pytest.approx(36 / 49, abs=0.05)
    assert draw_exponential(10, p=0.3, n_events=500).events.mean() == pytest.approx(0.3, abs=0.02)
    with pytest.raises(WorkloadError, match="c = 1 "):
        draw_light(10, c=1)


# --- reductions -------------------------------------------------------------------------------------------------------


def test_reductions_agree_on_every_pair() -> None:
    """Over all points and patterns of three positions, images match if and only if the originals do, both ways."""
    values = np.stack(np.meshgrid(*[[0, 1, STAR]] * 3), -1).reshape(-1, 3).astype(np.int8)
    full = values[(values != STAR).all(axis=1)]
    doubled, events = reduce_partial_match(full, values)
    for query, event in zip(values, events, strict=True):
        assert np.array_equal(naive_partial_match(full, query), naive_matches(doubled, event))
    assert set(np.unique(doubled)) == {0, STAR}
    assert set(np.unique(events)) == {0, 1}
    tuples, queries = reduce_matching(values, full)
    for event, query in zip(full, queries, strict=True):
        assert np.array_equal(naive_matches(values, event), naive_partial_match(tuples, query))
    assert set(np.unique(tuples)) == {0, 1}


def test_partial_match_by_rapidmatch() -> None:
    """RAPIDMatch answers Partial Match through the reduction."""
    rng = np.random.default_rng(0)
    tuples = rng.integers(0, 2, (300, 12)).astype(np.int8)
    queries = rng.choice(np.array([0, 1, STAR], np.int8), (30, 12), p=[0.15, 0.15, 0.7])
    rows, events = reduce_partial_match(tuples, queries)
    found = lists(BinaryIndex.build(pack_subscriptions(rows), 24, 6).match(pack_events(events)))
    assert found == [np.flatnonzero(naive_partial_match(tuples, q)).tolist() for q in queries]


# --- typed filters ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("planned", [False, True], ids=["no sample", "sample"])
@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_case_tables(path: Path, planned: bool) -> None:
    """Each filter of the case tables matches exactly its rows, whether events were shown beforehand or not."""
    table = json.loads(path.read_text("utf-8"))
    engine = Engine(table["schema"], matcher="rapid")
    assert not engine.subscribe_many(enumerate(case["filter"] for case in table["cases"])).quarantined
    if planned:
        engine.plan(table["events"])
    matched = engine.match_batch(table["events"]).to_lists()
    for number, case in enumerate(table["cases"]):
        assert [row for row, ids in enumerate(matched) if number in ids] == case["matches"], case["filter"]


def test_few_properties() -> None:
    """Of `p = 0` and `p = 1` with mostly zeros two properties are made, and an event of zeros sets none."""
    boxes = box([(0, [(2, 2)])], [(0, [(4, 4)])], widths=[6])
    events = points([2], [2], [2], [4], [0], [3])
    matcher = RapidMatcher.build(boxes, events)
    assert matcher.stats()["properties"] == 2
    assert lists(matcher.match(events)) == [[0], [0], [0], [1], [], []]
    assert matcher.tally(points([2])).levels_skipped == 2


def test_ranges_are_zeros_outside() -> None:
    """Ranges over five cells take five properties, and an event sets exactly one."""
    boxes = box([(0, [(0, 9)])], [(0, [(5, 19)])], [(0, [(15, 30)])], [(0, [(40, int(FAR))])], widths=[60])
    events = points([0], [5], [12], [17], [25], [35], [40], [59])
    matcher = RapidMatcher.build(boxes, events)
    assert lists(matcher.match(events)) == lists(ScanMatcher(boxes).match(events))
    assert matcher.stats()["properties"] == 7
    assert "sets 1 to 1" in matcher.explain_plan()


def test_an_array_among_single_values_is_refused() -> None:
    """What was shown as a single value and comes as an array is an error that says what to do."""
    boxes = box([(0, [(2, 2), (5, 5)])], widths=[9])
    matcher = RapidMatcher.build(boxes, points([2], [5]))
    with pytest.raises(MatcherError, match=r"attribute 0 has an array.*sample"):
        matcher.match(arrays([1, 5]))
    assert lists(RapidMatcher.build(boxes, arrays([1])).match(arrays([1, 5, 2], [1, 3], [0]))) == [[0], [], []]


def test_too_many_properties_are_refused() -> None:
    """More constants than properties: refused when built, with the number and what to use instead."""
    n = MOST_PROPERTIES + 1
    boxes = box(*([(0, [(2 * i + 1, 2 * i + 1)])] for i in range(n)), widths=[2 * n + 2])
    for sample in (None, points([0])):
        with pytest.raises(MatcherError, match=rf"at most {MOST_PROPERTIES} properties.*{n}.*adaptive"):
            RapidMatcher.build(boxes, sample)
    with pytest.raises(MatcherError, match="c = -2"):
        RapidMatcher.build(box(widths=[3]), c=-2)


def test_a_given_partition() -> None:
    """Constraints of whole cells are served, others refused, now and when inserted; so are alternatives on arrays."""
    whole = box([(0, [(5, 9)])], [(0, [(0, 4), (10, int(FAR))])], widths=[20])
    events = points([0], [5], [9], [10], [19])
    matcher = RapidMatcher.build(whole, events, partition=[[0, 5, 10]])
    assert lists(matcher.match(events)) == [[1], [0], [0], [1], [1]]
    assert matcher.stats()["properties"] == 3
    cut = box([(0, [(5, 7)])], widths=[20])
    with pytest.raises(MatcherError, match="inside a cell"):
        matcher.insert(cut)
    with pytest.raises(MatcherError, match="inside a cell"):
        RapidMatcher.build(cut, partition=[[0, 5, 10]])
    with pytest.raises(MatcherError, match="one of several"):
        RapidMatcher.build(whole, arrays([1, 5]), partition=[[0, 5, 10]])
    with pytest.raises(MatcherError, match="each of 1 attributes, not 2"):
        RapidMatcher.build(whole, partition=[[0, 5], [3]])
    assert lists(matcher.match(events)) == [[1], [0], [0], [1], [1]]


def test_a_finer_partition_when_needed() -> None:
    """A clause that cuts a cell is inserted all the same; ids stay, and those of removed clauses are used again."""
    events = points([0], [3], [5], [8])
    matcher = RapidMatcher.build(box([(0, [(0, 4)])], [(0, [(5, 9)])], [], widths=[10]), events)
    matcher.remove(np.array([1], np.int32))
    assert matcher.insert(box([(0, [(3, 5)])], [(0, [(8, 8)])], widths=[10])).tolist() == [1, 3]
    assert lists(matcher.match(events)) == [[0, 2], [0, 1, 2], [1, 2], [2, 3]]
    matcher.remove(np.array([2], np.int32))
    assert lists(matcher.match(events)) == [[0], [0, 1], [1], [3]]


def test_state_is_arrays() -> None:
    """A matcher opened from read-only arrays answers alike, and can be changed without changing them."""
    boxes = box([(0, [(2, 2)]), (1, [(1, 5)])], [(1, [(4, 9)])], widths=[5, 10])
    events = points([2, 4], [2, 1], [0, 9])
    for sample in (None, events):
        stored = {name: array.copy() for name, array in RapidMatcher.build(boxes, sample).arrays().items()}
        for array in stored.values():
            array.flags.writeable = False
        opened = RapidMatcher.from_arrays(stored)
        assert lists(opened.match(events)) == [[0, 1], [0], [1]]
        assert opened.weigh(events, np.array([0, 3, 4], np.int32)).tolist() == [4, 3, 1]
        opened.remove(np.array([0], np.int32))
        assert opened.insert(box([(0, [(0, 1)])], widths=[5, 10])).tolist() == [0]
        assert lists(opened.match(events)) == [[1], [], [0, 1]]
        assert lists(RapidMatcher.from_arrays(stored).match(events)) == [[0, 1], [0], [1]]
