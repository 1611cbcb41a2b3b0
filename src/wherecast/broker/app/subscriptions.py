"""Subscriptions: create, get, list, replace, pause, resume, expire, delete; many at once; changes and export."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import ValidationError

from wherecast.broker.app.access import (
    IdempotencyKey,
    IfMatch,
    Reader,
    SpaceName,
    Subscriber,
    SubscriptionName,
    TheBroker,
    etag_of,
    find_space,
    once,
    versions_of,
)
from wherecast.broker.app.bodies import ARROW, JSON, NDJSON, arrow_tables, media_type, read_body, too_large, unsupported
from wherecast.broker.app.models import (
    BulkReport,
    ChangePage,
    SubscriptionIn,
    SubscriptionOut,
    SubscriptionPage,
    subscription_out,
    time_of,
    write_changed,
)
from wherecast.broker.broker import Broker, Space
from wherecast.broker.core import (
    Changed,
    ChangedMany,
    Condition,
    MoveSubscription,
    PutSubscription,
    PutSubscriptions,
    SubscriptionState,
)
from wherecast.broker.problems import Problem, not_found, problem_of
from wherecast.broker.store import audit, subscriptions
from wherecast.broker.store.spaces import find_space as find_stored
from wherecast.broker.store.subscriptions import Page
from wherecast.broker.writer import Repeated

router = APIRouter(prefix="/v1/spaces/{space}", tags=["subscriptions"])

#: Rows of a load that become one change, and rows that its report names.
_CHUNK, _REPORTED = 10_000, 1_000
#: What the audit log says of a single subscription.
_CHANGES = ("create", "replace", *(state.value for state in SubscriptionState))


async def _put(broker: Broker, space: Space, given: SubscriptionIn, id: str, condition: Condition) -> PutSubscription:
    filters = await broker.compute(lambda: space.engine.compiler.compile(given.filter))
    return given.to_put(id, int(filters.clause_ptr[-1]), condition)


def _answer(answer: Changed, status: int = 200) -> Response:
    row = answer.subscription
    body = json.dumps(subscription_out(row))
    return Response(body, status, {"ETag": etag_of(row.version)}, JSON)


@router.post("/subscriptions", response_model=SubscriptionOut, status_code=201)
async def create(
    request: Request,
    who: Subscriber,
    broker: TheBroker,
    name: SpaceName,
    given: SubscriptionIn,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Register a filter. The answer comes when it is on disk and live: every later event is matched against it."""
    space = await find_space(broker, who, name)
    put = await _put(broker, space, given, given.id or f"s-{secrets.token_hex(8)}", Condition(exists=False))
    key = once(idempotency_key, request, await request.body(), write_changed)
    answer = await broker.do(space, put, who.actor, key)
    if isinstance(answer, Repeated):
        body = json.loads(answer.answer)
        body.pop("created")
        headers = {"ETag": etag_of(body["version"]), "Idempotent-Replayed": "true"}
        return Response(json.dumps(body), 201, headers, JSON)
    assert isinstance(answer, Changed)
    return _answer(answer, 201)


@router.get("/subscriptions", response_model=SubscriptionPage)
async def list_subscriptions(
    who: Reader,
    broker: TheBroker,
    name: SpaceName,
    after: Annotated[str, Query(max_length=200, description="`next` of the page before.")] = "",
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    subscriber: Annotated[str | None, Query(max_length=200)] = None,
    label: Annotated[str | None, Query(max_length=401, description="name:value", examples=["team:desk-1"])] = None,
    text: Annotated[str | None, Query(max_length=200, description="Part of the id or of the filter.")] = None,
    state: Literal["active", "paused", "expired"] | None = None,
) -> dict[str, Any]:
    """Subscriptions in the order of their ids, a page at a time."""
    space = await find_space(broker, who, name)
    _refuse_nul(after, subscriber, label, text)
    pair = None
    if label is not None:
        key, colon, value = label.partition(":")
        if not colon:
            raise Problem(422, "label", "write a label as name:value")
        pair = (key, value)
    page = Page(after, limit + 1, subscriber, pair, text, None if state is None else SubscriptionState(state))
    rows = await broker.read(lambda c: subscriptions.list_page(c, space.tenant, space.space, page))
    following = rows[limit - 1].id if len(rows) > limit else None
    return {"subscriptions": [subscription_out(row) for row in rows[:limit]], "next": following}


