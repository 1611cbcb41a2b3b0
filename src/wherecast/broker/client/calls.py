"""What the clients send and what they make of the answers; no I/O.

Every call can be repeated: those that create something carry an idempotency key, and the others change nothing the second time.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote

from wherecast.broker.client.results import (
    BrokerSubscription,
    DeliveryHistory,
    DeliveryInfo,
    DryRun,
    FeedEvent,
    LoadReport,
    PublishReceipt,
    RouteInfo,
    RouteTest,
    SpaceInfo,
    SubscriberInfo,
)
from wherecast.errors import WherecastError

T = TypeVar("T")

#: Answers after which the same call is sent again.
_AGAIN = frozenset({408, 429, 502, 503, 504})
_LONGEST_S = 10.0


class BrokerError(WherecastError):
    """The broker refuses a call. `problem` is its answer (RFC 9457); a wrong filter has its place in it."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = dict(problem)
        super().__init__(str(problem.get("detail") or f"the broker answers {status}"))

    def __reduce__(self) -> tuple[object, ...]:
        return BrokerError, (self.status, self.problem)


class AnswerLike(Protocol):
    """What is needed of an answer of httpx."""

    @property
    def status_code(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def json(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class ClientCall(Generic[T]):
    """A request, and how its answer is read."""

    method: str
    path: str
    read: Any  # a function of the JSON
    body: bytes | None = None
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    def result(self, answer: AnswerLike) -> T:
        """What the call gives, or BrokerError."""
        if answer.status_code >= 400:
            raise refusal(answer)
        found: T = self.read(None if answer.status_code == 204 else answer.json())
        return found


def refusal(answer: AnswerLike) -> BrokerError:
    try:
        problem = answer.json()
    except ValueError:
        problem = {}
    return BrokerError(answer.status_code, problem if isinstance(problem, dict) else {})


def wait_before(attempt: int, answer: AnswerLike | None, attempts: int) -> float | None:
    """Seconds to wait before the next attempt; None: the answer stands. `answer` is None if there was none."""
    if attempt + 1 >= attempts or (answer is not None and answer.status_code not in _AGAIN):
        return None
    told = answer.headers.get("retry-after", "") if answer is not None else ""
    least = float(told) if told.isdigit() else 0.0
    pause = 0.1 * float(2**attempt) * random.uniform(0.5, 1.0)  # noqa: S311 - spreads retries
    return min(max(least, pause), _LONGEST_S)


def _space(space: str, *parts: str) -> str:
    return "/".join(["/v1/spaces", *(quote(part, safe="") for part in (space, *parts))])


def _json(method: str, path: str, read: Any, body: Any = None, **headers: str) -> ClientCall[Any]:
    content = None if body is None else json.dumps(body).encode()
    return ClientCall(method, path, read, content, headers={"Content-Type": "application/json", **headers})


def _subscription(fields: dict[str, Any]) -> BrokerSubscription:
    return BrokerSubscription(**fields)


def _once() -> str:
    return uuid.uuid4().hex


def create_space(name: str, schema: Mapping[str, Any]) -> ClientCall[SpaceInfo]:
    return _json("POST", "/v1/spaces", dict, {"name": name, "schema": dict(schema)})


def grow_space(name: str, schema: Mapping[str, Any]) -> ClientCall[SpaceInfo]:
    return _json("PATCH", _space(name), dict, {"schema": dict(schema)})


def spaces() -> ClientCall[list[SpaceInfo]]:
    return ClientCall("GET", "/v1/spaces", list)


def subscribe(
    space: str,
    filter: str,
    id: str | None,
    subscriber: str | None,
    labels: Mapping[str, str] | None,
    expires_at: datetime | None,
) -> ClientCall[BrokerSubscription]:
    body = _fields(filter, id, subscriber, labels, expires_at)
    return _json("POST", _space(space, "subscriptions"), _subscription, body, **{"Idempotency-Key": _once()})


def replace(
    space: str,
    id: str,
    filter: str,
    subscriber: str | None,
    labels: Mapping[str, str] | None,
    expires_at: datetime | None,
    if_version: int | None,
) -> ClientCall[BrokerSubscription]:
    headers = {} if if_version is None else {"If-Match": f'"{if_version}"'}
    body = _fields(filter, None, subscriber, labels, expires_at)
    return _json("PUT", _space(space, "subscriptions", id), _subscription, body, **headers)


def _fields(
    filter: str, id: str | None, subscriber: str | None, labels: Mapping[str, str] | None, expires_at: datetime | None
) -> dict[str, Any]:
    given = {"filter": filter, "id": id, "subscriber": subscriber, "labels": None if labels is None else dict(labels)}
    if expires_at is not None:
        given["expires_at"] = expires_at.isoformat()
    return {name: value for name, value in given.items() if value is not None}


def get(space: str, id: str) -> ClientCall[BrokerSubscription]:
    return ClientCall("GET", _space(space, "subscriptions", id), _subscription)


def page(
    space: str, after: str, chosen: Mapping[str, str | None]
) -> ClientCall[tuple[list[BrokerSubscription], str | None]]:
    query = {"after": after, "limit": "1000", **{name: value for name, value in chosen.items() if value is not None}}
    return ClientCall("GET", _space(space, "subscriptions"), _page, query=query)


def _page(fields: dict[str, Any]) -> tuple[list[BrokerSubscription], str | None]:
    return [_subscription(one) for one in fields["subscriptions"]], fields["next"]


def move(space: str, id: str, verb: str) -> ClientCall[BrokerSubscription]:
    return ClientCall("POST", _space(space, "subscriptions", id, verb), _subscription)


def delete(space: str, id: str) -> ClientCall[None]:
    return ClientCall("DELETE", _space(space, "subscriptions", id), lambda _: None)


def load(space: str, rows: Iterable[Mapping[str, Any]]) -> ClientCall[LoadReport]:
    body = b"".join(json.dumps(dict(row)).encode() + b"\n" for row in rows)
    headers = {"Content-Type": "application/x-ndjson"}
    return ClientCall(
        "POST", _space(space, "subscriptions", "bulk"), lambda fields: LoadReport(**fields), body, headers=headers
    )


def publish(space: str, events: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> ClientCall[PublishReceipt]:
    body = dict(events) if isinstance(events, Mapping) else [dict(event) for event in events]
    return _json(
        "POST", _space(space, "publish"), lambda fields: PublishReceipt(**fields), body, **{"Idempotency-Key": _once()}
    )


def match(space: str, event: Mapping[str, Any], explain: Sequence[str]) -> ClientCall[DryRun]:
    return _json("POST", _space(space, "match"), dict, {"event": dict(event), "explain": list(explain)})


# -- subscribers and deliveries ---------------------------------------------------------------------------------------


def _subscriber(name: str, *parts: str) -> str:
    return "/".join(["/v1/subscribers", *(quote(part, safe="") for part in (name, *parts))])


def put_subscriber(name: str, fields: Mapping[str, Any]) -> ClientCall[SubscriberInfo]:
    return _json("PUT", _subscriber(name), dict, dict(fields))


def get_subscriber(name: str) -> ClientCall[SubscriberInfo]:
    return ClientCall("GET", _subscriber(name), dict)


def delete_subscriber(name: str) -> ClientCall[None]:
    return ClientCall("DELETE", _subscriber(name), lambda _: None)


def change_subscriber(name: str, verb: str, body: Any = None) -> ClientCall[SubscriberInfo]:
    """`mute`, `unmute` or `snooze`."""
    return _json("POST", _subscriber(name, verb), dict, body)


def test_route(name: str, route: str | None) -> ClientCall[RouteTest]:
    return _json("POST", _subscriber(name, "test"), dict, {"route": route})


def change_route(name: str, route: str, verb: str) -> ClientCall[RouteInfo]:
    """`verify`, `rotate` or `enable`."""
    return _json("POST", _subscriber(name, "routes", route, verb), dict)


def subscriber_page(after: str, text: str | None) -> ClientCall[tuple[list[SubscriberInfo], str | None]]:
    query = {"after": after, "limit": "1000"} | ({} if text is None else {"text": text})
    return ClientCall("GET", "/v1/subscribers", lambda page: (page["subscribers"], page["next"]), query=query)


def delivery_page(
    after: str, subscriber: str | None, state: str | None
) -> ClientCall[tuple[list[DeliveryInfo], str | None]]:
    chosen = {"after": after, "limit": "1000", "subscriber": subscriber, "state": state}
    query = {name: value for name, value in chosen.items() if value is not None}
    return ClientCall("GET", "/v1/deliveries", lambda page: (page["deliveries"], page["next"]), query=query)


def get_delivery(id: str) -> ClientCall[DeliveryHistory]:
    return ClientCall("GET", f"/v1/deliveries/{quote(id, safe='')}", dict)


def _replayed(fields: dict[str, Any]) -> int:
    return int(fields["replayed"])


def replay(id: str | None, subscriber: str | None, before: datetime | None) -> ClientCall[int]:
    if id is not None:
        return ClientCall("POST", f"/v1/deliveries/{quote(id, safe='')}/replay", _replayed)
    body = {"subscriber": subscriber, "before": None if before is None else before.isoformat()}
    return _json("POST", "/v1/deliveries/replay", _replayed, body)


def feed(space: str, subscription: str | None, subscriber: str | None, after: int | str | None) -> ClientCall[None]:
    """The stream of a feed; `after` is the position of the last event seen, or `earliest`."""
    chosen = {"subscription": subscription, "subscriber": subscriber}
    query = {name: value for name, value in chosen.items() if value is not None}
    headers = {"Accept": "text/event-stream"}
    if after is not None:
        query["from"] = str(after)
    return ClientCall("GET", _space(space, "feed"), lambda _: None, query=query, headers=headers)


class FeedReader:
    """Lines of server-sent events in, events out; knows where to go on after the connection broke."""

    def __init__(self, after: int | str | None) -> None:
        self.after = after
        self._kind, self._data, self._id = "", "", ""

    def take(self, line: str) -> Iterator[FeedEvent]:
        """Take one line without its end. Raises BrokerError if the broker ends the feed with a problem."""
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "id":
                self._id = value
            elif name == "event":
                self._kind = value
            elif name == "data":
                self._data += value
            return
        kind, data, self._kind, self._data = self._kind, self._data, "", ""
        if kind == "problem":
            problem = json.loads(data)
            raise BrokerError(problem.get("status", 500), problem)
        if data:
            fields = json.loads(data)
            envelope = {name: v for name, v in fields.items() if name not in ("position", "subscriptions", "data")}
            event = FeedEvent(fields["position"], str(fields["id"]), fields["subscriptions"], fields["data"], envelope)
            self.after = event.position
            yield event
        elif self._id:
            self.after = int(self._id)

    def broken(self) -> None:
        """The connection broke: half a message is forgotten."""
        self._kind, self._data, self._id = "", "", ""
