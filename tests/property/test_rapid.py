"""RAPIDMatch equals its definition in the binary model, and the scan on boxes, whatever is inserted and removed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from wherecast.errors import MatcherError
from wherecast.index.boxes import FAR, Boxes, EventCodes
from wherecast.matchers.protocol import Hits
from wherecast.matchers.scan import ScanMatcher
from wherecast.papers.rapidmatch.binary import STAR, BinaryIndex, naive_matches, pack_events, pack_subscriptions
from wherecast.papers.rapidmatch.matcher import RapidMatcher

pytestmark = pytest.mark.slow

Clause = list[tuple[int, list[tuple[int, int]]]]


def lists(hits: Hits) -> list[list[int]]:
    ptr, ids = hits
    return [sorted(ids[a:b].tolist()) for a, b in pairwise(ptr)]


@st.composite
def binary_cases(draw):
    """Properties, c, subscriptions in several batches, events; stars and zeros prevail."""
    k = draw(st.sampled_from([1, 2, 5, 9, 63, 64, 65, 130]))
    c = draw(st.integers(-1, min(k, 6)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    density = draw(st.sampled_from([0.02, 0.2, 0.6]))
    ones = draw(st.sampled_from([0.02, 0.2, 0.7]))

    def subscriptions(n):
        tested = rng.random((n, k)) < density
        return np.where(tested, rng.random((n, k)) < 0.4, STAR).astype(np.int8)

    batches = [subscriptions(n) for n in draw(st.lists(st.integers(0, 15), min_size=1, max_size=5))]
    events = (rng.random((12, k)) < ones).astype(np.int8)
    close = np.concatenate(batches)[:8]  # events that surely match something
    light = rng.random(close.shape) < ones / 2
    return k, c, batches, np.concatenate([events, np.where(close == STAR, light, close)]).astype(np.int8), rng


@examples(80)
@given(binary_cases())
def test_binary_index_is_the_definition(case) -> None:
    """Through insertions and removals; what is left is stored as if nothing else had ever been there."""
    k, c, (first, *later), events, rng = case
    index, bits = BinaryIndex.build(pack_subscriptions(first), k, c), pack_events(events)
    model = dict(enumerate(first))
    for batch in [None, *later]:
        if batch is not None:
            dead = rng.permutation(list(model))[: int(rng.integers(0, len(model) + 1))].astype(np.int32)
            index.remove(dead)
            model = {i: s for i, s in model.items() if i not in set(dead.tolist())}
            ids = index.insert(pack_subscriptions(batch)).tolist()
            assert not set(ids) & set(model)
            assert set(dead.tolist()[-len(batch) :] if len(batch) else []) <= set(ids)
            model.update(zip(ids, batch, strict=True))
        known, values = np.array(list(model), np.int64), np.array(list(model.values()), np.int8).reshape(-1, k)
        expected = [sorted(known[naive_matches(values, e)].tolist()) for e in events]
        assert lists(index.match(bits)) == expected
        fresh = BinaryIndex.build(pack_subscriptions(values), k, c)
        assert index.count_slots() == fresh.count_slots()
        assert index.tally(bits) == fresh.tally(bits)


@st.composite
def box_cases(draw):
    """Widths, array attributes, batches of clauses, events."""
    widths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
    is_array = [draw(st.booleans()) and width > 1 for width in widths]

    def interval(width):
        lo, hi = sorted(draw(st.tuples(st.integers(0, width - 1), st.integers(0, width - 1))))
        return lo, draw(st.sampled_from([hi, hi, int(FAR)]))

    def constraint(a):
        ends = sorted(draw(st.sets(st.integers(0, widths[a] - 1), min_size=2, max_size=6))) if widths[a] > 6 else []
        if len(ends) < 4 or draw(st.booleans()):
            return a, [interval(widths[a])]
        return a, list(zip(ends[0::2], ends[1::2], strict=False))

    def clause():
        chosen = [a for a in range(len(widths)) if draw(st.booleans())]
        return [constraint(a) for a in chosen for _ in range(draw(st.integers(1, 2)) if is_array[a] else 1)]

    def code(a):
        one = draw(st.integers(0, widths[a] - 1))
        if not is_array[a]:
            return one
        return [0] if one == 0 else sorted({1, *draw(st.lists(st.integers(1, widths[a] - 1), max_size=3))})

    batches = [[clause() for _ in range(n)] for n in draw(st.lists(st.integers(0, 6), min_size=1, max_size=4))]
    events = [[code(a) for a in range(len(widths))] for _ in range(draw(st.integers(1, 6)))]
    return widths, batches, events


def boxes_of(clauses: list[Clause], widths: list[int]) -> Boxes:
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


def events_of(rows: list[list[int | list[int]]]) -> EventCodes:
    codes, ptr, elements = np.zeros((len(rows), len(rows[0])), np.int32), [0], []
    for e, row in enumerate(rows):
        for a, code in enumerate(row):
            codes[e, a] = code if isinstance(code, int) else ~(len(ptr) - 1)
            if not isinstance(code, int):
                elements += code
                ptr.append(len(elements))
    return EventCodes(codes, np.array(ptr, np.int64), np.array(elements, np.int32))


@examples(150)
@given(box_cases(), st.booleans(), st.sampled_from([None, None, -1, 0, 3]), st.integers(0, 2**32))
def test_boxes_as_the_scan_sees_them(case, sampled: bool, c: int | None, seed: int) -> None:
    """Typed filters of all kinds, arrays too, through insertions that refine the partition, removals and storage."""
    widths, (first, *later), rows = case
    events, rng = events_of(rows), np.random.default_rng(seed)
    matcher = RapidMatcher.build(boxes_of(first, widths), events if sampled else None, c=c)
    model = dict(enumerate(first))
    for batch in [None, *later]:
        if batch is not None:
            dead = rng.permutation(list(model))[: int(rng.integers(0, len(model) + 1))].astype(np.int32)
            matcher.remove(dead)
            model = {i: clause for i, clause in model.items() if i not in set(dead.tolist())}
            ids = matcher.insert(boxes_of(batch, widths)).tolist()
            assert not set(ids) & set(model)
            model.update(zip(ids, batch, strict=True))
        known = list(model)
        scan = ScanMatcher(boxes_of(list(model.values()), widths))
        expected = [sorted(known[i] for i in found) for found in lists(scan.match(events))]
        assert matcher.n_clauses == len(model)
        assert lists(matcher.match(events)) == expected
        assert lists(RapidMatcher.from_arrays(matcher.arrays()).match(events)) == expected
        if model:
            try:
                matcher.remove(np.array([known[0], max(known) + 1], np.int32))
            except MatcherError:
                assert matcher.n_clauses == len(model)
            else:
                raise AssertionError("a clause that is not there was removed")