def _refuse_nul(*texts: str | None) -> None:
    if any("\x00" in text for text in texts if text):
        raise Problem(422, "text", "a text has no NUL characters")


@router.get("/subscriptions/{id}", response_model=SubscriptionOut)
async def get(
    who: Reader,
    broker: TheBroker,
    name: SpaceName,
    id: SubscriptionName,
) -> Response:
    """One subscription; its ETag is its version."""
    space = await find_space(broker, who, name)
    _refuse_nul(id)
    row = await broker.read(lambda c: subscriptions.find_one(c, space.tenant, space.space, id))
    if row is None:
        raise not_found("subscription", id)
    return _answer(Changed(row))


@router.get("/subscriptions/{id}/history")
async def history(who: Reader, broker: TheBroker, name: SpaceName, id: SubscriptionName) -> list[dict[str, Any]]:
    """Who changed a subscription and how, the newest first; also of one that is deleted. Loads of many are not listed."""
    space = await find_space(broker, who, name)
    _refuse_nul(id)
    rows = await broker.read(lambda c: audit.list_of_subject(c, space.tenant, id, _CHANGES, _REPORTED))
    return [
        {
            "time": time_of(row["time_ms"]),
            "actor": row["actor"],
            "action": row["action"],
            "version": row["details"]["version"],
            "filter": row["details"].get("filter"),
        }
        for row in rows
        if row["details"].get("space") == name
    ]


@router.put("/subscriptions/{id}", response_model=SubscriptionOut, responses={201: {"model": SubscriptionOut}})
async def replace(
    who: Subscriber,
    broker: TheBroker,
    name: SpaceName,
    id: SubscriptionName,
    given: SubscriptionIn,
    if_match: IfMatch = None,
) -> Response:
    """Create a subscription, or replace it; with If-Match only if nobody else has changed it."""
    space = await find_space(broker, who, name)
    _refuse_nul(id)
    if given.id not in (None, id):
        raise Problem(422, "id", f"the path says {id!r:.80}, the body {given.id!r:.80}; leave the id out of the body")
    condition = Condition(True if if_match is not None else None, versions_of(if_match))
    answer = await broker.do(space, await _put(broker, space, given, id, condition), who.actor)
    assert isinstance(answer, Changed)
    return _answer(answer, 201 if answer.created else 200)


async def _move(
    who: Subscriber, broker: Broker, name: str, id: str, to: SubscriptionState, if_match: str | None
) -> Changed:
    space = await find_space(broker, who, name)
    _refuse_nul(id)
    answer = await broker.do(space, MoveSubscription(id, to, Condition(True, versions_of(if_match))), who.actor)
    assert isinstance(answer, Changed)
    return answer


@router.post("/subscriptions/{id}/pause", response_model=SubscriptionOut)
async def pause(
    who: Subscriber, broker: TheBroker, name: SpaceName, id: SubscriptionName, if_match: IfMatch = None
) -> Response:
    """Stop matching a subscription until it is resumed."""
    return _answer(await _move(who, broker, name, id, SubscriptionState.PAUSED, if_match))


@router.post("/subscriptions/{id}/resume", response_model=SubscriptionOut)
async def resume(
    who: Subscriber, broker: TheBroker, name: SpaceName, id: SubscriptionName, if_match: IfMatch = None
) -> Response:
    """Match a subscription again."""
    return _answer(await _move(who, broker, name, id, SubscriptionState.ACTIVE, if_match))


@router.post("/subscriptions/{id}/expire", response_model=SubscriptionOut)
async def expire(
    who: Subscriber, broker: TheBroker, name: SpaceName, id: SubscriptionName, if_match: IfMatch = None
) -> Response:
    """End a subscription now; it stays to be looked at until it is deleted."""
    return _answer(await _move(who, broker, name, id, SubscriptionState.EXPIRED, if_match))


