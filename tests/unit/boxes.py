"""Boxes and events for tests of matchers: from literals, at random, and what matches by definition."""

from __future__ import annotations

import random

import numpy as np

from wherecast.index.boxes import FAR, Boxes, EventCodes

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
                elements += sorted(code)
                ptr.append(len(elements))
            else:
                codes[e, a] = code
    return EventCodes(codes, np.array(ptr, np.int64), np.array(elements, np.int32))


def truth(boxes: Boxes, events: EventCodes) -> list[list[int]]:
    """By definition (`naive_clause_holds`), for all clauses at a time."""
    attribute = np.where(boxes.attr < 0, ~boxes.attr, boxes.attr)
    is_last = boxes.attr >= 0  # of the rows of its constraint
    constraint = np.cumsum(is_last) - is_last
    clause = np.repeat(np.arange(boxes.n_clauses), np.diff(boxes.ptr))[is_last]  # of each constraint
    found = []
    for event in range(events.n_events):
        codes = events.codes[event]
        own = codes[attribute]  # of each row
        held = (own >= 0) & (boxes.lo <= own) & (own <= boxes.hi)
        for a in np.flatnonzero(codes < 0).tolist():
            for c in events.list_codes[events.list_ptr[~codes[a]] : events.list_ptr[~codes[a] + 1]]:
                held |= (attribute == a) & (boxes.lo <= c) & (c <= boxes.hi)
        fails = np.ones(clause.size, bool)
        fails[constraint[held]] = False
        is_found = np.ones(boxes.n_clauses, bool)
        is_found[clause[fails]] = False
        found.append(np.flatnonzero(is_found).tolist())
    return found


def random_interval(draw: random.Random, width: int) -> tuple[int, int]:
    kind = draw.randrange(5)
    a, b = sorted((draw.randrange(width), draw.randrange(width)))
    if kind == 0:
        return a, a
    if kind == 1:
        return a, int(FAR)
    if kind == 2:
        return min(1, width - 1), max(a, min(1, width - 1))
    return (a, min(a + draw.randrange(4), width - 1)) if kind == 3 else (a, b)


def random_intervals(draw: random.Random, width: int) -> list[tuple[int, int]]:
    if draw.random() < 0.7 or width < 4:
        return [random_interval(draw, width)]
    ends = sorted({draw.randrange(width) for _ in range(2 * draw.randrange(1, 12))})
    pairs = list(zip(ends[::2], ends[1::2], strict=False))
    if not pairs:
        return [random_interval(draw, width)]
    points = draw.random() < 0.5
    return [(a, a) for a, _ in pairs] if points else pairs


def random_case(
    rng: np.random.Generator, n_clauses: int, n_events: int, widths: list[int], arrays: list[int], tested: float = 0.4
) -> tuple[Boxes, EventCodes]:
    """Clauses over some attributes each, arrays with up to three constraints; events that meet clauses often."""
    draw = random.Random(int(rng.integers(2**62)))  # NumPy's draws one number in the time of twenty
    clauses: list[list[Constraint]] = []
    for _ in range(n_clauses):
        clause: list[Constraint] = []
        for a, width in enumerate(widths):
            if draw.random() < tested:
                clause += [
                    (a, random_intervals(draw, width)) for _ in range(draw.randrange(1, 4) if a in arrays else 1)
                ]
        clauses.append(clause)
    rows: list[list[int | list[int]]] = []
    for _ in range(n_events):
        row: list[int | list[int]] = [draw.randrange(w) for w in widths]
        for a in arrays:
            some = [draw.randrange(1, max(widths[a], 2)) for _ in range(draw.randrange(6))]
            row[a] = [0] if draw.random() < 0.2 else [1, *some] if widths[a] > 1 else [0]
        rows.append(row)
    return make_boxes(clauses, widths), make_events(rows, len(widths))
