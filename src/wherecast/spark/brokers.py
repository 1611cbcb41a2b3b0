"""A space of a broker, as Spark needs it: its version, what changed, all subscriptions, and the hand-over of matches.

It speaks HTTP with Python's own library, so executors need nothing more, and knows nothing of the broker's code.
"""

from __future__ import annotations

import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from wherecast.errors import WherecastError

_URL = re.compile(r"https?://[^/@]+(/.*)?/v1/spaces/[A-Za-z0-9._-]+")
#: Answers after which a call is repeated; how often; seconds that an answer may take.
_AGAIN, _ATTEMPTS, _ANSWER_S = (408, 429, 502, 503, 504), 8, 120


class BrokerUnreachableError(WherecastError):
    """A broker that does not answer, or refuses what is asked of it."""


@dataclass(frozen=True, slots=True)
class BrokerSpace:
    """A space by its address, `http://127.0.0.1:8080/v1/spaces/quotes`; the token is by default that of WHERECAST_TOKEN."""

    url: str
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not _URL.fullmatch(self.url):
            raise WherecastError(
                f"{self.url!r} is not a space of a broker; write http://HOST:PORT/v1/spaces/NAME, and pass the token apart"
            )

    def version(self) -> int:
        """The version of its subscriptions."""
        return int(self._json("GET", "")["version"])

    def changes(self, after: int) -> Iterator[dict[str, Any]]:
        """Subscriptions that changed after a version, deleted ones included, each as it is now, in the order of their versions."""
        while True:
            page = self._json("GET", f"/changes?{urlencode({'after': after, 'limit': 10_000})}")
            yield from page["changes"]
            if page["version"] <= after or not page["changes"]:
                return
            after = page["version"]

    def export(self) -> list[dict[str, Any]]:
        """All subscriptions that exist."""
        return [json.loads(line) for line in self._call("GET", "/export").splitlines()]

    def hand_over(self, matched: Sequence[tuple[str, Sequence[str]]], key: str) -> dict[str, Any]:
        """Give it events, as JSON, with the subscriptions that each reached. The same key again changes nothing."""
        lines = [f'{{"event":{event},"subscriptions":{json.dumps(list(ids))}}}' for event, ids in matched]
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key}
        return self._json("POST", "/matches", "\n".join(lines).encode(), headers)

    def _json(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._call(method, path, body, headers))
        return found

    def _call(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        token = self.token or os.environ.get("WHERECAST_TOKEN", "")
        sent = {"Authorization": f"Bearer {token}", **(headers or {})}
        request = urllib.request.Request(self.url + path, body, sent, method=method)  # noqa: S310 - http, see above
        for attempt in range(_ATTEMPTS):
            try:
                with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:  # noqa: S310
                    return bytes(answer.read())
            except urllib.error.HTTPError as error:
                if error.code not in _AGAIN or attempt + 1 == _ATTEMPTS:
                    raise BrokerUnreachableError(f"{self.url}{path.partition('?')[0]}: {_detail(error)}") from None
            except OSError as error:
                if attempt + 1 == _ATTEMPTS:
                    raise BrokerUnreachableError(f"{self.url} does not answer: {error}") from None
            time.sleep(0.1 * 2**attempt)
        raise AssertionError("the last attempt returns or raises")


def _detail(error: urllib.error.HTTPError) -> str:
    """What the broker says, or at least the status."""
    try:
        return f"{error.code}, {json.loads(error.read())['detail']}"
    except (ValueError, KeyError, TypeError, OSError):
        return f"{error.code} {error.reason}"
