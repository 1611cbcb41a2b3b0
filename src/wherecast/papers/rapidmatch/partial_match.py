"""Matching is as hard as Partial Match: the reductions both ways.

Theory of operation
-------------------
(Kale, Hazan, Cao, Singh 2005, section 2.1.) Partial Match: given tuples in {0, 1}^k, find those that satisfy a query in
{0, 1, *}^k. Matching has the stars on the other side: given subscriptions in {0, 1, *}^k, find those that an event in
{0, 1}^k satisfies. Each becomes the other by doubling the positions:

- the side without stars, a point, becomes one with stars: 0 -> 0*, 1 -> *0;
- the side with stars, a pattern, becomes one without: 0 -> 01, 1 -> 10, * -> 00.

A point agrees with a pattern at a position if and only if their images agree at both: the star hides the position where
the pattern's image has its 1 when the values are equal, and faces it with a 0 when they are not.

The paper prints {0,1}^2k for the image of a point and {0,1,*}^2k for that of a pattern; it is {0,*} and {0,1}.
"""

from __future__ import annotations

import numpy as np

from wherecast.papers.rapidmatch.binary import STAR, Values

_POINT = np.array([[0, STAR], [STAR, 0]], np.int8)
_PATTERN = np.array([[0, 1], [1, 0], [0, 0]], np.int8)


def reduce_partial_match(tuples: Values, queries: Values) -> tuple[Values, Values]:
    """Subscriptions and events that match exactly where tuples (n, k) satisfy queries (m, k)."""
    return _double(_POINT, tuples), _double(_PATTERN, queries)


def reduce_matching(subscriptions: Values, events: Values) -> tuple[Values, Values]:
    """Tuples and queries that are satisfied exactly where subscriptions (n, k) match events (m, k)."""
    return _double(_PATTERN, subscriptions), _double(_POINT, events)


def naive_partial_match(tuples: Values, query: Values) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """The definition: which tuples have the query's value wherever it has one."""
    return np.asarray(((query == STAR) | (tuples == query)).all(axis=1))


def _double(images: Values, values: Values) -> Values:
    return images[values].reshape(len(values), 2 * values.shape[1])
