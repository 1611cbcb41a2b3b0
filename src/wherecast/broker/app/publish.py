"""Publish events, and match one without publishing it."""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from wherecast.broker.app.access import IdempotencyKey, Publisher, Reader, SpaceName, TheBroker, find_space, once
from wherecast.broker.app.bodies import (
    ARROW,
    CLOUD_EVENT,
    CLOUD_EVENTS,
    JSON,
    NDJSON,
    ReceivedEvent,
    json_lines,
    media_type,
    read_body,
    read_events,
    read_json,
    unsupported,
    write_line,
)
from wherecast.broker.app.models import HandOverReport, MatchedEventIn, MatchIn, PublishReport, published_out
from wherecast.broker.broker import Broker
from wherecast.broker.core import EventsIn, PublishedEvents, PublishEvents, TakeMatches
from wherecast.broker.engines import SpaceEngine
from wherecast.broker.problems import Problem
from wherecast.broker.security import Principal
from wherecast.broker.settings import Settings
from wherecast.broker.store import subscriptions
from wherecast.broker.writer import Repeated
from wherecast.engine.explain import NO_VALUE, Explanation, PredicateOutcome
from wherecast.language.events.events import EventBatch

router = APIRouter(prefix="/v1/spaces/{space}", tags=["events"])

#: Bodies above this are read in a thread.
_LARGE = 1 << 16
#: Ids of events without one: random for the process, then counted.
_PROCESS, _REQUESTS = secrets.token_hex(8), itertools.count()

_EXAMPLE = {"symbol": "IBM", "price": 119.5}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": {"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]},
                "examples": {"one": {"value": _EXAMPLE}, "batch": {"value": [_EXAMPLE, {"symbol": "A", "price": 7}]}},
            },
            NDJSON: {"schema": {"type": "string"}},
            ARROW: {"schema": {"type": "string", "format": "binary"}},
            CLOUD_EVENT: {"schema": {"type": "object"}},
            CLOUD_EVENTS: {"schema": {"type": "array", "items": {"type": "object"}}},
        },
    }
}


class Prepared(NamedTuple):
    """Events that fit the schema, with their ids and rows in the request, and those that do not."""

    events: EventsIn
    ids: list[str]
    rows: list[int]
    refused: list[tuple[int, str]]


def new_envelopes() -> Iterator[dict[str, Any]]:
    """An id and the time for each event of a request, where it brings none."""
    prefix, time = f"{_PROCESS}-{next(_REQUESTS)}", datetime.now(UTC).isoformat(timespec="milliseconds")
    return ({"id": f"{prefix}-{n}", "time": f"{time[:-6]}Z"} for n in itertools.count())


def prepare(engine: SpaceEngine, received: list[ReceivedEvent], max_event_bytes: int) -> Prepared:
    """Check events against the schema, all attributes, and write their lines for the log."""
    rows, errors = engine.check([event.values for event in received])
    refused = [(error.row or 0, str(error)) for error in errors]
    found = Prepared(EventsIn([], []), [], [], refused)
    envelopes = new_envelopes()
    for row in rows:
        envelope, values = received[row]
        envelope = {**next(envelopes), **envelope}
        try:
            line = write_line(envelope, values)
        except Problem as problem:
            refused.append((row, problem.detail))
            continue
        if len(line) > max_event_bytes:
            refused.append((row, f"the event has {len(line):,} bytes, at most {max_event_bytes:,} are taken"))
            continue
        found.events.lines.append(line)
        found.events.values.append(values)
        found.ids.append(str(envelope["id"]))
        found.rows.append(row)
    return found


@router.post("/publish", response_model=PublishReport, openapi_extra=_BODY, status_code=200)
async def publish(
    request: Request, who: Publisher, broker: TheBroker, name: SpaceName, idempotency_key: IdempotencyKey = None
) -> Response:
    """Publish one event, a batch, or CloudEvents. The answer comes when they are on disk.

    Events of a batch that do not fit the schema are refused with the reason, the others are taken.
    """
    return await publish_body(request, broker, who, name, idempotency_key)


async def publish_body(request: Request, broker: Broker, who: Principal, name: str, key: str | None) -> Response:
    """Publish what the body of a request has. Raises Problem."""
    with broker.metrics.seconds.labels("publish").time():
        space = await find_space(broker, who, name)
        body = await read_body(request, broker.settings.max_body_bytes, broker.settings.body_timeout_s)

        def read() -> tuple[Prepared, bool]:
            received, is_single = read_events(request, body, exact=space.engine.is_exact)
            if len(received) > broker.settings.max_batch_events:
                most = broker.settings.max_batch_events
                raise Problem(413, "too-large", f"{len(received):,} events, at most {most:,} are taken at a time")
            return prepare(space.engine, received, broker.settings.max_event_bytes), is_single

        prepared, is_single = await broker.compute(read) if len(body) > _LARGE else read()
        broker.event_rates.take(who.tenant, len(prepared.ids))
        if prepared.refused:
            broker.metrics.refused.labels("event").inc(len(prepared.refused))
            if is_single or not prepared.ids:
                raise Problem(422, "event", prepared.refused[0][1], {"refused": len(prepared.refused)})

        def write(answer: PublishedEvents) -> str:
            late = [(prepared.rows[row], detail) for row, detail in answer.refused]
            gone = {row for row, _ in answer.refused}
            ids = [id for row, id in enumerate(prepared.ids) if row not in gone]
            return json.dumps(published_out(answer, ids, prepared.refused + late))

        if not prepared.ids:  # an empty batch
            return Response(write(PublishedEvents([], 0, space.engine.version, [])), media_type=JSON)
        answer = await broker.do(space, PublishEvents(prepared.events), who.actor, once(key, request, body, write))
        if isinstance(answer, Repeated):
            return Response(answer.answer, media_type=JSON, headers={"Idempotent-Replayed": "true"})
        assert isinstance(answer, PublishedEvents)
        if answer.refused and not answer.positions:
            raise Problem(422, "event", answer.refused[0][1])
        return Response(write(answer), media_type=JSON)


