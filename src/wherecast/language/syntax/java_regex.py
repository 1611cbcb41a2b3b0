r"""Java's regular expressions, as Spark's RLIKE has them, run by RE2.

Theory of operation
-------------------
RE2 takes time linear in the text, so a hostile `(a+)+$` costs nothing special. `.` stops at any line terminator in Java, `$` also
matches before a final one, `\s` knows the vertical tab, `(?i)` knows ASCII letters only, and with `u` the simple case mappings of
Unicode. `rlike_regex` rewrites those; look-around and back-references, which no linear-time engine has, are refused, and so
is what Java refuses. `\b` counts ASCII letters, as Java does from version 19 on. RE2 counts repetitions up to 1,000; longer
ones are written one after the other.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

import re2


class JavaRegex:
    """A Java regular expression, run by RE2; made by `rlike_regex`."""

    __slots__ = ("_before_line_end", "_regex")

    def __init__(self, regex: Any, *, before_line_end: bool) -> None:
        self._regex = regex
        self._before_line_end = before_line_end

    @property
    def steps(self) -> int:
        """Instructions of the compiled pattern. Compiling takes about 0.4 us each, and `.{100}` has 2,400."""
        return int(self._regex.programsize)

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
    translated = translate(pattern)
    try:
        regex = re2.compile(translated.text, re2_options())
    except re2.error as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        raise ValueError(f"{reason} (look-around and back-references are not supported)") from None
    return JavaRegex(regex, before_line_end=translated.has_dollar)


class Translated(NamedTuple):
    """A Java regular expression as RE2 has it, in which `$` is the end of the text, and whether there is one."""

    text: str
    has_dollar: bool


def translate(pattern: str) -> Translated:
    """Raises ValueError with the reason where the pattern is wrong or not supported."""
    translator = _Translator(pattern)
    return Translated(translator.translate(), translator.has_dollar)


def check_regex(pattern: str, most_steps: int) -> None:
    """Raise ValueError where a regular expression is wrong, not supported or too large."""
    steps = rlike_regex(pattern).steps
    if steps > most_steps:
        raise ValueError(f"too large a pattern: {steps} steps, at most {most_steps}; repeat less often")


def re2_options() -> Any:
    options = re2.Options()
    options.log_errors = False
    return options


LINE_END = re.compile(r"(?:\r\n|[\n\r\x85\u2028\u2029])\Z")
#: The most that RE2 counts to. A longer repetition is written out; it may have so many characters, and count so far.
_MOST_REPEATED, _MOST_WRITTEN, _MOST_COUNTED = 1000, 50_000, 100_000
_NOT_LINE_END = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_NAMED_GROUP = re.compile(r"\(\?<[a-zA-Z][a-zA-Z0-9]*>")
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]+))?([:)])")
_REPETITION = re.compile(r"\{([0-9]{1,9})(?:(,)([0-9]{0,9}))?\}")
_BLANKS = r" \t\x{A0}\x{1680}\x{180E}\x{2000}-\x{200A}\x{202F}\x{205F}\x{3000}"
_LINE_ENDS = r"\n\x0B\f\r\x{85}\x{2028}\x{2029}"
#: Classes by the letter of their escape, for use in brackets; and those that are the complement of another.
_CLASSES = {"d": r"\d", "D": r"\D", "w": r"\w", "W": r"\W", "s": r"\s\x0B", "h": _BLANKS, "v": _LINE_ENDS}
_COMPLEMENTS = {"S": "s", "H": "h", "V": "v"}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_CODE = re.compile(r"x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|0([0-3]?[0-7]{1,2})|c([@-_a-z?])")
_PROPERTY = re.compile(r"([pP])(?:\{(\^?[A-Za-z0-9_]+)\}|([A-Z]))")
#: Java's POSIX classes, which are ASCII.
_POSIX = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7F",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1F\x7F",
    "XDigit": "0-9a-fA-F",
    "Space": r" \t-\r",
}
_CATEGORY = re.compile(r"L[ultmo]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?|C[cfo]?")
_CASED = ("L", "Lu", "Ll", "Lt", "Lower", "Upper")


class _Mode(NamedTuple):
    """The flags in force."""

    folds: bool = False  # i: letters match in either case
    unicode: bool = False  # u: also letters beyond ASCII do
    dot_all: bool = False  # s: `.` matches line ends


class _Translator:
    """One walk over a pattern. `modes` holds the flags of each open group, `starts` where it begins in the output."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.modes = [_Mode()]
        self.starts = [0]
        self.out: list[str] = []
        self.last = 0  # where the last atom begins in the output
        self.has_dollar = False
        self.has_end = False
        self.names: set[str] = set()

    def translate(self) -> str:
        out = self.out
        while self.at < len(self.pattern):
            char = self.pattern[self.at]
            token = self._token()
            if char == ")" and len(self.starts) > 1:
                self.last = self.starts.pop()
            elif char == "(" and token:
                self.starts.append(len(out))
            elif char not in "{*+?|":
                self.last = len(out)
            out.append(token)
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
            return self._repetition()
        self.at += 1
        if char == ")" and len(self.modes) > 1:
            self.modes.pop()
        if char == "$":
            return self._dollar()
        if char == ".":
            return "(?s:.)" if self.modes[-1].dot_all else _NOT_LINE_END
        return self._character(char)

    def _character(self, char: str) -> str:
        """A plain character, or a sign of the syntax."""
        mode = self.modes[-1]
        if mode.folds and (_is_letter(char) or (mode.unicode and not char.isascii())):
            return f"[{self._range(char, char)}]"
        return char if char.isascii() else _plain(char)

    def _repetition(self) -> str:
        match = _REPETITION.match(self.pattern, self.at)
        if match is None:
            raise ValueError("{ must begin a repetition such as {2} or {1,3}; escape it")
        self.at = match.end()
        least, most = int(match[1]), int(match[3]) if match[3] else int(match[1])
        if max(least, most) <= _MOST_REPEATED:
            return match.group()
        atom = "".join(self.out[self.last :])
        if match[2] and match[3] and most < least:
            raise ValueError("a repetition that ends before it begins")
        if (
            max(least, most) > _MOST_COUNTED
            or len(atom) * (max(least, most) // _MOST_REPEATED + 2) > _MOST_WRITTEN
            or self.pattern[self.at : self.at + 1] == "+"
        ):
            raise ValueError(f"too large a repetition {match.group()}; repeat less often")
        # The atom stands in the output already: it takes the first count.
        required = [min(_MOST_REPEATED, least - n) for n in range(0, least, _MOST_REPEATED)]
        optional = [min(_MOST_REPEATED, most - least - n) for n in range(0, most - least, _MOST_REPEATED)]
        counts = [f"{{{n}}}" for n in required] + [f"{{0,{n}}}" for n in optional]
        if match[2] and not match[3]:
            counts.append("*")
        return atom.join(counts)

    def _open_group(self) -> str:
        pattern, at = self.pattern, self.at
        flags = _FLAGS.match(pattern, at)
        if flags and (flags[1] or flags[2]):
            return self._flags(flags)
        named = _NAMED_GROUP.match(pattern, at)
        opening = named.group() if named else "(?:" if pattern.startswith("(?:", at) else "("
        if opening == "(" and pattern.startswith("(?", at):
            raise ValueError("only (?:...), named groups and the flags i, s and u are supported of the (?...) forms")
        if named and opening in self.names:
            raise ValueError(f"two groups of one name {opening[3:-1]!r}; rename one")
        self.names.add(opening)
        self.modes.append(self.modes[-1])
        self.at += len(opening)
        return "(" if named else opening

    def _flags(self, match: re.Match[str]) -> str:
        on, off, end = match[1], match[2] or "", match[3]
        unknown = set(on + off) - set("isu")
        if unknown:
            raise ValueError(f"the flag {min(unknown)} is not supported; i, s and u are")
        mode = self.modes[-1]
        mode = _Mode(
            folds=("i" in on or mode.folds) and "i" not in off,
            unicode=("u" in on or mode.unicode) and "u" not in off,
            dot_all=("s" in on or mode.dot_all) and "s" not in off,
        )
        self.at = match.end()
        if end == ":":
            self.modes.append(mode)
            return "(?:"
        self.modes[-1] = mode
        if self.at < len(self.pattern) and self.pattern[self.at] in "*+?{":
            raise ValueError(f"nothing to repeat after {match.group()}")
        return ""

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
        if char == "Q":
            return self._quoted()
        self.at += 2
        if char in _CLASSES:
            return f"[{_CLASSES[char]}]"
        if char in _COMPLEMENTS:
            return f"[^{_CLASSES[_COMPLEMENTS[char]]}]"
        if char in "pP":
            return f"[{self._property()}]"
        if char == "R":
            return rf"(?:\r\n|[{_LINE_ENDS}])"
        if char == "Z":  # as $ is, where lines do not count
            return self._dollar()
        if char in "bBAz":
            self.has_end = self.has_end or char == "z"
            return "\\" + char
        return self._literal(self._escaped(char))

    def _literal(self, char: str) -> str:
        mode = self.modes[-1]
        if mode.folds and (_is_letter(char) or (mode.unicode and not char.isascii())):
            return f"[{self._range(char, char)}]"
        return _plain(char)

    def _quoted(self) -> str:
        r"""`\Q...\E`: plain characters. All but the last go to the output at once."""
        end = self.pattern.find("\\E", self.at + 2)
        text = self.pattern[self.at + 2 : end if end >= 0 else None]
        self.at = end + 2 if end >= 0 else len(self.pattern)
        if not text:
            raise ValueError("\\Q needs text before its \\E")
        self.out += [self._literal(char) for char in text[:-1]]
        return self._literal(text[-1])

    def _escaped(self, char: str) -> str:
        """The character that an escape other than a class stands for."""
        if char in _CONTROLS:
            return _CONTROLS[char]
        code = _CODE.match(self.pattern, self.at - 1)
        if code is not None:
            self.at = code.end()
            if code[5]:
                return chr(ord(code[5].upper()) ^ 64)
            point = int(code[4], 8) if code[4] else int(code[1] or code[2] or code[3], 16)
            if point > 0x10FFFF or 0xD800 <= point < 0xE000:
                raise ValueError(f"\\{code.group()} is not a character")
            return chr(point)
        if char.isalnum():
            raise ValueError(f"\\{char} is not supported")
        return char

    def _property(self) -> str:
        """A class of characters by name, for use in brackets."""
        match = _PROPERTY.match(self.pattern, self.at - 1)
        if match is None:
            raise ValueError(f"{self.pattern[self.at - 2 : self.at + 20]} is not a class of characters; write \\p{{L}}")
        self.at = match.end()
        name, is_negated = match[2] or match[3], match[1] == "P"
        category = name.removeprefix("Is")
        if self.modes[-1].folds and category in _CASED[1:]:
            raise ValueError(f"\\p{{{name}}} is not supported where case does not matter; write \\p{{L}}")
        if name in _POSIX:
            return f"^{_POSIX[name]}" if is_negated else _POSIX[name]
        is_script = name.startswith("Is") and category.istitle() and len(category) > 2 and category not in _BINARY
        if not _CATEGORY.fullmatch(category) and not is_script:
            raise ValueError(
                f"\\p{{{name}}} is not supported; write a category such as \\p{{L}} or a script such as \\p{{IsGreek}}"
            )
        return f"\\{match[1]}{{{category}}}"

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
        escaped = pattern[self.at + 1 : self.at + 2] if pattern[self.at] == "\\" else ""
        if escaped in tuple(_CLASSES):
            self.at += 2
            return _CLASSES[escaped]
        if escaped and escaped in "pP":
            self.at += 2
            found = self._property()
            if found.startswith("^"):
                raise ValueError("\\P of a POSIX class inside brackets is not supported; write [^...]")
            return found
        low = high = self._class_character()
        if pattern.startswith("-", self.at) and not pattern.startswith("-]", self.at):
            self.at += 1
            high = self._class_character()
            if high < low:
                raise ValueError("a range of characters that ends before it begins")
        return self._range(low, high)

    def _range(self, low: str, high: str) -> str:
        """Characters from one to another, for use in brackets, in either case where flags say so."""
        mode = self.modes[-1]
        if not mode.folds:
            return f"{_plain(low)}-{_plain(high)}"
        return _both_cases(low, high) + (_other_cases(low, high) if mode.unicode else "")

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


#: Properties that RE2 lacks; the other names after `Is` are scripts.
_BINARY = frozenset(
    (
        "Alphabetic",
        "Ideographic",
        "Letter",
        "Lowercase",
        "Uppercase",
        "Titlecase",
        "Punctuation",
        "Control",
        "Digit",
        "Assigned",
    )
)


@lru_cache(maxsize=1)
def _cased() -> list[tuple[str, str, str]]:
    """Letters with more than one case: each with its upper case and the lower case of that, as Java maps single characters."""
    found = []
    for point in range(0x20000):
        char = chr(point)
        if point in range(0xD800, 0xE000) or (char.lower() == char == char.upper()):
            continue
        upper = next((c for c in (char.upper(), char.title()) if len(c) == 1), char)
        lower = "i" if upper == "\u0130" else upper.lower()
        found.append((char, upper, lower if len(lower) == 1 else upper))
    return found


@lru_cache(maxsize=4096)
def _other_cases(low: str, high: str) -> str:
    """The letters that Java's (?iu) takes for one of a range."""
    if low == high:
        same = next((lower for char, _, lower in _cased() if char == low), low)
        return "".join(_plain(char) for char, _, lower in _cased() if lower == same)
    return "".join(_plain(char) for char, upper, lower in _cased() if low <= upper <= high or low <= lower <= high)


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


# -- literals that a regular expression requires ----------------------------------------------------------------------

_QUANTIFIER = re.compile(r"(?:[*+?]|\{([0-9]+)(?:,[0-9]*)?\})[?+]?")
_GROUP_HEAD = re.compile(r"\?(?::|<[a-zA-Z][a-zA-Z0-9]*>)")


def required_runs(pattern: str) -> list[str]:
    """Runs of characters that every match of a checked regular expression contains."""
    return _Requirements(pattern).alternatives()


def flags_of(pattern: str) -> str:
    """All flags that are set somewhere in a pattern."""
    return "".join(match[1] for match in _FLAGS.finditer(pattern))


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
            named = _CODE.match(pattern, self.at) or _PROPERTY.match(pattern, self.at)
            if named is not None:
                self.at = named.end()
                return "", []
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
        flags = _FLAGS.match(self.pattern, self.at - 1)
        if flags and (flags[1] or flags[2]):
            self.at = flags.end()
            if flags[3] == ")":
                return []
            inside = self.alternatives()
            self.at += 1
            return inside
        head = _GROUP_HEAD.match(self.pattern, self.at)
        self.at = head.end() if head else self.at
        inside = self.alternatives()
        self.at += 1
        return inside
