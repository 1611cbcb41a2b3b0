"""Columns: the functions of an event that an index knows.

The commonest column is the value of an attribute. A scalar text attribute has more: the *literals* that occur in it, of
all that filters look for, those that occur in it once it is in lower case, the topic patterns that it matches and
the words that it has. An event has one code in a column of values, and a set of codes in the others and in a column of an array's elements.

The columns of a schema are numbered: first the values, by attribute, then the literals, then each other kind for all texts. A
new kind comes last, so that the numbers in older snapshots keep their meaning; a snapshot says how many columns there were
(`expressions` have the numbers after them). A number is what `Filters` and `Boxes` speak of. A `Column` is what the number
stands for; normal forms speak of it, because they are made without a schema.

A literal has a mark before it that says where it must stand in the text (`ANYWHERE` and so on). So `LIKE '%x%'` asks for
the element `*x` of a set of marked texts, exactly as `array_contains` asks for an element of an array.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from wherecast.language.events.types import Type

if TYPE_CHECKING:
    from wherecast.language.events.schema import Attribute

#: Where a literal must stand.
ANYWHERE, AT_START, AT_END, WHOLE = "*", "^", "$", "="


class Reading(enum.IntEnum):
    """What an index takes from an attribute."""

    VALUE = 0
    LITERALS = 1
    LOWER_LITERALS = 2  # of the text in lower case
    REGEXES = 3  # that match; only indexes have such columns (see `index.expressions`)
    TOPICS = 4  # patterns of MATCHES that hold
    WORDS = 5  # that KEYWORDS looks for
    SIMILAR = 6  # vectors that a vector is similar to; only indexes have such columns

    __hash__ = int.__hash__  # that of an enumeration is Python, and every predicate of a filter is hashed


#: Calls that ask a text for an element of one of its sets, which is their literal.
SETS_OF_CALLS = {"topic_matches": Reading.TOPICS, "keywords": Reading.WORDS}


class Column(NamedTuple):
    """An attribute, by its position in the schema, and what is taken from it."""

    attr: int
    reading: Reading = Reading.VALUE


#: What else is taken from every text, by the build that brought it: an attribute's columns of one group follow each other.
_TEXT_GROUPS = ((Reading.LITERALS, Reading.LOWER_LITERALS), (Reading.TOPICS,), (Reading.WORDS,))


def columns_of(attributes: Iterable[Attribute], most: int, groups: int = len(_TEXT_GROUPS)) -> tuple[Column, ...]:
    """The columns of a schema, in their order. Of a schema so large that the later groups do not fit, they are left out.

    `groups` is 1 for the columns that indexes had before there were others.
    """
    attributes = tuple(attributes)
    texts = [i for i, a in enumerate(attributes) if a.type is Type.STRING and not a.is_array]
    columns = [Column(i) for i in range(len(attributes))]
    for number, group in enumerate(_TEXT_GROUPS[:groups]):
        if number == 0 or len(columns) + len(texts) * len(group) <= most:
            columns += [Column(i, reading) for i in texts for reading in group]
    return tuple(columns)


def marked(mark: str, literal: str) -> str:
    """A literal with its mark. An empty one is in every text, so one mark will do: every text ends with it."""
    return mark + literal if literal or mark == WHOLE else AT_END
