"""The adaptive matcher finds what the definition of a clause says, in every form its plan can take."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.examples import examples, is_fast
from tests.unit.boxes import Constraint, make_boxes, make_events, random_case, truth

from wherecast.errors import SnapshotError
from wherecast.index.boxes import FAR, Boxes, EventCodes
from wherecast.index.packed import pack_boxes
from wherecast.kernels.descent import NO_NULL
from wherecast.kernels.jit import frozen
from wherecast.kernels.leaves import MAP, PAIRED, SURE, WORDS
from wherecast.matchers.adaptive import AdaptiveMatcher, root_starts
from wherecast.matchers.adaptive_check import read_tree
from wherecast.matchers.adaptive_plan import LEAF_CLAUSES, Costs, block_cuts

# With a margin this small every test looks profitable: small sets then have trees as well.
EAGER = Costs(test=0.01, visit=0.01, column=0.0, word=10.0, margin=1.0, absent=0.01, report=0.0, smallest=2)
PLANS = pytest.mark.parametrize("costs", [None, EAGER], ids=["fitted costs", "eager costs"])


def found(matcher: AdaptiveMatcher, events: EventCodes) -> list[list[int]]:
    """What the matcher answers, sorted; its counts must agree."""
    ptr, ids = matcher.match(events)
    assert ptr.size == events.n_events + 1
    assert ptr[0] == 0
    assert ptr[-1] == ids.size
    one_each = np.arange(matcher.n_clauses + 1, dtype=np.int32)
    assert np.array_equal(np.diff(ptr), matcher.weigh(events, one_each))
    if matcher.has_dense:
        (listed_ptr, listed), dense = matcher.match_apart(events)
        out, cursor = np.full(ids.size, -1, np.int64), ptr[:-1].copy()
        dense.expand(frozen(one_each), np.arange(matcher.n_clauses, dtype=np.int32), cursor, ptr[1:], out)
        assert np.array_equal(ptr[1:] - cursor, np.diff(listed_ptr))
        for e in range(events.n_events):
            out[cursor[e] : ptr[e + 1]] = listed[listed_ptr[e] : listed_ptr[e + 1]]
            assert sorted(out[ptr[e] : ptr[e + 1]].tolist()) == sorted(ids[ptr[e] : ptr[e + 1]].tolist())
    return [sorted(ids[ptr[e] : ptr[e + 1]].tolist()) for e in range(events.n_events)]


def check(
    boxes: Boxes,
    events: EventCodes,
    costs: Costs | None = None,
    sample: EventCodes | None = None,
    expected: list[list[int]] | None = None,
) -> AdaptiveMatcher:
    """Matcher, stored and opened matcher all agree with the definition, by which `expected` is known to be true."""
    matcher = AdaptiveMatcher.build(boxes, sample, costs=costs)
    expected = truth(boxes, events) if expected is None else expected
    assert found(matcher, events) == expected
    arrays = {k: v.copy() for k, v in matcher.arrays().items()}
    for array in arrays.values():
        array.flags.writeable = False
    AdaptiveMatcher.check(arrays, pack_boxes(boxes), None)
    assert found(AdaptiveMatcher.from_arrays(arrays, pack_boxes(boxes)), events) == expected
    return matcher


@cache
def shared_case(
    seed: int, n_clauses: int, n_events: int, widths: tuple[int, ...], arrays: tuple[int, ...], tested: float
) -> tuple[Boxes, EventCodes, list[list[int]]]:
    """A random case and what matches by definition, made once for several tests, which only read it."""
    boxes, events = random_case(np.random.default_rng(seed), n_clauses, n_events, list(widths), list(arrays), tested)
    return boxes, events, truth(boxes, events)


@PLANS
@examples(60, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), n_clauses=st.integers(0, 30), n_events=st.integers(0, 8), sampled=st.booleans(),
       widths=st.lists(st.integers(1, 300), min_size=1, max_size=6), n_arrays=st.integers(0, 2))  # fmt: skip
def test_random_sets(
    seed: int, n_clauses: int, n_events: int, widths: list[int], n_arrays: int, sampled: bool, costs: Costs | None
) -> None:
    """Small random sets of every kind of constraint agree with the definition, with and without a sample."""
    rng = np.random.default_rng(seed)
    boxes, events = random_case(rng, n_clauses, n_events, widths, list(range(min(n_arrays, len(widths)))))
    check(boxes, events, costs, events if sampled else None)


@pytest.mark.sampled
@PLANS
@pytest.mark.parametrize(
    ("widths", "arrays", "tested"),
    [
        ([5] * 12, [], 0.4),
        ([3] * 70, [], 0.1),
        ([11] * 6, [], 0.5),
        ([500_000, 2_000, 40, 7], [], 0.6),
        ([1_000, 1_000, 1_000], [], 0.9),
        ([50, 3_000, 8], [0, 1], 0.5),
        ([1, 2, 100_000], [2], 0.7),
    ],
)
def test_larger_sets(widths: list[int], arrays: list[int], tested: float, costs: Costs | None, large: int) -> None:
    """Sets large enough for trees, bitmap leaves and dense parts agree with the definition."""
    boxes, events, expected = shared_case(len(widths), large, 12, tuple(widths), tuple(arrays), tested)
    check(boxes, events, costs, events, expected)
    check(boxes, events, costs, expected=expected)


@pytest.fixture
def large() -> int:
    """Clauses of a larger set; fewer without the compiler."""
    return 150 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 3000


def test_cells_that_become_leaves_are_opened_again() -> None:
    """A cell of hundreds of clauses without a further test is a leaf, not a level of nodes; the stored form says so."""
    clauses = [[(0, [(1 + k % 20, 1 + k % 20)]), (1, [(0, k), (k + 2, FAR)])] for k in range(8_000)]
    boxes = make_boxes(clauses, [22, 8_003])
    events = make_events([[1 + e % 20, 100 * e] for e in range(20)], 2)
    matcher = check(boxes, events, sample=events)
    assert matcher.stats()["nodes"] == 1


@pytest.mark.slow
def test_many_optional_columns_are_filed_by_what_an_event_has() -> None:
    """3 of 200 columns per clause, 20 of them in an event: nearly all clauses are looked up, few are met."""
    rng = np.random.default_rng(4)
    asked = [(rng.choice(200, 3, replace=False).tolist(), rng.integers(1, 60, 3).tolist()) for _ in range(4_000)]
    clauses: list[list[Constraint]] = [[(c, [(v, v)]) for c, v in zip(*some, strict=True)] for some in asked]
    codes = np.where(rng.random((200, 200)) < 0.1, rng.integers(1, 60, (200, 200)), 0).astype(np.int32)
    events, nothing = make_events(codes[:20].tolist(), 200), (np.zeros(1, np.int64), np.zeros(0, np.int32))
    matcher = check(make_boxes(clauses, [60] * 200), events, sample=EventCodes(codes, *nothing))
    assert matcher.stats()["candidates_per_event"] < 100


def unequal_set(n_clauses: int, n_events: int) -> tuple[list[list[Constraint]], np.ndarray]:
    """Five pairs of neighbouring codes per clause; the first of 60 columns are asked for far more often, and are there more often."""
    rng, k = np.random.default_rng(5), 60
    weight = 1 / np.arange(1, k + 1)
    order = np.argsort(-(np.log(weight) + rng.gumbel(size=(n_clauses, k))), axis=1)[:, :5]
    first = rng.integers(1, 20, order.shape)
    rows = [zip(*row, strict=True) for row in zip(order.tolist(), first.tolist(), strict=True)]
    clauses: list[list[Constraint]] = [[(c, [(v, v + 1)]) for c, v in row] for row in rows]
    codes = rng.integers(1, 21, (n_events, k)).astype(np.int32)
    codes[rng.random(codes.shape) >= np.minimum(0.06 * weight / weight.mean(), 1)] = 0
    return clauses, codes


def test_popular_columns_do_not_hide_rare_ones() -> None:
    """Bitmaps of the popular columns would refuse most clauses at once; still every clause is filed where few events ask for it."""
    clauses, codes = unequal_set(3_000, 500)
    nothing = np.zeros(1, np.int64), np.zeros(0, np.int32)
    few = EventCodes(codes[:20], *nothing)
    matcher = check(make_boxes(clauses, [21] * 60), few, sample=EventCodes(codes, *nothing))
    facts = matcher.stats()
    assert facts["dense_clauses"] == 0
    assert facts["candidates_per_event"] < 30


@pytest.mark.parametrize("kind", ["points", "lists", "null", "everything"])
def test_columns_with_a_value_are_listed(kind: str) -> None:
    """Where the root has tests for many columns, an event asks those in which it has a value: nothing is lost by that."""
    clauses, codes = unequal_set(2_000, 60)
    rows: list[list[int | list[int]]] = [list(row) for row in codes.tolist()]
    if kind == "lists":
        for row in rows[::2]:
            row[3], row[40] = [2, 5, 17], [1, 20]
    elif kind == "null":
        clauses += [[(50 + i % 10, [(0, 0)]), (i % 50, [(1 + i % 20, 1 + i % 20)])] for i in range(500)]
    elif kind == "everything":
        rows[1::2] = [[1 + (e + c) % 20 for c in range(60)] for e in range(len(rows[1::2]))]
    events = make_events(rows, 60)
    check(make_boxes(clauses, [21] * 60), events, sample=events)


def test_which_tests_are_listed() -> None:
    """The first test of each column, unless there are few columns, a test takes NULL, or the tests of a column are apart."""
    clauses, codes = unequal_set(2_000, 300)
    sample = EventCodes(codes, np.zeros(1, np.int64), np.zeros(0, np.int32))
    boxes = make_boxes(clauses, [21] * 60)
    arrays = AdaptiveMatcher.build(boxes, sample).arrays()
    tree = read_tree(arrays)
    starts = root_starts(tree, 60)
    tests = tree.tests[starts[starts > 0] - 1]
    assert (tests[:, 0] == np.flatnonzero(starts)).all()
    assert starts.size == 60
    null = tree.tests.copy()
    null[3, 1] &= ~NO_NULL
    apart = tree.tests.copy()
    apart[-1, 0] = apart[0, 0]
    few = tree.nodes.copy()
    few[0, 1] = 5
    for changed in (tree._replace(tests=null), tree._replace(tests=apart), tree._replace(nodes=few)):
        assert root_starts(changed, 60).size == 0


@pytest.mark.slow
@pytest.mark.parametrize("listed", [False, True])
def test_guards_stand_for_the_rarest_constraint_that_is_left(listed: bool, large: int) -> None:
    """Points, ranges, lists and NULL beside each slot, in columns of fewer and of more codes than a guard has buckets."""
    rng = np.random.default_rng(9)
    widths = [40, 200, 257, 5_000, 90] * 12
    clauses: list[list[Constraint]] = []
    for _ in range(large):
        clause: list[Constraint] = []
        for c in rng.choice(len(widths), 3, replace=False).tolist():
            a = int(rng.integers(0, widths[c] - 1))
            b = int(rng.integers(a, widths[c]))
            kinds = [[(a, a)], [(max(a, 1), b)], [(0, 0)], [(max(a, 1), int(FAR))], [(0, a), (a + 2, int(FAR))]]
            clause.append((c, kinds[int(rng.choice(5, p=[0.5, 0.2, 0.05, 0.15, 0.1]))]))
        clauses.append(clause)
    codes = [[int(rng.integers(0, w)) if rng.random() < 0.3 else 0 for w in widths] for _ in range(40)]
    rows: list[list[int | list[int]]] = [list(row) for row in codes]
    if listed:
        for row in rows[::2]:
            row[7], row[13] = [1, 5, 250], [1, 80, 4_000]
    matcher = check(make_boxes(clauses, widths), make_events(rows, len(widths)), sample=make_events(rows, len(widths)))
    assert matcher.arrays()["tree_guards"].size > 0


def all_but(low: int, high: int) -> list[tuple[int, int]]:
    """A <> or NOT BETWEEN: every value but low .. high, and not NULL."""
    return [(1, low - 1), (high + 1, int(FAR))]


@pytest.mark.slow
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize(
    "widths", [[30, 60, 255, 256], [257, 5_000, 300, 900]], ids=["exact buckets", "shared buckets"]
)
def test_guards_that_leave_out_a_range_and_second_guards(widths: list[int], listed: bool, large: int) -> None:
    """A <> at every place of its column, beside ranges that most events meet: two guards decide nearly all."""
    rng, widths = np.random.default_rng(14), widths * 15
    clauses: list[list[Constraint]] = []
    for _ in range(large):
        chosen = rng.choice(len(widths), int(rng.integers(1, 4)), replace=False).tolist()
        clause: list[Constraint] = []
        for c in chosen:
            a = int(rng.choice([2, widths[c] - 2, rng.integers(2, widths[c] - 1)]))
            b = int(rng.integers(a, min(a + 3, widths[c] - 1)))
            wide = [(max(a - widths[c] // 2, 1), min(a + widths[c] // 2, widths[c] - 1))]
            kinds = [all_but(a, a), all_but(a, b), wide, [(0, a - 1), (b + 1, int(FAR))]]
            clause.append((c, kinds[int(rng.choice(4, p=[0.5, 0.2, 0.25, 0.05]))]))
        clauses.append(clause)
    rows: list[list[int | list[int]]] = [
        [int(rng.integers(0, w)) * (rng.random() < 0.8) for w in widths] for _ in range(60)
    ]
    if listed:
        for row in rows[::2]:
            row[1] = sorted({1, int(rng.integers(2, widths[1])), widths[1] - 1})
    events = make_events(rows, len(widths))
    matcher = check(make_boxes(clauses, widths), events, sample=events)
    leaves = matcher.arrays()["tree_leaves"]
    assert listed or (leaves[leaves[:, WORDS] == 0, SURE] == PAIRED).any()


def test_second_guards_spare_boxes() -> None:
    """Of clauses that most events satisfy but for one value, hardly a box is checked: the guards say all there is to say."""
    rng = np.random.default_rng(5)
    widths = [2_000] * 40
    clauses: list[list[Constraint]] = [
        [(c, [(int(a), int(a) + 900)]), (d, all_but(int(b), int(b)))]
        for (c, d), a, b in zip((rng.choice(40, 2, replace=False).tolist() for _ in range(2_000)), rng.integers(1, 1_000, 2_000), rng.integers(2, 1_998, 2_000), strict=True)
    ]  # fmt: skip
    events = make_events([rng.integers(1, 2_000, 40).tolist() for _ in range(100)], 40)
    stats = AdaptiveMatcher.build(make_boxes(clauses, widths), events).stats(events)
    assert stats["checked_per_event"] < 0.1 * stats["candidates_per_event"]


def few_boxes() -> Boxes:
    """Too few clauses for bitmaps."""
    return make_boxes([[(0, [(k, k)]), (1, [(k, k + 3)])] for k in range(1, 8)], [500, 500])


def test_a_matcher_stored_without_guards_is_opened() -> None:
    """The first versions checked the box of every clause in a leaf without bitmaps."""
    boxes, events = few_boxes(), make_events([[k, k + 1] for k in range(12)], 2)
    arrays = dict(AdaptiveMatcher.build(boxes, events).arrays())
    leaves = arrays["tree_leaves"].copy()
    unmapped = leaves[:, WORDS] == 0
    assert (leaves[unmapped, SURE] == 1).any()
    leaves[unmapped, SURE] = leaves[unmapped, MAP] = 0
    for name in ("tree_guards", "tree_near", "tree_bucket_ptr", "tree_buckets"):
        del arrays[name]
    arrays["tree_leaves"] = leaves
    AdaptiveMatcher.check(arrays, pack_boxes(boxes), None)
    assert found(AdaptiveMatcher.from_arrays(arrays, pack_boxes(boxes)), events) == truth(boxes, events)


@pytest.mark.parametrize(
    ("name", "value"), [("tree_guards", 0x7FFF), ("tree_guards", -1), ("tree_near", 32), ("tree_near", -1)]
)
def test_forged_guards_are_refused(name: str, value: int) -> None:
    """A guard names a column that there is; its buckets leave out bits that a code has."""
    boxes = few_boxes()
    arrays = dict(AdaptiveMatcher.build(boxes).arrays())
    arrays[name] = arrays[name].copy()
    arrays[name][0] = value
    with pytest.raises(SnapshotError, match=name):
        AdaptiveMatcher.check(arrays, pack_boxes(boxes), None)


def test_a_leaf_with_too_few_guards_is_refused() -> None:
    """The guards of a leaf are all there."""
    boxes = few_boxes()
    arrays = dict(AdaptiveMatcher.build(boxes).arrays())
    arrays["tree_guards"] = arrays["tree_guards"][:-1]
    with pytest.raises(SnapshotError, match="tree_leaves"):
        AdaptiveMatcher.check(arrays, pack_boxes(boxes), None)


@PLANS
def test_empty_and_unconstrained(costs: Costs | None) -> None:
    """No clauses match nothing; clauses without constraints match everything; zero events give zero rows."""
    none = make_boxes([], [4, 4])
    events = make_events([[0, 0], [3, 1]], 2)
    assert found(AdaptiveMatcher.build(none, None, costs=costs), events) == [[], []]
    free = make_boxes([[], [(0, [(3, 3)])], []], [4, 4])
    check(free, events, costs)
    check(free, make_events([], 2), costs, make_events([], 2))
    check(make_boxes([[]] * 200, [4, 4]), events, costs)


@PLANS
@pytest.mark.parametrize(
    "clause", [[(0, [(2, 2)])], [(0, [(0, 700)]), (1, [(1, int(FAR))])], [(1, [(0, 3), (5, 900)])]]
)
def test_all_clauses_alike(clause: list[Constraint], costs: Costs | None, large: int) -> None:
    """A set of equal clauses is searched as one block, and all or none of it is found."""
    boxes = make_boxes([clause] * (2 * large), [1000, 1000])
    check(boxes, make_events([[2, 4], [2, 5], [900, 0], [5, 950]], 2), costs)


@PLANS
def test_giant_list(costs: Costs | None, large: int) -> None:
    """A constraint of thousands of intervals is one clause, filed once, among many small ones."""
    many = [(4 * i + 1, 4 * i + 2) for i in range(4 * large)]
    width = 16 * large + 10
    clauses: list[list[Constraint]] = [[(0, many)], [(0, many), (1, [(2, 2)])]]
    clauses += [[(0, [(i, i)])] for i in range(300)]
    events = make_events([[c, c % 5] for c in (0, 1, 2, 3, 4, 5, 4 * large + 1, 16 * large - 2, width - 1)], 2)
    matcher = check(make_boxes(clauses, [width, 5]), events, costs)
    assert matcher.stats()["slots"] < 3 * len(clauses)


@PLANS
def test_array_meets_a_clause_once(costs: Costs | None) -> None:
    """An array with codes in several cells of one interval reports the clause once."""
    clauses: list[list[Constraint]] = [[(0, [(i, i + 70)])] for i in range(300)]
    clauses += [[(0, [(i, i), (i + 9, i + 9), (i + 40, i + 40)])] for i in range(300)]
    events = make_events([[[1, 50, 55, 90, 95, 120]], [[0]], [[1]], [list(range(1, 300))]], 1)
    check(make_boxes(clauses, [1000]), events, costs)


def test_output_grows(large: int) -> None:
    """Far more matches than first reserved come back complete and in event order."""
    clauses: list[list[Constraint]] = [[(0, [(0, 60_000 + i)])] for i in range(large)]
    events = make_events([[i] for i in range(40)], 1)
    ptr, ids = AdaptiveMatcher.build(make_boxes(clauses, [200_000])).match(events)
    assert ptr.tolist() == [large * i for i in range(41)]
    assert np.array_equal(np.sort(ids[-large:]), np.arange(large))


@pytest.mark.sampled
@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("arrays", "tested"), [([2], 0.4), ([], 0.4), ([], 1.0)], ids=["lists", "several forms", "one form, so in order"]
)
@pytest.mark.parametrize("heaviest", [20, 3000])
def test_expanding_writes_the_values_of_what_holds(kind: type, arrays: list[int], tested: float, heaviest: int) -> None:
    """In the dense part: the values of an event's clauses stand in its own part of the output, and nothing else."""
    rng = np.random.default_rng(5)
    boxes, events, wanted = shared_case(5, 2000, 20, (4, 3, 5), tuple(arrays), tested)
    share = 0.4 if heaviest == 20 else 0.01
    drawn = rng.integers(1, heaviest, boxes.n_clauses) * (rng.random(boxes.n_clauses) < share) + 1
    weights = np.sort(drawn).astype(np.int32)
    matcher = AdaptiveMatcher.build(boxes, None, weights)
    assert matcher.has_dense
    ptr = np.concatenate([[0], np.cumsum(weights)]).astype(np.int32)
    ptr.flags.writeable = False  # as in a segment: else the kernel is compiled once more
    values = rng.permutation(ptr[-1]).astype(kind)
    counts = matcher.weigh(events, ptr)
    assert counts.tolist() == [int(weights[clauses].sum()) for clauses in wanted]
    ends = np.cumsum(counts)
    cursor, out = ends - counts, np.full(ends[-1], -1, np.int64)
    (listed, _), dense = matcher.match_apart(events)
    assert not listed.any()
    dense.expand(ptr, values, cursor, ends, out)
    assert cursor.tolist() == ends.tolist()
    for part, clauses in zip(np.split(out, ends[:-1]), wanted, strict=True):
        own = [values[ptr[c] : ptr[c + 1]] for c in clauses]
        np.testing.assert_array_equal(np.sort(part), np.sort(np.concatenate([values[:0], *own])))


