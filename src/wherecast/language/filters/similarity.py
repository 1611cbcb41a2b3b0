"""Conditions that compare a similarity with a literal: `SIMILAR(embedding, ARRAY(...)) >= 0.8`.

What they mean for an index is in `index.similar` and `index.similar_texts`; `wherecast check` needs to know them without loading those.
"""

from __future__ import annotations

from typing import NamedTuple

from wherecast.language.expression import FLIPPED, Attr, Call, Compare, Param
from wherecast.language.filters.normalize import Residual, Truth

_COMPARISONS = frozenset({">=", ">", "<", "<="})


class Similarity(NamedTuple):
    """A residual that compares a similarity with a literal."""

    attr: Attr
    literal: Param  # a vector, or a text
    op: str
    limit: Param
    truth: Truth  # TRUE or NOT_FALSE


def find_similarity(residual: Residual) -> Similarity | None:
    """What a residual says, if it is of that kind."""
    node = residual.node
    if not isinstance(node, Compare) or residual.truth not in (Truth.TRUE, Truth.NOT_FALSE):
        return None
    left, op, right = node.left, node.op, node.right
    if isinstance(left, Param):
        left, op, right = right, FLIPPED[op], left
    if not isinstance(left, Call) or left.name not in ("similar", "similar_text") or op not in _COMPARISONS:
        return None
    attr, literal = left.args
    if not isinstance(attr, Attr) or not isinstance(literal, Param) or not isinstance(right, Param):
        return None
    return Similarity(attr, literal, op, right, residual.truth)


def element_name(program: int, statement: int, row: int) -> str:
    """The text that stands for a condition among the strings of filters while codes are made: in the order of its numbers."""
    return f"{program:08d}/{statement:08d}/{row:010d}"
