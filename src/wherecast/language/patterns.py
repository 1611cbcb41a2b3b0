"""Patterns: LIKE, ILIKE and RLIKE.

A LIKE without wildcards is an equality, one whose only wildcard is a final `%` is a prefix, and both are intervals of
the string order; the rest is a residual behind the interval of its literal prefix. General patterns run on RE2, whose
time is linear in the text, so a hostile `(a+)+$` costs nothing special.

Spark's RLIKE is Java's: `.` stops at any line terminator, `$` also matches before a final one, `\\s` knows the vertical
tab. `java_to_re2` rewrites those; look-around and back-references, which no linear-time engine has, are refused.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import re2

_TOKEN = re.compile(r"\\(.)|\\|([%_])|([^\\%_]+)", re.DOTALL)


def like_tokens(pattern: str) -> list[str]:
    """A LIKE pattern as literal runs, `%` and `_`, wildcards marked by a leading NUL.

    Raises ValueError where Spark refuses the pattern: a backslash before anything but `_`, `%` or itself.
    """
    tokens: list[str] = []
    for match in _TOKEN.finditer(pattern):
        escaped, wildcard, plain = match.groups()
        if wildcard:
            tokens.append("\0" + wildcard)
        elif plain is not None:
            tokens.append(plain)
        elif escaped is not None and escaped in "%_\\":
            tokens.append(escaped)
        else:
            raise ValueError("a backslash may only stand before %, _ or another backslash (write '\\\\\\\\' for one)")
    return tokens


def _is_wildcard(token: str) -> bool:
    return len(token) == 2 and token[0] == "\0" and token[1] in "%_"


def like_form(pattern: str) -> tuple[str, str]:
    """What a LIKE pattern amounts to, and its literal prefix: exact, prefix, any or general."""
    # NUL in the pattern itself would be taken for a mark; such patterns are rare enough to be general ones.
    if "\0" in pattern:
        like_tokens(pattern)
        return "general", pattern[: pattern.index("\0")].split("%")[0].split("_")[0].split("\\")[0]
    tokens = like_tokens(pattern)
    prefix = ""
    for i, token in enumerate(tokens):
        if _is_wildcard(token):
            only_percent = all(t == "\0%" for t in tokens[i:])
            return ("prefix" if prefix else "any") if only_percent else "general", prefix
        prefix += token
    return "exact", prefix


@lru_cache(maxsize=4096)
def like_regex(pattern: str) -> Any:
    """A compiled RE2 for a LIKE pattern; use its `fullmatch`."""
    parts = []
    for match in _TOKEN.finditer(pattern):
        escaped, wildcard, plain = match.groups()
        parts.append(".*" if wildcard == "%" else "." if wildcard else re2.escape(plain if plain is not None else escaped))
    return re2.compile("(?s)" + "".join(parts), _options())


@lru_cache(maxsize=4096)
def rlike_regex(pattern: str) -> Any:
    """A compiled RE2 for a Java regular expression; use its `search`. Raises ValueError with the reason."""
    try:
        return re2.compile(java_to_re2(pattern), _options())
    except re2.error as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        raise ValueError(f"{reason} (look-around and back-references are not supported)") from None


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    return options


_NOT_LINE_END = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_END = r"(?:(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z)"


def java_to_re2(pattern: str) -> str:
    """Rewrite a Java regular expression for RE2, or raise ValueError where the two would differ."""
    out, i, in_class = [], 0, False
    while i < len(pattern):
        char = pattern[i]
        if char == "\\":
            out.append(_escape_sequence(pattern, i, in_class))
            i += 2
            continue
        if in_class:
            if char == "[" or pattern.startswith("&&", i):
                raise ValueError("nested character classes and && are not supported; list the characters")
            in_class = char != "]" or pattern[i - 1] == "["
        elif char == "[":
            in_class = True
            if pattern.startswith(("[]", "[^]"), i):
                raise ValueError("']' first in a character class is not supported; escape it")
        elif char == "(" and pattern.startswith("(?", i) and not pattern.startswith(("(?:", "(?i)", "(?<", "(?P<"), i):
            raise ValueError("only (?:...), (?i) and named groups are supported of the (?...) forms")
        elif char in ".$":
            char = _NOT_LINE_END if char == "." else _END
        out.append(char)
        i += 1
    return "".join(out)


def _escape_sequence(pattern: str, i: int, in_class: bool) -> str:
    following = pattern[i + 1 : i + 2]
    if not following:
        raise ValueError("a backslash at the end")
    if following == "s":
        return r"\s\x0B" if in_class else r"[\s\x0B]"
    if following == "S" and not in_class:
        return r"[^\s\x0B]"
    if following.isalnum() and following not in "dDwWtnrfabBAz":
        raise ValueError(f"\\{following} is not supported")
    return "\\" + following


def prefix_end(prefix: str) -> str | None:
    """The least string greater than every string with this prefix; None when there is none."""
    for i in range(len(prefix) - 1, -1, -1):
        point = ord(prefix[i]) + 1
        if point == 0xD800:  # surrogates are no characters
            point = 0xE000
        if point <= 0x10FFFF:
            return prefix[:i] + chr(point)
    return None
