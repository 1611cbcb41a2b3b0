"""Kinds of literals: what Spark takes a literal for, seen for whole columns of them where that is quick."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter

from wherecast.language.expression import NUMBERS, Type
from wherecast.language.skeletons import LiteralText, Skeleton
from wherecast.language.reading import number_type
from wherecast.language.sql import SlotKind

#: What each slot of a variant holds; a text is the reason why the literal has no kind.
Kinds = tuple[SlotKind | str, ...]

_STRING_SLOT, _BIGINT_SLOT, _DECIMAL_SLOT = SlotKind(Type.STRING), SlotKind(Type.BIGINT), SlotKind(Type.DECIMAL)
# A whole column in one C call: the literals joined by commas.
_ALL_INTEGERS = re.compile(r"-?[0-9]{1,18}(?:,-?[0-9]{1,18})*+")
_DECIMAL = r"-?(?:[0-9]{1,16}\.[0-9]{0,16}|\.[0-9]{1,16})"
_ALL_DECIMALS = re.compile(rf"{_DECIMAL}(?:,{_DECIMAL})*+")


def kinds_of(column: Sequence[LiteralText], *, arithmetic: bool) -> list[SlotKind | str]:
    """The kind of each literal of a column, or one kind for all of them; a text is the reason why one has none."""
    kind = _common_kind(column, arithmetic=arithmetic)
    return [kind_of(t, arithmetic=arithmetic) for t in column] if kind is None else [kind]


def _common_kind(column: Sequence[LiteralText], *, arithmetic: bool) -> SlotKind | None:
    """The kind of all literals, where that is quick to see."""
    if all(map("'".__eq__, map(itemgetter(0), column))):
        return _STRING_SLOT
    if arithmetic:  # Spark's decimal arithmetic depends on the digits of each literal
        return None
    try:
        joined = ",".join(column)  # type: ignore[arg-type]
    except TypeError:  # IN lists
        return None
    if _ALL_INTEGERS.fullmatch(joined):
        return _BIGINT_SLOT
    return _DECIMAL_SLOT if _ALL_DECIMALS.fullmatch(joined) else None


_EDGES = (str(2**31), str(2**63))


def kind_of(literal: LiteralText, *, arithmetic: bool) -> SlotKind | str:
    if isinstance(literal, tuple):
        return _list_kind(literal, arithmetic=arithmetic)
    if literal[0] == "'":
        return _STRING_SLOT
    if len(literal) < 10 and literal.isdecimal():  # most numbers, without a regular expression
        return _small_integer(len(literal.lstrip("0")) or 1) if arithmetic else _BIGINT_SLOT
    try:
        kind, digits = number_type(literal)
    except ValueError as error:
        return str(error)
    if arithmetic:
        return SlotKind(kind, digits, is_edge=literal in _EDGES)
    return SlotKind(Type.BIGINT if kind is Type.INT else kind)


@lru_cache
def _small_integer(precision: int) -> SlotKind:
    return SlotKind(Type.INT, (precision, 0))


def _list_kind(values: tuple[str, ...], *, arithmetic: bool) -> SlotKind | str:
    """The kind of an IN list: its widest."""
    kinds = dict.fromkeys(kinds_of(values, arithmetic=arithmetic))
    wrong = [k for k in kinds if isinstance(k, str)]
    if wrong:
        return wrong[0]
    if len(kinds) == 1:
        return next(iter(kinds))
    types = [k.type for k in kinds if isinstance(k, SlotKind)]
    if Type.STRING in types:
        return "strings and numbers in one list; give all values one type"
    return SlotKind(max(types, key=NUMBERS.index))


def are_strings(kinds: Kinds) -> tuple[bool, ...]:
    return tuple(k == _STRING_SLOT for k in kinds)


def has_arithmetic(skeleton: Skeleton) -> bool:
    text = "".join(skeleton)
    return any(c in text for c in "+-*/%") or "abs" in text.lower()
