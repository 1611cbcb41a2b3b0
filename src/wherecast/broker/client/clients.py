"""Client and AsyncClient: the calls over httpx, with retries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from wherecast.broker.client import calls
from wherecast.broker.client.calls import ClientCall, FeedReader, refusal, wait_before
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
    SubscriberFields,
    SubscriberInfo,
)
from wherecast.errors import WherecastError

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

#: Attempts of one call, and seconds that an answer may take. A feed shows every 15 s that it is alive.
_ATTEMPTS, _ANSWER_S, _SILENT_S = 8, 60.0, 45.0


def _httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise WherecastError("clients need httpx: pip install 'wherecast[client]'") from None
    return httpx


def _options(url: str, token: str) -> dict[str, Any]:
    return {"base_url": url, "headers": {"Authorization": f"Bearer {token}"}, "timeout": _ANSWER_S}


class Client:
    """A client of one broker. Calls are repeated while the broker cannot be reached, and have their effect once.

    >>> client = Client("http://127.0.0.1:8080", token)  # doctest: +SKIP
    >>> client.subscribe("quotes", "price < 120", subscriber="alice")  # doctest: +SKIP
    """

    def __init__(self, url: str, token: str, *, attempts: int = _ATTEMPTS) -> None:
        self._httpx = _httpx()
        self._http: httpx.Client = self._httpx.Client(**_options(url, token))
        self._attempts = attempts

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _send(self, call: ClientCall[T]) -> T:
        attempt = 0
        while True:
            answer, failure = None, None
            try:
                answer = self._http.request(
                    call.method, call.path, content=call.body, params=call.query, headers=call.headers
                )
            except self._httpx.TransportError as error:
                failure = error
            wait = wait_before(attempt, answer, self._attempts)
            if wait is None:
                if answer is None:
                    raise WherecastError(f"the broker at {self._http.base_url} does not answer: {failure}") from failure
                return call.result(answer)
            time.sleep(wait)
            attempt += 1

    def create_space(self, name: str, schema: Mapping[str, Any]) -> SpaceInfo:
        """Make a space with a schema."""
        return self._send(calls.create_space(name, schema))

    def grow_space(self, name: str, schema: Mapping[str, Any]) -> SpaceInfo:
        """Add attributes to the schema of a space."""
        return self._send(calls.grow_space(name, schema))

    def spaces(self) -> list[SpaceInfo]:
        """The spaces of the tenant."""
        return self._send(calls.spaces())

    def subscribe(
        self,
        space: str,
        filter: str,
        *,
        id: str | None = None,
        subscriber: str | None = None,
        labels: Mapping[str, str] | None = None,
        expires_at: datetime | None = None,
    ) -> BrokerSubscription:
        """Register a filter. When it returns, every later event is matched against it."""
        return self._send(calls.subscribe(space, filter, id, subscriber, labels, expires_at))

    def replace(
        self,
        space: str,
        id: str,
        filter: str,
        *,
        subscriber: str | None = None,
        labels: Mapping[str, str] | None = None,
        expires_at: datetime | None = None,
        if_version: int | None = None,
    ) -> BrokerSubscription:
        """Create or replace a subscription; with `if_version` only if nobody else has changed it."""
        return self._send(calls.replace(space, id, filter, subscriber, labels, expires_at, if_version))

    def get(self, space: str, id: str) -> BrokerSubscription:
        """One subscription."""
        return self._send(calls.get(space, id))

    def subscriptions(
        self, space: str, *, subscriber: str | None = None, label: str | None = None, text: str | None = None
    ) -> Iterator[BrokerSubscription]:
        """Subscriptions in the order of their ids; `label` is name:value."""
        chosen = {"subscriber": subscriber, "label": label, "text": text}
        after: str | None = ""
        while after is not None:
            rows, after = self._send(calls.page(space, after, chosen))
            yield from rows

    def pause(self, space: str, id: str) -> BrokerSubscription:
        """Stop matching a subscription."""
        return self._send(calls.move(space, id, "pause"))

    def resume(self, space: str, id: str) -> BrokerSubscription:
        """Match a subscription again."""
        return self._send(calls.move(space, id, "resume"))

    def expire(self, space: str, id: str) -> BrokerSubscription:
        """End a subscription now."""
        return self._send(calls.move(space, id, "expire"))

    def delete(self, space: str, id: str) -> None:
        """Delete a subscription."""
        self._send(calls.delete(space, id))

    def load(self, space: str, rows: Iterable[Mapping[str, Any]]) -> LoadReport:
        """Create or replace many: mappings with id and filter, and the other fields of a subscription."""
        return self._send(calls.load(space, rows))

    def publish(self, space: str, events: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> PublishReceipt:
        """Publish one event or several. When it returns, they are on disk."""
        return self._send(calls.publish(space, events))

    def match(self, space: str, event: Mapping[str, Any], *, explain: Sequence[str] = ()) -> DryRun:
        """Which subscriptions an event would reach; nothing is published."""
        return self._send(calls.match(space, event, explain))

    def put_subscriber(self, name: str, **fields: Unpack[SubscriberFields]) -> SubscriberInfo:
        """Create or replace a subscriber: routes, time_zone, quiet_hours, digest_minutes, ordered, title, text."""
        return self._send(calls.put_subscriber(name, fields))

    def subscriber(self, name: str) -> SubscriberInfo:
        """One subscriber."""
        return self._send(calls.get_subscriber(name))

    def subscribers(self, *, text: str | None = None) -> Iterator[SubscriberInfo]:
        """Subscribers in the order of their names; `text` is a part of the name."""
        after: str | None = ""
        while after is not None:
            rows, after = self._send(calls.subscriber_page(after, text))
            yield from rows

    def delete_subscriber(self, name: str) -> None:
        """Delete a subscriber with its routes."""
        self._send(calls.delete_subscriber(name))

    def mute(self, name: str) -> SubscriberInfo:
        """Hold everything for a subscriber."""
        return self._send(calls.change_subscriber(name, "mute"))

    def unmute(self, name: str) -> SubscriberInfo:
        """Deliver again."""
        return self._send(calls.change_subscriber(name, "unmute"))

    def snooze(self, name: str, minutes: int) -> SubscriberInfo:
        """Hold everything for some minutes."""
        return self._send(calls.change_subscriber(name, "snooze", {"minutes": minutes}))

    def test_route(self, name: str, route: str | None = None) -> RouteTest:
        """Send a message by a route now, once."""
        return self._send(calls.test_route(name, route))

    def verify_route(self, name: str, route: str) -> RouteInfo:
        """Ask the receiver of a webhook whether it agrees."""
        return self._send(calls.change_route(name, route, "verify"))

    def rotate_secret(self, name: str, route: str) -> str:
        """A new secret of a webhook; for a day messages have both signatures."""
        return str(self._send(calls.change_route(name, route, "rotate"))["secret"])

    def enable_route(self, name: str, route: str) -> RouteInfo:
        """Use a route again that was disabled."""
        return self._send(calls.change_route(name, route, "enable"))

    def deliveries(self, *, subscriber: str | None = None, state: str | None = None) -> Iterator[DeliveryInfo]:
        """Deliveries, the newest first; `state` is pending, held, delivered or dead."""
        after: str | None = ""
        while after is not None:
            rows, after = self._send(calls.delivery_page(after, subscriber, state))
            yield from rows

    def delivery(self, id: str) -> DeliveryHistory:
        """One delivery with its latest tries and its event."""
        return self._send(calls.get_delivery(id))

    def replay(self, id: str | None = None, *, subscriber: str | None = None, before: datetime | None = None) -> int:
        """Try dead letters again: one, those of a subscriber, or all; how many they are."""
        return self._send(calls.replay(id, subscriber, before))

    def feed(
        self,
        space: str,
        *,
        subscription: str | None = None,
        subscriber: str | None = None,
        after: int | str | None = None,
    ) -> Iterator[FeedEvent]:
        """Matches as they come, each event once, whatever happens to the connection.

        `after` is the position of the last event seen, or `earliest`; without it the feed begins with the next event.
        """
        reader, failures = FeedReader(after), 0
        while True:
            call = calls.feed(space, subscription, subscriber, reader.after)
            try:
                with self._http.stream(
                    call.method, call.path, params=call.query, headers=call.headers, timeout=_SILENT_S
                ) as answer:
                    if answer.status_code != 200:
                        answer.read()
                        raise refusal(answer)
                    for line in answer.iter_lines():
                        failures = 0
                        yield from reader.take(line)
            except calls.BrokerError as error:
                if error.status not in (429, 503) or failures >= self._attempts:
                    raise
            except self._httpx.TransportError as error:
                if failures >= self._attempts:
                    raise WherecastError(f"the feed is broken: {error}") from error
            reader.broken()
            failures += 1
            time.sleep(wait_before(min(failures, 5), None, self._attempts + 2) or 0)


class AsyncClient:
    """As `Client`, for programs with asyncio."""

    def __init__(self, url: str, token: str, *, attempts: int = _ATTEMPTS) -> None:
        self._httpx = _httpx()
        self._http: httpx.AsyncClient = self._httpx.AsyncClient(**_options(url, token))
        self._attempts = attempts

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _send(self, call: ClientCall[T]) -> T:
        attempt = 0
        while True:
            answer, failure = None, None
            try:
                answer = await self._http.request(
                    call.method, call.path, content=call.body, params=call.query, headers=call.headers
                )
            except self._httpx.TransportError as error:
                failure = error
            wait = wait_before(attempt, answer, self._attempts)
            if wait is None:
                if answer is None:
                    raise WherecastError(f"the broker at {self._http.base_url} does not answer: {failure}") from failure
                return call.result(answer)
            await asyncio.sleep(wait)
            attempt += 1

    async def create_space(self, name: str, schema: Mapping[str, Any]) -> SpaceInfo:
        """Make a space with a schema."""
        return await self._send(calls.create_space(name, schema))

    async def grow_space(self, name: str, schema: Mapping[str, Any]) -> SpaceInfo:
        """Add attributes to the schema of a space."""
        return await self._send(calls.grow_space(name, schema))

    async def spaces(self) -> list[SpaceInfo]:
        """The spaces of the tenant."""
        return await self._send(calls.spaces())

    async def subscribe(
        self,
        space: str,
        filter: str,
        *,
        id: str | None = None,
        subscriber: str | None = None,
        labels: Mapping[str, str] | None = None,
        expires_at: datetime | None = None,
    ) -> BrokerSubscription:
        """Register a filter. When it returns, every later event is matched against it."""
        return await self._send(calls.subscribe(space, filter, id, subscriber, labels, expires_at))

    async def replace(
        self,
        space: str,
        id: str,
        filter: str,
        *,
        subscriber: str | None = None,
        labels: Mapping[str, str] | None = None,
        expires_at: datetime | None = None,
        if_version: int | None = None,
    ) -> BrokerSubscription:
        """Create or replace a subscription; with `if_version` only if nobody else has changed it."""
        return await self._send(calls.replace(space, id, filter, subscriber, labels, expires_at, if_version))

    async def get(self, space: str, id: str) -> BrokerSubscription:
        """One subscription."""
        return await self._send(calls.get(space, id))

    async def subscriptions(
        self, space: str, *, subscriber: str | None = None, label: str | None = None, text: str | None = None
    ) -> AsyncIterator[BrokerSubscription]:
        """Subscriptions in the order of their ids; `label` is name:value."""
        chosen = {"subscriber": subscriber, "label": label, "text": text}
        after: str | None = ""
        while after is not None:
            rows, after = await self._send(calls.page(space, after, chosen))
            for row in rows:
                yield row

    async def pause(self, space: str, id: str) -> BrokerSubscription:
        """Stop matching a subscription."""
        return await self._send(calls.move(space, id, "pause"))

    async def resume(self, space: str, id: str) -> BrokerSubscription:
        """Match a subscription again."""
        return await self._send(calls.move(space, id, "resume"))

    async def expire(self, space: str, id: str) -> BrokerSubscription:
        """End a subscription now."""
        return await self._send(calls.move(space, id, "expire"))

    async def delete(self, space: str, id: str) -> None:
        """Delete a subscription."""
        await self._send(calls.delete(space, id))

    async def load(self, space: str, rows: Iterable[Mapping[str, Any]]) -> LoadReport:
        """Create or replace many: mappings with id and filter, and the other fields of a subscription."""
        return await self._send(calls.load(space, rows))

    async def publish(self, space: str, events: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> PublishReceipt:
        """Publish one event or several. When it returns, they are on disk."""
        return await self._send(calls.publish(space, events))

    async def match(self, space: str, event: Mapping[str, Any], *, explain: Sequence[str] = ()) -> DryRun:
        """Which subscriptions an event would reach; nothing is published."""
        return await self._send(calls.match(space, event, explain))

    async def put_subscriber(self, name: str, **fields: Unpack[SubscriberFields]) -> SubscriberInfo:
        """Create or replace a subscriber: routes, time_zone, quiet_hours, digest_minutes, ordered, title, text."""
        return await self._send(calls.put_subscriber(name, fields))

    async def subscriber(self, name: str) -> SubscriberInfo:
        """One subscriber."""
        return await self._send(calls.get_subscriber(name))

    async def subscribers(self, *, text: str | None = None) -> AsyncIterator[SubscriberInfo]:
        """Subscribers in the order of their names; `text` is a part of the name."""
        after: str | None = ""
        while after is not None:
            rows, after = await self._send(calls.subscriber_page(after, text))
            for row in rows:
                yield row

    async def delete_subscriber(self, name: str) -> None:
        """Delete a subscriber with its routes."""
        await self._send(calls.delete_subscriber(name))

    async def mute(self, name: str) -> SubscriberInfo:
        """Hold everything for a subscriber."""
        return await self._send(calls.change_subscriber(name, "mute"))

    async def unmute(self, name: str) -> SubscriberInfo:
        """Deliver again."""
        return await self._send(calls.change_subscriber(name, "unmute"))

    async def snooze(self, name: str, minutes: int) -> SubscriberInfo:
        """Hold everything for some minutes."""
        return await self._send(calls.change_subscriber(name, "snooze", {"minutes": minutes}))

    async def test_route(self, name: str, route: str | None = None) -> RouteTest:
        """Send a message by a route now, once."""
        return await self._send(calls.test_route(name, route))

    async def verify_route(self, name: str, route: str) -> RouteInfo:
        """Ask the receiver of a webhook whether it agrees."""
        return await self._send(calls.change_route(name, route, "verify"))

    async def rotate_secret(self, name: str, route: str) -> str:
        """A new secret of a webhook; for a day messages have both signatures."""
        return str((await self._send(calls.change_route(name, route, "rotate")))["secret"])

    async def enable_route(self, name: str, route: str) -> RouteInfo:
        """Use a route again that was disabled."""
        return await self._send(calls.change_route(name, route, "enable"))

    async def deliveries(
        self, *, subscriber: str | None = None, state: str | None = None
    ) -> AsyncIterator[DeliveryInfo]:
        """Deliveries, the newest first; `state` is pending, held, delivered or dead."""
        after: str | None = ""
        while after is not None:
            rows, after = await self._send(calls.delivery_page(after, subscriber, state))
            for row in rows:
                yield row

    async def delivery(self, id: str) -> DeliveryHistory:
        """One delivery with its latest tries and its event."""
        return await self._send(calls.get_delivery(id))

    async def replay(
        self, id: str | None = None, *, subscriber: str | None = None, before: datetime | None = None
    ) -> int:
        """Try dead letters again: one, those of a subscriber, or all; how many they are."""
        return await self._send(calls.replay(id, subscriber, before))

    async def feed(
        self,
        space: str,
        *,
        subscription: str | None = None,
        subscriber: str | None = None,
        after: int | str | None = None,
    ) -> AsyncIterator[FeedEvent]:
        """Matches as they come, each event once, whatever happens to the connection; see `Client.feed`."""
        reader, failures = FeedReader(after), 0
        while True:
            call = calls.feed(space, subscription, subscriber, reader.after)
            try:
                async with self._http.stream(
                    call.method, call.path, params=call.query, headers=call.headers, timeout=_SILENT_S
                ) as answer:
                    if answer.status_code != 200:
                        await answer.aread()
                        raise refusal(answer)
                    async for line in answer.aiter_lines():
                        failures = 0
                        for event in reader.take(line):
                            yield event
            except calls.BrokerError as error:
                if error.status not in (429, 503) or failures >= self._attempts:
                    raise
            except self._httpx.TransportError as error:
                if failures >= self._attempts:
                    raise WherecastError(f"the feed is broken: {error}") from error
            reader.broken()
            failures += 1
            await asyncio.sleep(wait_before(min(failures, 5), None, self._attempts + 2) or 0)
