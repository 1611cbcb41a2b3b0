"""Bodies of requests: read with a limit while they arrive, and turned into events or subscriptions.

Formats of events: JSON (an object or an array), NDJSON, an Arrow IPC stream, and CloudEvents (binary, structured, batched).
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.http import HTTPMessage, from_binary_event, from_structured_event
from cloudevents.core.exceptions import BaseCloudEventException
from cloudevents.core.formats.json import JSONFormat
from fastapi import Request

from wherecast.broker.problems import Problem

JSON, NDJSON, ARROW = "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"
CLOUD_EVENT, CLOUD_EVENTS = "application/cloudevents+json", "application/cloudevents-batch+json"


async def read_body(request: Request, limit: int, seconds: float) -> bytes:
    """The body, refused as soon as it is too large or takes too long."""
    told = request.headers.get("content-length", "")
    if told.isdigit() and int(told) > limit:
        raise too_large(limit)
    parts, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise too_large(limit)
                parts.append(part)
    except TimeoutError:
        raise Problem(408, "slow", f"the body took more than {seconds:g} s", headers={"Connection": "close"}) from None
    return b"".join(parts)


def too_large(limit: int) -> Problem:
    return Problem(
        413, "too-large", f"a body has at most {limit:,} bytes; send less at a time", headers={"Connection": "close"}
    )


def media_type(request: Request) -> str:
    return request.headers.get("content-type", JSON).split(";")[0].strip().lower() or JSON


class ReceivedEvent(NamedTuple):
    """An event as it came: its values, and the attributes of its envelope (id, source, type, subject, time)."""

    envelope: dict[str, Any]
    values: Mapping[str, object]


def read_events(request: Request, body: bytes, *, exact: bool) -> tuple[list[ReceivedEvent], bool]:
    """The events of a body, and whether it was a single one. `exact`: numbers with a point are read as decimals."""
    kind = media_type(request)
    if kind == CLOUD_EVENT:
        return [_of_cloud(lambda: from_structured_event(_message(request, body)))], True
    if kind == CLOUD_EVENTS:
        events = read_json(body, exact=exact)
        if not isinstance(events, list):
            raise _malformed("a batch of CloudEvents is an array")
        return [_of_cloud(partial(_batched, one)) for one in events], False
    if "ce-specversion" in request.headers:
        return [_of_cloud(lambda: from_binary_event(_message(request, body)))], True
    if kind == JSON:
        read = read_json(body, exact=exact)
        events = read if isinstance(read, list) else [read]
        return [ReceivedEvent({}, one) for one in events], not isinstance(read, list)
    if kind == NDJSON:
        return [ReceivedEvent({}, one) for one in json_lines(body, exact=exact)], False
    if kind == ARROW:
        return [ReceivedEvent({}, one) for table in arrow_tables(body) for one in table.to_pylist()], False
    raise unsupported(kind, [JSON, NDJSON, ARROW, CLOUD_EVENT, CLOUD_EVENTS])


def unsupported(kind: str, known: list[str]) -> Problem:
    return Problem(415, "media-type", f"{kind[:80]!r} is not understood; send one of {', '.join(known)}")


def read_json(body: bytes, *, exact: bool = False) -> Any:
    """JSON; a problem if it is none. `exact` takes longer, and keeps all digits of numbers."""
    try:
        return json.loads(body, parse_float=Decimal, parse_constant=_no_constant) if exact else orjson.loads(body)
    except (ValueError, RecursionError) as error:
        raise _malformed(f"the body is not JSON: {error}") from None


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def json_lines(body: bytes, *, exact: bool = False) -> list[Any]:
    """The values of NDJSON; empty lines are skipped."""
    found = []
    for number, line in enumerate(body.split(b"\n"), 1):
        if line.strip():
            try:
                found.append(read_json(line, exact=exact))
            except Problem as problem:
                raise _malformed(f"line {number}: {problem.detail}") from None
    return found


def arrow_tables(body: bytes) -> list[pa.Table]:
    """The record batches of an Arrow IPC stream, checked: what they say of themselves may be wrong."""
    try:
        with pa.ipc.open_stream(body) as reader:
            found = []
            _read_names(list(reader.schema))
            for batch in reader:
                batch.validate(full=True)
                found.append(pa.Table.from_batches([batch]))
            return found
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        raise _malformed(f"the body is not an Arrow IPC stream: {str(error)[:200]}") from None


def _read_names(fields: list[pa.Field]) -> list[str]:
    """All names of fields. They are decoded here, which raises UnicodeDecodeError where one is not UTF-8."""
    inner = [field.type.field(n) for field in fields for n in range(field.type.num_fields)]
    return [field.name for field in fields] + (_read_names(inner) if inner else [])


def _malformed(detail: str) -> Problem:
    return Problem(400, "malformed", detail)


# -- CloudEvents ----------------------------------------------------------------------------------------------------


def _message(request: Request, body: bytes) -> HTTPMessage:
    return HTTPMessage(dict(request.headers.items()), body)


def _batched(event: object) -> BaseCloudEvent:
    return JSONFormat().read(None, orjson.dumps(event, default=_as_json))


def _of_cloud(read: Callable[[], BaseCloudEvent]) -> ReceivedEvent:
    try:
        event = read()
    except (BaseCloudEventException, BaseExceptionGroup, ValueError, TypeError, AttributeError, KeyError) as error:
        raise _malformed(f"not a CloudEvent: {_reason(error)}") from None
    data = event.get_data()
    if isinstance(data, bytes | str):  # of a type that is not JSON, or JSON in Base64
        data = read_json(data if isinstance(data, bytes) else data.encode())
    envelope = {
        name: value for name, value in event.get_attributes().items() if name not in ("specversion", "datacontenttype")
    }
    return ReceivedEvent(envelope, {} if data is None else data)


def _reason(error: BaseException) -> str:
    nested = error
    while isinstance(nested, BaseExceptionGroup):
        nested = nested.exceptions[0]
    errors = getattr(nested, "errors", None)  # by attribute, in the SDK's own form
    if isinstance(errors, dict) and errors:
        return "; ".join(str(one) for many in errors.values() for one in many)[:300]
    return str(nested)[:300]


# -- events for the log ---------------------------------------------------------------------------------------------


def _as_json(value: object) -> object:
    """What JSON has no form for: decimals as texts, bytes in Base64."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, timedelta):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def write_line(envelope: dict[str, Any], values: Mapping[str, object]) -> bytes:
    """An event as the log has it: one line of JSON. Raises Problem if it has no JSON form."""
    try:
        line = orjson.dumps({**envelope, "data": values}, default=_as_json, option=_OPTIONS)
        if b"null" in line:  # perhaps a NaN, which the library writes like this
            line = orjson.dumps({**envelope, "data": _spelled(values)}, default=_as_json, option=_OPTIONS)
    except (TypeError, orjson.JSONEncodeError) as error:
        raise Problem(422, "event", f"the event cannot be written as JSON: {error}") from None
    return line


def _spelled(value: object) -> object:
    """A value with the doubles that JSON lacks as texts, as Spark's `to_json` writes them: NaN, Infinity, -Infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: _spelled(inner) for key, inner in value.items()}
    return [_spelled(inner) for inner in value] if isinstance(value, list | tuple) else value


_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z