_MATCHED = {"event": _EXAMPLE, "subscriptions": ["cheap-ibm"]}
_MATCHES = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {"schema": {"type": "array", "items": {"type": "object"}}, "example": [_MATCHED]},
            NDJSON: {"schema": {"type": "string"}},
        },
    }
}


@router.post("/matches", response_model=HandOverReport, openapi_extra=_MATCHES)
async def take_matches(
    request: Request, who: Publisher, broker: TheBroker, name: SpaceName, idempotency_key: IdempotencyKey = None
) -> Response:
    """Hand over events that were matched elsewhere, by Spark: they get into the log, and to feeds and deliveries, as if matched here.

    With an idempotency key a batch that comes again changes nothing. Matches of subscriptions that are gone or not active are
    left out and counted.
    """
    space = await find_space(broker, who, name)
    body = await read_body(request, broker.settings.max_body_bytes, broker.settings.body_timeout_s)
    command = await broker.compute(lambda: _read_matches(media_type(request), body, broker.settings))
    broker.event_rates.take(who.tenant, len(command.lines))
    told = sum(len(set(ids)) for ids in command.ids)

    def write(answer: PublishedEvents) -> str:
        report = HandOverReport(
            accepted=len(answer.positions),
            positions=answer.positions,
            matches=answer.matches,
            unknown=told - answer.matches,
            version=answer.version,
        )
        return report.model_dump_json()

    answer = await broker.do(space, command, who.actor, once(idempotency_key, request, body, write))
    if isinstance(answer, Repeated):
        return Response(answer.answer, media_type=JSON, headers={"Idempotent-Replayed": "true"})
    assert isinstance(answer, PublishedEvents)
    return Response(write(answer), media_type=JSON)


def _read_matches(kind: str, body: bytes, settings: Settings) -> TakeMatches:
    if kind not in (JSON, NDJSON):
        raise unsupported(kind, [JSON, NDJSON])
    given = json_lines(body) if kind == NDJSON else read_json(body)
    if not isinstance(given, list) or len(given) > settings.max_batch_events:
        raise Problem(422, "matches", f"send an array or lines of at most {settings.max_batch_events:,} events")
    found, envelopes = TakeMatches([], []), new_envelopes()
    for row, one in enumerate(given):
        try:
            event = MatchedEventIn.model_validate(one)
        except ValidationError as error:
            first = error.errors()[0]
            at = ".".join(map(str, (row, *first["loc"])))
            raise Problem(422, "invalid", f"{at}: {first['msg']}", {"row": row}) from None
        found.lines.append(write_line(next(envelopes), event.event))
        found.ids.append(event.subscriptions)
    return found


@router.post("/match")
async def match(who: Reader, broker: TheBroker, name: SpaceName, asked: MatchIn) -> dict[str, Any]:
    """Which subscriptions an event would reach, and why some would get it or not. Nothing is published."""
    space = await find_space(broker, who, name)
    engine = space.engine

    def work() -> list[int]:
        EventBatch.read(engine.schema, [asked.event])  # all attributes, not only those that filters use
        return sorted(map(int, engine.engine.match(asked.event)))

    numbers = await broker.compute(work)
    shown = numbers[: asked.limit]
    ids = await broker.read(lambda c: subscriptions.ids_of_numbers(c, space.tenant, space.space, shown))
    wanted = await broker.read(lambda c: subscriptions.find_many(c, space.tenant, space.space, asked.explain))
    explained: dict[str, Any] = {}
    for id in asked.explain:
        row = wanted.get(id)
        if row is None:
            explained[id] = {"matches": False, "text": "there is no such subscription", "clauses": []}
        elif row.number not in engine.engine:
            explained[id] = {"matches": False, "text": f"the subscription is {row.state.value}", "clauses": []}
        else:
            explained[id] = _explained(engine.engine.explain(asked.event, row.number))
    found = [ids[number] for number in shown if number in ids]
    return {"matches": len(numbers), "subscriptions": found, "version": engine.version, "explanations": explained}


def _explained(explanation: Explanation) -> dict[str, Any]:
    clauses = [
        {"holds": clause.holds, "predicates": [_predicate(p) for p in clause.predicates]}
        for clause in explanation.clauses
    ]
    return {"matches": explanation.matches, "text": str(explanation), "clauses": clauses}


def _predicate(outcome: PredicateOutcome) -> dict[str, Any]:
    value = None if outcome.value is NO_VALUE or outcome.value is None else repr(outcome.value)
    parts = [_predicate(part) for part in outcome.parts]
    return {"predicate": outcome.predicate, "value": value, "holds": outcome.holds, "parts": parts}
