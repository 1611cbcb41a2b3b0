"""Problems: what is wrong with a request, in the form of RFC 9457.

The core answers with them, the application writes them as `application/problem+json`. A wrong filter has its place in it, so that
a client can draw a caret.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from wherecast.errors import EventError, FilterError, LimitError, SchemaError, SubscriptionError, WherecastError


@dataclass(eq=False)
class Problem(Exception):  # noqa: N818 - the word of the standard
    """What is wrong: a status, a code for programs, a sentence for people, and fields of its own."""

    status: int
    code: str
    detail: str
    fields: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.detail

    def to_dict(self) -> dict[str, Any]:
        """The document of RFC 9457."""
        return {
            "type": f"urn:wherecast:problem:{self.code}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            **self.fields,
        }


def problem_of(error: WherecastError) -> Problem:
    """An error of the library as a problem of the request."""
    match error:
        case FilterError():
            return Problem(422, "filter", error.message, filter_place(error))
        case EventError():
            return Problem(422, "event", str(error), {"attribute": error.attribute, "row": error.row})
        case SchemaError():
            return Problem(422, "schema", str(error))
        case SubscriptionError():
            return Problem(422, "subscription", str(error))
        case LimitError():
            return Problem(413, "limit", str(error))
        case _:
            return unavailable(str(error))


def filter_place(error: FilterError) -> dict[str, Any]:
    """Where a filter is wrong: 1-based line and column, offsets, and the line with a caret under it."""
    return {
        "reason": error.reason,
        "line": error.line,
        "column": error.column,
        "start": error.start,
        "end": error.end,
        "caret": error.caret(),
    }


def unavailable(detail: str) -> Problem:
    """Something on our side does not work just now; the same request may be sent again."""
    return Problem(503, "unavailable", detail, headers={"Retry-After": "1"})


def not_found(what: str, name: object) -> Problem:
    return Problem(404, "not-found", f"no {what} {name!r:.200}")
