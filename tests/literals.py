"""Literals with anchors, as tests write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wherecast.index.literals import LiteralCodes
from wherecast.index.points import EventPoint
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


def codes_in(codes: LiteralCodes, text: str) -> list[int]:
    """The codes of one text, as a single event has them."""
    point = EventPoint(1, codes.width)
    point.write_text(0, codes.search, text.encode())
    assert not point.seen.any()
    code = int(point.flat[0])
    return [code] if code >= 0 else point.events().list_codes.tolist()
