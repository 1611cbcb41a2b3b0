"""Patterns over several events: `PATTERN (a THEN b WITHIN ...)` and `COUNT(a) >= n WITHIN ...`.

A pattern is not a condition on one event, so it is never a part of a filter. It is made of filters: this module cuts a text into its
steps, each of which is an ordinary filter, and reads the window and the key around them. What the parts mean is told in
`kernels.sequences`.

    PATTERN (filter THEN filter ... [THEN NOT filter] WITHIN INTERVAL 10 MINUTES [PARTITION BY attribute])
    COUNT(filter) >= 3 WITHIN INTERVAL 5 MINUTES [PARTITION BY attribute]

THEN and WITHIN divide steps only outside of parentheses, strings, comments, names in backticks and CASE.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import NamedTuple, NoReturn

from wherecast.errors import FilterError
from wherecast.language.intervals import read_amount

#: Steps of a pattern, besides THEN NOT; the events that a COUNT may ask for; microseconds of a window: a thousand years.
MOST_STEPS, MOST_COUNTED, LONGEST_US = 8, 10_000, 1000 * 366 * 86_400_000_000

_BEGINS = re.compile(r"\s*+(?:--[^\r\n]*+\s++|/\*(?:[^*]|\*(?!/))*+\*/\s*+)*+(?:pattern|count)\s*+\(", re.IGNORECASE)
_TOKEN = re.compile(
    r"""(?P<comment>--[^\r\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)
    |(?P<name>`(?:[^`]|``)*+`)
    |(?P<string>(?<!\w)[rR](?:'[^']*+'|"[^"]*+")|'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+")
    |(?P<word>[^\W\d]\w*+)
    |(?P<number>[0-9][\w.]*+)
    |(?P<sign>>=|<=|<>|!=|[^\s\w])""",
    re.VERBOSE | re.DOTALL,
)
_UNIT = re.compile(r"(YEAR|MONTH|WEEK|DAY|HOUR|MINUTE|SECOND|MILLISECOND|MICROSECOND)S?")
_FORM = "PATTERN (a THEN b WITHIN INTERVAL 10 MINUTES PARTITION BY key)"
_COUNT_FORM = "COUNT(a) >= 3 WITHIN INTERVAL 5 MINUTES PARTITION BY key"


class StepText(NamedTuple):
    """One filter of a pattern, and where it begins in the text of the pattern."""

    text: str
    start: int

    def relocated(self, error: FilterError, whole: str) -> FilterError:
        """An error of this filter as one of the whole text."""
        start, end = self.start + error.start, self.start + error.end
        return FilterError(error.reason, error.message, text=whole, start=start, end=end)


class SequencePattern(NamedTuple):
    """A pattern as it is written: its steps in order, then the one after THEN NOT if there is one."""

    steps: tuple[StepText, ...]
    has_not: bool
    wanted: int  # events that a COUNT asks for; 0: it is a PATTERN
    window_us: int
    key: StepText | None  # the attribute of PARTITION BY

    @property
    def found(self) -> int:
        """How many steps are events that occur."""
        return len(self.steps) - self.has_not


def is_sequence(text: object) -> bool:
    """Whether a text begins as a pattern does, rather than as a filter."""
    return isinstance(text, str) and _BEGINS.match(text) is not None


def read_sequence(text: str, longest: int) -> SequencePattern:
    """Read a pattern. Raises FilterError with the place of what is wrong; the filters themselves are not looked at."""
    if len(text) > longest:
        raise FilterError(
            "limit", f"a filter has at most {longest:,} characters, this one has {len(text):,}", text=text
        )
    return _Reader(text).read()


def read_duration(value: object, what: str) -> int:
    """Microseconds of a timedelta, or of a text such as '10 seconds'. Raises ValueError."""
    if isinstance(value, dt.timedelta):
        us = value // dt.timedelta(microseconds=1)
    else:
        text = str(value)
        try:
            us = _Reader(f"INTERVAL {text.upper().strip().removeprefix('INTERVAL ')}").whole_interval()
        except FilterError as error:
            raise ValueError(f"{what} is a timedelta or a text such as '10 seconds', found {text!r:.40}") from error
    if not 0 <= us <= LONGEST_US:
        raise ValueError(f"{what} is between 0 and 1,000 years, found {value!r:.40}")
    return us


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """In capitals; empty if it is none."""
        return self.text.upper() if self.kind == "word" else ""


class _Reader:
    """One pass over the tokens of a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [
            _Token(m.lastgroup or "", m.group(), *m.span()) for m in _TOKEN.finditer(text) if m.lastgroup != "comment"
        ]
        self.tokens.append(_Token("end", "", len(text), len(text)))
        self.at = 0

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def fail(self, message: str, token: _Token | None = None, reason: str = "syntax") -> NoReturn:
        place = token or self.token
        raise FilterError(reason, message, text=self.text, start=place.start, end=place.end)

    def take(self) -> _Token:
        token = self.token
        self.at += token.kind != "end"
        return token

    def expect(self, text: str, message: str) -> _Token:
        if self.token.text.upper() != text:
            self.fail(message)
        return self.take()

    def read(self) -> SequencePattern:
        found = self.pattern() if self.take().word == "PATTERN" else self.count()
        if self.token.kind != "end":
            self.fail(
                "a PATTERN or COUNT is a whole filter: put conditions on events into its steps, and use several "
                "subscriptions instead of AND, OR and NOT",
                reason="unsupported",
            )
        return found

    # -- PATTERN and COUNT ----------------------------------------------------------------------------------------

    def pattern(self) -> SequencePattern:
        self.expect("(", f"write {_FORM}")
        steps: list[StepText] = []
        negated: _Token | None = None
        while True:
            first = self.token
            if negated is not None:
                self.fail(
                    "THEN NOT stands last; to negate a condition of an earlier step put it in parentheses: THEN (NOT a)",
                    negated,
                )
            if steps and first.word == "NOT":
                negated = self.take()
            steps.append(self.step())
            if self.token.word != "THEN":
                break
            self.take()
        if self.token.word != "WITHIN":
            self.fail(f"a pattern needs a bound: write {_FORM}", reason="limit")
        if len(steps) < 2:
            self.fail("a pattern has two steps at least: a THEN b; for one filter leave out PATTERN", first)
        if len(steps) - (negated is not None) > MOST_STEPS:
            self.fail(f"a pattern has at most {MOST_STEPS} steps", first, "limit")
        window, key = self.tail()
        self.expect(")", f"expected ')' here: {_FORM}")
        return SequencePattern(tuple(steps), negated is not None, 0, window, key)

    def count(self) -> SequencePattern:
        self.expect("(", f"write {_COUNT_FORM}")
        if self.token.word == "DISTINCT":
            self.fail("COUNT counts events; COUNT(DISTINCT a) is not supported", reason="unsupported")
        star = self.token
        step = self.step()
        if star.text == "*" and step.text == "*":
            step = StepText("TRUE", step.start)
        self.expect(")", f"expected ')' here: {_COUNT_FORM}")
        self.expect(">=", f"COUNT is compared with >= only: {_COUNT_FORM}")
        number = self.take()
        if not number.text.isdecimal() or not 1 <= int(number.text[:9]) <= MOST_COUNTED:
            self.fail(f"COUNT asks for 1 to {MOST_COUNTED:,} events, written as a number", number, "limit")
        if self.token.word != "WITHIN":
            self.fail(f"a COUNT needs a bound: write {_COUNT_FORM}", reason="limit")
        window, key = self.tail()
        return SequencePattern((step,), False, int(number.text), window, key)

    def step(self) -> StepText:
        """The text up to the next THEN or WITHIN, or the parenthesis that closes all."""
        begin, depth, cases = self.token, 0, 0
        end = begin.start
        while True:
            token = self.token
            if token.kind == "end" or (depth == 0 and token.text == ")"):
                break
            if depth == 0 and cases == 0 and token.word in ("THEN", "WITHIN"):
                break
            depth += (token.text == "(") - (token.text == ")")
            cases += depth == 0 and token.word == "CASE"
            cases -= depth == 0 and cases > 0 and token.word == "END"
            end = self.take().end
        if end == begin.start:
            self.fail("a step is missing here; a step is a filter such as price < 120")
        if self.token.kind == "end":
            self.fail("expected THEN, WITHIN or ')' here")
        return StepText(self.text[begin.start : end], begin.start)

    # -- WITHIN and PARTITION BY ----------------------------------------------------------------------------------

    def tail(self) -> tuple[int, StepText | None]:
        self.take()
        window, key = self.interval(), None
        if self.token.word == "PARTITION":
            self.take()
            self.expect("BY", "write PARTITION BY and an attribute")
            key = self.attribute()
        return window, key

    def interval(self) -> int:
        begin = self.expect("INTERVAL", "write the window as WITHIN INTERVAL 10 MINUTES")
        total, parts = 0, 0
        while self.token.kind in ("number", "string"):
            amount, unit = self.take(), self.take()
            match = _UNIT.fullmatch(unit.word)
            if match is None:
                self.fail("an interval needs a unit: INTERVAL 10 MINUTES", unit)
            if match[1] in ("YEAR", "MONTH"):
                self.fail("months differ in length; write the window in days", unit, "unsupported")
            try:
                total += read_amount(match[1], amount.text.strip("'\""))
            except ValueError as error:
                self.fail(str(error), amount, "literal")
            parts += 1
        if not parts:
            self.fail("an interval needs an amount and a unit: INTERVAL 10 MINUTES")
        if not 0 <= total <= LONGEST_US:
            self.fail("a window is between 0 and 1,000 years long", begin, "limit")
        return total

    def whole_interval(self) -> int:
        total = self.interval()
        if self.token.kind != "end":
            self.fail("unexpected text behind the interval")
        return total

    def attribute(self) -> StepText:
        begin = self.token
        if begin.kind not in ("word", "name"):
            self.fail("PARTITION BY takes an attribute")
        end = self.take().end
        while self.token.text == "." and self.tokens[self.at + 1].kind in ("word", "name"):
            self.take()
            end = self.take().end
        if self.token.text == ",":
            self.fail("PARTITION BY takes one attribute", reason="unsupported")
        return StepText(self.text[begin.start : end], begin.start)
