"""Boxes and events for tests of matchers: from literals, at random, and what matches by definition."""

from __future__ import annotations

import numpy as np

from wherecast.index.boxes import FAR, Boxes, EventCodes, naive_clause_holds

Constraint = tuple[int, list[tuple[int, int]]]


def make_boxes(clauses: list[list[Constraint]], widths: list[int]) -> Boxes:
    """Boxes from clauses given as (attribute, intervals) lists."""
    ptr, attr, lo, hi = [0], [], [], []
    for clause in clauses:
        for attribute, intervals in sorted(clause, key=lambda c: c[0]):
            for i, (a, b) in enumerate(sorted(intervals)):
                attr.append(attribute if i == len(intervals) - 1 else ~attribute)
                lo.append(a)
                hi.append(b)
        ptr.append(len(attr))
    n = len(clauses)
    return Boxes(
        np.arange(n, dtype=np.int32), np.array(ptr, np.int64), np.array(attr, np.int16), np.array(lo, np.int32),
        np.array(hi, np.int32), np.full(n, -1, np.int32), n, np.array(widths, np.int32),
    )  # fmt: skip


def make_events(rows: list[list[int | list[int]]], n_attributes: int) -> EventCodes:
    """Events from codes; a list stands for the codes of an array attribute."""
    codes = np.zeros((len(rows), n_attributes), np.int32)
    ptr, elements = [0], []
    for e, row in enumerate(rows):
        for a, code in enumerate(row):
            if isinstance(code, list):
                codes[e, a] = ~(len(ptr) - 1)
                elements += code
                ptr.append(len(elements))
            else:
                codes[e, a] = code
    return EventCodes(codes, np.array(ptr, np.int64), np.array(elements, np.int32))


def truth(boxes: Boxes, events: EventCodes) -> list[list[int]]:
    """By definition."""
    return [
        [c for c in range(boxes.n_clauses) if naive_clause_holds(boxes, c, events, e)] for e in range(events.n_events)
    ]


def random_interval(rng: np.random.Generator, width: int) -> tuple[int, int]:
    kind = rng.integers(0, 5)
    a, b = sorted(rng.integers(0, width, 2).tolist())
    if kind == 0:
        return a, a
    if kind == 1:
        return a, int(FAR)
    if kind == 2:
        return min(1, width - 1), max(a, min(1, width - 1))
    return (a, min(a + int(rng.integers(0, 4)), width - 1)) if kind == 3 else (a, b)


def random_intervals(rng: np.random.Generator, width: int) -> list[tuple[int, int]]:
    if rng.random() < 0.7 or width < 4:
        return [random_interval(rng, width)]
    ends = np.unique(rng.integers(0, width, 2 * int(rng.integers(1, 12))))
    ends = ends[: ends.size // 2 * 2]
    if not ends.size:
        return [random_interval(rng, width)]
    pairs = [(int(a), int(b)) for a, b in ends.reshape(-1, 2)]
    points = rng.random() < 0.5
    return [(a, a) for a, _ in pairs] if points else pairs


def random_case(
    rng: np.random.Generator, n_clauses: int, n_events: int, widths: list[int], arrays: list[int], tested: float = 0.4
) -> tuple[Boxes, EventCodes]:
    """Clauses over some attributes each, arrays with up to three constraints; events that meet clauses often."""
    clauses: list[list[Constraint]] = []
    for _ in range(n_clauses):
        clause: list[Constraint] = []
        for a, width in enumerate(widths):
            times = int(rng.random() < tested) * (int(rng.integers(1, 4)) if a in arrays else 1)
            clause += [(a, random_intervals(rng, width)) for _ in range(times)]
        clauses.append(clause)
    rows: list[list[int | list[int]]] = []
    for _ in range(n_events):
        row: list[int | list[int]] = [int(rng.integers(0, w)) for w in widths]
        for a in arrays:
            some = rng.integers(1, max(widths[a], 2), int(rng.integers(0, 6))).tolist()
            row[a] = [0] if rng.random() < 0.2 else [1, *some] if widths[a] > 1 else [0]
        rows.append(row)
    return make_boxes(clauses, widths), make_events(rows, len(widths))
