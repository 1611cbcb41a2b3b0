r"""Patterns: LIKE, ILIKE and RLIKE.

A LIKE without wildcards is an equality, one whose only wildcard is a final `%` is a prefix, and both are intervals of
the string order; the rest is a residual behind the interval of its literal prefix. General patterns run on RE2, whose
time is linear in the text, so a hostile `(a+)+$` costs nothing special.

Spark's RLIKE is Java's: `.` stops at any line terminator, `$` also matches before a final one, `\s` knows the vertical
tab, `(?i)` knows ASCII letters only. `rlike_regex` rewrites those; look-around and back-references, which no linear-time
engine has, are refused, and so is what Java refuses. `\b` counts ASCII letters, as Java does from version 19 on.
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
        return "general", pattern[: pattern.index("\0")].split("%", maxsplit=1)[0].split("_", maxsplit=1)[0].split(
            "\\", maxsplit=1
        )[0]
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
    return re2.compile(f"(?s){opening}{''.join(parts)}{closing}", _options())


class JavaRegex:
    """A Java regular expression, run by RE2; made by `rlike_regex`."""

    __slots__ = ("_before_line_end", "_regex")

    def __init__(self, regex: Any, *, before_line_end: bool) -> None:
        self._regex = regex
        self._before_line_end = before_line_end

    def is_found(self, text: str) -> bool:
        """Whether it matches somewhere in the text."""
        if self._regex.search(text) is not None:
            return True
        # Java's `$` also matches before a final line terminator, which is then as good as not there.
        line_end = _LINE_END.search(text) if self._before_line_end else None
        return line_end is not None and self._regex.search(text[: line_end.start()]) is not None


@lru_cache(maxsize=4096)
def rlike_regex(pattern: str) -> JavaRegex:
    """A compiled Java regular expression. Raises ValueError with the reason where it is wrong or not supported."""
    translator = _Translator(pattern)
    try:
        regex = re2.compile(translator.translate(), _options())
    except re2.error as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        raise ValueError(f"{reason} (look-around and back-references are not supported)") from None
    if regex.programsize > _MAX_PROGRAM:
        raise ValueError(f"too large a pattern: {regex.programsize} steps, at most {_MAX_PROGRAM}; repeat less often")
    return JavaRegex(regex, before_line_end=translator.has_dollar)


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    return options


_LINE_END = re.compile(r"(?:\r\n|[\n\r\x85\u2028\u2029])\Z")
#: Instructions of a compiled pattern. Compiling takes about 0.4 us each, and `.{100}` has 2,400.
_MAX_PROGRAM = 3_000
_NOT_LINE_END = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_NAMED_GROUP = re.compile(r"\(\?<[a-zA-Z][a-zA-Z0-9]*>")
_REPETITION = re.compile(r"\{[0-9]+(?:,[0-9]*)?\}")
_CLASSES = {"d": r"\d", "D": r"\D", "w": r"\w", "W": r"\W", "s": r"\s\x0B"}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a"}


class _Translator:
    """One walk over a pattern. `folds` holds, for each open group, whether letters match in either case there."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.folds = [False]
        self.has_dollar = False
        self.has_end = False
        self.names: set[str] = set()

    def translate(self) -> str:
        out = []
        while self.at < len(self.pattern):
            out.append(self._token())
        if self.has_dollar and self.has_end:
            raise ValueError("$ and \\z in one pattern are not supported; use one of them")
        return "".join(out)

    def _token(self) -> str:
        char = self.pattern[self.at]
        if char == "\\":
            return self._escape()
        if char == "[":
            return self._class()
        if char == "(":
            return self._open_group()
        if char == "{":
            match = _REPETITION.match(self.pattern, self.at)
            if match is None:
                raise ValueError("{ must begin a repetition such as {2} or {1,3}; escape it")
            self.at = match.end()
            return match.group()
        self.at += 1
        if char == ")" and len(self.folds) > 1:
            self.folds.pop()
        if char == "$":
            return self._dollar()
        if char == ".":
            return _NOT_LINE_END
        return f"[{_both_cases(char, char)}]" if self.folds[-1] and _is_letter(char) else char

    def _open_group(self) -> str:
        pattern, at = self.pattern, self.at
        if pattern.startswith("(?i)", at):
            self.folds[-1] = True
            self.at += 4
            if self.at < len(pattern) and pattern[self.at] in "*+?{":
                raise ValueError("nothing to repeat after (?i)")
            return ""
        named = _NAMED_GROUP.match(pattern, at)
        opening = named.group() if named else "(?:" if pattern.startswith("(?:", at) else "("
        if opening == "(" and pattern.startswith("(?", at):
            raise ValueError("only (?:...), (?i) and named groups are supported of the (?...) forms")
        if named and opening in self.names:
            raise ValueError(f"two groups of one name {opening[3:-1]!r}; rename one")
        self.names.add(opening)
        self.folds.append(self.folds[-1])
        self.at += len(opening)
        return "(" if named else opening

    def _dollar(self) -> str:
        """`$`, which RE2 has as the end of the text only: see `JavaRegex.is_found`."""
        self.has_dollar = True
        if not _is_last(self.pattern, self.at):
            raise ValueError("$ is supported only at the end of the pattern or of an alternative; escape it")
        return r"\z"

    def _escape(self) -> str:
        char = self.pattern[self.at + 1 : self.at + 2]
        if not char:
            raise ValueError("a backslash at the end")
        self.at += 2
        if char in _CLASSES:
            return f"[{_CLASSES[char]}]"
        if char == "S":
            return r"[^\s\x0B]"
        if char in "bBAz":
            self.has_end = self.has_end or char == "z"
            return "\\" + char
        return _plain(self._escaped(char))

    def _escaped(self, char: str) -> str:
        """The character that an escape other than a class stands for."""
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char.isalnum():
            raise ValueError(f"\\{char} is not supported")
        return char

    # -- character classes ----------------------------------------------------------------------------------------

    def _class(self) -> str:
        pattern = self.pattern
        opening = "[^" if pattern.startswith("[^", self.at) else "["
        self.at += len(opening)
        if pattern.startswith("]", self.at):
            raise ValueError("']' first in a character class is not supported; escape it")
        items = []
        while not pattern.startswith("]", self.at):
            if self.at >= len(pattern):
                raise ValueError("a character class without its ']'")
            items.append(self._class_item())
        self.at += 1
        return f"{opening}{''.join(items)}]"

    def _class_item(self) -> str:
        """One class, character or range inside brackets."""
        pattern = self.pattern
        if pattern[self.at] == "\\" and pattern[self.at + 1 : self.at + 2] in tuple(_CLASSES):
            self.at += 2
            return _CLASSES[pattern[self.at - 1]]
        low = high = self._class_character()
        if pattern.startswith("-", self.at) and not pattern.startswith("-]", self.at):
            self.at += 1
            high = self._class_character()
            if high < low:
                raise ValueError("a range of characters that ends before it begins")
        return _both_cases(low, high) if self.folds[-1] else f"{_plain(low)}-{_plain(high)}"

    def _class_character(self) -> str:
        pattern, at = self.pattern, self.at
        char = pattern[at : at + 1]
        if char == "[" or pattern.startswith("&&", at):
            raise ValueError("nested character classes and && are not supported; list the characters")
        if char != "\\":
            self.at += 1
            return char
        self.at += 2
        return self._escaped(pattern[at + 1 : at + 2])


