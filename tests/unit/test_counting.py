"""The counting matcher: what a predicate is, whose numbers are used again, what it refuses, what it costs."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from tests.unit.boxes import make_boxes, make_events, random_case
from tests.unit.counting_matchers import COMBINATIONS, NAMED, Clause, found

from wherecast import Engine
from wherecast.bench.workloads.reference import make_workload
from wherecast.errors import MatcherError
from wherecast.index.boxes import FAR
from wherecast.matchers.scan import ScanMatcher
from wherecast.papers.topss import association, predicate_index
from wherecast.papers.topss.kernels.predicates import ABOVE, BELOW, EQUAL, RANGE, UNEQUAL
from wherecast.papers.topss.lists import GrowingLists
from wherecast.papers.topss.matcher import (
    CountingBitMatcher,
    CountingByteMatcher,
    CountingMatcher,
    CountingTableMatcher,
)
from wherecast.papers.topss.predicates import Constraints, Predicates
from wherecast.papers.topss.workload import SPECIFICATIONS

pytestmark = pytest.mark.slow  # kernels of a paper's matcher are compiled for nothing else

EVERY = pytest.mark.parametrize("matcher", COMBINATIONS)
COMPILED = os.environ.get("NUMBA_DISABLE_JIT") != "1"  # without the compiler, sizes are smaller


def intern(predicates: Predicates, *constraints: tuple[int, list[tuple[int, int]]]) -> list[int]:
    rows = [(attr, lo, hi) for attr, intervals in constraints for lo, hi in intervals]
    ptr = np.cumsum([0, *(len(intervals) for _, intervals in constraints)])
    attr, lo, hi = np.array(rows, np.int32).reshape(-1, 3).T.copy()
    numbers = predicates.intern(Constraints(ptr, attr, lo, hi))
    predicates.use(numbers)
    return numbers.tolist()


# -- predicates ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("intervals", "operator", "constant"),
    [
        ([(5, 5)], EQUAL, 5),
        ([(0, 0)], EQUAL, 0),
        ([(1, 5)], BELOW, 6),
        ([(1, 1)], BELOW, 2),
        ([(5, FAR)], ABOVE, 4),
        ([(1, FAR)], ABOVE, 0),
        ([(1, 4), (6, FAR)], UNEQUAL, 5),
        ([(1, 4), (7, FAR)], RANGE, 1),
        ([(2, 4), (6, FAR)], RANGE, 2),
        ([(3, 8)], RANGE, 3),
        ([(0, 5)], RANGE, 0),
        ([(0, FAR)], RANGE, 0),
        ([(2, 2), (4, 4), (9, 9)], RANGE, 2),
    ],
)
def test_operator_of_a_constraint(intervals: list[tuple[int, int]], operator: int, constant: int) -> None:
    """Intervals are read back as the paper's operators where they are one."""
    predicates = Predicates()
    numbers = np.array(intern(predicates, (3, intervals)), np.int32)
    assert [a.tolist() for a in predicates.operators(numbers)] == [[operator], [constant]]


def test_a_predicate_is_stored_once_and_its_number_used_again() -> None:
    """Equal constraints share a number until the last user leaves; then the next new one gets it."""
    predicates = Predicates()
    first = intern(predicates, (0, [(1, 3)]), (1, [(1, 3)]), (0, [(1, 3)]), (0, [(1, 3), (5, 5)]))
    assert first == [0, 1, 0, 2]
    assert len(predicates) == 3
    assert predicates.leave(np.array([0], np.int32)).tolist() == []
    unused = predicates.leave(np.array([0], np.int32))
    assert unused.tolist() == [0]
    predicates.drop(unused)
    assert len(predicates) == 2
    assert intern(predicates, (1, [(1, 3)]), (7, [(2, 2), (4, 4), (6, 6)]), (7, [(9, 9)])) == [1, 0, 3]


