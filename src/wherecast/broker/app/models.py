"""What requests and answers look like in JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from wherecast.broker.app.access import NAME
from wherecast.broker.core import (
    Changed,
    Condition,
    PublishedEvents,
    PutSubscription,
    StoredSubscription,
    SubscriptionState,
)
from wherecast.broker.problems import Problem
from wherecast.broker.store.spaces import StoredSpace

_FILTER = "symbol = 'IBM' AND price < 120"


def _storable(text: str) -> str:
    """Texts go into a database, which takes neither a NUL nor half a surrogate pair."""
    if "\x00" in text or any("\ud800" <= c <= "\udfff" for c in text):
        raise ValueError("a text has no NUL characters and no lone surrogates")
    return text


Text = Annotated[str, AfterValidator(_storable)]
Id = Annotated[Text, Field(min_length=1, max_length=200)]
Millis = Annotated[int, Field(ge=0, lt=1 << 53)]


class GivenModel(BaseModel):
    """What somebody sends: a field that is not known is refused."""

    model_config = ConfigDict(extra="forbid")


class SubscriptionIn(GivenModel):
    """A subscription as its subscriber writes it."""

    filter: Annotated[Text, Field(max_length=65_536, examples=[_FILTER], description="A SQL condition.")]
    id: Annotated[Id | None, Field(examples=["cheap-ibm"], description="Left out: the broker makes one.")] = None
    subscriber: Annotated[Id | None, Field(examples=["alice"], description="Who is told; left out: the id.")] = None
    labels: Annotated[
        dict[Id, Annotated[Text, Field(max_length=200)]], Field(max_length=32, examples=[{"team": "desk-1"}])
    ] = {}
    expires_at: Annotated[datetime | None, Field(examples=[None])] = None
    paused: bool = False

    def to_put(self, id: str, clauses: int, condition: Condition) -> PutSubscription:
        return PutSubscription(
            id,
            self.filter,
            self.subscriber,
            json.dumps(self.labels, ensure_ascii=False, separators=(",", ":"), sort_keys=True),
            SubscriptionState.PAUSED if self.paused else SubscriptionState.ACTIVE,
            None if self.expires_at is None else to_ms(self.expires_at),
            clauses,
            condition,
        )


def to_ms(time: datetime) -> int:
    time = time.replace(tzinfo=UTC) if time.tzinfo is None else time
    try:
        return int(time.timestamp() * 1000)
    except (OverflowError, ValueError):
        raise Problem(422, "time", f"{time} is out of range") from None


def time_of(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class SubscriptionOut(BaseModel):
    """A subscription. It is matched from `version` of the space on, while its state is active."""

    id: str
    subscriber: str
    filter: str
    labels: dict[str, str]
    state: str
    expires_at: str | None
    version: int
    created_at: str
    updated_at: str


def subscription_out(row: StoredSubscription) -> dict[str, Any]:
    return {
        "id": row.id,
        "subscriber": row.subscriber,
        "filter": row.filter,
        "labels": json.loads(row.labels),
        "state": row.state.value,
        "expires_at": None if row.expires_ms is None else time_of(row.expires_ms),
        "version": row.version,
        "created_at": time_of(row.created_ms),
        "updated_at": time_of(row.updated_ms),
    }


def write_changed(answer: Changed) -> str:
    return json.dumps({"created": answer.created, **subscription_out(answer.subscription)})


class SubscriptionPage(BaseModel):
    """Some subscriptions; `next` is the `after` of the next page, null on the last one."""

    subscriptions: list[SubscriptionOut]
    next: str | None


class ChangePage(BaseModel):
    """Subscriptions by their last change, deleted ones included; ask again after `version`."""

    changes: list[SubscriptionOut]
    version: int


class QuarantinedRow(BaseModel):
    row: int
    id: str | None
    problem: dict[str, Any]


class BulkReport(BaseModel):
    """What became of the rows of a load; `quarantined` names the first thousand of those that were refused."""

    created: int
    replaced: int
    version: int
    refused: int
    quarantined: list[QuarantinedRow]


class RefusedEvent(BaseModel):
    row: int
    detail: str


class PublishReport(BaseModel):
    """Events that are durable now, at consecutive positions unless some were refused, and those that were not taken."""

    accepted: int
    positions: list[int]
    ids: list[str]
    matches: int
    version: int
    refused: list[RefusedEvent]


class MatchedEventIn(GivenModel):
    """An event that was matched elsewhere, and the subscriptions that it reached."""

    event: Annotated[dict[Text, Any], Field(examples=[{"symbol": "IBM", "price": 119.5}])]
    subscriptions: Annotated[list[Text], Field(max_length=1_000_000, examples=[["cheap-ibm"]])]


class HandOverReport(BaseModel):
    """Events that are durable now; `unknown` are matches of subscriptions that are gone or not active any more."""

    accepted: int
    positions: list[int]
    matches: int
    unknown: int
    version: int


class SpaceIn(GivenModel):
    name: Annotated[str, Field(pattern=NAME, examples=["quotes"])]
    schema_: Annotated[
        dict[Text, Any], Field(alias="schema", examples=[{"symbol": "string", "price": "double"}], max_length=10_000)
    ]
    retention_ms: Millis | None = None
    retention_bytes: Millis | None = None


class SpaceChange(GivenModel):
    """Attributes to add, and how long events are kept."""

    schema_: Annotated[
        dict[Text, Any] | None, Field(alias="schema", examples=[{"volume": "bigint"}], max_length=10_000)
    ] = None
    retention_ms: Millis | None = None
    retention_bytes: Millis | None = None


class SpaceOut(BaseModel):
    name: str
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    schema_version: int
    version: int
    subscriptions: int
    earliest_position: int
    next_position: int
    retention_ms: int | None
    retention_bytes: int | None
    created_at: str


def space_out(space: StoredSpace) -> dict[str, Any]:
    return {
        "name": space.name,
        "schema": json.loads(space.schema),
        "schema_version": space.schema_version,
        "version": space.version,
        "subscriptions": space.subscriptions,
        "earliest_position": space.log_start,
        "next_position": space.head,
        "retention_ms": space.retention_ms,
        "retention_bytes": space.retention_bytes,
        "created_at": time_of(space.created_ms),
    }


class FilterIn(GivenModel):
    filter: Annotated[Text, Field(max_length=65_536, examples=[_FILTER])]


class FiltersIn(GivenModel):
    filters: Annotated[
        dict[Id, Annotated[Text, Field(max_length=65_536)]], Field(max_length=1_000, examples=[{"a": _FILTER}])
    ]


class MatchIn(GivenModel):
    event: Annotated[dict[str, Any], Field(examples=[{"symbol": "IBM", "price": 119.5}])]
    explain: Annotated[list[Id], Field(max_length=100, description="Subscriptions to explain.")] = []
    limit: Annotated[int, Field(ge=0, le=100_000)] = 1_000


class QuotasIn(GivenModel):
    subscriptions: Millis = 10_000_000
    clauses: Millis = 40_000_000
    feeds: Millis = 10_000
    spaces: Millis = 1_000


class TenantIn(GivenModel):
    tenant: Annotated[str, Field(pattern=NAME, examples=["acme"])]
    quotas: QuotasIn = QuotasIn()


class TokenIn(GivenModel):
    name: Annotated[Text, Field(min_length=1, max_length=200, examples=["feed reader"])]
    scopes: Annotated[list[str], Field(min_length=1, max_length=5, examples=[["read"]])]
    expires_at: Annotated[datetime | None, Field(examples=[None])] = None

    @property
    def expires_ms(self) -> int | None:
        return None if self.expires_at is None else to_ms(self.expires_at)


class TokenOut(BaseModel):
    token_id: str
    name: str
    scopes: list[str]
    created_at: str
    expires_at: str | None
    secret: Annotated[str | None, Field(description="Told once, when the token is made.")] = None


def published_out(answer: PublishedEvents, ids: list[str], refused: list[tuple[int, str]]) -> dict[str, Any]:
    return {
        "accepted": len(answer.positions),
        "positions": answer.positions,
        "ids": ids,
        "matches": answer.matches,
        "version": answer.version,
        "refused": [{"row": row, "detail": detail} for row, detail in sorted(refused)],
    }