def _plain(char: str) -> str:
    return f"\\x{{{ord(char):X}}}" if char else ""


def _is_letter(char: str) -> bool:
    return char.isascii() and char.isalpha()


def _both_cases(low: str, high: str) -> str:
    """A range for use in brackets, ASCII letters in either case: Java's (?i) knows no others."""
    out = f"{_plain(low)}-{_plain(high)}"
    for first, last, shift in (("a", "z", -32), ("A", "Z", 32)):
        start, end = max(low, first), min(high, last)
        if start <= end:
            out += f"{_plain(chr(ord(start) + shift))}-{_plain(chr(ord(end) + shift))}"
    return out


_GROUPING = re.compile(r"\\.|\[\^?(?:\\.|[^\]\\])+\]|[()|$]|.", re.DOTALL)


def _is_last(pattern: str, at: int) -> bool:
    """Whether nothing can match after position `at`: only the ends of groups follow, and other alternatives."""
    skipped = None  # groups opened since an alternative began that is to be skipped
    for match in _GROUPING.finditer(pattern, at):
        piece = match.group()
        if skipped is None:
            if piece == "|":
                skipped = 0
            elif piece not in (")", "$"):
                return False
        elif piece == "(":
            skipped += 1
        elif piece == ")":
            skipped = skipped - 1 if skipped else None
    return True


def prefix_end(prefix: str) -> str | None:
    """The least string greater than every string with this prefix; None when there is none."""
    for i in range(len(prefix) - 1, -1, -1):
        point = ord(prefix[i]) + 1
        if point == 0xD800:  # surrogates are not characters
            point = 0xE000
        if point <= 0x10FFFF:
            return prefix[:i] + chr(point)
    return None
