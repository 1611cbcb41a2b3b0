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
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import re2

from wherecast.language.columns import ANYWHERE, AT_END, AT_START, WHOLE

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
    parts = like_parts(pattern)
    prefix = parts[0][1] if parts and not parts[0][0] else ""
    literals = [text for is_wildcard, text in parts if not is_wildcard]
    if len(parts) == len(literals):
        return PatternForm("exact", prefix, WHOLE + prefix)
    if len(literals) <= 1 and all(text == "%" for is_wildcard, text in parts if is_wildcard):
        if not literals:
            return PatternForm("any")
        if prefix:
            return PatternForm("prefix", prefix, AT_START + prefix)
        name, mark = ("infix", ANYWHERE) if parts[-1][0] else ("suffix", AT_END)
        return PatternForm(name, "", mark + literals[0])
    later = [(len(text), i) for i, (is_wildcard, text) in enumerate(parts) if i and not is_wildcard]
    if not later:
        return PatternForm("general", prefix)
    _, chosen = max(later)
    mark = AT_END if chosen == len(parts) - 1 else ANYWHERE
    return PatternForm("prefixed" if prefix else "pieces", prefix, mark + parts[chosen][1])


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
    return re2.compile(f"(?s){opening}{''.join(parts)}{closing}", _options())


class JavaRegex:
    """A Java regular expression, run by RE2; made by `rlike_regex`."""

    __slots__ = ("_before_line_end", "_regex")

    def __init__(self, regex: Any, *, before_line_end: bool) -> None:
        self._regex = regex
        self._before_line_end = before_line_end

    @property
    def compiled(self) -> Any:
        """The expression of RE2, in which `$` is the end of the text."""
        return self._regex

    @property
    def before_line_end(self) -> bool:
        """Whether it has a `$`, which also holds before a line terminator at the end."""
        return self._before_line_end

    def is_found(self, text: str) -> bool:
        """Whether it matches somewhere in the text."""
        if self._regex.search(text) is not None:
            return True
        # Java's `$` also matches before a final line terminator, which is then as good as not there.
        line_end = LINE_END.search(text) if self._before_line_end else None
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


LINE_END = re.compile(r"(?:\r\n|[\n\r\x85\u2028\u2029])\Z")
#: Instructions of a compiled pattern. Compiling takes about 0.4 us each, and `.{100}` has 2,400.
_MAX_PROGRAM = 3_000
_NOTLINE_END = r"[^\n\r\x{85}\x{2028}\x{2029}]"
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
            return _NOTLINE_END
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


# -- literals that a regular expression requires ----------------------------------------------------------------------

_QUANTIFIER = re.compile(r"(?:[*+?]|\{([0-9]+)(?:,[0-9]*)?\})[?+]?")
_GROUP_HEAD = re.compile(r"\?(?::|<[a-zA-Z][a-zA-Z0-9]*>)")


@lru_cache(maxsize=1 << 16)
def rlike_form(pattern: str) -> PatternForm:
    """The form of a regular expression that has been checked: `pieces`, `folded` or `general`."""
    literal = max(_Requirements(pattern).alternatives(), key=len, default="")
    if "(?i)" in pattern:
        # Of letters beyond ASCII, lower case may depend on their neighbours.
        lower = literal.lower() if literal.isascii() else ""
        return PatternForm("folded", "", ANYWHERE + lower) if lower else PatternForm("general")
    return PatternForm("pieces", "", ANYWHERE + literal) if literal else PatternForm("general")


class _Requirements:
    """One walk over a regular expression for the runs of characters that every match contains.

    A run is required as long as none of its characters is optional and there is no other alternative. Whatever else
    stands there ends the run: that costs speed and never an answer.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0

    def alternatives(self) -> list[str]:
        """The runs up to the end of the group; none if there are several alternatives."""
        found = self._sequence()
        while self.pattern.startswith("|", self.at):
            self.at += 1
            self._sequence()
            found = []
        return found

    def _sequence(self) -> list[str]:
        runs, run = [], ""
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            char, inside = self._atom()
            quantifier = _QUANTIFIER.match(self.pattern, self.at)
            if quantifier is None and char:
                run += char
                continue
            least = 1
            if quantifier is not None:
                self.at = quantifier.end()
                least = int(quantifier[1]) if quantifier[1] else int(quantifier[0][0] == "+")
            runs += [run + char, *inside] if least else [run]
            run = ""
        return [*runs, run]

    def _atom(self) -> tuple[str, list[str]]:
        """The next character if it is a plain one, else "", and the runs that a group requires."""
        pattern, char = self.pattern, self.pattern[self.at]
        self.at += 1
        if char == "\\":
            self.at += 1
            escaped = pattern[self.at - 1]
            return _CONTROLS.get(escaped, "" if escaped.isalnum() else escaped), []
        if char == "[":
            while pattern[self.at] != "]":
                self.at += 2 if pattern[self.at] == "\\" else 1
            self.at += 1
            return "", []
        if char == "(":
            return "", self._group()
        return ("" if char in ".^$" else char), []

    def _group(self) -> list[str]:
        if self.pattern.startswith("?i)", self.at):
            self.at += 3
            return []
        head = _GROUP_HEAD.match(self.pattern, self.at)
        self.at = head.end() if head else self.at
        inside = self.alternatives()
        self.at += 1
        return inside