def test_many_predicates_come_and_go(large: int) -> None:
    """Thousands of predicates keep their numbers apart while others are dropped around them."""
    rng = np.random.default_rng(5)
    predicates, known = Predicates(), dict[tuple[int, int], int]()
    for _ in range(12):
        keys = [(int(a), int(v)) for a, v in rng.integers(0, [9, large], (large // 4, 2))]
        for key, number in zip(keys, intern(predicates, *((a, [(v, v)]) for a, v in keys)), strict=True):
            assert known.setdefault(key, number) == number
        gone = [key for key in known if rng.random() < 0.5]
        users = {key: int(predicates.users[known[key]]) for key in gone}
        numbers = np.array([known[key] for key in gone for _ in range(users[key])], np.int32)
        predicates.drop(predicates.leave(numbers))
        known = {key: number for key, number in known.items() if key not in users}
        assert len(predicates) == len(known) == len(set(known.values()))
    assert predicates.n_numbers <= 12 * large // 4


@pytest.fixture
def large() -> int:
    return 4000 if COMPILED else 400


def test_lists_move_and_keep_their_entries() -> None:
    """Lists that outgrow their place move, and the pool is packed, without a change to what they hold."""
    rng = np.random.default_rng(2)
    lists, model = GrowingLists(), dict[int, list[int]]()
    for _ in range(200):
        keys = np.unique(rng.integers(0, 30, 5)).astype(np.int32)
        lists.extend(30)
        lists.size[keys] = 0
        sizes = rng.integers(0, 20, keys.size)
        values = rng.integers(0, 1000, sizes.sum()).astype(np.int32)
        ptr = np.concatenate(([0], np.cumsum(sizes)))
        lists.put(keys, ptr, values)
        model |= {int(k): values[ptr[i] : ptr[i + 1]].tolist() for i, k in enumerate(keys)}
        read = lists.read(np.array(list(model), np.int32))
        assert [read[1][a:b].tolist() for a, b in zip(read[0], read[0][1:], strict=False)] == list(model.values())
    assert lists.used <= lists.pool.size < 30 * 20 * 4


# -- matching -----------------------------------------------------------------------------------------------------


@EVERY
def test_clauses_without_constraints_and_events_without_values(matcher: type[CountingMatcher]) -> None:
    """A clause without constraints always holds; NULL satisfies only what names it."""
    clauses: list[Clause] = [[], [(0, [(0, 0)])], [(0, [(1, 2), (4, FAR)])], [(0, [(1, 3)])], [(0, [(0, 1)])], []]
    live = matcher.build(make_boxes(clauses, [8]))
    assert found(live, make_events([[0], [1], [3], [7]], 1)) == [[0, 1, 4, 5], [0, 2, 3, 4, 5], [0, 3, 5], [0, 2, 5]]


@EVERY
def test_an_array_satisfies_a_predicate_once(matcher: type[CountingMatcher]) -> None:
    """Several elements in one constraint are one hit, and a constraint named twice is one predicate."""
    clauses: list[Clause] = [
        [(0, [(3, 9)]), (0, [(15, 15)])],
        [(0, [(3, 9)]), (0, [(3, 9)])],
        [(0, [(3, 9)]), (1, [(2, 2)])],
        [(0, [(3, 4)]), (0, [(8, 8)]), (0, [(3, 4)])],
    ]
    boxes = make_boxes(clauses, [20, 5])
    live = matcher.build(boxes)
    events = make_events([[[1, 3, 4, 5, 8], 1], [[1, 4, 15], 2], [[0], 2], [[1], 2]], 2)
    assert found(live, events) == found(ScanMatcher.build(boxes), events) == [[1, 3], [0, 1, 2], [], []]
    assert live.stats()["associations"] == 7


@pytest.mark.parametrize(
    ("matcher", "n"),
    [(m, n) for m in COMBINATIONS for n in (254, 255, 300)] + [(CountingMatcher, 70_000 if COMPILED else 600)],
)
def test_more_predicates_than_a_byte_counts(matcher: type[CountingMatcher], n: int) -> None:
    """Clauses around and beyond 255 predicates match when all hold, not when one is missing, beside small ones."""
    small: Clause = [(0, [(2, 2)])]
    live = matcher.build(make_boxes([small, []], [n + 9]))
    live.remove(np.array([1], np.int32))
    all_of_them: Clause = [(0, [(i, i)]) for i in range(2, n + 2)]
    assert live.insert(make_boxes([all_of_them], [n + 9])).tolist() == [1]
    most = list(range(1, n + 1))
    assert found(live, make_events([[most], [[*most, n + 1]], [[1]]], 1)) == [[0], [0, 1], []]


@EVERY
def test_many_events_of_many_matches(matcher: type[CountingMatcher], monkeypatch: pytest.MonkeyPatch) -> None:
    """Output and bit vectors that do not fit at once come in pieces, complete and in order."""
    monkeypatch.setattr("wherecast.papers.topss.matcher._MARKED_BYTES", 100)
    boxes, events = random_case(np.random.default_rng(1), 500, 60, [9, 50], [], tested=0.3)
    assert found(matcher.build(boxes), events) == found(ScanMatcher.build(boxes), events)


@EVERY
def test_weights_are_summed(matcher: type[CountingMatcher]) -> None:
    """`weigh` sums the weights of the clauses that hold."""
    boxes, events = random_case(np.random.default_rng(8), 60, 10, [9, 50], [1])
    ptr = np.concatenate(([0], np.cumsum(np.arange(60) % 4))).astype(np.int32)
    assert np.array_equal(matcher.build(boxes).weigh(events, ptr), ScanMatcher.build(boxes).weigh(events, ptr))


# -- changing and storing -----------------------------------------------------------------------------------------


@EVERY
def test_ids_are_used_again(matcher: type[CountingMatcher]) -> None:
    """New clauses get the ids of removed ones first; an updated one keeps its own."""
    one: Clause = [(0, [(2, 2)])]
    live = matcher.build(make_boxes([one] * 5, [9, 9]))
    live.remove(np.array([3, 1], np.int32))
    assert live.insert(make_boxes([[(0, [(3, 3)])]] * 3, [9, 9])).tolist() == [1, 3, 5]
    live.update(np.array([4, 0], np.int32), make_boxes([[(1, [(4, 4)])], [(1, [(5, 6)])]], [9, 9]))
    assert found(live, make_events([[2, 4], [3, 5], [2, 0]], 2)) == [[2, 4], [0, 1, 3, 5], [2]]


@EVERY
def test_the_stored_form_opens_as_the_same_matcher(matcher: type[CountingMatcher]) -> None:
    """Arrays, read only, give a matcher that matches the same, has the same free ids and can be changed."""
    boxes, events = random_case(np.random.default_rng(3), 80, 10, [9, 50, 7], [1])
    live = matcher.build(boxes)
    live.remove(np.arange(0, 60, 3, dtype=np.int32))
    arrays = live.arrays()
    for array in arrays.values():
        array.flags.writeable = False
    opened = matcher.from_arrays(arrays)
    assert found(opened, events) == found(live, events)
    more = make_boxes([[(0, [(2, 5)])]] * 25, [9, 50, 7])
    assert sorted(opened.insert(more).tolist()) == sorted(live.insert(more).tolist())
    assert found(opened, events) == found(live, events)


# -- refusing -----------------------------------------------------------------------------------------------------


def refused(live: CountingMatcher, change: Any, message: str) -> None:
    """A change fails with a message and leaves the matcher as it was."""
    before = {name: array.tolist() for name, array in live.arrays().items()}, live.stats()["predicates"]
    with pytest.raises(MatcherError, match=message):
        change()
    assert ({name: array.tolist() for name, array in live.arrays().items()}, live.stats()["predicates"]) == before


@EVERY
def test_changes_that_cannot_be_made(matcher: type[CountingMatcher]) -> None:
    """Unknown ids, ids named twice, other attributes and codes that are not there change nothing."""
    one: Clause = [(0, [(2, 2)])]
    live = matcher.build(make_boxes([one] * 4, [9]))
    live.remove(np.array([2], np.int32))
    refused(live, lambda: live.remove(np.array([0, 2], np.int32)), "no clause 2")
    refused(live, lambda: live.remove(np.array([0, 4], np.int32)), "no clause 4")
    refused(live, lambda: live.remove(np.array([-1], np.int32)), "no clause -1")
    refused(live, lambda: live.remove(np.array([1, 1], np.int32)), "clause 1 is named twice")
    refused(live, lambda: live.update(np.array([0, 1], np.int32), make_boxes([one], [9])), "1 clauses cannot replace 2")
    refused(live, lambda: live.insert(make_boxes([one], [9, 9])), "other attributes")
    refused(live, lambda: live.insert(make_boxes([[(0, [(9, FAR)])]], [9])), "starts at code 9 of attribute 0")
    assert found(live, make_events([[2]], 1)) == [[0, 1, 3]]


def test_a_table_over_a_wide_domain_is_refused() -> None:
    """The refusal names the size and the matcher to use, which then works."""
    boxes = make_boxes([[(1, [(200_000, 200_000)])]], [5, 300_000])
    with pytest.raises(MatcherError, match=r"300000 codes of attribute 1 .* 131072; use matcher 'counting'"):
        CountingTableMatcher.build(boxes)
    assert found(CountingMatcher.build(boxes), make_events([[0, 200_000]], 2)) == [[0]]
    widest = predicate_index.WIDEST_TABLE
    assert CountingTableMatcher.build(make_boxes([[(0, [(widest - 1, widest - 1)])]], [widest])).n_clauses == 1


@pytest.mark.parametrize(("matcher", "clauses"), [(CountingBitMatcher, 9_000), (CountingByteMatcher, 3_000)])
def test_a_matrix_beyond_the_limit_is_refused(
    matcher: type[CountingMatcher], clauses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal names the size; nothing is changed; what fits goes on working."""
    monkeypatch.setattr(association, "MOST_MATRIX_BYTES", 1 << 20)
    different: list[Clause] = [[(0, [(i, i)])] for i in range(2, clauses + 2)]
    width = clauses + 4
    with pytest.raises(MatcherError, match=rf"{clauses} predicates x {clauses} clauses takes \d+ bytes"):
        matcher.build(make_boxes(different, [width]))
    live = matcher.build(make_boxes(different[: clauses // 4], [width]))
    refused(live, lambda: live.insert(make_boxes(different[clauses // 4 :], [width])), "use matcher 'counting'")
    assert found(live, make_events([[5], [clauses]], 1)) == [[3], []]
    assert live.insert(make_boxes(different[-1:], [width])).tolist() == [clauses // 4]
    assert found(live, make_events([[5], [clauses + 1]], 1)) == [[3], [clauses // 4]]


# -- costs --------------------------------------------------------------------------------------------------------


@EVERY
def test_operations_are_counted(matcher: type[CountingMatcher]) -> None:
    """Satisfied predicates and updates are what evaluating each distinct constraint gives."""
    boxes, events = random_case(np.random.default_rng(6), 120, 15, [6, 9, 12], [1])
    hold = np.zeros((15, 2), int)
    seen: set[Any] = set()
    for c in range(boxes.n_clauses):
        mine: set[Any] = set()
        intervals: list[tuple[int, int]] = []
        for row in range(boxes.ptr[c], boxes.ptr[c + 1]):
            attr, last = int(boxes.attr[row]), bool(boxes.attr[row] >= 0)
            attr = attr if last else ~attr
            top = int(boxes.widths[attr]) - 1
            intervals.append((int(boxes.lo[row]), min(int(boxes.hi[row]), top)))
            if last:
                mine.add((attr, tuple(intervals)))
                intervals = []
        alone = ScanMatcher.build(make_boxes([[(a, list(i))] for a, i in mine], boxes.widths.tolist()))
        for k, constraint in enumerate(mine):
            held = np.array([k in row for row in found(alone, events)])
            hold[:, 1] += held
            hold[:, 0] += held & (constraint not in seen)
        seen |= mine
    tally = matcher.build(boxes).tally(events)
    assert tally.satisfied.tolist() == hold[:, 0].tolist()
    assert tally.updates.tolist() == hold[:, 1].tolist()


def test_list_before_bit_before_byte_on_w4() -> None:
    """Entries read per event on W4 with 100,000 subscriptions: lists fewest, then words of bits, then bytes."""
    w4 = SPECIFICATIONS["W4"]
    workload = w4.make(100_000 if COMPILED else 1_000, 20)
    boxes, events = w4.code_predicates(workload.predicates), w4.code_events(workload.events)
    lists, bits, octets = (m.build(boxes) for m in (CountingMatcher, CountingBitMatcher, CountingByteMatcher))
    reads = [matcher.tally(events) for matcher in (lists, bits, octets)]
    assert all(np.array_equal(r.updates, reads[0].updates) for r in reads)
    assert (reads[0].entries < reads[1].entries).all()
    assert (8 * reads[1].entries < reads[2].entries).all()
    assert lists.stats()["parts"]["association"] < bits.stats()["parts"]["association"]
    truth = workload.truth()
    for matcher in (lists, bits, octets):
        assert [len(row) for row in found(matcher, events)] == truth.counts.tolist()


# -- workloads and domains ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "matcher"),
    [(w, m) for w in ("W0", "W4") for m in NAMED] + [(w, CountingMatcher) for w in ("W1", "W2", "W3")]
    + [("W3", CountingTableMatcher)] * COMPILED,
)  # fmt: skip
def test_the_papers_workloads(name: str, matcher: type[CountingMatcher]) -> None:
    """Boxes made of numbers match what brute force matches, id by id."""
    specification = SPECIFICATIONS[name]
    workload = specification.make(2_000 if COMPILED else 200, 50)
    live = matcher.build(specification.code_predicates(workload.predicates))
    rows = found(live, specification.code_events(workload.events))
    assert [len(row) for row in rows] == workload.truth().counts.tolist()
    assert [sum(row) for row in rows] == workload.truth().id_sums.tolist()
    assert sum(map(len, rows)) > 0


def test_w4_is_the_reference_workload() -> None:
    """W4 draws the subscriptions and events of `topss`."""
    ours, reference = SPECIFICATIONS["W4"].make(10_000), make_workload("topss", 0.01)
    assert all(np.array_equal(a, b) for a, b in zip(ours.predicates, reference.predicates, strict=True))
    assert np.array_equal(ours.events, reference.events)


@pytest.mark.parametrize("matcher", NAMED)
def test_the_papers_domains(matcher: type[CountingMatcher]) -> None:
    """Integers, integers of a fixed range, strings and enumerations match alike, and missing attributes match nothing."""
    names = [f"v{i}" for i in range(10)]
    domains: dict[str, Any] = {
        "integer": "integer",
        "range": {"type": "integer", "min": 0, "max": 9},
        "string": "string",
        "enumeration": {"type": "string", "values": names},
    }
    for name, form in domains.items():
        show = (lambda v: v) if "int" in str(form) else (lambda v: names[v])
        engine = Engine({"a": form, "b": form}, matcher=matcher.name)
        filters = [f"a {op} {show(v)!r}" for op in ("=", "<>", "<", "<=", ">", ">=") for v in range(10)]
        filters += [f"a > {show(2)!r} AND b <> {show(5)!r}", f"a IN ({show(1)!r}, {show(7)!r}) AND b < {show(3)!r}"]
        engine.subscribe_many(enumerate(filters))
        events = [{"a": a, "b": b} for a in range(10) for b in (2, 5)]
        matches = engine.match_batch([{k: show(v) for k, v in e.items()} for e in events] + [{"b": show(2)}]).to_lists()
        expected = [
            [i for i, text in enumerate(filters) if _holds(text, {k: show(v) for k, v in e.items()})] for e in events
        ]
        assert [sorted(row) for row in matches] == [*expected, []], name


def _holds(text: str, event: dict[str, Any]) -> bool:
    """A filter of the test above, as Python."""
    python = text.replace("<>", "!=").replace(" = ", " == ").replace("AND", "and").replace("IN", "in")
    return bool(eval(python, {}, event))