def test_a_clause_is_filed_under_a_test_that_is_made_anyway() -> None:
    """One clause whose rarest constraint nobody shares must not be met by every event."""
    clauses: list[list[Constraint]] = [[(0, [(i % 500, i % 500)]), (1, [(i % 7, int(FAR))])] for i in range(2000)]
    clauses.append([(0, [(3, 3)]), (1, [(900, 900)])])
    rng = np.random.default_rng(1)
    # Code 3 is the most frequent of all, so that the other constraint is much the rarer.
    first = np.where(rng.random(1000) < 0.2, 3, rng.integers(0, 4000, 1000))
    events = make_events(np.stack([first, rng.integers(0, 800, 1000)], 1).tolist(), 2)
    first_events = events._replace(codes=events.codes[: 200 if is_fast() else 1000])
    matcher = check(make_boxes(clauses, [4000, 1000]), first_events, sample=events)
    gate = matcher.gate()
    assert gate is not None
    assert gate[0] == 0
    assert not gate[1][501:].any()


def test_a_cell_with_null_is_as_rare_as_its_values() -> None:
    """Most events have no value, and it is not looked up: a range in the lowest cell is filed, and the column is a gate."""
    rng = np.random.default_rng(3)
    clauses: list[list[Constraint]] = [[(0, [(int(lo), int(lo) + 900)])] for lo in rng.integers(1, 3_000, 600)]
    boxes = make_boxes(clauses, [5_000])
    codes = np.where(rng.random((500, 1)) < 0.8, 0, rng.integers(1, 5_000, (500, 1))).tolist()
    events = make_events(codes, 1)
    matcher = check(boxes, events, sample=events)
    gate = matcher.gate()
    assert gate is not None
    assert not gate[1][0]


