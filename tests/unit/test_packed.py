"""Packed boxes lose nothing, and kernels check events against them as the definition says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.boxes import random_case, truth

from wherecast.index.boxes import FAR, Boxes, EventCodes, naive_clause_holds
from wherecast.index.packed import pack_boxes, unpack_boxes
from wherecast.kernels.jit import hot
from wherecast.kernels.rows import box_holds
from wherecast.matchers.adaptive import rows_of


@hot
def check_all(rows, points, out):
    """Every event against every clause."""
    ptr, number, attr, lo, hi = rows
    codes, list_ptr, list_codes = points
    for event in range(out.shape[0]):
        for clause in range(out.shape[1]):
            out[event, clause] = box_holds(ptr, number, attr, lo, hi, codes, list_ptr, list_codes, event, clause)


def make_case(width: int, n_clauses: int, *, points: bool = False) -> tuple[Boxes, EventCodes]:
    """Clauses of up to three constraints, of one interval or many; attribute 2 is an array, asked for twice at times."""
    rng = np.random.default_rng(width + n_clauses)
    ptr, attr, lo, hi = [0], [], [], []
    for _ in range(n_clauses):
        for a in sorted(rng.choice([0, 1, 2, 2, 3], rng.integers(0, 4), replace=False).tolist()):
            ends = np.unique(rng.integers(0, width, 2 * int(rng.choice([1, 1, 3, 40]))))
            pairs = (
                [(e, e) for e in ends.tolist()]
                if points
                else [(ends[i], ends[min(i + 1, ends.size - 1)]) for i in range(0, ends.size, 2)]
            )
            for i, (first, last) in enumerate(pairs):
                attr.append(a if i == len(pairs) - 1 else ~a)
                lo.append(int(first))
                hi.append(int(FAR) if last == width - 1 and not points else int(last))
        ptr.append(len(attr))
    boxes = Boxes(
        np.arange(n_clauses, dtype=np.int32), np.array(ptr, np.int64), np.array(attr, np.int16), np.array(lo, np.int32),
        np.array(hi, np.int32), np.full(n_clauses, -1, np.int32), n_clauses, np.full(4, width, np.int32),
    )  # fmt: skip
    codes = rng.integers(0, width, (12, 4)).astype(np.int32)
    codes[:, 2] = ~np.arange(12, dtype=np.int32)
    lists = np.sort(rng.integers(0, width, (12, 3)), axis=1).astype(np.int32)
    return boxes, EventCodes(codes, np.arange(13, dtype=np.int64) * 3, lists.ravel())


@pytest.mark.parametrize("points", [False, True], ids=["intervals", "points"])
@pytest.mark.parametrize(("width", "n_clauses", "bytes_per_row"), [(3, 300, 1), (60, 600, 2), (70_000, 50, 0)])
class TestPacked:
    def test_nothing_is_lost(self, width, n_clauses, bytes_per_row, points):
        """Unpacked boxes equal the original, whether distinct rows are numbered in one byte, in two, or not at all."""
        boxes, _ = make_case(width, n_clauses, points=points)
        packed = pack_boxes(boxes)
        if not points or width != 60:
            assert packed.number.itemsize * bool(packed.number.size) == bytes_per_row
        for name, array in unpack_boxes(packed)._asdict().items():
            assert np.array_equal(array, getattr(boxes, name)), name

    @pytest.mark.sampled
    def test_checks_agree_with_the_definition(self, width, n_clauses, bytes_per_row, points):
        """Every clause against every event, lists and constraints of many intervals among them."""
        boxes, events = make_case(width, min(n_clauses, 300), points=points)
        held = np.zeros((events.n_events, boxes.n_clauses), bool)
        check_all(tuple(rows_of(pack_boxes(boxes))), tuple(events), held)
        wanted = [[naive_clause_holds(boxes, c, events, e) for c in range(boxes.n_clauses)] for e in range(len(held))]
        assert held.tolist() == wanted
        assert 0 < held.mean() < 1


@given(
    seed=st.integers(0, 2**32), widths=st.lists(st.integers(1, 30), min_size=1, max_size=4), n_arrays=st.integers(0, 2)
)
def test_the_truth_of_a_set_is_that_of_its_clauses(seed: int, widths: list[int], n_arrays: int) -> None:
    """What tests of matchers compare with is the definition, clause by clause and event by event."""
    boxes, events = random_case(np.random.default_rng(seed), 20, 5, widths, list(range(min(n_arrays, len(widths)))))
    wanted = [[c for c in range(20) if naive_clause_holds(boxes, c, events, e)] for e in range(5)]
    assert truth(boxes, events) == wanted
