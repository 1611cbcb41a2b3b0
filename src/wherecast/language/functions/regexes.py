r"""What a Java regular expression matches, and what stands in its place: regexp_extract, regexp_replace and the like on RE2.

RE2 has Java's order of alternatives, so its matches are Java's. The exception is `$`, which in Java also holds before a
line terminator at the end of the text (see `patterns`). A text without one is searched as it is. One with it is searched
twice, with and without its end, and the first match counts. Where both begin at one place, the longer one is Java's if
all repetitions are greedy and there are no alternatives; so other patterns with `$` are refused.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from wherecast.language.syntax.java_regex import LINE_END, JavaRegex, rlike_regex

_LAZY_OR_OTHER = re.compile(r"[*+?}]\?|\|")
_PIECE = re.compile(r"\\(.)|\$([0-9]+)|([^\\$]+)|(.)", re.DOTALL)


@lru_cache(maxsize=4096)
def check_pattern(pattern: str) -> JavaRegex:
    """A compiled pattern whose matches are Java's. Raises ValueError with the reason where it is wrong or refused."""
    regex = rlike_regex(pattern)
    if regex.before_line_end and _LAZY_OR_OTHER.search(pattern):
        raise ValueError("$ beside alternatives or lazy repetitions is not supported here; leave one of them out")
    return regex


def check_repeated(pattern: str) -> JavaRegex:
    """The same for a pattern that is looked for again and again: Java finds the empty text within a character, too."""
    regex = check_pattern(pattern)
    if regex.is_found(""):
        raise ValueError("a pattern that matches the empty text is not supported here; write + in place of *")
    return regex


def check_replacement(pattern: str, new: str) -> None:
    """Raises ValueError where a pattern or its replacement is wrong or refused."""
    replacement_pieces(new, check_repeated(pattern).compiled.groups)


@lru_cache(maxsize=4096)
def replacement_pieces(new: str, groups: int) -> tuple[str | int, ...]:
    """A replacement as texts and numbers of groups."""
    out: list[str | int] = []
    for escaped, number, plain, wrong in _PIECE.findall(new):
        if wrong:
            raise ValueError("a $ must stand before the number of a group, and a backslash before a character")
        if not number:
            out.append(escaped or plain)
            continue
        # Java takes as many digits as make the number of a group.
        size = max((n for n in range(1, len(number) + 1) if int(number[:n]) <= groups), default=0)
        if not size:
            raise ValueError(f"${number}: the pattern has {groups} groups")
        out += [int(number[:size]), number[size:]]
    return tuple(out)


def find(regex: JavaRegex, text: str, start: int = 0) -> Any:
    """The first match from a place on, or None."""
    found = regex.compiled.search(text, start)
    line_end = LINE_END.search(text) if regex.before_line_end else None
    if line_end is None or line_end.start() < start:
        return found
    shorter = regex.compiled.search(text[: line_end.start()], start)
    return shorter if found is None or (shorter is not None and shorter.start() < found.start()) else found


def extract(text: str, pattern: str, group: int = 1) -> str | None:
    """What a group matches, or the empty text; None if there is no such group."""
    regex = check_pattern(pattern)
    found = find(regex, text)
    if found is None:  # Spark looks at the number only where there is a match
        return ""
    return found.group(group) or "" if 0 <= group <= regex.compiled.groups else None


def place(text: str, pattern: str) -> int:
    """Where the first match begins, counted from 1; 0 if there is none."""
    found = find(check_pattern(pattern), text)
    return 0 if found is None else found.start() + 1


def count(text: str, pattern: str) -> int:
    """How many matches there are."""
    return sum(1 for _ in _matches(check_pattern(pattern), text))


def split(text: str, pattern: str) -> list[str]:
    """What is between the matches."""
    out, at = [], 0
    for found in _matches(check_pattern(pattern), text):
        out.append(text[at : found.start()])
        at = found.end()
    return [*out, text[at:]]


def replace_all(text: str, pattern: str, new: str, most: int) -> str | None:
    """Every match replaced; None if the result has more than `most` characters and more than the texts together."""
    regex = check_pattern(pattern)
    pieces = replacement_pieces(new, regex.compiled.groups)
    out: list[str] = []
    at = size = 0
    limit = max(most, len(text) + len(pattern) + len(new))
    for found in _matches(regex, text):
        put = "".join(p if isinstance(p, str) else found.group(p) or "" for p in pieces)
        out += [text[at : found.start()], put]
        size += found.start() - at + len(put)
        at = found.end()
        if size > limit:
            return None
    out.append(text[at:])
    return "".join(out) if size + len(text) - at <= limit else None


def _matches(regex: JavaRegex, text: str) -> Any:
    if not regex.before_line_end or LINE_END.search(text) is None:
        last = (-1, -1)
        for found in regex.compiled.finditer(text):
            if found.span() != last:  # RE2 may find an empty match twice
                yield found
            last = found.span()
        return
    found = find(regex, text)
    while found is not None:
        yield found
        start = found.end() + (found.end() == found.start())
        found = find(regex, text, start) if start <= len(text) else None