def test_a_handful_of_clauses_is_looked_up() -> None:
    """A few hundred clauses on one value each, of which an event meets none: no clause is compared with it."""
    clauses: list[list[Constraint]] = [[(0, [(i, i)]), (1, [(i % 90, int(FAR))])] for i in range(270)]
    rng = np.random.default_rng(2)
    events = make_events(np.stack([rng.integers(0, 200_000, 500), rng.integers(0, 100, 500)], 1).tolist(), 2)
    matcher = check(make_boxes(clauses, [200_000, 100]), events, sample=events)
    assert matcher.candidates(None) < 1


def test_a_node_whose_tests_serve_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where slots have run out and every clause would need two cells, a node is left whole."""
    monkeypatch.setattr("wherecast.matchers.adaptive_plan.MOST_SLOTS", -1)
    clauses: list[list[Constraint]] = [[(0, [(16 * i + 15, 16 * i + 16)])] for i in range(400)]
    events = make_events([[code] for code in range(0, 6400, 53)], 1)
    check(make_boxes(clauses, [7000]), events, sample=events)


@given(st.lists(st.integers(1, 9000), min_size=1, max_size=12))
def test_blocks_of_leaves(sizes: list[int]) -> None:
    """Cuts cover all, leave no block larger than a leaf, and none small unless all of it is small."""
    signature = np.repeat(np.arange(len(sizes), dtype=np.uint64), sizes)
    cuts = block_cuts(signature)
    blocks = np.diff(cuts)
    assert cuts[0] == 0
    assert cuts[-1] == signature.size
    assert blocks.max() <= LEAF_CLAUSES
    assert blocks.min() >= min(LEAF_CLAUSES // 4, signature.size)


def test_answers_are_deterministic() -> None:
    """Two builds and two calls give the same ids in the same order."""
    boxes, events = random_case(np.random.default_rng(9), 300, 10, [9, 200, 5000], [])
    first, second = AdaptiveMatcher.build(boxes, events), AdaptiveMatcher.build(boxes, events)
    assert np.array_equal(first.match(events)[0], second.match(events)[0])
    assert np.array_equal(first.match(events)[1], second.match(events)[1])
    assert np.array_equal(first.match(events)[1], first.match(events)[1])


def test_threads_share_a_matcher(large: int) -> None:
    """Batches matched at the same time by several threads give what one thread gives."""
    boxes, events = random_case(np.random.default_rng(4), large, 64, [9, 200, 5000, 3], [1])
    matcher = AdaptiveMatcher.build(boxes, events)
    parts = [EventCodes(events.codes[i : i + 8], events.list_ptr, events.list_codes) for i in range(0, 64, 8)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda part: matcher.match(part)[1].tolist(), parts))
    assert [i for ids in together for i in ids] == matcher.match(events)[1].tolist()


def test_plan_is_readable() -> None:
    """The plan names its parts, and statistics add up."""
    boxes, events = random_case(np.random.default_rng(3), 400, 20, [50, 2000, 3], [])
    matcher = AdaptiveMatcher.build(boxes, events, costs=EAGER)
    stats = matcher.stats(events)
    assert stats["slots"] >= stats["clauses"] == 400
    assert stats["bytes"] == sum(v.nbytes for k, v in matcher.arrays().items() if not k.startswith("rows_"))
    assert 0 <= stats["candidates_per_event"] <= stats["slots"]
    assert "column" in matcher.explain_plan()


@pytest.mark.parametrize(("values", "dense"), [(2, True), (20, False)])
def test_all_clauses_are_dense_only_where_many_match(values: int, dense: bool) -> None:
    """Of all pairs of two attributes: with two values a quarter holds for an event, with twenty one clause in 400 does."""
    pairs = [(a, b) for a in range(1, values + 1) for b in range(1, values + 1)]
    clauses: list[list[Constraint]] = [[(0, [(a, a)]), (1, [(b, b)])] for a, b in pairs * (40_000 // len(pairs))]
    boxes, sample = make_boxes(clauses, [values + 1] * 2), make_events([[a, b] for a, b in pairs], 2)
    stats = AdaptiveMatcher.build(boxes, sample).stats(sample)
    assert stats["dense_clauses"] == (len(clauses) if dense else 0)
    assert dense or stats["candidates_per_event"] < 1.1 * len(clauses) / len(pairs)


def test_many_columns_are_dense_where_a_clause_has_few() -> None:
    """Forty columns of twenty codes are 800 bits, but a leaf has the columns of its own clauses only."""
    rng = np.random.default_rng(5)
    wanted = np.stack([rng.integers(0, 40, 20_000), rng.integers(1, 17, 20_000)], 1).tolist()
    clauses: list[list[Constraint]] = [[(a, [(low, low + 3)])] for a, low in wanted]
    events = make_events(rng.integers(1, 21, (200, 40)).tolist(), 40)
    stats = AdaptiveMatcher.build(make_boxes(clauses, [21] * 40), events).stats(events)
    assert stats["dense_clauses"] == len(clauses)
    assert stats["parts"]["tree_maps"] < 128 / 8 * len(clauses)


def test_a_few_words_of_clauses_stay_in_the_tree() -> None:
    """A dense part of a few clauses would cost each event a pass more."""
    clauses: list[list[Constraint]] = [[(0, [(1, 1 + k % 3)])] for k in range(100)]
    events = make_events([[k % 5] for k in range(20)], 1)
    assert not check(make_boxes(clauses, [5]), events, sample=events).has_dense
