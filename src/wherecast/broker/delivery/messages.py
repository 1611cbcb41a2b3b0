"""What is sent: a CloudEvent for programs, a title and a text for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import orjson
from jinja2 import TemplateError

from wherecast.broker.delivery.kinds.kind import OutgoingMessage
from wherecast.broker.delivery.records import Delivery, SubscriberRecord
from wherecast.broker.delivery.templates import render

_LONGEST_TITLE, _LONGEST_TEXT = 200, 16_384


def write_message(id: str, record: SubscriberRecord, members: Sequence[Delivery]) -> OutgoingMessage:
    """The message for one delivery, or the digest of several."""
    events = [_notification(one) for one in members]
    first = members[0]
    if first.message is None:
        title, text = _texts(record, events[0])
        kind, source, data = "wherecast.match", f"/v1/spaces/{quote(first.space)}", events[0]
    else:
        title, text = _digest_texts(record, events)
        kind, source, data = "wherecast.digest", "/v1/deliveries", {"notifications": events}
    time_ms = max(one.created_ms for one in members)
    cloud = {
        "specversion": "1.0",
        "id": id,
        "source": source,
        "type": kind,
        "subject": record.name,
        "time": _time(first, events[0]),
        "datacontenttype": "application/json",
        "data": {**data, "title": title, "text": text},
    }
    places = tuple((one.space, one.position) for one in members)
    return OutgoingMessage(id, record.tenant, record.name, places, time_ms, title, text, orjson.dumps(cloud))


def _notification(one: Delivery) -> dict[str, Any]:
    return {
        "delivery": one.id,
        "space": one.space,
        "position": one.position,
        "subscriptions": list(one.subscriptions),
        "event": orjson.loads(one.body),
    }


def _time(one: Delivery, notification: dict[str, Any]) -> str:
    found = notification["event"].get("time")
    if isinstance(found, str):
        return found
    from datetime import UTC, datetime  # noqa: PLC0415 - an event always has a time; this is for old logs

    return datetime.fromtimestamp(one.created_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _texts(record: SubscriberRecord, notification: dict[str, Any]) -> tuple[str, str]:
    envelope = notification["event"]
    values = {
        "subscriber": record.name,
        "space": notification["space"],
        "position": notification["position"],
        "subscriptions": notification["subscriptions"],
        "event": envelope.get("data", {}),
        "envelope": {name: value for name, value in envelope.items() if name != "data"},
    }
    title = _render(record.title, values) if record.title else _plain_title(notification)
    text = _render(record.text, values) if record.text else _plain_text(notification)
    return " ".join(title.split())[:_LONGEST_TITLE], text[:_LONGEST_TEXT]


def _render(template: str, values: dict[str, Any]) -> str:
    try:
        return render(template, values)
    except (TemplateError, ArithmeticError, TypeError, ValueError, LookupError, RecursionError) as error:
        # The event does not fit the template. The subscriber is told anyway.
        return f"[template: {error}] {json.dumps(values['event'], ensure_ascii=False, default=str)[:2_000]}"


def _plain_title(notification: dict[str, Any]) -> str:
    first, *others = notification["subscriptions"] or ["?"]
    return f"{notification['space']}: {first}" + (f" and {len(others)} more" if others else "")


def _plain_text(notification: dict[str, Any]) -> str:
    data = notification["event"].get("data", {})
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)[:500]}" for name, value in list(data.items())[:50]]
    names = ", ".join(notification["subscriptions"][:20])
    return "\n".join([*lines, "", f"matched {names} (event {notification['position']} of {notification['space']})"])


def _digest_texts(record: SubscriberRecord, events: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """Grouped by space and subscriptions, in the order of their first event."""
    groups: dict[tuple[str, str], list[str]] = {}
    for notification in events:
        key = (notification["space"], ", ".join(notification["subscriptions"][:20]))
        groups.setdefault(key, []).append(_texts(record, notification)[1].strip().replace("\n", "\n  "))
    parts, size = [], 0
    for (space, names), texts in groups.items():
        parts.append(f"{space}: {names} ({len(texts)})")
        for text in texts:
            size += len(text)
            if size > _LONGEST_TEXT:
                parts.append("…")
                break
            parts.append(f"- {text}")
    title = f"{len(events)} events" if len(events) > 1 else _texts(record, events[0])[0]
    return title, "\n".join(parts)[:_LONGEST_TEXT]
