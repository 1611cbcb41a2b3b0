"""Every error Wherecast raises, sorted by whose fault it is.

One root, three families:

- the author of a filter or a schema: `FilterError`, `SchemaError`, `SubscriptionError`, `UnknownIdError`;
- the publisher of an event: `EventError`;
- a limit of ours, a damaged file or a wrong setting: `LimitError`, `MatcherError`, `PlanError`, `SigningKeyError`,
  `SnapshotError`.

A message names the thing, its place and the way out. Errors can be pickled: they travel from worker processes to their
caller. All of them can be imported from `wherecast`; those of Spark's calls are in `wherecast.spark`.
"""

from __future__ import annotations

from functools import partial


class WherecastError(Exception):
    """Root of all errors raised on purpose."""


class SchemaError(WherecastError):
    """A schema that contradicts itself or cannot be read."""


class FilterError(WherecastError):
    """A filter that does not compile.

    `reason` is one of `REASONS`; `line` and `column` are 1-based; `start` and `end` are the offsets of the
    offending piece of text (end exclusive), from which a caret line can be drawn.
    """

    REASONS = ("syntax", "unsupported", "unknown-attribute", "type", "literal", "limit")

    def __init__(self, reason: str, message: str, *, text: str = "", start: int = 0, end: int | None = None) -> None:
        self.reason = reason
        self.message = message
        self.text = text
        self.start = min(max(start, 0), len(text))
        self.end = max(self.start + 1, min(end or 0, len(text)))
        self.line = text.count("\n", 0, self.start) + 1
        self.column = self.start - (text.rfind("\n", 0, self.start) + 1) + 1
        super().__init__(f"{message} (at {self.line}:{self.column})")

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), self.reason, self.message, text=self.text, start=self.start, end=self.end), ()

    def caret(self) -> str:
        """The offending line of the filter with a caret line under it."""
        line = self.text.split("\n")[self.line - 1] if self.text else ""
        width = max(1, min(self.end - self.start, len(line) - self.column + 1))
        return f"{line}\n{' ' * (self.column - 1)}{'^' * width}"


class SubscriptionError(WherecastError):
    """A subscription id that is taken, unknown, or of the wrong type."""


class UnknownIdError(SubscriptionError, KeyError):
    """No subscription has this id. This is also a KeyError."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would put it in quotes


class EventError(WherecastError):
    """An event whose value does not fit its attribute. `row` is 0-based within the batch."""

    def __init__(self, message: str, *, row: int | None = None, attribute: str | None = None) -> None:
        self.message = message
        self.row = row
        self.attribute = attribute
        place = f"event {row}" if row is not None else "event"
        if attribute is not None:
            place += f", attribute {attribute!r}"
        super().__init__(f"{place}: {message}")

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), self.message, row=self.row, attribute=self.attribute), ()


class LimitError(WherecastError):
    """Something is too large for this release; the message gives the numbers."""


class MatcherError(WherecastError):
    """A matcher that cannot serve these filters; the message says why and what to use instead."""


class PlanError(WherecastError):
    """A partition plan that cannot be made, changed or read as asked for."""


class SigningKeyError(WherecastError):
    """A signing key that cannot be read or is too short."""


class SnapshotError(WherecastError):
    """A snapshot that is damaged, not of Wherecast, or newer than this release."""
