"""Patterns: LIKE, ILIKE and RLIKE.

A LIKE without wildcards is an equality, one whose only wildcard is a final `%` is a prefix, and both are intervals of
the string order; the rest is a residual behind the interval of its literal prefix. General patterns run on RE2, whose
time is linear in the text; `java_regex` is about those of RLIKE.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import re2

from wherecast.language.filters.columns import ANYWHERE, AT_END, AT_START, WHOLE
from wherecast.language.syntax.java_regex import flags_of, re2_options, required_runs, rlike_regex

_TOKEN = re.compile(r"\\(.)|\\|([%_])|([^\\%_]+)", re.DOTALL)


def like_parts(pattern: str) -> list[tuple[bool, str]]:
    """A LIKE pattern as (is a wildcard, text): `%` and `_` one by one, and the literals between them.

    Raises ValueError where Spark refuses the pattern: a backslash before anything but `_`, `%` or itself.
    """
    parts: list[tuple[bool, str]] = []
    for match in _TOKEN.finditer(pattern):
        escaped, wildcard, plain = match.groups()
        if wildcard:
            parts.append((True, wildcard))
            continue
        if plain is None and (escaped is None or escaped not in "%_\\"):
            raise ValueError("a backslash may only stand before %, _ or another backslash (write '\\\\\\\\' for one)")
        text = escaped if plain is None else plain
        parts.append((False, parts.pop()[1] + text if parts and not parts[-1][0] else text))
    return parts


class PatternForm(NamedTuple):
    """What a pattern amounts to.

    - `exact`, `prefix`, `suffix`, `infix`: one literal, which says it all; `any`: every text.
    - `pieces`: a text that matches contains the literal, and there is more to it; `prefixed`: it begins with `prefix` too.
    - `folded`: as `pieces`, but it is the text in lower case that contains the literal.
    - `general`: none of these; the text may have to begin with `prefix`.
    """

    name: str
    prefix: str = ""
    literal: str = ""  # marked (see `columns`)


@lru_cache(maxsize=1 << 16)
def like_form(pattern: str) -> PatternForm:
    """The form of a LIKE pattern. Of several literals the longest is looked for, and the first one is a prefix already."""
    plain = pattern.strip("%")
    if plain and "%" not in plain and "_" not in plain and "\\" not in plain:  # most patterns
        return _form_of_literal(plain, pattern[0] == "%", pattern[-1] == "%")
    parts = like_parts(pattern)
    prefix = parts[0][1] if parts and not parts[0][0] else ""
    literals = [text for is_wildcard, text in parts if not is_wildcard]
    if not parts:
        return _form_of_literal("", False, False)
    if len(literals) <= 1 and all(text == "%" for is_wildcard, text in parts if is_wildcard):
        return _form_of_literal(literals[0], parts[0][0], parts[-1][0]) if literals else PatternForm("any")
    later = [(len(text), i) for i, (is_wildcard, text) in enumerate(parts) if i and not is_wildcard]
    if not later:
        return PatternForm("general", prefix)
    _, chosen = max(later)
    mark = AT_END if chosen == len(parts) - 1 else ANYWHERE
    return PatternForm("prefixed" if prefix else "pieces", prefix, mark + parts[chosen][1])


def _form_of_literal(text: str, is_open: bool, goes_on: bool) -> PatternForm:
    """A literal with nothing but `%` before it (it is open) and behind it (it goes on)."""
    if is_open:
        return PatternForm("infix", "", ANYWHERE + text) if goes_on else PatternForm("suffix", "", AT_END + text)
    return PatternForm("prefix", text, AT_START + text) if goes_on else PatternForm("exact", text, WHOLE + text)


def find_form(kind: str, pattern: str) -> PatternForm:
    """The form of a pattern of LIKE, ILIKE or RLIKE. Spark's ILIKE is LIKE of both sides in lower case."""
    if kind == "rlike":
        return rlike_form(pattern)
    return like_form(pattern.lower() if kind == "ilike" else pattern)


@lru_cache(maxsize=1 << 16)
def text_test(kind: str, pattern: str) -> Callable[[str], bool]:
    """Whether a text matches a pattern, as a function of the text; of ILIKE, of the text in lower case."""
    if kind == "rlike":
        return lambda text: rlike_regex(pattern).is_found(text)
    if kind == "ilike":
        pattern = pattern.lower()
    form = like_form(pattern)
    literal = form.literal[1:]
    if form.name == "infix":
        return lambda text: literal in text
    if form.name == "suffix":
        return lambda text: text.endswith(literal)
    if form.name == "prefix":
        return lambda text: text.startswith(literal)
    if form.name == "exact":
        return lambda text: text == literal
    return lambda text: like_regex(pattern).search(text) is not None


@lru_cache(maxsize=4096)
def like_regex(pattern: str) -> Any:
    """A compiled RE2 for a LIKE pattern; use its `search`.

    `%` at an end of the pattern is an end without an anchor: RE2 then looks for the literal itself, thirty times as fast
    as it walks through `.*`.
    """
    parts = []
    for match in _TOKEN.finditer(pattern):
        escaped, wildcard, plain = match.groups()
        parts.append(
            ".*" if wildcard == "%" else "." if wildcard else re2.escape(plain if plain is not None else escaped)
        )
    start, end = "".join(parts[:1]), "".join(parts[-1:])
    opening = "" if start == ".*" else r"\A"
    closing = "" if end == ".*" else r"\z"
    while parts and parts[0] == ".*":
        del parts[0]
    while parts and parts[-1] == ".*":
        del parts[-1]
    return re2.compile(f"(?s){opening}{''.join(parts)}{closing}", re2_options())


@lru_cache(maxsize=1 << 16)
def rlike_form(pattern: str) -> PatternForm:
    """The form of a regular expression that has been checked: `pieces`, `folded` or `general`."""
    flags = flags_of(pattern)
    if "\\Q" in pattern or ("i" in flags and "u" in flags):
        return PatternForm("general")
    literal = max(required_runs(pattern), key=len, default="")
    if "i" in flags:
        # Of letters beyond ASCII, lower case may depend on their neighbours.
        lower = literal.lower() if literal.isascii() else ""
        return PatternForm("folded", "", ANYWHERE + lower) if lower else PatternForm("general")
    return PatternForm("pieces", "", ANYWHERE + literal) if literal else PatternForm("general")


def prefix_end(prefix: str) -> str | None:
    """The least string greater than every string with this prefix; None when there is none."""
    for i in range(len(prefix) - 1, -1, -1):
        point = ord(prefix[i]) + 1
        if point == 0xD800:  # surrogates are not characters
            point = 0xE000
        if point <= 0x10FFFF:
            return prefix[:i] + chr(point)
    return None
