"""Clauses of one filter against each other: duplicates, absorption, joining.

What is left of a filter's redundancy once its constants are known: a clause inside another is dropped, and clauses that
differ in one attribute only are joined. Not a minimal form (that is NP-hard), but filters that differ in order, spelling or
redundant predicates come out alike.
"""

from __future__ import annotations

from typing import NamedTuple

from wherecast.language.keys import KEY_MAX, KEY_MIN

#: (is NULL, lo, hi); NULL sorts last here, its place in a constraint does not matter for comparing sets
Interval = tuple[bool, int, int]
Intervals = tuple[Interval, ...]
#: (attribute, part) -> intervals; part tells the constraints of one array attribute apart
Box = dict[tuple[int, int], Intervals]


_EVERYTHING: list[Interval] = [(True, 0, 0), (False, KEY_MIN, KEY_MAX)]


class BoxClause(NamedTuple):
    """A box and what else must hold: statements in canonical words, and the program that evaluates them."""

    box: Box
    rest: frozenset[str]
    program: int  # -1: none


def simplify(clauses: list[BoxClause]) -> list[BoxClause]:
    """An equivalent, usually shorter list in canonical order."""
    while True:
        clauses = _absorb(_unique(clauses))
        joined = _join(clauses)
        if len(joined) == len(clauses):
            # Attributes first: clauses over different attributes have an order that no constant changes.
            return sorted(joined, key=lambda c: (sorted(c.box), sorted(c.box.items()), sorted(c.rest)))
        clauses = joined


def _unique(clauses: list[BoxClause]) -> list[BoxClause]:
    return list({(tuple(sorted(c.box.items())), c.rest): c for c in clauses}.values())


def _absorb(clauses: list[BoxClause]) -> list[BoxClause]:
    kept: list[BoxClause] = []
    for clause in sorted(clauses, key=lambda c: (len(c.box), len(c.rest))):
        if not any(_covers(wide, clause) for wide in kept):
            kept = [k for k in kept if not _covers(clause, k)]
            kept.append(clause)
    return kept


def _covers(wide: BoxClause, narrow: BoxClause) -> bool:
    if not wide.rest <= narrow.rest or len(wide.box) > len(narrow.box):
        return False
    return all(key in narrow.box and _contains(sets, narrow.box[key]) for key, sets in wide.box.items())


def _contains(wide: Intervals, narrow: Intervals) -> bool:
    if wide == narrow:
        return True
    at = 0
    for null, lo, hi in narrow:
        while at < len(wide) and (wide[at][0] != null or wide[at][2] < lo):
            at += 1
        if at == len(wide) or not (wide[at][1] <= lo and hi <= wide[at][2]):
            return False
    return True


def _join(clauses: list[BoxClause]) -> list[BoxClause]:
    """Unite clauses that differ in one scalar attribute."""
    keys = sorted({key for c in clauses for key in c.box})
    for key in keys:
        if key[1]:
            continue  # elements of an array: "has a and has b" is no union of sets
        groups: dict[object, list[BoxClause]] = {}
        for clause in clauses:
            others = (tuple(sorted((k, v) for k, v in clause.box.items() if k != key)), clause.rest, key in clause.box)
            groups.setdefault(others, []).append(clause)
        clauses = [_united(group, key) for group in groups.values()]
    return clauses


def _united(group: list[BoxClause], key: tuple[int, int]) -> BoxClause:
    if len(group) == 1 or key not in group[0].box:
        return group[0]
    pile = sorted({i for c in group for i in c.box[key]}, key=lambda i: (not i[0], i[1]))
    joined: list[Interval] = []
    for null, lo, hi in pile:
        if joined and joined[-1][0] == null and lo <= joined[-1][2] + 1:
            joined[-1] = (null, joined[-1][1], max(hi, joined[-1][2]))
        else:
            joined.append((null, lo, hi))
    box = {**group[0].box, key: tuple(joined)}
    if joined == _EVERYTHING:
        del box[key]
    return BoxClause(box, group[0].rest, group[0].program)
