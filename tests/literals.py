"""Literals with anchors, as tests write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wherecast.index.literals import LiteralCodes
from wherecast.language.filters.columns import ANYWHERE, AT_END, AT_START, WHOLE


class Literal(NamedTuple):
    """A text to look for; with both anchors it is the whole text."""

    text: str
    start: bool = False
    end: bool = False

    @property
    def marked(self) -> str:
        mark = (WHOLE if self.end else AT_START) if self.start else (AT_END if self.end else ANYWHERE)
        return mark + self.text


def codes_of(literals: Sequence[Literal]) -> LiteralCodes:
    return LiteralCodes.of([literal.marked for literal in literals])