@router.delete("/subscriptions/{id}", status_code=204)
async def delete(
    who: Subscriber, broker: TheBroker, name: SpaceName, id: SubscriptionName, if_match: IfMatch = None
) -> Response:
    """Delete a subscription. Feeds still have what it matched before."""
    await _move(who, broker, name, id, SubscriptionState.DELETED, if_match)
    return Response(status_code=204)


# -- many at once ---------------------------------------------------------------------------------------------------------

_BULK = {
    "requestBody": {
        "required": True,
        "content": {
            NDJSON: {"schema": {"type": "string"}, "example": '{"id": "a", "filter": "price < 10"}\n'},
            ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


@router.post("/subscriptions/bulk", response_model=BulkReport, openapi_extra=_BULK)
async def load(request: Request, who: Subscriber, broker: TheBroker, name: SpaceName) -> dict[str, Any]:
    """Create or replace many: NDJSON, or an Arrow stream with columns id and filter (and the other fields).

    Rows that are refused are listed with the reason, the others are live. Rows become live in chunks: if the connection breaks,
    send the same again.
    """
    space = await find_space(broker, who, name)
    report: dict[str, Any] = {"created": 0, "replaced": 0, "version": space.engine.version, "quarantined": []}
    refused, first = 0, 0
    async for rows in _chunks(request, broker):
        puts, wrong = await broker.compute(partial(_read_rows, space, rows, first))
        first += len(rows)
        if puts:
            answer = await broker.do(space, PutSubscriptions(puts), who.actor)
            assert isinstance(answer, ChangedMany)
            report["created"] += answer.created
            report["replaced"] += answer.replaced
            report["version"] = answer.version
            wrong += answer.refused
        refused += len(wrong)
        report["quarantined"] += [
            {"row": row, "id": id, "problem": problem.to_dict()}
            for row, id, problem in sorted(wrong, key=lambda w: w[0])[: _REPORTED - len(report["quarantined"])]
        ]
    broker.metrics.refused.labels("subscription").inc(refused)
    return {**report, "refused": refused}


async def _chunks(request: Request, broker: Broker) -> AsyncIterator[list[Any]]:
    kind, settings = media_type(request), broker.settings
    if kind == ARROW:
        body = await read_body(request, settings.max_body_bytes, settings.body_timeout_s)
        for table in arrow_tables(body):
            for start in range(0, table.num_rows, _CHUNK):
                yield table.slice(start, _CHUNK).to_pylist()
    elif kind == NDJSON:
        rows: list[Any] = []
        async for line in _lines(request, settings.max_event_bytes, settings.body_timeout_s):
            rows.append(line)
            if len(rows) == _CHUNK:
                yield rows
                rows = []
        if rows:
            yield rows
    else:
        raise unsupported(kind, [NDJSON, ARROW])


async def _lines(request: Request, limit: int, seconds: float) -> AsyncIterator[bytes]:
    """Lines of a body as they arrive; a line has a limit, the body has none."""
    rest = b""
    parts = aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout(seconds):
                part = await anext(parts)
        except StopAsyncIteration:
            break
        except TimeoutError:
            raise Problem(408, "slow", f"nothing came for {seconds:g} s", headers={"Connection": "close"}) from None
        *whole, rest = (rest + part).split(b"\n")
        if len(rest) > limit:
            raise too_large(limit)
        for line in whole:
            if line.strip():
                yield line
    if rest.strip():
        yield rest


def _read_rows(
    space: Space, rows: Sequence[Any], first: int
) -> tuple[list[tuple[int, PutSubscription]], list[tuple[int, str | None, Problem]]]:
    """Rows as changes, and those that are wrong."""
    wrong: list[tuple[int, str | None, Problem]] = []
    read: list[tuple[int, SubscriptionIn]] = []
    for number, row in enumerate(rows, first):
        try:
            given = SubscriptionIn.model_validate_json(row) if isinstance(row, bytes) else _of_columns(row)
            if given.id is None:
                raise Problem(422, "id", "a row of a load needs an id")
            read.append((number, given))
        except ValidationError as error:
            id = row.get("id") if isinstance(row, dict) else None
            wrong.append((number, id if isinstance(id, str) else None, Problem(422, "invalid", _first_error(error))))
        except Problem as problem:
            wrong.append((number, None, problem))
    compiled = space.engine.compiler.compile_many([given.filter for _, given in read])
    bad = {error.row: error.error for error in compiled.errors}
    sizes = np.diff(compiled.filters.clause_ptr)
    puts = []
    for place, (number, given) in enumerate(read):
        assert given.id is not None
        if place in bad:
            wrong.append((number, given.id, problem_of(bad[place])))
            continue
        try:
            puts.append((number, given.to_put(given.id, int(sizes[compiled.filter_of[place]]), Condition())))
        except Problem as problem:
            wrong.append((number, given.id, problem))
    return puts, wrong


def _of_columns(row: dict[str, Any]) -> SubscriptionIn:
    fields = {name: value for name, value in row.items() if value is not None}
    if isinstance(fields.get("labels"), list):  # a map of Arrow
        fields["labels"] = dict(fields["labels"])
    if isinstance(fields.get("id"), int):
        fields["id"] = str(fields["id"])
    return SubscriptionIn.model_validate(fields)


def _first_error(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'row'}: {first['msg']}"


# -- changes and export -----------------------------------------------------------------------------------------------


@router.get("/changes", response_model=ChangePage)
async def changes(
    who: Reader,
    broker: TheBroker,
    name: SpaceName,
    after: Annotated[int, Query(ge=0, lt=1 << 53, description="A version.")] = 0,
    limit: Annotated[int, Query(ge=1, le=100_000)] = 1_000,
) -> dict[str, Any]:
    """What changed since a version: each subscription once, as it is now; deleted ones have the state `deleted`.

    A page may have more than `limit` rows: all changes of one version come together.
    """
    space = await find_space(broker, who, name)

    def query(connection: Any) -> tuple[int, list[Any], int]:
        stored = find_stored(connection, space.tenant, space.name)
        purged = subscriptions.purged_to(connection, space.tenant, space.space)
        rows = subscriptions.changed_since(connection, space.tenant, space.space, after, limit)
        if len(rows) == limit:  # the rest of the last version, too
            last = subscriptions.of_version(connection, space.tenant, space.space, rows[-1].version)
            rows = [row for row in rows if row.version < rows[-1].version] + last
        return purged, rows, stored.version if stored else 0

    purged, rows, version = await broker.read(query)
    if 0 < after < purged:
        raise Problem(
            410,
            "gone",
            f"deletions up to version {purged} are not kept; begin again with an export",
            {"version": purged},
        )
    full = len(rows) >= limit
    return {"changes": [subscription_out(row) for row in rows], "version": rows[-1].version if full else version}


@router.get("/export", response_class=StreamingResponse, responses={200: {"content": {NDJSON: {}}}})
async def export(who: Reader, broker: TheBroker, name: SpaceName) -> StreamingResponse:
    """All subscriptions as NDJSON. The header Wherecast-Version is the version to follow changes from."""
    space = await find_space(broker, who, name)
    stored = await broker.read(lambda c: find_stored(c, space.tenant, space.name))
    version = stored.version if stored else 0

    def lines() -> Iterator[bytes]:
        with broker.database.reading() as connection:
            for rows in _some(subscriptions.every_live(connection, space.tenant, space.space), 1_000):
                yield b"".join(json.dumps(subscription_out(row)).encode() + b"\n" for row in rows)

    return StreamingResponse(lines(), media_type=NDJSON, headers={"Wherecast-Version": str(version)})


def _some(rows: Iterable[Any], count: int) -> Iterator[list[Any]]:
    found = []
    for row in rows:
        found.append(row)
        if len(found) == count:
            yield found
            found = []
    if found:
        yield found
